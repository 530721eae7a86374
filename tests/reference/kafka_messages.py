"""The slow, obvious reader of messages of the formats 0 and 1, which ``messages.h`` must equal.

A message is ``int64 offset | int32 length | uint32 crc | int8 magic | int8 attributes |
int64 timestamp (magic 1) | int32 length, key | int32 length, value``. The length counts the bytes
after it, the CRC-32 covers everything after it. One message at a time, one field at a time;
messages outside the wanted offsets are read as far as their offset.

Clarity before speed, and no trick that the kernel also uses. Every fault is raised at the position
where the offending field begins.
"""

from __future__ import annotations

import zlib
from typing import Any

from rangeland.decode.kafka.layout import Fault, MessageWalk, RecordFormat
from tests.reference.kafka_cursor import Cursor, DecodedRecord, Malformed, micros_of

_PREFIX_BYTES = 12
_LEAST_BYTES = 14  # crc, magic, attributes and two lengths
_CODEC, _LOG_APPEND = 0x07, 0x08
_MIN_INT64, _MAX_INT64 = -(1 << 63), (1 << 63) - 1


def walk_messages(data: Any, max_bytes: int) -> MessageWalk:
    """Over complete uncompressed messages with rising offsets, until ``max_bytes`` are exceeded.
    Anything else ends the walk unread."""
    raw = bytes(data)
    count, position, first, last = 0, 0, -1, -1
    while position < max_bytes and position + _PREFIX_BYTES + _LEAST_BYTES <= len(raw):
        offset, length = _number(raw, position, 8), _number(raw, position + 8, 4)
        end = position + _PREFIX_BYTES + length
        magic, attributes = raw[position + 16], raw[position + 17]
        if length < _LEAST_BYTES or end > len(raw) or magic > 1 or attributes & _CODEC:
            break
        if not last < offset < _MAX_INT64:
            break
        first = offset if count == 0 else first
        last = offset
        position = end
        count += 1
    return MessageWalk(count, position, first, last)


class MessageReader(Cursor):
    """Reads one payload of messages."""

    def read_record(self) -> DecodedRecord | None:
        offset_position = self.position
        self.end = self._read_end()
        offset = self._offset(offset_position)
        if offset not in self.wanted:
            self.position = self.end
            return None
        magic, attributes = self._read_head()
        timestamp_us, timestamp_type = self._read_timestamp(magic, attributes)
        key = self._read_bytes()
        value = self._read_bytes()
        if self.position != self.end:
            raise Malformed(Fault.RECORD_TOO_LONG, self.position)
        return DecodedRecord(offset, timestamp_us, timestamp_type, key, value, [])

    def _read_end(self) -> int:
        if self.position + _PREFIX_BYTES > len(self.data):
            raise Malformed(Fault.BATCH_ENDS, self.position)
        length = _number(self.data, self.position + 8, 4)
        if length < 0:
            raise Malformed(Fault.NEGATIVE_RECORD_LENGTH, self.position + 8)
        if self.position + _PREFIX_BYTES + length > len(self.data):
            raise Malformed(Fault.RECORD_PAST_BATCH, self.position + 8)
        self.position += _PREFIX_BYTES
        return self.position + length

    def _offset(self, position: int) -> int:
        offset = _number(self.data, position, 8) + self.payload.offset_shift
        if not _MIN_INT64 <= offset <= _MAX_INT64:
            raise Malformed(Fault.OFFSET_OVERFLOW, position)
        self.rise_to(offset - self.payload.base_offset, position)
        return offset

    def _read_head(self) -> tuple[int, int]:
        start = self.position
        if start + 6 > self.end:
            raise Malformed(Fault.RECORD_TOO_SHORT, start)
        stored = int.from_bytes(self.data[start : start + 4], "big")
        if zlib.crc32(self.data[start + 4 : self.end]) != stored:
            raise Malformed(Fault.WRONG_MESSAGE_CHECKSUM, start)
        magic, attributes = self.data[start + 4], self.data[start + 5]
        if magic > 1:
            raise Malformed(Fault.UNKNOWN_MESSAGE_MAGIC, start + 4)
        if attributes & _CODEC:
            raise Malformed(Fault.PACKED_MESSAGE, start + 5)
        self.position += 6
        return magic, attributes

    def _read_timestamp(self, magic: int, attributes: int) -> tuple[int | None, int]:
        if magic == 0:
            return None, -1
        ms = self._read_number(8)
        if self.payload.form is RecordFormat.PLAIN:
            is_stamped = bool(attributes & _LOG_APPEND)
        else:
            is_stamped = self.payload.append_timestamp_ms is not None
            ms = self.payload.append_timestamp_ms or 0 if is_stamped else ms
        return micros_of(ms), int(is_stamped)

    def _read_bytes(self) -> bytes | None:
        start = self.position
        length = self._read_number(4)
        if length == -1:
            return None
        if length < 0:
            raise Malformed(Fault.NEGATIVE_LENGTH, start)
        return self.take(length, start)

    def _read_number(self, size: int) -> int:
        if self.position + size > self.end:
            raise Malformed(Fault.RECORD_TOO_SHORT, self.position)
        self.position += size
        return _number(self.data, self.position - size, size)


def _number(data: bytes, position: int, size: int) -> int:
    return int.from_bytes(data[position : position + size], "big", signed=True)
