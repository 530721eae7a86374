"""The ``rangeland`` command as a process, for a task (may block) and a trigger (may not).

The process leads its own process group, so that ending it reaches its JVM and nothing else.
It is first asked to end (SIGTERM: it then reports the state of the run), and killed after a
while. Both are safe, since a landing is complete or absent. No Airflow here.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import IO

GRACE_S = 20.0
POLL_S = 0.05


class Command:
    """A running command, started by the constructor. Raises OSError if it cannot be started.
    ``variables`` are added to its environment."""

    def __init__(
        self, arguments: Sequence[str], directory: str, variables: Mapping[str, str] | None = None
    ) -> None:
        self.stopped = False
        # A file, since stdout is not read while stderr is followed. Closed by `follow`.
        self._stdout = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")  # noqa: SIM115
        try:
            self._process = subprocess.Popen(
                arguments,
                cwd=directory,
                env={**os.environ, **(variables or {})},
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

    def follow(self, on_line: Callable[[str], None]) -> tuple[int, str]:
        """Passes each line of stderr to ``on_line``; returns exit code and stdout at the end.

        However this ends, the process is gone afterwards."""
        assert self._process.stderr is not None
        try:
            with self._process.stderr:
                for line in self._process.stderr:
                    on_line(line.rstrip())
            while self._process.poll() is None:
                time.sleep(POLL_S)
            self._stdout.seek(0)
            return self._process.returncode, self._stdout.read()
        finally:
            self.stop()
            self._stdout.close()

    def stop(self) -> None:
        """Asks it to end, waits, and kills what is left of its group.

        Safe in signal handlers: ``Popen.wait`` would wait for a lock that the interrupted code
        may hold."""
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
    """Exit code, stdout and stderr of a short command, without blocking the event loop.

    Raises TimeoutError. After a timeout or cancellation, the process is gone."""
    # Files, not pipes: a pipe stays open as long as a child of the command holds it, and asyncio
    # would keep the ended process until the event loop ends.
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
    """Waits until a killed process is gone, even if this task is cancelled meanwhile."""
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
