"""Writes messages of the log formats 0 and 1, for tests: what old producers, brokers and log
cleaners would write, and, on request, what none of them should.

It shares nothing with the decoders but the declared layout."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field

import cramjam

from tests.record_batches import CODECS, compress

NOW_MS = 1_700_000_000_000


@dataclass(frozen=True)
class Message:
    """``magic`` 0 has no timestamp. ``attributes`` are added to the codec's; ``crc`` and
    ``length`` replace what belongs there."""

    offset: int
    key: bytes | None = None
    value: bytes | None = b""
    magic: int = 0
    timestamp_ms: int = NOW_MS
    log_append: bool = False
    attributes: int = 0
    crc: int | None = None
    length: int | None = None


@dataclass(frozen=True)
class Wrapper:
    """Holds ``messages`` with the offsets they have in the log, which must be rising; in
    format 1 they are written as counted from ``base``, by default the first one's offset.
    ``body`` replaces what is packed."""

    messages: Sequence[Message] = field(default_factory=tuple)
    codec: str = "gzip"
    magic: int = 0
    timestamp_ms: int = NOW_MS
    log_append: bool = False
    xerial: bool = True
    offset: int | None = None
    base: int | None = None
    crc: int | None = None
    body: bytes | None = None


def encode_message(message: Message) -> bytes:
    stamp = struct.pack(">q", message.timestamp_ms) if message.magic == 1 else b""
    attributes = message.attributes | 8 * message.log_append
    checked = struct.pack(">bb", message.magic, attributes) + stamp
    checked += _sized(message.key) + _sized(message.value)
    crc = zlib.crc32(checked) if message.crc is None else message.crc
    length = 4 + len(checked) if message.length is None else message.length
    return struct.pack(">qiI", message.offset, length, crc) + checked


def encode_wrapper(wrapper: Wrapper) -> bytes:
    messages = wrapper.messages
    base = 0
    if wrapper.magic == 1 and messages:
        base = messages[0].offset if wrapper.base is None else wrapper.base
    inner = b"".join(
        encode_message(Message(**{**vars(m), "offset": m.offset - base})) for m in messages
    )
    body = pack(wrapper, inner) if wrapper.body is None else wrapper.body
    last = messages[-1].offset if messages else 0
    return encode_message(
        Message(
            last if wrapper.offset is None else wrapper.offset,
            None,
            body,
            wrapper.magic,
            wrapper.timestamp_ms,
            wrapper.log_append,
            CODECS[wrapper.codec],
            wrapper.crc,
        )
    )


def pack(wrapper: Wrapper, inner: bytes) -> bytes:
    body = compress(wrapper.codec, inner, wrapper.xerial)
    return old_lz4(body) if wrapper.codec == "lz4" and wrapper.magic == 0 else body


def old_lz4(frame: bytes) -> bytes:
    """As Java producers wrote it before 0.10: the descriptor's checksum is that of the magic
    number and the descriptor, so that every decoder calls it wrong."""
    at = 6 + (8 if frame[4] & 8 else 0) + (4 if frame[4] & 1 else 0)
    wrong = frame[at] ^ 0xFF
    with_wrong = frame[:at] + bytes([wrong]) + frame[at + 1 :]
    try:
        cramjam.lz4.decompress(with_wrong)
    except cramjam.DecompressionError:
        return with_wrong
    raise AssertionError("this decoder does not look at the checksum of the descriptor")


def _sized(value: bytes | None) -> bytes:
    return struct.pack(">i", -1) if value is None else struct.pack(">i", len(value)) + value


def encode_all(entries: Sequence[Message | Wrapper]) -> bytes:
    return b"".join(
        encode_message(e) if isinstance(e, Message) else encode_wrapper(e) for e in entries
    )
