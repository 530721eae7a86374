"""Stdout and stderr that do not end a command when nobody reads them any more: their reader may go
away at any moment, even between entering a plan and committing it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import IO, Any, TextIO, cast


class _DroppingStream:
    """A stream that drops everything once writing has failed with one of these errors. In every
    other respect it behaves like the stream that it wraps."""

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
    """Drops output after a broken pipe. Any other error, such as a full disk, is still raised."""
    return cast(TextIO, _DroppingStream(stream, BrokenPipeError))


def stream_for_progress(stream: IO[str]) -> TextIO:
    """Drops output after any error: no run depends on progress, logs and messages."""
    return cast(TextIO, _DroppingStream(stream, OSError))


def has_dropped(stream: IO[str]) -> bool:
    """Whether anything that was written to the stream has been dropped."""
    return isinstance(stream, _DroppingStream) and stream.has_dropped


@contextmanager
def dropping_streams() -> Iterator[None]:
    """Within this context, neither stdout nor stderr raises an error if nobody reads it. A stream
    that was closed when the process began is replaced by one that nobody reads."""
    before = sys.stdout, sys.stderr
    # The order matters: each takes the lowest free descriptor, so that no other file becomes
    # descriptor 1 or 2, to which a JVM would then write.
    stdout = before[0] or _null()
    stderr = before[1] or _null()
    meanwhile = stream_for_results(stdout), stream_for_progress(stderr)
    sys.stdout, sys.stderr = meanwhile
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before
        for stream in meanwhile:
            stream.flush()  # Otherwise a buffer that is not empty fails as Python ends: exit 120.


def _null() -> TextIO:
    return open(os.devnull, "w", encoding="utf-8")


def _discard(stream: IO[str]) -> None:
    """From now on, whatever is written to the stream's descriptor or left in its buffer goes
    nowhere."""
    with suppress(OSError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, stream.fileno())
        os.close(null)
