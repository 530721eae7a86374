"""Entries of a Jafka log in bytes, well-formed or not, for tests of their readers.

Written from the format alone, with ``struct``, and without the library's own code.
"""

from __future__ import annotations

import gzip
import struct
import zlib
from collections.abc import Iterable


def entry(
    value: bytes,
    *,
    codec: int = 0,
    magic: int = 1,
    crc: int | None = None,
    length: int | None = None,
) -> bytes:
    """One entry. ``crc`` and ``length`` are the right ones unless given."""
    body = struct.pack(">bBI", magic, codec, zlib.crc32(value) if crc is None else crc) + value
    return struct.pack(">i", len(body) if length is None else length) + body


def plain(values: Iterable[bytes]) -> bytes:
    """A set of plain entries."""
    return b"".join(entry(value) for value in values)


def packed(inner: bytes) -> bytes:
    """The entry that holds a set."""
    return entry(gzip.compress(inner, mtime=0), codec=1)
