"""The input of the decoder of Kafka's records, and its faults.

A payload is the record section of one v2 record batch, verified and decompressed, with the few
numbers of its header that its records are relative to; or a sequence of messages of the older
formats 0 and 1. A fault is one way in which those bytes can be malformed; the numbers are shared
with ``kernel.c``.

Nothing is decoded here. The reported fault is the first one in reading order, at the position where
the offending field begins.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any, NamedTuple

from rangeland.decode.kernel_fault import KernelFault
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

    All numbers are as on the wire, so they fit in 64 signed bits. Messages carry their own offsets
    and timestamps: ``base_offset`` and ``last_offset_delta`` only limit the valid offsets. A
    message of format 0 has no timestamp: null, of type -1, where Spark's own source has the last
    millisecond of 1969. A -1 that a producer wrote stays -1, as in Spark. A time that does not fit
    in 64 bits of microseconds is null too, and keeps its type: such a timestamp never rejects a
    record."""

    data: Any
    """Anything with the buffer protocol."""
    base_offset: int
    base_timestamp_ms: int
    append_timestamp_ms: int | None
    """The batch's time, if the broker set it: every record has that timestamp, and timestamp type
    1."""
    record_count: int
    last_offset_delta: int
    form: RecordFormat = RecordFormat.BATCH
    offset_shift: int = 0
    """Added to the offset of each message."""
    max_headers: int = MAX_BATCH_BYTES // HEADER_BYTES
    """The most headers of all records together."""


class MessageWalk(NamedTuple):
    """The result of a walk over consecutive uncompressed messages of format 0 or 1: how many there
    are, and at which byte, from the first, the next entry begins (``end``). Offsets are as stored,
    -1 without a message."""

    messages: int
    end: int
    first_offset: int
    last_offset: int


class Fault(KernelFault):
    """Ways in which records can be malformed. Numbers as in ``kernel.c``."""

    NEGATIVE_RECORD_COUNT = 1, "the record count is negative"
    BATCH_ENDS = 2, "the batch ends before its last record"
    VARINT_TOO_LONG = 3, "a variable-length number has more bits than its type"
    NEGATIVE_RECORD_LENGTH = 4, "the record length is negative"
    RECORD_PAST_BATCH = 5, "the record is longer than the rest of the batch"
    RECORD_TOO_SHORT = 6, "the record ends before its last field"
    OFFSET_DELTA_OUTSIDE = 8, "the offset is outside its batch"
    OFFSET_DELTA_ORDER = 9, "the offset is not above the one before"
    OFFSET_OVERFLOW = 10, "the offset does not fit in 64 bits"
    NEGATIVE_LENGTH = 12, "a length is below -1"
    FIELD_PAST_RECORD = 13, "a field is longer than the rest of its record"
    NEGATIVE_HEADER_COUNT = 14, "the header count is negative"
    HEADER_KEY_NULL = 15, "a header key is null"
    RECORD_TOO_LONG = 16, "the record extends past its last field"
    TRAILING_BYTES = 17, "the batch extends past its last record"
    UNKNOWN_MESSAGE_MAGIC = 18, "the message's format (magic) is not known"
    PACKED_MESSAGE = 19, "the message is packed where a plain one belongs"
    WRONG_MESSAGE_CHECKSUM = 20, "the message's checksum is wrong"
    TOO_MANY_HEADERS = 21, "its batch has more headers than are allowed (source.max_batch_bytes)"


class TooManyHeaders(Exception):
    """The payloads of one call have more headers together than the caller allows."""

    def __init__(self, headers: int) -> None:
        super().__init__(headers)
        self.headers = headers


class UndecodableRecord(BadRecord):
    """Indexes count from 0, ``byte_index`` is a byte of the payload's data."""

    def __init__(self, fault: Fault, payload: int, record: int, byte_index: int) -> None:
        super().__init__(
            f"record {record} of batch {payload} cannot be decoded at byte {byte_index}",
            why=fault.reason,
            do="its producer wrote bytes that the log format does not allow; "
            "set policy.corrupt to go on without them",
            payload=payload,
            record=record,
            byte_index=byte_index,
            reason=fault.reason,
        )
        self.payload = payload
        self.record = record
        self.byte_index = byte_index
        self.fault = fault
