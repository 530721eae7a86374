"""Decompresses the contents of batches and wrappers, up to a maximum size.

Pure functions of bytes, which know nothing of offsets and batches. Whatever the bytes are, the
result is a buffer or ``NotDecompressible``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from rangeland.wire import bounded_decompression
from rangeland.wire.bounded_decompression import Codec, NotDecompressible, xxh32_of_few
from rangeland.wire.memory_budget import MAX_BATCH_BYTES

CODECS: Final[Mapping[int, Codec]] = {
    1: Codec.GZIP,
    2: Codec.SNAPPY,
    3: Codec.LZ4,
    4: Codec.ZSTD,
}
"""The codecs, by their numbers in the attributes of a batch or message. 0 means none."""
CODEC_MASK: Final = 0x07


def decompress(number: int, data: memoryview, max_bytes: int = MAX_BATCH_BYTES) -> Any:
    """The decompressed records as a buffer; ``data`` itself if they are not compressed. Raises
    NotDecompressible."""
    if number == 0:
        return data
    codec = CODECS.get(number)
    if codec is None:
        raise NotDecompressible(f"codec {number} is not known")
    return bounded_decompression.decompress(codec, data, max_bytes)


def codec_name(number: int) -> str:
    """The codec's name, for messages."""
    return str(CODECS.get(number, "none"))


def mend_lz4(data: memoryview) -> memoryview:
    """The frame with a correct descriptor checksum. Producers of format 0 included the magic number
    in the checksum, which no decoder accepts; the message's own checksum protects the data."""
    descriptor_at = 4
    flags = data[descriptor_at] if len(data) > descriptor_at else 0
    at = descriptor_at + 2 + (8 if flags & 8 else 0) + (4 if flags & 1 else 0)
    if at >= len(data):
        return data
    mended = bytearray(data)
    mended[at] = xxh32_of_few(mended[descriptor_at:at]) >> 8 & 0xFF
    return memoryview(mended)
