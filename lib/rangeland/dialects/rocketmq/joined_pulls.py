"""Joins what the pulls of a series returned into the response to one fetch.

Pulls are sent together, and with tags they overlap, so the result of one may end after the next one
begins. A response ends before the first pull that leaves a gap or fails.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from rangeland.dialects.error_meaning import ErrorCode, ErrorMeaning
from rangeland.dialects.fetch_values import (
    NO_DATA,
    FetchContext,
    FetchedPartition,
    FetchedRecords,
    ResponseSpan,
)
from rangeland.dialects.rocketmq import messages as m
from rangeland.dialects.rocketmq.error_codes import (
    MISSING,
    NO_MATCHED_MESSAGE,
    STATIC_TOPIC,
    SUCCESS,
    code_text,
    pull_code_of,
)
from rangeland.dialects.rocketmq.missing_messages import compacted_until, found_at
from rangeland.dialects.rocketmq.offset_checks import before_gap, is_complete, misplaced_messages
from rangeland.dialects.rocketmq.pull_result import PullResult, messages_from
from rangeland.dialects.rocketmq.pulls_in_flight import number_of
from rangeland.model import Partition


def join_pulls(partition: Partition, series: m.SeriesResponse) -> FetchedPartition:
    """What the pulls of a series returned together. If nothing can be used without leaving a gap,
    the response to the first pull says why."""
    start = series.request.offset
    compacted_end = compacted_until(series)
    by_tags = any(response.pull.tags for response in series.responses)
    firsts = [series.responses[0], *(series.follow_ups[:1] if by_tags else ())]
    for response in firsts:
        first = _pull_code(response, start, is_known=compacted_end is not None)
        if first.meaning is not ErrorMeaning.OK or found_at(response) != found_at(firsts[0]):
            return FetchedPartition(partition, first.meaning, _pull_text(first, response))
    tags = tuple(tag.encode() for tag in series.request.tags)
    joined = _JoinedPulls(start, by_tags or series.is_compacted, tags)
    joined.note(series.responses[0])
    if by_tags:
        return _by_tags(partition, series, joined)
    for response in series.responses:
        at = response.pull.offset
        if at > joined.next_offset:
            break
        is_known = compacted_end is not None and at == start
        if _pull_code(response, at, is_known=is_known).meaning is not ErrorMeaning.OK:
            break
        joined.note(response)
        if response.code != SUCCESS or not joined.add(response):
            break
    return joined.as_fetched(partition)


@dataclass(slots=True)
class _JoinedPulls:
    """The joined pulls of a series: the bodies before ``next_offset``, and the offsets that each
    accounts for; the end of the queue and the broker to read from, as in the last response.
    ``has_gaps``: offsets may be missing."""

    next_offset: int
    has_gaps: bool
    tags: tuple[bytes, ...]
    bodies: list[Any] = field(default_factory=list)
    spans: list[ResponseSpan] = field(default_factory=list)
    readable_end: int = -1
    preferred: int | None = None

    def note(self, response: m.RemotingResponse) -> None:
        if "maxOffset" in response.fields:
            self.readable_end = max(self.readable_end, number_of(response, "maxOffset"))
        if "suggestWhichBrokerId" in response.fields:
            self.preferred = number_of(response, "suggestWhichBrokerId")

    def add(self, response: m.RemotingResponse) -> bool:
        """Adds the messages from ``next_offset`` on. Pulls overlap if they are by tags, and if a
        batch extends beyond the end of one. False: later pulls cannot be joined."""
        start, until_offset = self.next_offset, number_of(response, "nextBeginOffset")
        if until_offset <= start:
            return True
        body = response.body if response.code == SUCCESS else NO_DATA
        if response.pull.offset < start:
            if self._is_misplaced(body, response.pull.offset, until_offset):
                return False  # a pull of its own will show which messages are misplaced
            body = messages_from(body, start)
        if not self.has_gaps and not is_complete(body, start, until_offset):
            # The missing offsets are pulled again, beginning with the first of them.
            size, gap = before_gap(body, start)
            body = body[:size]
            until_offset = until_offset if gap is None else gap
        is_whole = until_offset == number_of(response, "nextBeginOffset")
        if until_offset > start:
            self._put(body, until_offset)
        return is_whole

    def _is_misplaced(self, body: Any, from_offset: int, until_offset: int) -> bool:
        spans = (ResponseSpan(len(body), from_offset, until_offset),)
        return bool(misplaced_messages(PullResult(memoryview(body), self._context(spans))))

    def _context(self, spans: Sequence[ResponseSpan]) -> FetchContext:
        return FetchContext(spans=tuple(spans), has_gaps=self.has_gaps, tags=self.tags)

    def _put(self, body: Any, until_offset: int) -> None:
        end = (self.spans[-1].end if self.spans else 0) + len(body)
        self.spans.append(ResponseSpan(end, self.next_offset, until_offset))
        self.bodies.append(body)
        self.next_offset = until_offset

    def as_fetched(self, partition: Partition) -> FetchedPartition:
        if not self.spans:
            return self.nothing(partition, "PULL_NOT_FOUND")
        bodies = self.bodies
        start = self.spans[0].from_offset
        data = memoryview(b"".join(bodies) if bodies[1:] else bodies[0])
        records = FetchedRecords(data, start, context=self._context(self.spans))
        return replace(self.nothing(partition, "FOUND"), records=records)

    def nothing(self, partition: Partition, name: str) -> FetchedPartition:
        return FetchedPartition(
            partition,
            ErrorMeaning.OK,
            name,
            readable_end=self.readable_end,
            preferred=self.preferred,
        )


def _by_tags(
    partition: Partition, series: m.SeriesResponse, joined: _JoinedPulls
) -> FetchedPartition:
    """What the pulls of a series by tags returned together. The first response has shown that the
    log contained the offset, and the follow-up that it still did after all pulls. A broker searches
    beyond the last message that it returns, and pulls may overlap."""
    for response in series.responses[1:]:
        if response.pull.offset > joined.next_offset:
            break
        is_found = response.code == SUCCESS
        if _has_moved(response):
            break
        if not is_found and response.remark != NO_MATCHED_MESSAGE:
            break
        joined.note(response)
        if not joined.add(response):
            break
    if not joined.spans:
        return _nothing_by_tags(partition, series, joined)
    return joined.as_fetched(partition)


def _nothing_by_tags(
    partition: Partition, series: m.SeriesResponse, joined: _JoinedPulls
) -> FetchedPartition:
    """The result of a series by tags that has no messages. The first pull with tags says why,
    unless the queue ends there."""
    response = series.responses[1]
    code = pull_code_of(response.code, response.remark, joined.next_offset)
    if code.meaning is ErrorMeaning.OK:
        return joined.nothing(partition, code.name)
    return FetchedPartition(partition, code.meaning, f"{code.name}: {response.remark}")


def _pull_code(response: m.RemotingResponse, offset: int, *, is_known: bool = False) -> ErrorCode:
    """The code of a pull at ``offset``. If there is no message at that offset, a broker continues
    at the next one. The caller then asks whether the log's beginning has moved. ``is_known``: the
    offsets before the next message are known to be compacted."""
    if _has_moved(response):
        return STATIC_TOPIC
    code = pull_code_of(response.code, response.remark, offset)
    first = found_at(response)
    if first is None or first == offset or is_known:
        return code
    # A complete response contains the offset's message, whatever offset is stored in it.
    until_offset = number_of(response, "nextBeginOffset")
    return code if is_complete(response.body, offset, until_offset) else MISSING


def _has_moved(response: m.RemotingResponse) -> bool:
    """Whether the queue belongs to a static topic and has moved to another queue. Its messages keep
    the offsets of that one, and clients add ``offsetDelta`` to them."""
    return response.fields.get("offsetDelta", "") not in ("", "0")


def _pull_text(code: ErrorCode, response: m.RemotingResponse) -> str:
    if code is STATIC_TOPIC:
        return f"{code.name} ({code.description})"
    return code_text(code, response.remark)
