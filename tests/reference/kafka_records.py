"""The slow, obvious decoder of Kafka's records, which the kernel must equal.

One record at a time, one field at a time, in the order of Kafka's DefaultRecord: length,
attributes, timestamp delta, offset delta, key, value, headers. All numbers but attributes
are zigzag varints. Records outside the wanted offsets are checked as far as their offset
and then skipped. Messages of the older formats are read in ``kafka_messages``.

Clarity before speed, and no trick that the kernel also uses. Every fault is raised at the
position where the offending field begins.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from rangeland.decode import columns
from rangeland.decode.kafka.batch_table import BatchWalk, Heads
from rangeland.decode.kafka.layout import (
    Fault,
    Payload,
    RecordFormat,
    TooManyHeaders,
    UndecodableRecord,
)
from tests.reference.kafka_cursor import Cursor, DecodedRecord, Malformed, micros_of
from tests.reference.kafka_messages import MessageReader, walk_messages

_MAX_INT64 = (1 << 63) - 1


def decode_records(
    payloads: Sequence[Payload],
    from_offset: int,
    until_offset: int,
    max_headers: int = sys.maxsize,
) -> pa.RecordBatch:
    """The records with ``from_offset <= offset < until_offset``, as ``columns.RECORDS``.

    Raises BadRecord with the facts payload, record, position and reason; TooManyHeaders if they
    have more than ``max_headers`` together."""
    records = [
        record
        for index, payload in enumerate(payloads)
        for record in read_records(payload, index, from_offset, until_offset)
    ]
    headers = sum(len(record.headers) for record in records)
    if headers > max_headers:
        raise TooManyHeaders(headers)
    return columns.records_batch(
        [
            pa.array([r.key for r in records], columns.KEY.type),
            pa.array([r.value for r in records], columns.VALUE.type),
            pa.array([r.offset for r in records], columns.OFFSET.type),
            pa.array([r.timestamp_us for r in records], columns.TIMESTAMP.type),
            pa.array([r.timestamp_type for r in records], columns.TIMESTAMP_TYPE.type),
            pa.array([_headers_value(r) for r in records], columns.HEADERS.type),
        ]
    )


def read_records(
    payload: Payload, index: int, from_offset: int, until_offset: int
) -> Iterator[DecodedRecord]:
    """The wanted records of one payload, one by one; ``index`` is for the error's facts."""
    kind = RecordReader if payload.form is RecordFormat.BATCH else MessageReader
    reader = kind(payload, from_offset, until_offset)
    record = 0
    try:
        if payload.record_count < 0:
            raise Malformed(Fault.NEGATIVE_RECORD_COUNT, 0)
        while record < payload.record_count:
            found = reader.read_record()
            if found is not None:
                yield found
            record += 1
        if reader.position != len(reader.data):
            raise Malformed(Fault.TRAILING_BYTES, reader.position)
    except Malformed as malformed:
        raise UndecodableRecord(malformed.fault, index, record, malformed.position) from None


def _headers_value(record: DecodedRecord) -> list[dict[str, object]] | None:
    if not record.headers:
        return None
    return [{"key": columns.header_key(key), "value": value} for key, value in record.headers]


def no_batches(
    data: Any, begin: int = 0, last_offset: int = -1, heads: Heads | None = None
) -> BatchWalk:
    """Finds none: the entries have to be read one by one."""
    return BatchWalk(0, begin, last_offset, False)


class KafkaReference:
    """The functions of ``KafkaKernel``."""

    decode_records = staticmethod(decode_records)
    walk_messages = staticmethod(walk_messages)
    walk_batches = staticmethod(no_batches)


class RecordReader(Cursor):
    """Reads one payload of a v2 batch."""

    def read_record(self) -> DecodedRecord | None:
        self.end = self._read_record_end()
        self._read_attributes()
        timestamp_delta = self._read_varint(64)
        offset = self._read_offset()
        if offset not in self.wanted:
            self.position = self.end
            return None
        timestamp_us = self._timestamp_us(timestamp_delta)
        key = self._read_bytes()
        value = self._read_bytes()
        headers = self._read_headers()
        if self.position != self.end:
            raise Malformed(Fault.RECORD_TOO_LONG, self.position)
        stamped_by_broker = self.payload.append_timestamp_ms is not None
        return DecodedRecord(offset, timestamp_us, int(stamped_by_broker), key, value, headers)

    def _read_record_end(self) -> int:
        start = self.position
        self.end = len(self.data)
        length = self._read_varint(32, ends=Fault.BATCH_ENDS)
        if length < 0:
            raise Malformed(Fault.NEGATIVE_RECORD_LENGTH, start)
        if self.position + length > len(self.data):
            raise Malformed(Fault.RECORD_PAST_BATCH, start)
        return self.position + length

    def _read_attributes(self) -> None:
        if self.position == self.end:
            raise Malformed(Fault.RECORD_TOO_SHORT, self.position)
        # No attribute is defined, and Kafka's own reader ignores them.
        self.position += 1

    def _read_offset(self) -> int:
        start = self.position
        delta = self._read_varint(32)
        self.rise_to(delta, start)
        offset = self.payload.base_offset + delta
        if offset > _MAX_INT64:
            raise Malformed(Fault.OFFSET_OVERFLOW, start)
        return offset

    def _timestamp_us(self, delta: int) -> int | None:
        ms = self.payload.append_timestamp_ms
        return micros_of(self.payload.base_timestamp_ms + delta if ms is None else ms)

    def _read_bytes(self) -> bytes | None:
        start = self.position
        length = self._read_varint(32)
        if length == -1:
            return None
        if length < 0:
            raise Malformed(Fault.NEGATIVE_LENGTH, start)
        return self.take(length, start)

    def _read_headers(self) -> list[tuple[bytes, bytes | None]]:
        start = self.position
        count = self._read_varint(32)
        if count < 0:
            raise Malformed(Fault.NEGATIVE_HEADER_COUNT, start)
        if count > self.payload.max_headers - self.headers:
            raise Malformed(Fault.TOO_MANY_HEADERS, start)
        self.headers += count
        headers = []
        for _ in range(count):
            key = self._read_header_key()
            headers.append((key, self._read_bytes()))
        return headers

    def _read_header_key(self) -> bytes:
        start = self.position
        length = self._read_varint(32)
        if length < 0:
            raise Malformed(Fault.HEADER_KEY_NULL, start)
        return self.take(length, start)

    def _read_varint(self, bits: int, ends: Fault = Fault.RECORD_TOO_SHORT) -> int:
        start = self.position
        raw, shift = 0, 0
        while True:
            if self.position == self.end:
                raise Malformed(ends, start)
            byte = self.data[self.position]
            self.position += 1
            raw |= (byte & 0x7F) << shift
            shift += 7
            if raw >= 1 << bits or (byte >= 0x80 and shift >= bits):
                raise Malformed(Fault.VARINT_TOO_LONG, start)
            if byte < 0x80:
                return (raw >> 1) ^ -(raw & 1)
