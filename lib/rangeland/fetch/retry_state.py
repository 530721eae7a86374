"""When a slice is asked for again, and for how long it has made no progress."""

from __future__ import annotations

from dataclasses import dataclass

from rangeland.fetch.pacing import FetchLimits, retry_delay_ms


@dataclass(slots=True)
class RetryState:
    progress_at_ms: int
    resume_at_ms: int = 0
    failures: int = 0
    last_failure: str = ""
    tried_at_ms: int = 0
    """When the latest attempt failed."""
    stuck_since_ms: int | None = None
    """When the first attempt since the last progress failed."""
    throttled_ms: int = 0

    @property
    def stuck_ms(self) -> int:
        """How long it has been stuck: from the first failed attempt since the last progress to the
        latest. Time spent elsewhere, for example in a slow writer, does not count."""
        return 0 if self.stuck_since_ms is None else self.tried_at_ms - self.stuck_since_ms

    def on_progress(self, now_ms: int) -> None:
        self.progress_at_ms = now_ms
        self.stuck_since_ms = None

    def back_off(self, reason: str, now_ms: int, limits: FetchLimits) -> None:
        """An attempt failed: the next one waits, longer each time."""
        self.failures += 1
        self.last_failure = reason
        self.tried_at_ms = now_ms
        if self.stuck_since_ms is None:
            self.stuck_since_ms = now_ms
        self.resume_at_ms = now_ms + retry_delay_ms(self.failures, limits)

    def excuse(self, throttle_ms: int, limits: FetchLimits) -> None:
        """Its broker throttles this client: the time does not count as stuck, up to a limit."""
        if self.stuck_since_ms is not None:
            excused_ms = max(0, min(throttle_ms, limits.most_throttled_ms - self.throttled_ms))
            self.throttled_ms += excused_ms
            self.stuck_since_ms += excused_ms

    def forget_failures(self) -> None:
        self.throttled_ms = self.failures = 0
