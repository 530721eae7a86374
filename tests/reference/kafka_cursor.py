"""What the reference decoders of Kafka's formats share: records, the position in a payload, checks.

No field is read here, because that is where the formats differ. Nothing is done for speed.
"""

from __future__ import annotations

from typing import NamedTuple

from rangeland.decode.kafka.layout import Fault, Payload

_MAX_INT64 = (1 << 63) - 1


class DecodedRecord(NamedTuple):
    """One record or message."""

    offset: int
    timestamp_us: int | None
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[bytes, bytes | None]]


class Malformed(Exception):
    def __init__(self, fault: Fault, position: int) -> None:
        super().__init__(fault.reason)
        self.fault = fault
        self.position = position


def micros_of(ms: int) -> int | None:
    """The time in microseconds; None if it does not fit in 64 bits, since a producer may write any
    number of milliseconds."""
    return ms * 1000 if -_MAX_INT64 - 1 <= ms * 1000 <= _MAX_INT64 else None


class Cursor:
    """``position`` is where the next field begins, ``end`` where the current record ends."""

    def __init__(self, payload: Payload, from_offset: int, until_offset: int) -> None:
        self.payload = payload
        self.data = bytes(payload.data)
        self.wanted = range(from_offset, min(until_offset, _MAX_INT64))
        self.position = 0
        self.end = 0
        self.last_delta = -1
        self.headers = 0

    def rise_to(self, delta: int, position: int) -> None:
        """To a record's offset, from the payload's base: offsets rise up to its last offset."""
        if not 0 <= delta <= self.payload.last_offset_delta:
            raise Malformed(Fault.OFFSET_DELTA_OUTSIDE, position)
        if delta <= self.last_delta:
            raise Malformed(Fault.OFFSET_DELTA_ORDER, position)
        self.last_delta = delta

    def take(self, length: int, position: int) -> bytes:
        """The bytes of a field whose length begins at ``position``."""
        if self.position + length > self.end:
            raise Malformed(Fault.FIELD_PAST_RECORD, position)
        self.position += length
        return self.data[self.position - length : self.position]
