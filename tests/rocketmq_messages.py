"""Stored messages of RocketMQ, made here byte by byte: whole ones, and such as are not."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable
from typing import Any

MAGIC_1, MAGIC_2 = 0xDAA320A7, 0xDAA320AB
PACKED, BORN_V6, STORE_V6 = 0x1, 0x10, 0x20
NEED_UNWRAP, INNER_BATCH = 0x40, 0x80
ZLIB_OF_OLD, LZ4, ZSTD, ZLIB = 0, 1, 2, 3
BORN_MS, STORED_MS = 1_600_000_000_000, 1_600_000_000_123


def properties_of(*pairs: tuple[str, str]) -> bytes:
    return "".join(f"{key}\x01{value}\x02" for key, value in pairs).encode()


def stored(
    body: bytes = b"",
    offset: int = 0,
    properties: bytes = b"",
    *,
    flags: int = 0,
    magic: int = MAGIC_1,
    topic: bytes = b"t",
    crc: int | None = None,
    length: int | None = None,
    body_length: int | None = None,
    born_ms: int = BORN_MS,
    stored_ms: int = STORED_MS,
) -> bytes:
    """One message. Whatever is None is what it should be."""
    hosts = [b"\x7f\0\0\1" if not flags & bit else bytes(15) + b"\1" for bit in (BORN_V6, STORE_V6)]
    checksum = zlib.crc32(body) & 0x7FFFFFFF if crc is None else crc
    head = struct.pack(">IIiiqqI", magic, checksum, 0, 0, offset, 4711, flags)
    head += struct.pack(">q", born_ms) + hosts[0] + struct.pack(">i", 1000)
    head += struct.pack(">q", stored_ms) + hosts[1] + struct.pack(">i", 10911)
    head += struct.pack(">iqi", 0, 0, len(body) if body_length is None else body_length)
    name = struct.pack(">B" if magic != MAGIC_2 else ">h", len(topic)) + topic
    rest = head + body + name + struct.pack(">h", len(properties)) + properties
    return struct.pack(">i", 4 + len(rest) if length is None else length) + rest


def messages(bodies: Iterable[bytes], first: int = 0, properties: bytes = b"") -> bytes:
    """Plain messages at offsets that follow one another."""
    return b"".join(stored(body, first + i, properties) for i, body in enumerate(bodies))


def inner(body: bytes = b"", properties: bytes = b"", flag: int = 0) -> bytes:
    """One message as it lies in a batch: producers leave its magic and checksum 0."""
    rest = struct.pack(">iiii", 0, 0, flag, len(body)) + body
    rest += struct.pack(">h", len(properties)) + properties
    return struct.pack(">i", 4 + len(rest)) + rest


def batch(
    held: Iterable[bytes], offset: int = 0, *, number: object = None, **changed: Any
) -> bytes:
    """A batch of ``inner`` messages that is stored as one; ``number`` is how many it says."""
    held = list(held)
    told = ("INNER_NUM", str(len(held) if number is None else number))
    properties = properties_of(("UNIQ_KEY", "u"), told, ("INNER_BASE", str(offset)))
    changed = {"flags": INNER_BATCH | NEED_UNWRAP, "properties": properties} | changed
    return stored(changed.pop("body", b"".join(held)), offset, **changed)


def java_hash(text: str) -> int:
    """By which brokers compare tags. Of text without characters beyond 16 bits."""
    value = 0
    for character in text:
        value = (31 * value + ord(character)) & 0xFFFFFFFF
    return value
