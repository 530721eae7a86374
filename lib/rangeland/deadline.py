"""A deadline for requests that are repeated until the time is up, and the waits between them."""

from __future__ import annotations

import time


class Deadline:
    """A moment by the monotonic clock, so many seconds from now."""

    def __init__(self, seconds: float) -> None:
        self._at = time.monotonic() + seconds

    @property
    def has_passed(self) -> bool:
        return time.monotonic() > self._at

    def wait(self, seconds: float) -> bool:
        """Sleeps, unless the deadline has passed. Returns whether it has slept, so that the caller
        may try once more."""
        if self.has_passed:
            return False
        time.sleep(seconds)
        return True
