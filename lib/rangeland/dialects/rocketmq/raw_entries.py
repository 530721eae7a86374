"""The raw bytes of a pulled message that cannot be decoded, for quarantine."""

from __future__ import annotations

from rangeland.dialects.fetch_values import NO_CONTEXT, FetchContext
from rangeland.dialects.rocketmq.log_entries import EntryTotals
from rangeland.dialects.rocketmq.placement import segments
from rangeland.dialects.rocketmq.pull_result import pull_result_of


def cut_out(
    records: memoryview,
    from_offset: int,
    first: int,
    until: int,
    context: FetchContext = NO_CONTEXT,
) -> memoryview:
    """The messages with offsets in ``[first, until)``, and batches that contain one of them, up to
    the first bytes that cannot be walked over. The broker's answer or the messages contain the
    offsets; ``from_offset`` is for dialects whose bytes do not."""
    given = pull_result_of(records, context)
    if not context.spans:
        return _walked(given.messages, first, until)
    for part in segments(given):
        if first < part.until_offset:
            return _walked(given.messages[part.start : part.end], first, until)
        one = part.misplaced
        if one is not None and (one.until_offset is None or first < one.until_offset):
            return given.messages[one.start : one.end]
    return given.messages[:0]


def _walked(messages: memoryview, first: int, until: int) -> memoryview:
    begins, ends = 0, 0
    for entry in EntryTotals(messages).entries(until):
        if entry.until_offset <= first:
            begins = entry.end
        ends = entry.end
    return messages[begins:ends]
