"""Checks that messages are where the broker says they are.

No checksum covers the offset stored in a message. But a broker looks messages up in its own index,
and reports which offsets its response accounts for. If a response has as many messages as it
accounts for offsets, the offset of each is certain. If messages are missing (because of tags or
compaction), the offsets must rise and stay within the response. An offset that was changed so that
it falls into such a gap is not detected, nor are changed times and properties.

Pure functions of bytes. Here a wrong offset is a value (``MisplacedMessage``); the error is raised
by the reader of the messages.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby, pairwise
from typing import Any, NamedTuple

from rangeland.decode import rocketmq_decoder
from rangeland.decode.rocketmq.layout import MessageWalk, StoredFault
from rangeland.dialects.fetch_values import ResponseSpan
from rangeland.dialects.rocketmq.pull_result import PullResult
from rangeland.dialects.rocketmq.queue_entries import QueueEntry, entry_at, first_offset


class MisplacedMessage(NamedTuple):
    """The bytes ``[start, end)`` belong to the offsets ``[offset, until_offset)``, but other
    offsets are stored in them. ``until_offset`` is None if the end is uncertain."""

    start: int
    end: int
    offset: int
    until_offset: int | None
    why: str
    fault: StoredFault | None = None


class PlacedMessages(NamedTuple):
    """Messages whose stored offsets are right: the bytes ``[start, end)``, which account for
    ``[from_offset, until_offset)``. ``misplaced``: the misplaced message after them, if any."""

    start: int
    end: int
    from_offset: int
    until_offset: int
    misplaced: MisplacedMessage | None


def placed_messages(result: PullResult) -> Iterator[PlacedMessages]:
    """Goes through all fetched bytes; the broker must have said which offsets they account for."""
    spans = result.context.spans
    start = 0
    offset = spans[0].from_offset
    for message in misplaced_messages(result):
        yield PlacedMessages(start, message.start, offset, message.offset, message)
        start = message.end
        offset = message.offset if message.until_offset is None else message.until_offset
    yield PlacedMessages(start, len(result.messages), offset, spans[-1].until_offset, None)


def misplaced_messages(result: PullResult) -> list[MisplacedMessage]:
    """The misplaced messages, in the order of the bytes. The end of the last one may be unknown."""
    spans = result.context.spans
    has_gaps = result.context.has_gaps
    if not has_gaps and is_tiled(result.messages, spans[0].from_offset, spans[-1].until_offset):
        return []
    messages: list[MisplacedMessage] = []
    begin = 0
    for span in spans:
        body = result.messages[begin : span.end]
        if has_gaps:
            wrong = _with_gaps(body, span, is_exact=not result.context.tags)
        else:
            wrong = _without_gaps(body, span)
        for message in wrong:
            messages.append(message._replace(start=begin + message.start, end=begin + message.end))
            if message.until_offset is None:
                return messages
        begin = span.end
    return messages


def is_tiled(body: Any, from_offset: int, until_offset: int) -> bool:
    """Whether the bytes consist of plain messages that cover exactly these offsets, one after the
    other."""
    if first_offset(body) != from_offset:
        return False
    walk = rocketmq_decoder().walk_stored(body)
    return walk == MessageWalk(until_offset - from_offset, len(body), until_offset - 1, None)


def is_complete(body: Any, from_offset: int, until_offset: int) -> bool:
    """Whether there are as many messages as offsets, whatever offsets are stored in them: then none
    is missing, and the offset of each is certain."""
    if is_tiled(body, from_offset, until_offset):
        return True
    entries, fault = _entries(body)
    return fault is None and _count(entries) == until_offset - _begin(entries, from_offset)


def before_gap(body: Any, from_offset: int) -> tuple[int, int | None]:
    """The byte index up to which messages follow one another from this offset on, and the offset
    there; None if what follows is not a gap but damaged bytes."""
    entries, fault = _entries(body)
    offset = _begin(entries, from_offset)
    for entry in entries:
        if entry.offset != offset:
            return entry.start, max(offset, from_offset)
        offset = entry.until_offset
    return (len(body), None) if fault else (_end(entries), max(offset, from_offset))


# --- within one response ------------------------------------------------------------------


def _without_gaps(body: Any, span: ResponseSpan) -> Iterator[MisplacedMessage]:
    """The misplaced messages of a response that has a message for each offset."""
    entries, fault = _entries(body)
    offset = _begin(entries, span.from_offset)
    has_all = fault is None and _count(entries) == span.until_offset - offset
    for entry in entries:
        number = entry.until_offset - entry.offset
        if entry.offset != offset:
            why = f"it is at offset {offset}, but claims to be at {entry.offset}"
            until_offset = offset + number if has_all else None
            yield MisplacedMessage(entry.start, entry.end, offset, until_offset, why)
            if until_offset is None:
                return
        offset += number
    if fault is not None:
        yield MisplacedMessage(_end(entries), len(body), offset, None, fault.reason, fault)
    elif not has_all:
        why = (
            f"its broker's response extends to offset {span.until_offset}, but has no more messages"
        )
        yield MisplacedMessage(len(body), len(body), offset, None, why)


def _with_gaps(body: Any, span: ResponseSpan, *, is_exact: bool) -> Iterator[MisplacedMessage]:
    """The misplaced messages of a response that may leave out offsets. ``is_exact``: the last
    message is at the last offset for which the response accounts."""
    if _fits(body, span, is_exact=is_exact):
        return
    entries, fault = _entries(body)
    misplaced = set(_out_of_place(entries, span, is_exact=is_exact and fault is None))
    offset = span.from_offset
    for is_misplaced, group in groupby(enumerate(entries), lambda item: item[0] in misplaced):
        indexes = [index for index, _ in group]
        first, last = entries[indexes[0]], entries[indexes[-1]]
        if not is_misplaced:
            offset = last.until_offset
            continue
        following = entries[indexes[-1] + 1 :][:1]
        until_offset = span.until_offset if fault is None else None
        if following:
            until_offset = following[0].offset
        why = f"it claims to be at offset {first.offset}, where only {offset} to "
        why += f"{(until_offset or span.until_offset) - 1} are possible"
        if until_offset is None or until_offset <= offset:
            yield MisplacedMessage(first.start, len(body), offset, None, why)
            return
        yield MisplacedMessage(first.start, last.end, offset, until_offset, why)
        offset = until_offset
    if fault is not None:
        yield MisplacedMessage(_end(entries), len(body), offset, None, fault.reason, fault)


def _fits(body: Any, span: ResponseSpan, *, is_exact: bool) -> bool:
    """Whether all messages are within the response, in order."""
    walk = rocketmq_decoder().walk_stored(body)
    first = first_offset(body)
    if walk.fault is not None or walk.end != len(body):
        return False
    if first is None:
        return not is_exact
    until = walk.last_offset + 1
    is_within = span.from_offset <= first and until <= span.until_offset
    return is_within and (until == span.until_offset or not is_exact)


def _out_of_place(
    entries: list[QueueEntry], span: ResponseSpan, *, is_exact: bool
) -> Iterator[int]:
    """Indexes of entries that are not within the response, or do not come after the previous entry.
    If two contradict each other, either may be wrong."""
    fitting = []
    for index, entry in enumerate(entries):
        if span.from_offset < entry.until_offset and entry.offset < span.until_offset:
            fitting.append(index)
        else:
            yield index
    for before, after in pairwise(fitting):
        if entries[after].offset < entries[before].until_offset:
            yield from (before, after)
    if is_exact and entries and entries[-1].until_offset < span.until_offset:
        yield len(entries) - 1


def _entries(body: Any) -> tuple[list[QueueEntry], StoredFault | None]:
    """The entries found by their lengths only, whatever their offsets; and the fault at which they
    end, unless they end with the bytes."""
    entries: list[QueueEntry] = []
    byte_index = 0
    while byte_index < len(body):
        entry = entry_at(body, byte_index)
        if isinstance(entry, StoredFault):
            return entries, entry
        if entry.until_offset <= entry.offset:
            return entries, StoredFault.INNER
        entries.append(entry)
        byte_index = entry.end
    return entries, None


def _begin(entries: list[QueueEntry], from_offset: int) -> int:
    """The first offset of the entries. A pull from inside a batch returns the whole batch."""
    if (
        entries
        and entries[0].is_batch
        and entries[0].offset < from_offset < entries[0].until_offset
    ):
        return entries[0].offset
    return from_offset


def _count(entries: list[QueueEntry]) -> int:
    return sum(entry.until_offset - entry.offset for entry in entries)


def _end(entries: list[QueueEntry]) -> int:
    return entries[-1].end if entries else 0
