"""Whether messages are where the broker says they are.

The offset stored in a message is covered by no checksum. But a broker looks messages up by an index
of its own and says which offsets its response accounts for. If a response has as many messages as
it accounts for offsets, the offset of each is certain. If messages are missing (because of tags or
compaction), the offsets must rise and stay within the response. An offset that was moved into such
a gap is not detected, nor are changed times and properties.

Pure functions of bytes. A wrong offset is a value here (``MisplacedMessage``); the reader of the
messages raises the error.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby, pairwise
from typing import Any, NamedTuple

from rangeland.decode import rocketmq_decoder
from rangeland.decode.rocketmq.layout import MessageWalk, StoredFault
from rangeland.dialects.fetch_values import ResponseSpan
from rangeland.dialects.rocketmq.log_entries import QueueEntry, entry_at, first_offset
from rangeland.dialects.rocketmq.pull_result import PullResult


class MisplacedMessage(NamedTuple):
    """The bytes ``[start, end)`` are at the offsets ``[offset, until_offset)``, but other offsets
    are stored in them. ``until_offset`` is None if the end is uncertain."""

    start: int
    end: int
    offset: int
    until_offset: int | None
    why: str
    fault: StoredFault | None = None


class ResponseRun(NamedTuple):
    """The messages at bytes ``[start, end)`` account for ``[from_offset, until_offset)``.
    ``misplaced``: what is wrong after them, if anything."""

    start: int
    end: int
    from_offset: int
    until_offset: int
    misplaced: MisplacedMessage | None


def response_runs(given: PullResult) -> Iterator[ResponseRun]:
    """All fetched bytes; the broker must have said which offsets they account for."""
    spans = given.context.spans
    start, offset = 0, spans[0].from_offset
    for one in misplaced_messages(given):
        yield ResponseRun(start, one.start, offset, one.offset, one)
        start = one.end
        offset = one.offset if one.until_offset is None else one.until_offset
    yield ResponseRun(start, len(given.messages), offset, spans[-1].until_offset, None)


def misplaced_messages(given: PullResult) -> list[MisplacedMessage]:
    """The misplaced messages, in the order of the bytes. The last may be one whose end is
    unknown."""
    spans, has_gaps = given.context.spans, given.context.has_gaps
    if not has_gaps and is_tiled(given.messages, spans[0].from_offset, spans[-1].until_offset):
        return []
    found: list[MisplacedMessage] = []
    begin = 0
    for span in spans:
        body = given.messages[begin : span.end]
        if has_gaps:
            wrong = _with_gaps(body, span, is_exact=not given.context.tags)
        else:
            wrong = _without_gaps(body, span)
        for one in wrong:
            found.append(one._replace(start=begin + one.start, end=begin + one.end))
            if one.until_offset is None:
                return found
        begin = span.end
    return found


def is_tiled(body: Any, from_offset: int, until_offset: int) -> bool:
    """Whether plain messages follow each other at all of these offsets, to the last byte."""
    if first_offset(body) != from_offset:
        return False
    walked = rocketmq_decoder().walk_stored(body)
    return walked == MessageWalk(until_offset - from_offset, len(body), until_offset - 1, None)


def is_complete(body: Any, from_offset: int, until_offset: int) -> bool:
    """Whether there are as many messages as offsets, whatever offsets are stored in them: then none
    is missing, and the offset of each is certain."""
    if is_tiled(body, from_offset, until_offset):
        return True
    entries, fault = _entries(body)
    return fault is None and _count(entries) == until_offset - _begin(entries, from_offset)


def before_gap(body: Any, from_offset: int) -> tuple[int, int | None]:
    """The byte up to which messages follow each other from the offset on, and the offset there;
    None if damaged bytes follow instead of a gap."""
    entries, fault = _entries(body)
    expected = _begin(entries, from_offset)
    for entry in entries:
        if entry.offset != expected:
            return entry.start, max(expected, from_offset)
        expected = entry.until_offset
    return (len(body), None) if fault else (_end(entries), max(expected, from_offset))


# --- within one response ------------------------------------------------------------------


def _without_gaps(body: Any, span: ResponseSpan) -> Iterator[MisplacedMessage]:
    entries, fault = _entries(body)
    offset = _begin(entries, span.from_offset)
    has_all = fault is None and _count(entries) == span.until_offset - offset
    for entry in entries:
        number = entry.until_offset - entry.offset
        if entry.offset != offset:
            why = f"it is at offset {offset}, and says that it is at {entry.offset}"
            end = offset + number if has_all else None
            yield MisplacedMessage(entry.start, entry.end, offset, end, why)
            if end is None:
                return
        offset += number
    if fault is not None:
        yield MisplacedMessage(_end(entries), len(body), offset, None, fault.reason, fault)
    elif not has_all:
        why = (
            f"its broker's response goes on to offset {span.until_offset}, and has no more messages"
        )
        yield MisplacedMessage(len(body), len(body), offset, None, why)


def _with_gaps(body: Any, span: ResponseSpan, *, is_exact: bool) -> Iterator[MisplacedMessage]:
    """``is_exact``: the last message is the last offset that the response accounts for."""
    if _fits(body, span, is_exact=is_exact):
        return
    entries, fault = _entries(body)
    bad = set(_out_of_place(entries, span, is_exact=is_exact and fault is None))
    offset = span.from_offset
    for is_bad, group in groupby(enumerate(entries), lambda each: each[0] in bad):
        indexes = [index for index, _ in group]
        first, last = entries[indexes[0]], entries[indexes[-1]]
        if not is_bad:
            offset = last.until_offset
            continue
        following = entries[indexes[-1] + 1 :][:1]
        end = following[0].offset if following else span.until_offset if fault is None else None
        why = f"it says that it is at offset {first.offset}, where offsets {offset} to "
        why += f"{(end or span.until_offset) - 1} may be"
        if end is None or end <= offset:
            yield MisplacedMessage(first.start, len(body), offset, None, why)
            return
        yield MisplacedMessage(first.start, last.end, offset, end, why)
        offset = end
    if fault is not None:
        yield MisplacedMessage(_end(entries), len(body), offset, None, fault.reason, fault)


def _fits(body: Any, span: ResponseSpan, *, is_exact: bool) -> bool:
    walked = rocketmq_decoder().walk_stored(body)
    first = first_offset(body)
    if walked.fault is not None or walked.end != len(body):
        return False
    if first is None:
        return not is_exact
    until = walked.last_offset + 1
    is_within = span.from_offset <= first and until <= span.until_offset
    return is_within and (until == span.until_offset or not is_exact)


def _out_of_place(
    entries: list[QueueEntry], span: ResponseSpan, *, is_exact: bool
) -> Iterator[int]:
    """Indexes of entries that are not within the response, or not after the previous entry. If two
    contradict each other, either may be wrong."""
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
    """The entries by their lengths only, whatever offsets they have; and the fault at which they
    end, if it is not the end of the bytes."""
    found: list[QueueEntry] = []
    place = 0
    while place < len(body):
        entry = entry_at(body, place)
        if isinstance(entry, StoredFault):
            return found, entry
        if entry.until_offset <= entry.offset:
            return found, StoredFault.INNER
        found.append(entry)
        place = entry.end
    return found, None


def _begin(entries: list[QueueEntry], from_offset: int) -> int:
    """A pull from inside a batch returns all of it."""
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
