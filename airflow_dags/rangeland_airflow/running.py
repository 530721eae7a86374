"""The ``rangeland`` command as a process, for a task (which waits) and a trigger (which may not).

The process leads a group of its own, so that ending it reaches its JVM and nobody else.
It is asked to end first (SIGTERM: it then says how things stand) and killed after a while;
either is safe, since a landing is whole or not there. No Airflow here.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import IO

GRACE_S = 20.0
POLL_S = 0.05


class Command:
    """A command under way; started by the constructor. Raises OSError if it cannot be."""

    def __init__(self, arguments: Sequence[str], directory: str) -> None:
        self.stopped = False
        # A file, since nobody reads stdout while stderr is followed. Closed by `follow`.
        self._stdout = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")  # noqa: SIM115
        try:
            self._process = subprocess.Popen(
                arguments,
                cwd=directory,
                stdin=subprocess.DEVNULL,
                stdout=self._stdout,
                stderr=subprocess.PIPE,
                text=True,
                encoding="utf-8",
                errors="replace",
                start_new_session=True,
            )
        except OSError:
            self._stdout.close()
            raise

    def follow(self, tell: Callable[[str], None]) -> tuple[int, str]:
        """Tells each line of stderr as it comes; exit code and stdout once it has ended.

        However this is left, the process is gone."""
        assert self._process.stderr is not None
        try:
            with self._process.stderr:
                for line in self._process.stderr:
                    tell(line.rstrip())
            while self._process.poll() is None:
                time.sleep(POLL_S)
            self._stdout.seek(0)
            return self._process.returncode, self._stdout.read()
        finally:
            self.stop()
            self._stdout.close()

    def stop(self) -> None:
        """Asks it to end, waits, and kills what is left of its group.

        Made for signal handlers too: ``Popen.wait`` would wait for a lock that the code it
        has interrupted may hold."""
        if self._process.poll() is not None:
            return
        self.stopped = True
        self._process.terminate()
        self._ends_within(GRACE_S)
        _kill_group(self._process.pid)
        self._ends_within(GRACE_S)

    def _ends_within(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while self._process.poll() is None and time.monotonic() < deadline:
            time.sleep(POLL_S)


async def ask(arguments: Sequence[str], directory: str, timeout_s: float) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of a short command, without holding up the event loop.

    Raises TimeoutError. Cancelled or late, the process is gone."""
    # Files, not pipes: a pipe stays open as long as a child of the command holds it, and asyncio
    # would keep the ended process until the event loop is gone.
    with tempfile.TemporaryFile() as stdout, tempfile.TemporaryFile() as stderr:
        process = await asyncio.create_subprocess_exec(
            *arguments,
            cwd=directory,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            start_new_session=True,
        )
        try:
            code = await asyncio.wait_for(process.wait(), timeout_s)
        finally:
            if process.returncode is None:
                _kill_group(process.pid)
                await _wait_through_cancellations(process)
        return code, _read(stdout), _read(stderr)


async def _wait_through_cancellations(process: asyncio.subprocess.Process) -> None:
    """Until a killed process is gone, however often this task is cancelled meanwhile."""
    ended = asyncio.ensure_future(process.wait())
    cancelled: asyncio.CancelledError | None = None
    while not ended.done():
        try:
            await asyncio.shield(ended)
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled


def _read(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode(errors="replace")


def _kill_group(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
