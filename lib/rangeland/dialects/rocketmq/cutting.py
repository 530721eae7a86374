"""The bytes of a message that cannot be decoded, out of a pull: to be kept as they came."""

from __future__ import annotations

from collections.abc import Sequence

from rangeland.dialects.rocketmq.entries import Walk
from rangeland.dialects.rocketmq.tagged import take_head, with_head


def cut_out(records: memoryview, from_offset: int, first: int, until: int) -> memoryview:
    """The messages with offsets in ``[first, until)``, and batches that hold one of them, up
    to where the bytes cannot be walked over; with the tags, where they came by tags. They say
    their offsets themselves: ``from_offset`` is for dialects whose bytes do not."""
    given = take_head(records)
    begins, ends = 0, 0
    for entry in Walk(given.messages).entries(until):
        if entry.until_offset <= first:
            begins = entry.end
        ends = entry.end
    found = given.messages[begins:ends]
    if given.until_offset is None:
        return found
    return with_head(given.tags, min(given.until_offset, until), [found])


def aborted_within(
    records: memoryview, first: int, until: int, aborted: Sequence[tuple[int, int]]
) -> tuple[tuple[int, int], ...]:
    """There are no transactions."""
    return ()
