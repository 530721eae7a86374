"""A deadline for requests that are repeated until the time is up."""

from __future__ import annotations

import time


class Deadline:
    """A moment this many seconds from now, by the monotonic clock."""

    def __init__(self, seconds: float) -> None:
        self._at = time.monotonic() + seconds

    @property
    def has_passed(self) -> bool:
        return time.monotonic() > self._at
