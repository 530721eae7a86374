"""Who reads what of a plan that several drivers share: arithmetic on slices, nothing else.

Each driver reads the slices of the partitions it owns. What has been read is handed in and
is everybody's; what is left of a member that died falls to whoever owns its partitions
next. A partition that nobody owns is read by the first member in order, so that each slice
that is left has one reader as long as all see the same group; where they do not, a slice
may be read twice, and is handed in once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from rangeland.model import Partition, Slice, TaskResult


@dataclass(frozen=True, slots=True)
class SliceOwners:
    """The group as one member sees it. ``owned`` is its own; ``owners`` are all that are
    known, by partition; ``members`` are the drivers of the job. ``is_settled`` False: members
    come or go, so a partition without an owner may have one in a moment."""

    me: str
    owned: frozenset[Partition]
    owners: Mapping[Partition, str]
    members: tuple[str, ...] = ()
    is_settled: bool = True

    def reads(self, partition: Partition) -> bool:
        """True where the slices of a partition are this member's to read."""
        if partition in self.owned:
            return True
        if not self.is_settled or self.reader_of(partition) is not None:
            return False
        return self.me == min((self.me, *self.members))

    def reader_of(self, partition: Partition) -> str | None:
        """Another member that owns the partition."""
        owner = self.owners.get(partition)
        return None if owner == self.me else owner


@dataclass(frozen=True, slots=True)
class ReadSlices:
    """These slices are left and this driver's to read."""

    slices: tuple[Slice, ...]


@dataclass(frozen=True, slots=True)
class WaitForOthers:
    """These slices are left and others' to read."""

    slices: tuple[Slice, ...]

    def told(self, seats: SliceOwners) -> str:
        """``waiting for 2 slices of orders/1, owned by m-17``; the first where there are more."""
        partition = self.slices[0].partition
        count = sum(1 for s in self.slices if s.partition == partition)
        owner = seats.reader_of(partition)
        if owner is None and seats.is_settled and seats.members:
            owner = min(seats.members)
        whose = f"owned by {owner}" if owner else "whose owner is being settled"
        others = len({s.partition for s in self.slices}) - 1
        more = f", and {others} more partition{'s' if others > 1 else ''}" if others else ""
        return f"waiting for {count} slice{'s' if count > 1 else ''} of {partition}, {whose}{more}"


@dataclass(frozen=True, slots=True)
class PlanComplete:
    """All slices are read, by whomever."""


def next_step(
    slices: Sequence[Slice], done: Collection[int], seats: SliceOwners, *, whole: bool = False
) -> ReadSlices | WaitForOthers | PlanComplete:
    """What one member does next. ``done`` are the indices of slices that are read. ``whole``:
    the plan cannot be split, so its first partition decides who reads all of it."""
    left = tuple(s for s in slices if s.index not in done)
    if not left:
        return PlanComplete()
    if whole:
        return ReadSlices(left) if seats.reads(left[0].partition) else WaitForOthers(left)
    mine = tuple(s for s in left if seats.reads(s.partition))
    return ReadSlices(mine) if mine else WaitForOthers(left)


def not_handed_in(units: Iterable[TaskResult], done: Collection[int]) -> list[TaskResult]:
    """The units of which no slice is in ``done``. A file may hold rows of all slices of its
    unit, so a unit is kept or dropped whole; what is dropped with it is read again."""
    seen = set(done)
    kept = []
    for unit in units:
        indices = {receipt.slice_index for receipt in unit.receipts}
        if seen.isdisjoint(indices):
            kept.append(unit)
            seen |= indices
    return kept
