"""How much is asked of a broker, and when: its quotas, and the job's own limit of bytes.

Values only: whoever keeps the time says what time it is. A broker that holds an answer back
for its quota says for how long nothing more should come; the newer ones do not listen before.
A byte rate is a bucket that each answer empties: the next request waits until what came is
paid for. So single answers may come at once, and the mean is what was asked for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from rangeland.fetch.loop_actions import FetchLimits
from rangeland.model import Address, Slice

Rates = tuple[tuple[Address, int], ...]


def shared_rates(tasks: Sequence[Sequence[Slice]], slots: int, bytes_per_second: int) -> Rates:
    """What each task may take of each broker, so that those that run at the same time stay
    within the rate together: ``slots`` tasks do."""
    reading = Counter(address for task in tasks for address in {s.leader for s in task})
    return tuple(
        (address, max(1, bytes_per_second // min(count, max(1, slots))))
        for address, count in sorted((a, n) for a, n in reading.items() if a is not None)
    )


def slowed(patience: FetchLimits, rates: Rates) -> FetchLimits:
    """Requests of about a second's worth, so that a slow reader pauses often and briefly."""
    if not rates:
        return patience
    most = max(min(rate for _, rate in rates), patience.smallest_fetch_bytes)
    return replace(
        patience,
        fetch_bytes=min(patience.fetch_bytes, most),
        request_bytes=min(patience.request_bytes, most),
    )


@dataclass(slots=True)
class Throttle:
    """``rates``: bytes per second, by broker; of one that is not named, such as a new leader,
    no more is taken than of the least of them. ``default_rate`` 0 and no rates: no limit."""

    rates: Mapping[Address, int] = field(default_factory=dict)
    default_rate: int = 0
    quiet: dict[Address, int] = field(default_factory=dict)
    """Until when nothing is sent to a broker, in ms."""

    def on_answer(self, address: Address, size: int, throttle_ms: int, now_ms: int) -> None:
        """An answer of ``size`` bytes came, and the wish not to be asked for ``throttle_ms``."""
        until = now_ms + throttle_ms
        rate = self.rate_of(address)
        if rate and size:
            paid_ms = -(-size * 1000 // rate)
            until = max(until, max(self.quiet.get(address, 0), now_ms) + paid_ms)
        self.quiet[address] = max(until, self.quiet.get(address, 0))

    def rate_of(self, address: Address) -> int:
        return self.rates.get(address) or min(self.rates.values(), default=self.default_rate)

    def free_at(self, address: Address | None) -> int:
        """When the broker may be asked again; 0 for one that may be at once."""
        return 0 if address is None else self.quiet.get(address, 0)
