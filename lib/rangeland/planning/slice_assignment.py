"""Which driver reads which slices of a shared plan. Pure.

Each driver reads the slices of the partitions it owns. What has been read is shared through the
ledger; the slices that a dead member leaves are read by the next owners of its partitions. A
partition without an owner is read by the first member in order, so that each remaining slice has
one reader as long as all members see the same group; if they do not, a slice may be read twice,
and counts once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from rangeland.model import Partition, Slice
from rangeland.planning.slice_receipt import TaskResult


@dataclass(frozen=True, slots=True)
class SliceOwners:
    """The group as one member sees it. ``owned`` are its own partitions; ``owners`` are all known
    owners, by partition; ``members`` are the drivers of the job. If ``is_settled`` is False, the
    group rebalances, and a partition without an owner may soon have one."""

    me: str
    owned: frozenset[Partition]
    owners: Mapping[Partition, str]
    members: tuple[str, ...] = ()
    is_settled: bool = True

    @staticmethod
    def alone(me: str, partitions: Collection[Partition]) -> SliceOwners:
        """A group without other members, or one that is read without waiting for them."""
        return SliceOwners(me, frozenset(partitions), {}, (me,))

    def reads(self, partition: Partition) -> bool:
        """True if this member has to read the slices of a partition."""
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
    """This driver has to read these slices next."""

    slices: tuple[Slice, ...]


@dataclass(frozen=True, slots=True)
class WaitForOthers:
    """These slices are left, and other drivers have to read them."""

    slices: tuple[Slice, ...]

    def describe(self, group: SliceOwners) -> str:
        """``waiting for 2 slices of orders/1, owned by m-17``; the first where there are more."""
        partition = self.slices[0].partition
        count = sum(1 for s in self.slices if s.partition == partition)
        owner = group.reader_of(partition)
        if owner is None and group.is_settled and group.members:
            owner = min(group.members)
        whose = f"owned by {owner}" if owner else "whose owner is being decided"
        others = len({s.partition for s in self.slices}) - 1
        more = f", and {others} more partition{'s' if others > 1 else ''}" if others else ""
        return f"waiting for {count} slice{'s' if count > 1 else ''} of {partition}, {whose}{more}"


@dataclass(frozen=True, slots=True)
class PlanComplete:
    """All slices are read."""


def next_step(
    slices: Sequence[Slice], done: Collection[int], group: SliceOwners, *, whole: bool = False
) -> ReadSlices | WaitForOthers | PlanComplete:
    """The next step of one member. ``done`` are the indices of slices that are read. ``whole``: one
    driver must read all of the plan, the owner of its first partition."""
    left = tuple(s for s in slices if s.index not in done)
    if not left:
        return PlanComplete()
    if whole:
        return ReadSlices(left) if group.reads(left[0].partition) else WaitForOthers(left)
    mine = tuple(s for s in left if group.reads(s.partition))
    return ReadSlices(mine) if mine else WaitForOthers(left)


def leave_out_done(results: Iterable[TaskResult], done: Collection[int]) -> list[TaskResult]:
    """The results without those that have a slice in ``done``. A file may have rows of all slices
    of its task, so a result is kept or dropped whole; slices dropped with it are read again."""
    seen = set(done)
    kept = []
    for result in results:
        indices = {receipt.slice_index for receipt in result.receipts}
        if seen.isdisjoint(indices):
            kept.append(result)
            seen |= indices
    return kept
