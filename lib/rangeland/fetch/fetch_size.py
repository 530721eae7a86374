"""How many bytes a slice requests at a time: fewer after slow responses, more again after timely
ones, and more for a batch that did not fit."""

from __future__ import annotations

from dataclasses import dataclass

from rangeland.fetch.pacing import FetchLimits
from rangeland.model import Slice

RESPONSES_TO_GROW = 4
"""How many responses must come in time before more is requested again, at first."""


@dataclass(slots=True)
class FetchSize:
    bytes: int
    is_alone: bool = False
    """The next request has no other slices, so that nothing limits its size."""
    slowed_from: int = 0
    """The size before responses were too slow; 0 if none was."""
    responses: int = 0
    """How many responses have come in time since."""
    responses_to_grow: int = RESPONSES_TO_GROW

    def shrink(self, limits: FetchLimits) -> None:
        """A response was too slow: the next request is smaller, and is for this slice alone. Each
        time, twice as many timely responses are needed before the size grows again."""
        self.slowed_from = max(self.slowed_from, self.bytes)
        self.responses, self.responses_to_grow = 0, self.responses_to_grow * 2
        self.bytes = max(self.bytes // 2, min(limits.smallest_fetch_bytes, self.bytes))
        self.is_alone = True

    def grow_back(self) -> None:
        """A response came in time. After enough of them more is requested, up to the size
        before."""
        if self.bytes >= self.slowed_from:
            return
        self.responses += 1
        if self.responses >= self.responses_to_grow:
            self.responses, self.bytes = 0, min(self.bytes * 2, self.slowed_from)

    def double(self, limits: FetchLimits) -> None:
        """A batch did not fit: the next request is larger, and is for this slice alone."""
        self.bytes = min(self.bytes * 2, limits.largest_fetch_bytes)
        self.is_alone = True


def first_fetch_size(slice_: Slice, limits: FetchLimits) -> FetchSize:
    if slice_.estimated_bytes <= 0:
        return FetchSize(limits.fetch_bytes)
    # A quarter above the estimate, so that a small slice is one response and not two.
    guess = slice_.estimated_bytes * 5 // 4 + limits.smallest_fetch_bytes
    return FetchSize(min(limits.fetch_bytes, guess))
