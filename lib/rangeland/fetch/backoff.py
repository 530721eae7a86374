"""Decides when a broker may be asked again: waits after failures, throttling, the job's byte rate.

There is no clock here: the caller passes the time. A slice waits after a failure, longer each time.
A broker that throttles a client says for how long it must not send requests; newer brokers do not
read any until then. The job's own byte rate is a token bucket that each response empties: the next
request waits until the rate has made up for the bytes received. So a single response may come at
full speed, but the average is the configured rate.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from rangeland.fetch.fetch_size import FetchLimits
from rangeland.model import Address, Slice

SHORT_END_PAUSE_MS = 500
"""The pause before a log that ends too early is asked again."""
_MAX_DOUBLINGS = 10
"""The maximum delay is reached long before; without a limit, the number would grow with each
failure."""

Rates = tuple[tuple[Address, int], ...]
"""Bytes per second, by broker."""


def retry_delay_ms(failures: int, limits: FetchLimits) -> int:
    """The wait after so many failures in a row, at least one: twice as long each time, up to a
    maximum."""
    doubled = limits.backoff_ms << min(failures - 1, _MAX_DOUBLINGS)
    return min(doubled, limits.max_backoff_ms)


def shared_rates(tasks: Sequence[Sequence[Slice]], slots: int, bytes_per_second: int) -> Rates:
    """The rate of each task at each broker, such that the ``slots`` tasks that run at the same time
    together stay within ``bytes_per_second``."""
    reading = Counter(address for task in tasks for address in {s.leader for s in task})
    return tuple(
        (address, max(1, bytes_per_second // min(count, max(1, slots))))
        for address, count in sorted((a, n) for a, n in reading.items() if a is not None)
    )


def limits_at_rate(limits: FetchLimits, rates: Rates) -> FetchLimits:
    """The limits, with requests for about one second's bytes, so that a slow reader pauses often
    and briefly."""
    if not rates:
        return limits
    most = max(min(rate for _, rate in rates), limits.smallest_fetch_bytes)
    return replace(
        limits,
        fetch_bytes=min(limits.fetch_bytes, most),
        request_bytes=min(limits.request_bytes, most),
    )


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
        """Delays the next attempt after a failed one, longer each time."""
        self.failures += 1
        self.last_failure = reason
        self.tried_at_ms = now_ms
        if self.stuck_since_ms is None:
            self.stuck_since_ms = now_ms
        self.resume_at_ms = now_ms + retry_delay_ms(self.failures, limits)

    def excuse(self, throttle_ms: int, limits: FetchLimits) -> None:
        """Does not count the time for which the broker throttles this client as time stuck, up to a
        limit."""
        if self.stuck_since_ms is not None:
            excused_ms = max(0, min(throttle_ms, limits.most_throttled_ms - self.throttled_ms))
            self.throttled_ms += excused_ms
            self.stuck_since_ms += excused_ms

    def forget_failures(self) -> None:
        self.throttled_ms = self.failures = 0


@dataclass(slots=True)
class Throttle:
    """How long to leave brokers alone, because of their quotas or the job's byte rate. ``rates``:
    bytes per second, by broker; a broker that is not listed, such as a new leader, gets the lowest.
    Without rates there is no limit."""

    rates: Mapping[Address, int] = field(default_factory=dict)
    silent_until: dict[Address, int] = field(default_factory=dict)
    """The time, in ms, until which nothing is sent to a broker."""

    def on_response(self, address: Address, size: int, throttle_ms: int, now_ms: int) -> None:
        """Leaves the broker alone for as long as a response of ``size`` bytes takes at the job's
        rate, and for the ``throttle_ms`` that it asks for."""
        until = now_ms + throttle_ms
        rate = self.rate_of(address)
        if rate and size:
            paid_ms = -(-size * 1000 // rate)
            until = max(until, max(self.silent_until.get(address, 0), now_ms) + paid_ms)
        self.silent_until[address] = max(until, self.silent_until.get(address, 0))

    def rate_of(self, address: Address) -> int:
        return self.rates.get(address) or min(self.rates.values(), default=0)

    def free_at(self, address: Address | None) -> int:
        """The time from which the broker may be asked again; 0: now."""
        return 0 if address is None else self.silent_until.get(address, 0)
