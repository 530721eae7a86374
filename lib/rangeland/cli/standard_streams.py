"""Stdout and stderr that do not end a command: whoever reads them may go away at any moment, also
between the entry of a plan and its commit."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import IO, Any, TextIO, cast


class _DroppingStream:
    """A stream that drops everything once writing has failed with one of these errors. The rest of
    it is that of the stream that it is given."""

    def __init__(self, stream: IO[str], dropped: type[OSError]) -> None:
        self.has_dropped = False
        self._stream = stream
        self._dropped = dropped

    def write(self, text: str) -> int:
        with self._dropping():
            self._stream.write(text)
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        with self._dropping():
            self._stream.writelines(lines)

    def flush(self) -> None:
        with self._dropping():
            self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    @contextmanager
    def _dropping(self) -> Iterator[None]:
        try:
            yield
        except self._dropped:
            self.has_dropped = True
            _discard(self._stream)


def stream_for_results(stream: IO[str]) -> TextIO:
    """Drops after a broken pipe. Every other error, such as that of a full disk, is still one."""
    return cast(TextIO, _DroppingStream(stream, BrokenPipeError))


def stream_for_progress(stream: IO[str]) -> TextIO:
    """Drops after any error: no run depends on progress, logs and messages."""
    return cast(TextIO, _DroppingStream(stream, OSError))


def has_dropped(stream: IO[str]) -> bool:
    """Whether something that was written to the stream was dropped."""
    return isinstance(stream, _DroppingStream) and stream.has_dropped


@contextmanager
def dropping_streams() -> Iterator[None]:
    """Meanwhile neither stdout nor stderr raises an error if nobody reads it. One that was closed
    when the process began exists, and nobody reads it."""
    before = sys.stdout, sys.stderr
    # In this order: each takes the lowest descriptor that is free, so that no other file, which a
    # JVM would then write to, becomes descriptor 1 or 2.
    stdout = before[0] or _null()
    stderr = before[1] or _null()
    meanwhile = stream_for_results(stdout), stream_for_progress(stderr)
    sys.stdout, sys.stderr = meanwhile
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before
        for stream in meanwhile:
            stream.flush()  # What a buffer still had would fail as Python ends: exit code 120.


def _null() -> TextIO:
    return open(os.devnull, "w", encoding="utf-8")


def _discard(stream: IO[str]) -> None:
    """From now on what is written to the stream's descriptor, and what is in its buffer, goes
    nowhere."""
    with suppress(OSError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, stream.fileno())
        os.close(null)
