"""The bytes of a message that cannot be decoded, out of a pull: to be kept as they came."""

from __future__ import annotations

from collections.abc import Sequence

from rangeland.dialects.rocketmq.stored import first_offset
from rangeland.dialects.rocketmq.tagged import take_head

_LENGTH_BYTES = 4


def cut_out(records: memoryview, from_offset: int, first: int, until: int) -> memoryview:
    """The messages with offsets in ``[first, until)``. The bytes say their offsets themselves:
    ``from_offset`` is for dialects whose bytes do not."""
    records = take_head(records).messages
    position, begins, ends = 0, 0, 0
    while (offset := first_offset(records[position:])) is not None and offset < until:
        length = int.from_bytes(records[position : position + _LENGTH_BYTES], "big")
        if length < _LENGTH_BYTES or position + length > len(records):
            break
        if offset < first:
            begins = position + length
        position += length
        ends = position
    return records[begins:ends]


def aborted_within(
    records: memoryview, first: int, until: int, aborted: Sequence[tuple[int, int]]
) -> tuple[tuple[int, int], ...]:
    """There are no transactions."""
    return ()
