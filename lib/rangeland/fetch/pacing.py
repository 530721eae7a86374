"""How much is requested from a broker, and when: request sizes, waits between attempts, throttling.

There is no clock here: the caller passes the time. A slice waits after a failure, longer each time.
A broker that throttles a client says how long to send no more requests; newer ones do not read any
until then. The job's own byte rate is a token bucket that each response empties: the next request
waits until the rate covers the bytes received. So a single response may come at full speed, and the
mean is the configured rate.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from rangeland.model import Address, Slice

SHORT_END_PAUSE_MS = 500
"""The pause before a log that ends too early is asked again."""
_MOST_DOUBLINGS = 10

Rates = tuple[tuple[Address, int], ...]
"""Bytes per second, by broker."""


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


def retry_delay_ms(failures: int, limits: FetchLimits) -> int:
    """The wait after so many failures in a row, at least one: twice as long each time, up to a
    maximum."""
    doubled = limits.backoff_ms << min(failures - 1, _MOST_DOUBLINGS)
    return min(doubled, limits.max_backoff_ms)


def shared_rates(tasks: Sequence[Sequence[Slice]], slots: int, bytes_per_second: int) -> Rates:
    """The rate of each task at each broker, so that the ``slots`` tasks that run at the same time
    stay within the rate together."""
    reading = Counter(address for task in tasks for address in {s.leader for s in task})
    return tuple(
        (address, max(1, bytes_per_second // min(count, max(1, slots))))
        for address, count in sorted((a, n) for a, n in reading.items() if a is not None)
    )


def limits_at_rate(limits: FetchLimits, rates: Rates) -> FetchLimits:
    """Requests of about a second's worth, so that a slow reader pauses often and briefly."""
    if not rates:
        return limits
    most = max(min(rate for _, rate in rates), limits.smallest_fetch_bytes)
    return replace(
        limits,
        fetch_bytes=min(limits.fetch_bytes, most),
        request_bytes=min(limits.request_bytes, most),
    )


@dataclass(slots=True)
class Throttle:
    """How long to leave brokers alone, because of their quotas or the job's byte rate. ``rates``:
    bytes per second, by broker; a broker that is not listed, such as a new leader, gets the lowest.
    ``default_rate`` 0 and no rates: no limit."""

    rates: Mapping[Address, int] = field(default_factory=dict)
    default_rate: int = 0
    silent_until: dict[Address, int] = field(default_factory=dict)
    """The time, in ms, until which nothing is sent to a broker."""

    def on_response(self, address: Address, size: int, throttle_ms: int, now_ms: int) -> None:
        """A response of ``size`` bytes came, with the request to pause for ``throttle_ms``."""
        until = now_ms + throttle_ms
        rate = self.rate_of(address)
        if rate and size:
            paid_ms = -(-size * 1000 // rate)
            until = max(until, max(self.silent_until.get(address, 0), now_ms) + paid_ms)
        self.silent_until[address] = max(until, self.silent_until.get(address, 0))

    def rate_of(self, address: Address) -> int:
        return self.rates.get(address) or min(self.rates.values(), default=self.default_rate)

    def free_at(self, address: Address | None) -> int:
        """The time from which the broker may be asked again; 0: now."""
        return 0 if address is None else self.silent_until.get(address, 0)
