"""What the fetch loop asks of whoever drives it, as values.

A step is one thing to do at the edge: ask a leader for records, ask it where its log
begins and ends, find leaders, wait. No step knows how it is done.
"""

from __future__ import annotations

from dataclasses import dataclass

from rangeland.model import Address, Partition


@dataclass(frozen=True, slots=True)
class FetchLimits:
    """``no_progress_ms``: how long a slice may stand still before the loop gives up; it must
    outlast a leader election. Sizes bound one partition's part of one answer."""

    no_progress_ms: int = 120_000
    backoff_ms: int = 100
    max_backoff_ms: int = 2_000
    fetch_bytes: int = 8 << 20
    smallest_fetch_bytes: int = 64 << 10
    largest_fetch_bytes: int = 1 << 30
    request_bytes: int = 32 << 20

    @property
    def most_throttled_ms(self) -> int:
        """How long a broker may hold a slice back for a quota without a record in between,
        before that counts as standing still."""
        return 10 * self.no_progress_ms


@dataclass(frozen=True, slots=True)
class FetchTarget:
    """One partition's part of a request. ``index`` is the slice's."""

    index: int
    partition: Partition
    topic_id: str | None
    epoch: int | None
    offset: int
    max_bytes: int


@dataclass(frozen=True, slots=True)
class SendFetch:
    """Send one fetch for all ``wants`` to ``leader`` and report each answer. ``stays``: it is
    not to send us to another replica."""

    leader: Address
    wants: tuple[FetchTarget, ...]
    stays: bool = False


@dataclass(frozen=True, slots=True)
class SendLogRange:
    """Ask ``leader`` where the partition's log begins and ends: an offset was out of it."""

    leader: Address
    want: FetchTarget


@dataclass(frozen=True, slots=True)
class FindLeaders:
    """Ask for the leaders of these partitions, the seeds in this order first."""

    partitions: tuple[Partition, ...]
    seeds: tuple[Address, ...]


@dataclass(frozen=True, slots=True)
class WaitUntil:
    """Nothing can be done before this instant."""

    at_ms: int


@dataclass(frozen=True, slots=True)
class AllRead:
    """Every slice has been read to its end."""


Step = SendFetch | SendLogRange | FindLeaders | WaitUntil | AllRead
