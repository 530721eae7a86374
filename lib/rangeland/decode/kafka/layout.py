"""The input of the decoder of Kafka's records, and the faults it may find.

A payload is either the record section of one v2 batch, verified and decompressed, with the few
numbers from its header to which its records are relative; or a sequence of messages in the older
formats 0 and 1. A fault is one way in which these bytes can be malformed; its number is shared with
``kernel.c``.

Nothing is decoded here. If there are several faults, the first in reading order is reported, at the
position where the offending field begins.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any, NamedTuple

from rangeland.decode.kernel_fault import KernelFault
from rangeland.errors import BadRecord
from rangeland.wire.memory_budget import HEADER_BYTES, MAX_BATCH_BYTES


class RecordFormat(IntEnum):
    """The format of the records in a payload. The numbers are those in ``messages.h``."""

    PLAIN = 0
    """Messages of format 0 or 1 as they are in the log: each has its own timestamp type."""
    PACKED = 1
    """Messages of format 0 or 1 from inside a wrapper, whose timestamp type applies to all of
    them."""
    BATCH = 2
    """The records of a v2 batch."""


class Payload(NamedTuple):
    """The decompressed records of one v2 batch, or a sequence of messages.

    All numbers are as on the wire, so they fit in signed 64-bit integers. Messages carry their own
    offsets and timestamps, for which ``base_offset`` and ``last_offset_delta`` only limit the valid
    offsets. A message of format 0 has no timestamp: it gets null, of type -1, where Spark's own
    source gives the last millisecond of 1969. A -1 that a producer wrote stays -1, as in Spark. A
    time that does not fit in 64 bits as microseconds also becomes null, but keeps its type: such a
    timestamp never causes a record to be rejected.
    """

    data: Any
    """Anything that supports the buffer protocol."""
    base_offset: int
    base_timestamp_ms: int
    append_timestamp_ms: int | None
    """The batch's time, if the broker set it: then every record has this timestamp and timestamp
    type 1."""
    record_count: int
    last_offset_delta: int
    form: RecordFormat = RecordFormat.BATCH
    offset_shift: int = 0
    """Added to the offset of each message."""
    max_headers: int = MAX_BATCH_BYTES // HEADER_BYTES
    """The most headers that all records together may have."""


class MessageWalk(NamedTuple):
    """The result of a walk over consecutive uncompressed messages of format 0 or 1: how many there
    are, and the byte, counted from the first, where the next entry begins (``end``). Offsets are as
    stored, or -1 if there is no message."""

    messages: int
    end: int
    first_offset: int
    last_offset: int


class Fault(KernelFault):
    """Ways in which records can be malformed. The numbers are those in ``kernel.c``."""

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
    PACKED_MESSAGE = 19, "the message is packed where a plain one is expected"
    WRONG_MESSAGE_CHECKSUM = 20, "the message's checksum is wrong"
    TOO_MANY_HEADERS = 21, "its batch has more headers than are allowed (source.max_batch_bytes)"


class TooManyHeaders(Exception):
    """The payloads of one call together have more headers than the caller allows."""

    def __init__(self, headers: int) -> None:
        super().__init__(headers)
        self.headers = headers


class UndecodableRecord(BadRecord):
    """A record that cannot be decoded. Indexes count from 0; ``byte_index`` counts bytes of the
    payload's data."""

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
