"""Compression codecs that limit the decompressed size. The dialects have tables of the codecs'
numbers.

Each codec first computes the largest possible result from the framing of the compressed bytes,
without decompressing: snappy and gzip store a size, lz4 and zstd consist of blocks of limited size.
Decompression then writes into a buffer of that size and cannot exceed it. So a batch of a few bytes
that would decompress to gigabytes is refused before memory is allocated.

Pure functions of bytes, which know nothing of offsets and batches. For any bytes, the result is a
buffer or ``NotDecompressible``, which the callers turn into a BadRecord with the facts of the
batch.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from enum import Enum
from typing import Any

import cramjam
import pyarrow as pa

from rangeland.wire.memory_budget import MAX_BATCH_BYTES, beyond

_Bound = Callable[[memoryview], int]
_Unpack = Callable[[memoryview, pa.Buffer], int]


class NotDecompressible(Exception):
    """The reason why bytes cannot be decompressed. Callers turn it into BadRecord."""


def decompress(codec: Codec, data: memoryview, max_bytes: int = MAX_BATCH_BYTES) -> Any:
    """The decompressed bytes as a buffer. Raises NotDecompressible."""
    try:
        size = codec.bound(data)
        if (why := beyond(max_bytes, size, 0)) is not None:
            raise NotDecompressible(f"of its {codec} data, {why}")
        buffer = pa.allocate_buffer(size)
        written = codec.unpack(data, buffer)
    except (cramjam.DecompressionError, struct.error, IndexError) as error:
        raise NotDecompressible(f"its {codec} data cannot be unpacked: {error}") from None
    return buffer.slice(0, written)


def check_within_limits(records: int, unpacked_bytes: int, max_bytes: int) -> None:
    """Raises NotDecompressible if a batch has more records than it may. ``unpacked_bytes`` is 0 for
    an uncompressed batch, whose bytes are already in memory."""
    if (why := beyond(max_bytes, unpacked_bytes, records)) is not None:
        raise NotDecompressible(why)


# --- gzip -------------------------------------------------------------------------------


def _gzip_bound(data: memoryview) -> int:
    """The size in the trailer, which is modulo 4 GiB; deflate expands by a factor of at most
    1032."""
    (size,) = struct.unpack_from("<I", data, len(data) - 4) if len(data) >= 18 else (0,)
    return min(int(size), 1032 * len(data))


# --- snappy -----------------------------------------------------------------------------

_XERIAL = b"\x82SNAPPY\0"
_XERIAL_HEADER = struct.Struct(">8sii")
_XERIAL_BLOCK = struct.Struct(">i")


def _is_xerial(data: memoryview) -> bool:
    return data[: len(_XERIAL)] == _XERIAL


def _xerial_blocks(data: memoryview) -> Iterator[memoryview]:
    byte_index = _XERIAL_HEADER.size
    while byte_index < len(data):
        (size,) = _XERIAL_BLOCK.unpack_from(data, byte_index)
        byte_index += _XERIAL_BLOCK.size
        if not 0 <= size <= len(data) - byte_index:
            raise NotDecompressible(f"a snappy block of {size} bytes ends after its batch")
        yield data[byte_index : byte_index + size]
        byte_index += size


def _snappy_bound(data: memoryview) -> int:
    """A raw block begins with its size. Java's clients send framed raw blocks (xerial), others send
    a single one. A block of n bytes expands to at most 22 n, whatever its size field says."""
    blocks = _xerial_blocks(data) if _is_xerial(data) else [data]
    return sum(min(cramjam.snappy.decompress_raw_len(block), 22 * len(block)) for block in blocks)


def _snappy_unpack(data: memoryview, buffer: pa.Buffer) -> int:
    if not _is_xerial(data):
        return int(cramjam.snappy.decompress_raw_into(data, buffer))
    target, written = memoryview(buffer), 0
    for block in _xerial_blocks(data):
        written += cramjam.snappy.decompress_raw_into(block, target[written:])
    return written


# --- lz4 frame --------------------------------------------------------------------------

_LZ4_MAGIC = 0x184D2204
_LZ4_BLOCK_BYTES = {4: 64 << 10, 5: 256 << 10, 6: 1 << 20, 7: 4 << 20}
_LZ4_STORED = 1 << 31
_LZ4_PLAIN = 0x60  # version 1, independent blocks, and none of the optional parts
_LE32 = struct.Struct("<I")


def _lz4_bound(data: memoryview) -> int:
    """The sum of what the blocks can hold. The frame's own content size is optional and adds
    nothing."""
    magic, flags, sizes = struct.unpack_from("<IBB", data, 0)
    if magic != _LZ4_MAGIC:
        raise NotDecompressible("its lz4 data does not begin with a frame")
    largest = _LZ4_BLOCK_BYTES.get(sizes >> 4 & 7, 0)
    byte_index = 7 + (8 if flags & 8 else 0) + (4 if flags & 1 else 0)
    trailer = 4 if flags & 16 else 0
    bound = 0
    while word := _LE32.unpack_from(data, byte_index)[0]:
        size = word & ~_LZ4_STORED
        bound += size if word & _LZ4_STORED else min(largest, 255 * size)
        byte_index += _LE32.size + size + trailer
    return bound


def _lz4_unpack(data: memoryview, buffer: pa.Buffer) -> int:
    """Decodes plain frames, which is what producers write, block by block. All other frames, and
    damaged ones, are left to the library's frame decoder, which takes 50 % longer."""
    written = _lz4_plain_unpack(data, memoryview(buffer).cast("B"))
    return int(cramjam.lz4.decompress_into(data, buffer)) if written is None else written


