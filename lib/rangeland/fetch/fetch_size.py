"""Decides how much is requested from a broker at a time.

A slice requests less after slow responses, more again after timely ones, and more if an entry did
not fit.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from rangeland.model import Slice

RESPONSES_TO_GROW = 4
"""How many responses must come in time before more is requested again, at first."""
RESPONSE_HEADERS_BYTES = 64 << 10
"""The maximum size of everything but the entries in a response to a fetch of one partition."""


@dataclass(frozen=True, slots=True)
class FetchLimits:
    """The sizes and waits of one task's fetches. Sizes limit one partition's share of a
    response."""

    no_progress_ms: int = 120_000
    """How long a slice may make no progress before the loop gives up. It must be longer than a
    leader election."""
    backoff_ms: int = 100
    max_backoff_ms: int = 2_000
    fetch_bytes: int = 8 << 20
    smallest_fetch_bytes: int = 64 << 10
    largest_fetch_bytes: int = 1 << 30
    request_bytes: int = 32 << 20

    @property
    def most_throttled_ms(self) -> int:
        """How long a broker may throttle a slice that gets no records before that counts as no
        progress."""
        return 10 * self.no_progress_ms


def limits_within(limits: FetchLimits, max_answer_bytes: int) -> FetchLimits:
    """The limits, with no more bytes for one entry than a response may have. Brokers before 0.10.1
    fill what is requested, and a longer response would end the run, whatever the policy."""
    most = max(max_answer_bytes - RESPONSE_HEADERS_BYTES, limits.smallest_fetch_bytes)
    return replace(limits, largest_fetch_bytes=min(limits.largest_fetch_bytes, most))


@dataclass(slots=True)
class FetchSize:
    bytes: int
    is_alone: bool = False
    """The next request has no other slices, so that nothing limits its size."""
    slowed_from: int = 0
    """The size before responses were too slow; 0 if none was too slow."""
    responses: int = 0
    """How many responses have come in time since then."""
    responses_to_grow: int = RESPONSES_TO_GROW

    def shrink(self, limits: FetchLimits) -> None:
        """Makes the next request smaller, and for this slice alone, after a response that was too
        slow. Each time, twice as many timely responses are needed before the size grows again."""
        self.slowed_from = max(self.slowed_from, self.bytes)
        self.responses = 0
        self.responses_to_grow = self.responses_to_grow * 2
        self.bytes = max(self.bytes // 2, min(limits.smallest_fetch_bytes, self.bytes))
        self.is_alone = True

    def grow_back(self) -> None:
        """Requests more after enough timely responses, up to the size before they were too slow."""
        if self.bytes >= self.slowed_from:
            return
        self.responses += 1
        if self.responses >= self.responses_to_grow:
            self.responses = 0
            self.bytes = min(self.bytes * 2, self.slowed_from)

    def double(self, limits: FetchLimits) -> None:
        """Makes the next request larger, and for this slice alone, after an entry did not fit."""
        self.bytes = min(self.bytes * 2, limits.largest_fetch_bytes)
        self.is_alone = True


def first_fetch_size(slice_: Slice, limits: FetchLimits) -> FetchSize:
    if slice_.estimated_bytes <= 0:
        return FetchSize(limits.fetch_bytes)
    # A quarter above the estimate, so that a small slice is one response and not two.
    guess = slice_.estimated_bytes * 5 // 4 + limits.smallest_fetch_bytes
    return FetchSize(min(limits.fetch_bytes, guess))
