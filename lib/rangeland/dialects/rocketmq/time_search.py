"""Finds the first message of a queue at or after a time, wherever a broker says that it is.

The message that a broker names is only where the search begins. Brokers before 5.1.1 name the
message whose time is the closest, which may be the last one of the queue, or any of several that
have the same time. For a topic that stores batches, newer brokers too name the last batch if all
are older. Which message that is depends on when a broker is asked, so two intervals that meet at a
time could leave messages out.

So single messages are pulled until the border is known: every message before it is older or
deleted, and the next one is not older, or there is none. Only their times are read; their places
are taken from the broker's index. Usually, the message that is named and the one before it are
enough. A broker stores the messages of a queue in the order of its own clock. If a message cannot
be pulled now, the search has no result yet.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from rangeland.dialects.error_meaning import ErrorMeaning
from rangeland.dialects.rocketmq import messages as m
from rangeland.dialects.rocketmq.error_codes import ASK_AGAIN, SUCCESS, pull_code_of
from rangeland.dialects.rocketmq.pulls_in_flight import number_of
from rangeland.dialects.rocketmq.queue_entries import MAX_OFFSET, stored_ms

MAX_SEARCH_PULLS: Final = 160
"""The search moves away from the named message in growing steps, and then halves the distance: at
most two pulls for each bit of an offset. A broker that needs more contradicts itself."""


def next_request(search: m.TimeSearch, responses: Sequence[m.RemotingResponse]) -> m.Pull | None:
    """The next pull of the search; None if it is complete."""
    if responses[0].code != SUCCESS:
        return None
    offset = _bounds_of(search, responses).offset_to_pull(len(responses) - 1)
    return None if offset is None else m.Pull(search.about, offset, 1)


def search_result(
    search: m.TimeSearch, responses: Sequence[m.RemotingResponse]
) -> m.RemotingResponse:
    """The corrected response to the search, or the reason why there is none."""
    response = responses[0]
    if response.code != SUCCESS:
        return response
    bounds = _bounds_of(search, responses)
    if bounds.failure is None and bounds.is_met:
        return response._replace(fields={**response.fields, "offset": str(bounds.low)})
    last = responses[-1]
    if last.code == SUCCESS:
        remark = bounds.failure or "its messages are not in the order of their times"
        return response._replace(code=ASK_AGAIN, remark=remark)
    return response._replace(code=last.code, remark=last.remark)


@dataclass(slots=True)
class _Bounds:
    """What is known of a queue: all messages before ``low`` are older than the time or deleted, and
    the next message at or after ``high`` is not older, or there is none. ``named``: the offset that
    the broker names. ``failure``: why a response shows nothing."""

    time_ms: int
    named: int
    low: int = 0
    high: int | None = None
    failure: str | None = None

    @property
    def is_met(self) -> bool:
        return self.high is not None and self.low >= self.high

    def offset_to_pull(self, pulls: int) -> int | None:
        """The offset of the next pull, after so many of them; None if no more are needed, or none
        would help."""
        if self.failure is not None or self.is_met or pulls >= MAX_SEARCH_PULLS:
            return None
        if pulls == 0:
            return self.named
        step = 1 << (pulls - 1)
        if self.high is None:
            return min(self.low + step - 1, MAX_OFFSET)
        if self.low == 0:
            return max(self.high - step, 0)
        return (self.low + self.high) // 2

    def take(self, response: m.RemotingResponse) -> None:
        """Takes the response to a pull."""
        at = response.pull.offset
        if response.code == SUCCESS:
            self._take_message(response, at)
            return
        code = pull_code_of(response.code, response.remark, at)
        # For a static topic only the numbers say on which side of the queue the offset is.
        is_outside = code.meaning is ErrorMeaning.OUT_OF_RANGE and "maxOffset" in response.fields
        if code.meaning is ErrorMeaning.OK:
            self.high = at
        elif is_outside and (begin := number_of(response, "minOffset")) > at:
            self.low = begin
        elif is_outside and (end := number_of(response, "maxOffset")) < at:
            self.high = max(self.low, end)
        else:
            self.failure = code.describe(response.remark)

    def _take_message(self, response: m.RemotingResponse, at: int) -> None:
        time_ms = stored_ms(response.body)
        next_offset = number_of(response, "nextBeginOffset")
        if time_ms is None or next_offset <= at:
            self.failure = f"it returned no message at offset {at}"
        elif time_ms < self.time_ms:
            self.low = next_offset
        else:
            self.high = at


def _bounds_of(search: m.TimeSearch, responses: Sequence[m.RemotingResponse]) -> _Bounds:
    """What the responses show: that to the search itself, and those to the pulls."""
    bounds = _Bounds(search.time_ms, max(number_of(responses[0], "offset"), 0))
    for response in responses[1:]:
        bounds.take(response)
    return bounds
