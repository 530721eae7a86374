"""Handles SIGINT and SIGTERM while a command runs: the first signal stops it cleanly, the second at
once."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any, Self

from rangeland.spark.gateway import (
    SIGNALS,
    add_py4j_filter,
    kill_jvm,
    quiet_jvm,
    remove_py4j_filter,
)

REDELIVERY_S = 0.1
"""How long to wait before sending a lost signal again: by then, the destructor or callback in which
it arrived has finished."""


class StopSignals:
    """Handles both signals from entry to exit. SIGTERM, which schedulers send, ends a command just
    as Ctrl-C does: with KeyboardInterrupt."""

    def __init__(self) -> None:
        self.terminated = False
        """Whether the signal was SIGTERM."""
        self._has_received = False
        self._before: dict[signal.Signals, Any] = {}
        self._hook = sys.unraisablehook
        self._redelivery: threading.Timer | None = None

    def __enter__(self) -> Self:
        self._before = _install(self._interrupt)
        self._hook = sys.unraisablehook
        sys.unraisablehook = self._unraisable
        add_py4j_filter(self._is_worth_showing)
        return self

    def run_program(self, command: Sequence[str]) -> int:
        """Runs a program with this process's streams and returns its exit code. The first signal is
        passed on to the program, and is raised here once it has ended, unless it succeeded
        nevertheless. A second signal kills it."""
        program = _SignalledProgram()
        before = _install(program.receive)
        try:
            code = program.run(command)
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
        if program.received and code != 0:
            signal.raise_signal(program.received[0])
        return code

    def kill_from_now_on(self) -> None:
        """From now on, a signal kills the JVM without waiting for it to clean up."""
        self._cancel_redelivery()
        _install(lambda number, frame: kill_jvm())

    def __exit__(self, *_: object) -> None:
        self._cancel_redelivery()
        remove_py4j_filter(self._is_worth_showing)
        sys.unraisablehook = self._hook
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        quiet_jvm()
        self._has_received = True
        self.terminated = number == signal.SIGTERM
        raise KeyboardInterrupt

    def _is_worth_showing(self, record: logging.LogRecord) -> bool:
        """False for the tracebacks that py4j logs for calls that a signal has ended: it interrupts
        one call, and calls of other threads fail when the JVM ends."""
        return not (self._has_received and "py4j" in record.pathname)

    def _unraisable(self, dropped: sys.UnraisableHookArgs) -> None:
        """Python's hook for exceptions that cannot propagate, as in destructors and callbacks. An
        interruption would be lost there, so the signal is sent again."""
        if dropped.exc_type is not KeyboardInterrupt:
            sys.__unraisablehook__(dropped)
            return
        number = signal.SIGTERM if self.terminated else signal.SIGINT
        self._redelivery = threading.Timer(REDELIVERY_S, os.kill, (os.getpid(), number))
        self._redelivery.daemon = True
        self._redelivery.start()

    def _cancel_redelivery(self) -> None:
        """Drops a pending signal: either the interruption has been noticed, or it is too late."""
        if self._redelivery is not None:
            self._redelivery.cancel()


class _SignalledProgram:
    """A program that receives the signals of this process. It stays in our process group, so Ctrl-C
    in a terminal reaches it twice, which a JVM does not mind."""

    def __init__(self) -> None:
        self.received: list[int] = []
        self._popen: subprocess.Popen[bytes] | None = None

    def run(self, command: Sequence[str]) -> int:
        self._popen = subprocess.Popen(command)
        self._pass_on()  # A signal may have come before the program was known.
        return self._popen.wait()

    def receive(self, number: int, frame: FrameType | None) -> None:
        self.received.append(number)
        self._pass_on()

    def _pass_on(self) -> None:
        if self._popen is None or not self.received:
            return
        if len(self.received) > 1:
            self._popen.kill()
        else:
            self._popen.send_signal(self.received[0])


def _install(handler: Callable[[int, FrameType | None], None]) -> dict[signal.Signals, Any]:
    """Installs a handler for both signals and returns the previous ones. Signals that this process
    was started to ignore stay ignored."""
    if threading.current_thread() is not threading.main_thread():
        return {}
    handlers = {number: signal.getsignal(number) for number in SIGNALS}
    before = {n: old for n, old in handlers.items() if old not in (signal.SIG_IGN, None)}
    for number in before:
        signal.signal(number, handler)
    return before