def _lz4_plain_unpack(data: memoryview, target: memoryview) -> int | None:
    """Decodes a frame of independent blocks that has no sizes and no checksum other than its
    header's; None for any other frame."""
    largest = _LZ4_PLAIN_HEADS.get(bytes(data[:7]))
    if largest is None:
        return None
    byte_index, written = 7, 0
    while word := _LE32.unpack_from(data, byte_index)[0]:
        size = word & ~_LZ4_STORED
        start = byte_index + _LE32.size
        byte_index = start + size
        if size > largest or byte_index > len(data):
            return None
        block = data[start:byte_index]
        room = target[written : written + largest]
        if word & _LZ4_STORED:
            room[:size] = block
            written += size
            continue
        try:
            written += cramjam.lz4.decompress_block_into(block, room, output_len=len(room))
        except cramjam.DecompressionError:
            return None
    return written if byte_index + _LE32.size == len(data) else None


def xxh32_of_few(data: bytes | bytearray) -> int:
    """The xxHash32, with seed 0, of fewer than 16 bytes: the checksum of a frame's descriptor."""
    first, second, third, fourth, fifth = _XXH32_PRIMES
    digest = fifth + len(data)
    byte_index = 0
    while byte_index + 4 <= len(data):
        (word,) = _LE32.unpack_from(data, byte_index)
        digest = _rotate_left(digest + word * third, 17) * fourth
        byte_index += 4
    for byte in data[byte_index:]:
        digest = _rotate_left(digest + byte * fifth, 11) * first
    digest &= _MASK32
    digest = (digest ^ digest >> 15) * second & _MASK32
    digest = (digest ^ digest >> 13) * third & _MASK32
    return digest ^ digest >> 16


def _lz4_plain_head(sizes: int) -> bytes:
    descriptor = bytes([_LZ4_PLAIN, sizes << 4])
    checksum = xxh32_of_few(descriptor) >> 8 & 0xFF
    return _LE32.pack(_LZ4_MAGIC) + descriptor + bytes([checksum])


_MASK32 = (1 << 32) - 1
_XXH32_PRIMES = (0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D, 0x27D4EB2F, 0x165667B1)


def _rotate_left(number: int, bits: int) -> int:
    number &= _MASK32
    return number << bits & _MASK32 | number >> 32 - bits


_LZ4_PLAIN_HEADS = {_lz4_plain_head(sizes): most for sizes, most in _LZ4_BLOCK_BYTES.items()}


# --- zstd -------------------------------------------------------------------------------

_ZSTD_MAGIC = 0xFD2FB528
_ZSTD_BLOCK_BYTES = 128 << 10
_RAW, _RLE = 0, 1


def _zstd_bound(data: memoryview) -> int:
    """The sum over the blocks of all frames: raw and repeated blocks store their size, compressed
    ones decompress to at most 128 KiB. The frame's own content size is optional and adds
    nothing."""
    byte_index = bound = 0
    while byte_index < len(data):
        (magic,) = _LE32.unpack_from(data, byte_index)
        if magic != _ZSTD_MAGIC:
            raise NotDecompressible("its zstd data does not begin with a frame")
        descriptor = data[byte_index + 4]
        byte_index = _zstd_first_block(byte_index, descriptor)
        last = False
        while not last:
            word = data[byte_index] | data[byte_index + 1] << 8 | data[byte_index + 2] << 16
            last = bool(word & 1)
            kind = word >> 1 & 3
            size = word >> 3
            bound += size if kind in (_RAW, _RLE) else _ZSTD_BLOCK_BYTES
            byte_index += 3 + (1 if kind == _RLE else size)
        byte_index += 4 if descriptor & 4 else 0
    return bound


def _zstd_first_block(frame: int, descriptor: int) -> int:
    """The position of the first block: after magic, descriptor, window (unless single segment),
    dictionary id and content size."""
    single_segment = descriptor >> 5 & 1
    content_size = (single_segment, 2, 4, 8)[descriptor >> 6]
    dictionary = (0, 1, 2, 4)[descriptor & 3]
    return frame + 4 + 1 + (1 - single_segment) + dictionary + content_size


class Codec(Enum):
    """A codec. ``bound`` computes the largest possible decompressed size. ``unpack`` decompresses
    into a buffer of that size and returns the number of bytes. ``decompress`` turns the errors of
    both into NotDecompressible."""

    GZIP = _gzip_bound, lambda data, to: int(cramjam.gzip.decompress_into(data, to))
    SNAPPY = _snappy_bound, _snappy_unpack
    LZ4 = _lz4_bound, _lz4_unpack
    ZSTD = _zstd_bound, lambda data, to: int(cramjam.zstd.decompress_into(data, to))

    def __init__(self, bound: _Bound, unpack: _Unpack) -> None:
        self.bound = bound
        self.unpack = unpack

    def __str__(self) -> str:
        return self.name.lower()
