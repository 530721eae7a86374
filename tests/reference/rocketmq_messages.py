"""The slow, obvious decoder of stored messages, which the kernel must equal.

One message at a time, one field at a time, in the order of the bytes. Clarity before speed, and no
trick that the kernel also uses.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from rangeland.decode import columns
from rangeland.decode.rocketmq.layout import (
    BORN_V6,
    CODEC_BITS,
    INNER_BATCH,
    LOG_APPEND_TIME,
    MAGIC_1,
    MAGIC_2,
    NEED_UNWRAP,
    NOT_PACKED,
    PACKED,
    SMALLEST,
    STORE_V6,
    STORED,
    DecodedMessages,
    MessageWalk,
    StoredFault,
    UndecodableMessage,
)
from tests.reference.kafka_cursor import micros_of

_MAX_INT64 = 2**63 - 1
KEYS, TAGS = b"KEYS", b"TAGS"
Property = tuple[bytes, bytes | None]


class _StoredMessage(NamedTuple):
    key: bytes | None
    value: bytes
    offset: int
    stored_ms: int
    born_ms: int
    properties: list[Property]
    codec: int


class _BadMessage(Exception):
    def __init__(self, fault: StoredFault) -> None:
        self.fault = fault


class RocketmqReference:
    """The functions of ``RocketmqKernel``."""

    def walk_stored(self, data: Any) -> MessageWalk:
        walk = _MessageWalk(bytes(data))
        for _ in walk.messages(_MAX_INT64):
            pass
        return walk.as_walk()

    def decode_stored(
        self, data: Any, from_offset: int, until_offset: int, tags: Sequence[bytes] = ()
    ) -> DecodedMessages:
        walk = _MessageWalk(bytes(data))
        rows: list[_StoredMessage] = []
        for raw, offset in walk.messages(min(until_offset, _MAX_INT64)):
            if offset < from_offset:
                continue
            try:
                message = _message(raw, offset)
            except _BadMessage as bad:
                raise UndecodableMessage(bad.fault, offset, walk.start) from None
            if not tags or _last(TAGS, message.properties) in tags:
                rows.append(message)
        walked = walk.as_walk()
        if walked.fault is not None:
            raise UndecodableMessage(walked.fault, walked.last_offset, walked.end)
        return DecodedMessages(_batch(rows), _codecs(rows), walked)


class _MessageWalk:
    """``start`` and ``end`` of the last message, ``fault`` of the one after it."""

    def __init__(self, raw: bytes) -> None:
        self.raw = raw
        self.start = self.end = self.count = 0
        self.last_offset = -1
        self.fault: StoredFault | None = None

    def messages(self, until_offset: int) -> Iterator[tuple[bytes, int]]:
        while len(self.raw) - self.end >= 4:
            (length,) = struct.unpack_from(">i", self.raw, self.end)
            if length < SMALLEST:
                self.fault = StoredFault.TOO_SHORT
                return
            if length > len(self.raw) - self.end:
                return
            magic, offset = struct.unpack_from(">4xI12xq", self.raw, self.end)
            if magic not in (MAGIC_1, MAGIC_2):
                self.fault = StoredFault.UNKNOWN_MAGIC
                return
            if offset <= self.last_offset:
                self.fault = StoredFault.ORDER
                return
            if offset >= until_offset:
                return
            (flags,) = struct.unpack_from(">36xI", self.raw, self.end)
            if flags & INNER_BATCH:
                self.fault = StoredFault.INNER
                return
            self.start = self.end
            yield self.raw[self.start : self.start + length], offset
            self.end += length
            self.count += 1
            self.last_offset = offset

    def as_walk(self) -> MessageWalk:
        return MessageWalk(self.count, self.end, self.last_offset, self.fault)


class _Fields:
    """Reads one field after the other; none may go past the end of the message."""

    def __init__(self, raw: bytes) -> None:
        self.raw, self.position = raw, 0

    def number(self, code: str) -> int:
        size = struct.calcsize(">" + code)
        if self.position + size > len(self.raw):
            raise _BadMessage(StoredFault.FIELD_PAST)
        (value,) = struct.unpack_from(">" + code, self.raw, self.position)
        self.position += size
        return int(value)

    def some(self, length: int) -> bytes:
        if length < 0 or self.position + length > len(self.raw):
            raise _BadMessage(StoredFault.FIELD_PAST)
        self.position += length
        return self.raw[self.position - length : self.position]


def _message(raw: bytes, offset: int) -> _StoredMessage:
    fields = _Fields(raw)
    fields.number("i")  # length
    magic = fields.number("I")
    crc = fields.number("I")
    fields.number("i")  # queue id
    fields.number("i")  # flag
    fields.number("q")  # queue offset
    fields.number("q")  # position in the commit log
    flags = fields.number("I")
    hosts = [16 if flags & bit else 4 for bit in (BORN_V6, STORE_V6)]
    if len(raw) < SMALLEST - 8 + sum(hosts):
        raise _BadMessage(StoredFault.TOO_SHORT)
    if flags & NEED_UNWRAP or (flags & CODEC_BITS and not flags & PACKED):
        raise _BadMessage(StoredFault.FLAGS)
    born_ms = fields.number("q")
    fields.some(hosts[0] + 4)
    stored_ms = fields.number("q")
    fields.some(hosts[1] + 4)
    fields.number("i")  # how often it was consumed again
    fields.number("q")  # offset of the prepared transaction
    body = fields.some(fields.number("i"))
    if zlib.crc32(body) & 0x7FFFFFFF != crc:
        raise _BadMessage(StoredFault.WRONG_CHECKSUM)
    fields.some(fields.number("B" if magic == MAGIC_1 else "h"))  # topic
    properties = _properties(fields.some(fields.number("h")))
    if fields.position != len(raw):
        raise _BadMessage(StoredFault.TOO_LONG)
    codec = flags >> 8 & 7 if flags & PACKED else NOT_PACKED
    key = _last(KEYS, properties)
    return _StoredMessage(key, body, offset, stored_ms, born_ms, properties, codec)


def _properties(raw: bytes) -> list[Property]:
    """In order. A property without a separator has a key and no value."""
    found: list[Property] = []
    for part in raw.split(b"\x02"):
        key, separator, value = part.partition(b"\x01")
        if part:
            found.append((key, value if separator else None))
    return found


def _last(name: bytes, properties: list[Property]) -> bytes | None:
    found = [value for key, value in properties if key == name and value is not None]
    return found[-1] if found else None


def _batch(rows: list[_StoredMessage]) -> pa.RecordBatch:
    headers = [
        [{"key": columns.header_key(key), "value": value} for key, value in row.properties] or None
        for row in rows
    ]
    arrays = [
        pa.array([row.key for row in rows], columns.KEY.type),
        pa.array([row.value for row in rows], columns.VALUE.type),
        pa.array([row.offset for row in rows], columns.OFFSET.type),
        _times([row.stored_ms for row in rows]),
        pa.array([LOG_APPEND_TIME] * len(rows), columns.TIMESTAMP_TYPE.type),
        pa.array(headers, columns.HEADERS.type),
        _times([row.born_ms for row in rows]),
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=STORED)


def _times(times_ms: list[int]) -> pa.Array:
    micros = [micros_of(ms) for ms in times_ms]
    return pa.array(micros, pa.int64()).cast(columns.TIMESTAMP.type)


def _codecs(rows: list[_StoredMessage]) -> np.ndarray[Any, Any] | None:
    if all(row.codec == NOT_PACKED for row in rows):
        return None
    return np.array([row.codec for row in rows], np.int8)
