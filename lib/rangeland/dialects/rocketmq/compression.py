"""Decompresses message bodies, up to a maximum size.

Pure functions of bytes, which know nothing of offsets and messages. Whatever the bytes are, the
result is a buffer or ``NotDecompressible``.
"""

from __future__ import annotations

import struct
import zlib
from array import array
from collections.abc import Mapping
from typing import Final

import cramjam
import pyarrow as pa

from rangeland.decode import columns
from rangeland.decode.rocketmq.layout import NOT_PACKED
from rangeland.wire.bounded_decompression import Codec, NotDecompressible
from rangeland.wire.memory_budget import MAX_BATCH_BYTES, beyond, memory_text

CODECS: Final[Mapping[int, Codec]] = {1: Codec.LZ4, 2: Codec.ZSTD}
"""The codecs whose decompression can be limited in size, by their numbers in the flags of a
message."""
ZLIB: Final = (0, 3)
"""Its numbers: older clients have 0. Its data do not tell their size."""
GZIP_MAGIC: Final = b"\x1f\x8b"
"""Clients of proxies compress with gzip by their protocol, and proxies store such bodies with the
number of zlib. What they wrote, upstream's clients of proxies know by its first bytes; zlib's own
data never begin with these."""

FIRST_VALUES_BYTES: Final = 1 << 20
"""Enough for the values of a typical response, so that they rarely have to be moved."""


class MessageBodies:
    """A growing column of values. Each is decompressed directly into its final position."""

    def __init__(self, max_bytes: int = MAX_BATCH_BYTES) -> None:
        """``max_bytes``: the limit for a single value."""
        self._max_bytes = max_bytes
        self.size = 0
        self._ends = array("i", [0])
        self._data = pa.allocate_buffer(FIRST_VALUES_BYTES, resizable=True)

    def add(self, codec: int, data: memoryview) -> None:
        """Adds a body, decompressed. Raises NotDecompressible."""
        if (bounded := _bounded_codec(codec, data)) is not None:
            room = self._room(self._bounded_size(bounded, data))
            try:
                self.size += bounded.unpack(data, room)
            except cramjam.DecompressionError as error:
                raise NotDecompressible(f"its body cannot be unpacked: {error}") from None
        else:
            value = _plain(codec, data, self._max_bytes)
            self._room(len(value))[:] = value
            self.size += len(value)
        self._ends.append(self.size)

    def _bounded_size(self, codec: Codec, data: memoryview) -> int:
        try:
            size = codec.bound(data)
        except (struct.error, IndexError) as error:
            raise NotDecompressible(f"its body cannot be unpacked: {error}") from None
        if (why := beyond(self._max_bytes, size, 0)) is not None:
            raise NotDecompressible(f"of its body, {why}")
        return size

    def _room(self, size: int) -> memoryview:
        if self.size + size > self._data.size:
            self._data.resize(max(self.size + size, 2 * self._data.size))
        return memoryview(self._data).cast("B")[self.size : self.size + size]

    def value(self) -> memoryview:
        """All values in one buffer."""
        return memoryview(self._data).cast("B")[: self.size]

    def column(self) -> pa.Array:
        data = self._data
        data.resize(self.size, shrink_to_fit=True)
        ends = pa.py_buffer(self._ends)
        return pa.Array.from_buffers(columns.VALUE.type, len(self._ends) - 1, [None, ends, data], 0)


def _bounded_codec(codec: int, data: memoryview) -> Codec | None:
    """The codec that bounds its result; None if it is another one."""
    if codec in ZLIB and bytes(data[: len(GZIP_MAGIC)]) == GZIP_MAGIC:
        return Codec.GZIP
    return CODECS.get(codec)


def _plain(codec: int, data: memoryview, max_bytes: int) -> bytes | memoryview:
    if codec == NOT_PACKED:
        return data
    if codec in ZLIB:
        return _inflate(data, max_bytes)
    raise NotDecompressible(f"codec {codec} is not known")


def _inflate(data: memoryview, max_bytes: int) -> bytes:
    """The decompressed zlib data. Raises NotDecompressible."""
    stream = zlib.decompressobj()
    try:
        value = stream.decompress(data, max_bytes)
    except zlib.error as error:
        raise NotDecompressible(f"its zlib data cannot be unpacked: {error}") from None
    if stream.unconsumed_tail:
        raise NotDecompressible(f"its zlib data unpacks to more, {memory_text(max_bytes)}")
    if not stream.eof:
        raise NotDecompressible("its zlib data ends too early")
    return value
