"""The steps that the fetch loop asks its caller to carry out, as values.

A step is one piece of I/O: request records or the range of a log from a leader, find leaders, or
wait. Steps do not say how it is done.
"""

from __future__ import annotations

from dataclasses import dataclass

from rangeland.model import Address, Partition


@dataclass(frozen=True, slots=True)
class FetchLimits:
    """``no_progress_ms``: how long a slice may make no progress before the loop gives up; it must
    be longer than a leader election. Sizes limit one partition's part of one response."""

    no_progress_ms: int = 120_000
    backoff_ms: int = 100
    max_backoff_ms: int = 2_000
    fetch_bytes: int = 8 << 20
    smallest_fetch_bytes: int = 64 << 10
    largest_fetch_bytes: int = 1 << 30
    request_bytes: int = 32 << 20

    @property
    def most_throttled_ms(self) -> int:
        """How long a broker may throttle a slice without any records before that counts as no
        progress."""
        return 10 * self.no_progress_ms


@dataclass(frozen=True, slots=True)
class FetchTarget:
    """One partition's part of a request. ``index``: that of the slice."""

    index: int
    partition: Partition
    topic_id: str | None
    epoch: int | None
    offset: int
    max_bytes: int


@dataclass(frozen=True, slots=True)
class SendFetch:
    """Send one fetch for all ``wants`` to ``leader`` and report each response. ``stays``: the
    broker must not redirect us to a replica, so no rack is sent."""

    leader: Address
    wants: tuple[FetchTarget, ...]
    stays: bool = False


@dataclass(frozen=True, slots=True)
class SendLogRange:
    """Ask ``leader`` where the partition's log begins and ends: an offset may be outside of it."""

    leader: Address
    want: FetchTarget


@dataclass(frozen=True, slots=True)
class FindLeaders:
    """Find the leaders of these partitions; ask the seeds first, in this order."""

    partitions: tuple[Partition, ...]
    seeds: tuple[Address, ...]


@dataclass(frozen=True, slots=True)
class WaitUntil:
    """There is nothing to do before this time."""

    at_ms: int


@dataclass(frozen=True, slots=True)
class AllRead:
    """Every slice has been read to its end."""


Step = SendFetch | SendLogRange | FindLeaders | WaitUntil | AllRead
