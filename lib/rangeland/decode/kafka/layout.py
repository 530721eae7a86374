"""The input of the decoder of Kafka's records, and its faults.

A payload is the record section of one v2 record batch, verified and decompressed, with the few
numbers of its header that its records are relative to; or a sequence of messages of the older
formats 0 and 1. A fault is one way in which those bytes can be malformed; the numbers are shared
with ``kernel.c``.

No decoding here. The fault that is reported is the first one in reading order, at the position
where the offending field begins.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any, NamedTuple

from rangeland.errors import BadRecord
from rangeland.wire.memory_budget import HEADER_BYTES, MAX_BATCH_BYTES


class RecordFormat(IntEnum):
    """The format of the records in a payload. Numbers as in ``messages.h``."""

    PLAIN = 0
    """Messages of format 0 or 1 as in the log: each has its own timestamp type."""
    PACKED = 1
    """Such messages from inside a wrapper, whose timestamp type applies to all of them."""
    BATCH = 2
    """The records of a v2 batch."""


class Payload(NamedTuple):
    """The decompressed records of one v2 batch, or a sequence of messages.

    ``data`` is anything with the buffer protocol. All numbers are as on the wire, so they
    fit in 64 signed bits. With ``append_timestamp_ms`` the broker set the batch's time: every
    record has that timestamp, and timestamp type 1.

    Messages carry their own offsets and timestamps: ``base_offset`` and ``last_offset_delta`` only
    limit the valid offsets, ``offset_shift`` is added to each offset. ``max_headers`` is for all
    records together. A message of format 0 has no timestamp: null, of type -1. A time that does
    not fit in 64 bits of microseconds is null too, and keeps its type."""

    data: Any
    base_offset: int
    base_timestamp_ms: int
    append_timestamp_ms: int | None
    record_count: int
    last_offset_delta: int
    form: RecordFormat = RecordFormat.BATCH
    offset_shift: int = 0
    max_headers: int = MAX_BATCH_BYTES // HEADER_BYTES


class MessageRun(NamedTuple):
    """How many consecutive uncompressed ``messages`` of format 0 or 1 there are; ``end`` is where
    the next entry begins, in bytes from the first. Offsets are as stored, -1 without a message."""

    messages: int
    end: int
    first_offset: int
    last_offset: int


class Fault(IntEnum):
    """Ways in which records can be malformed. Numbers as in ``kernel.c``."""

    NEGATIVE_RECORD_COUNT = 1
    BATCH_ENDS = 2
    VARINT_TOO_LONG = 3
    NEGATIVE_RECORD_LENGTH = 4
    RECORD_PAST_BATCH = 5
    RECORD_TOO_SHORT = 6
    OFFSET_DELTA_OUTSIDE = 8
    OFFSET_DELTA_ORDER = 9
    OFFSET_OVERFLOW = 10
    NEGATIVE_LENGTH = 12
    FIELD_PAST_RECORD = 13
    NEGATIVE_HEADER_COUNT = 14
    HEADER_KEY_NULL = 15
    RECORD_TOO_LONG = 16
    TRAILING_BYTES = 17
    UNKNOWN_MESSAGE_MAGIC = 18
    PACKED_MESSAGE = 19
    BAD_MESSAGE_CHECKSUM = 20
    TOO_MANY_HEADERS = 21

    @property
    def reason(self) -> str:
        return _REASONS[self]


_REASONS = {
    Fault.NEGATIVE_RECORD_COUNT: "the record count is negative",
    Fault.BATCH_ENDS: "the batch ends before its last record",
    Fault.VARINT_TOO_LONG: "a variable-length number has more bits than its type",
    Fault.NEGATIVE_RECORD_LENGTH: "the record length is negative",
    Fault.RECORD_PAST_BATCH: "the record is longer than the rest of the batch",
    Fault.RECORD_TOO_SHORT: "the record ends before its last field",
    Fault.OFFSET_DELTA_OUTSIDE: "the offset is outside its batch",
    Fault.OFFSET_DELTA_ORDER: "the offset is not above the one before",
    Fault.OFFSET_OVERFLOW: "the offset does not fit in 64 bits",
    Fault.NEGATIVE_LENGTH: "a length is below -1",
    Fault.FIELD_PAST_RECORD: "a field is longer than the rest of its record",
    Fault.NEGATIVE_HEADER_COUNT: "the header count is negative",
    Fault.HEADER_KEY_NULL: "a header key is null",
    Fault.RECORD_TOO_LONG: "the record goes on after its last field",
    Fault.TRAILING_BYTES: "the batch goes on after its last record",
    Fault.UNKNOWN_MESSAGE_MAGIC: "the message's format (magic) is not known",
    Fault.PACKED_MESSAGE: "the message is packed where a plain one belongs",
    Fault.BAD_MESSAGE_CHECKSUM: "the message's checksum is wrong",
    Fault.TOO_MANY_HEADERS: "its batch has more headers than are allowed (source.max_batch_bytes)",
}


class TooManyHeaders(Exception):
    """The payloads of one call have more headers together than the caller allows."""

    def __init__(self, headers: int) -> None:
        super().__init__(headers)
        self.headers = headers


class UndecodableRecord(BadRecord):
    """Indexes count from 0, ``position`` is a byte of the
    payload's data."""

    def __init__(
        self, what: str, *, payload: int, record: int, position: int, reason: str, **facts: Any
    ) -> None:
        facts |= {"payload": payload, "record": record, "position": position, "reason": reason}
        super().__init__(what, **facts)
        self.payload, self.record, self.position, self.reason = payload, record, position, reason


def bad_record(fault: Fault, payload: int, record: int, position: int) -> UndecodableRecord:
    return UndecodableRecord(
        f"record {record} of batch {payload} cannot be decoded at byte {position}",
        why=fault.reason,
        do="Its producer wrote bytes that the log format does not allow; "
        "set policy.corrupt to go on without them",
        payload=payload,
        record=record,
        position=position,
        reason=fault.reason,
    )
