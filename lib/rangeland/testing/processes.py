"""Child processes: start, wait, stop, kill, pause, and never leave one behind.

Each process leads its own session and process group, so that signals reach only it and its
children, and Ctrl-C in a terminal does not reach it. Its output goes to a log file, and errors
about the process contain the last lines.

There are three levels of cleanup: the context manager, `atexit`, and, for a Python process that was
killed, the guard (see `guard.py`). A process waits for a word on its stdin before it executes the
real program, so the guard knows every process that runs.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Self

from rangeland.errors import Unreachable, UsageError
from rangeland.testing import guard
from rangeland.testing.ports import is_listening

PATIENCE_S = 300
"""How long to wait for an event that must happen. A limit that an idle machine nearly reaches would
fail on a busy one; this one only prevents a test from hanging forever."""

TAIL_LINES = 15
_TELLING = re.compile(r"\b(FATAL|ERROR|Caused by)\b|Exception\b")
_POLL_S = 0.05
# The program replaces the shell once the word has arrived; if the pipe closes instead, the parent
# is dead and nobody needs the process.
_WAIT_FOR_WORD = 'read -r word || exit 1; exec "$@" </dev/null'


class Process:
    """A running program, started by the constructor. Its output is appended to ``log``."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        *,
        log: Path,
        environment: Mapping[str, str] | None = None,
        directory: Path | None = None,
    ) -> None:
        if shutil.which(command[0]) is None:
            raise UsageError(
                f"{name} was not started",
                why=f"{command[0]} is not a program",
                do="install it, or put it on the PATH",
            )
        self.name = name
        self.log = log
        self._owner = os.getpid()
        with log.open("ab") as output:
            self._log_start = output.tell()
            self._popen = subprocess.Popen(
                ["/bin/sh", "-c", _WAIT_FOR_WORD, name, *command],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, **(environment or {})},
                cwd=directory,
                start_new_session=True,
            )
        _tell_guard(f"watch {self.pid}")
        _running.append(self)
        word = self._popen.stdin
        assert word is not None
        with contextlib.suppress(BrokenPipeError), word:
            word.write(b"go\n")

    @property
    def pid(self) -> int:
        """The process id, which is also the id of its group."""
        return self._popen.pid

    @property
    def running(self) -> bool:
        """True also while paused."""
        return self.exit_code is None

    @property
    def exit_code(self) -> int | None:
        """None while running; minus the signal's number if a signal ended it. While children run
        the process is not reaped: that would free the number of their group, by which they are
        killed."""
        is_known_to_run, unreaped = self._look()
        if is_known_to_run:  # `poll` would reap it if it ended at this very moment
            return None
        if unreaped is not None and _has_members(self.pid):
            return unreaped
        if (code := self._popen.poll()) is not None:
            self._forget()
        return code

    def wait_for_port(self, port: int, timeout_s: float = PATIENCE_S) -> None:
        """Waits until the port accepts connections. Raises `Unreachable` if the process ends or
        time is up."""
        self.wait_until(lambda: is_listening(port), f"port {port} to open", timeout_s)

    def wait_for_line(self, pattern: str, timeout_s: float = PATIENCE_S) -> str:
        """Waits for a matching line that was printed since the start, and returns it.

        A line counts only when it is complete: programs may write its text and its end separately.
        """
        regex = re.compile(pattern)
        lines: list[str] = []

        def look() -> bool:
            ended = not self.running  # asked first: nothing is printed after the end
            printed = self._printed_text().splitlines(keepends=True)
            whole = [line.rstrip("\r\n") for line in printed if ended or line.endswith("\n")]
            lines.extend(line for line in whole if regex.search(line))
            return bool(lines)

        self.wait_until(look, f"a line like {pattern!r}", timeout_s)
        return lines[0]

    def wait_until(
        self, condition: Callable[[], bool], goal: str, timeout_s: float = PATIENCE_S
    ) -> None:
        """Waits until ``condition()`` is true, as long as the process runs."""
        deadline = time.monotonic() + timeout_s
        while True:
            running = self.running  # asked first: the condition may become true as the process ends
            if condition():
                return
            if not running:
                raise self.process_error(f"it ended with code {self.exit_code} before {goal}")
            if time.monotonic() > deadline:
                raise self.process_error(f"waited {timeout_s:g} s for {goal}")
            time.sleep(_POLL_S)

    def wait_for_end(self, timeout_s: float = PATIENCE_S) -> int:
        """Waits until the process has ended; returns its exit code."""
        deadline = time.monotonic() + timeout_s
        while (code := self.exit_code) is None:
            if time.monotonic() > deadline:
                raise self.process_error(f"waited {timeout_s:g} s for its end")
            time.sleep(_POLL_S)
        return code

    def stop(self, timeout_s: float = 30) -> None:
        """SIGTERM to the whole group, and SIGKILL to those that do not end in time. No error if all
        have ended."""
        self._signal(signal.SIGTERM)
        self._signal(signal.SIGCONT)
        deadline = time.monotonic() + timeout_s
        while self._is_left and time.monotonic() < deadline:
            time.sleep(_POLL_S)
        self.kill()

    def kill(self) -> None:
        """Kills the whole group, as a crash would; returns when the process is gone."""
        if self._is_left:
            self._signal(signal.SIGKILL)
            self._popen.wait()
        self._forget()

    def pause(self) -> None:
        """SIGSTOP: the process keeps its connections but answers nothing. Returns when all its
        threads have stopped, a moment after the signal. Does nothing if the process has ended."""
        if self.running:
            self._signal(signal.SIGSTOP)
            self.wait_until(self._is_stopped, "its threads to stop")

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def log_tail(self, lines: int = TAIL_LINES) -> str:
        """The last lines printed since this process was started."""
        return "\n".join(self._printed_lines()[-lines:])

    def process_error(self, why: str) -> Unreachable:
        """An error about this process, which includes the last lines of its log."""
        lines = self._printed_lines()
        last = lines[-TAIL_LINES:]
        causes = [line for line in lines[:-TAIL_LINES] if _TELLING.search(line)][-TAIL_LINES:]
        tail = "\n".join([*causes, "...", *last] if causes else last)
        reason = (
            f"{why}. From the end of its log:\n{tail}\n" if tail else f"{why}; it printed nothing"
        )
        what, log = f"{self.name} is not up", str(self.log)
        return Unreachable(what, why=reason, do=f"read {log}", log=log, pid=self.pid)

    def _printed_lines(self) -> list[str]:
        return self._printed_text().splitlines()

    def _printed_text(self) -> str:
        with self.log.open("rb") as log:
            log.seek(self._log_start)
            return log.read().decode(errors="replace")

    def _is_stopped(self) -> bool:
        """Whether all threads are stopped; True if the system lists no threads."""
        try:
            files = list(Path(f"/proc/{self.pid}/task").glob("*/stat"))
            return all(file.read_text().rpartition(") ")[2][0] in "TtZX" for file in files)
        except OSError:  # a thread has ended meanwhile
            return False

    @property
    def _is_left(self) -> bool:
        """Whether the process runs, or children of it do."""
        return self.running or self._look()[1] is not None

    def _look(self) -> tuple[bool, int | None]:
        """Whether the process is known to run, and the exit code of one that has ended and was not
        waited for. Neither if it was waited for, or if the system does not say (macOS)."""
        is_ours = self._popen.returncode is None and self._owner == os.getpid()
        if not is_ours or not hasattr(os, "waitid"):
            return False, None
        try:
            end = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:  # another thread was first
            return False, None
        if end is None:
            return True, None
        return False, end.si_status if end.si_code == os.CLD_EXITED else -end.si_status

    def _signal(self, number: signal.Signals) -> None:
        """Signals the group, which exists at least until its leader has been waited for."""
        if self._popen.returncode is None and self._owner == os.getpid():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, number)

    def _forget(self) -> None:
        if self in _running:
            _running.remove(self)
            _tell_guard(f"forget {self.pid}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def _has_members(group: int) -> bool:
    """Whether a process group has a process that has not ended."""
    for file in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            state, _, member_of = file.read_text().rpartition(") ")[2].split()[:3]
            if int(member_of) == group and state not in "ZX":
                return True
    return False


def temporary_directory(prefix: str) -> Path:
    """A new directory that is removed when this Python process ends, however it ends."""
    path = Path(tempfile.mkdtemp(prefix=prefix))
    remove_at_end(path)
    return path


def remove_at_end(path: Path) -> None:
    """Removes a directory, an absolute path, when this Python ends, however it ends."""
    _directories.append((os.getpid(), path))
    _tell_guard(f"remove {path}")


def remove_directory(path: Path) -> None:
    """Removes a directory of `remove_at_end` now; at the end, if somebody is still using it."""
    shutil.rmtree(path, ignore_errors=True)
    if path.exists():
        return
    _directories[:] = [entry for entry in _directories if entry[1] != path]
    _tell_guard(f"keep {path}")


# --- cleanup when Python ends -----------------------------------------------------------

_running: list[Process] = []
_directories: list[tuple[int, Path]] = []
_guard_lock = threading.Lock()
_guards: dict[int, IO[bytes]] = {}  # by our process id: a forked child gets a guard of its own


def _tell_guard(line: str) -> None:
    with _guard_lock:
        if os.getpid() not in _guards:
            _guards[os.getpid()] = _start_guard()
        # Without its guard, a process still has the two other levels of cleanup.
        with contextlib.suppress(BrokenPipeError):
            _guards[os.getpid()].write(os.fsencode(line) + b"\n")


def _start_guard() -> IO[bytes]:
    read_end, write_end = os.pipe()
    pipe = os.fdopen(write_end, "wb", buffering=0)
    with os.fdopen(read_end, "rb") as end:
        command = [sys.executable, "-I", "-S", guard.__file__, str(os.getpid())]
        child = subprocess.Popen(command, stdin=end, start_new_session=True)
    atexit.register(_end, os.getpid(), child)
    return pipe


def _end(owner: int, child: subprocess.Popen[bytes]) -> None:
    """Ends everything together with Python: first TERM and a short wait, then KILL for the rest,
    then the guard."""
    if owner != os.getpid():
        return
    processes = [process for process in _running if process._owner == owner]
    for process in processes:
        process._signal(signal.SIGTERM)
        process._signal(signal.SIGCONT)
    deadline = time.monotonic() + 5
    for process in processes:
        process.stop(timeout_s=max(0.0, deadline - time.monotonic()))
    for maker, path in list(_directories):
        if maker == owner:
            remove_directory(path)
    _guards.pop(owner).close()
    child.wait()
