"""Decides which driver reads which slices of a shared plan. Pure.

Each driver reads the slices of the partitions it owns. Finished slices are shared through the
ledger; the unread slices of a dead member are read by the next owners of its partitions. A
partition without an owner is read by the first member in sorted order, so that each remaining slice
has one reader as long as all members see the same group; if they do not, a slice may be read twice,
but counts once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from rangeland.model import Partition, Slice
from rangeland.planning.slice_receipt import TaskResult
from rangeland.wording import count_noun


@dataclass(frozen=True, slots=True)
class SliceOwners:
    """The group as one member sees it. ``owned`` are its partitions; ``owners`` are all known
    owners, by partition; ``members`` are the drivers of the job. If ``is_settled`` is False, the
    group is rebalancing, and a partition without an owner may soon have one."""

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
        """Whether this member has to read the slices of a partition."""
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
    """These slices remain to be read, by other drivers."""

    slices: tuple[Slice, ...]

    def describe(self, group: SliceOwners) -> str:
        """``waiting for 2 slices of orders/1, owned by m-17``: the first partition, and how many
        more there are."""
        partition = self.slices[0].partition
        count = sum(1 for s in self.slices if s.partition == partition)
        owner = group.reader_of(partition)
        if owner is None and group.is_settled and group.members:
            owner = min(group.members)
        whose = f"owned by {owner}" if owner else "whose owner is being decided"
        remaining = len({s.partition for s in self.slices}) - 1
        more = f", and {count_noun(remaining, 'more partition')}" if remaining else ""
        return f"waiting for {count_noun(count, 'slice')} of {partition}, {whose}{more}"


@dataclass(frozen=True, slots=True)
class PlanComplete:
    """All slices are read."""


def member_step(
    slices: Sequence[Slice], done: Collection[int], group: SliceOwners, *, whole: bool = False
) -> ReadSlices | WaitForOthers | PlanComplete:
    """The next step of one member. ``done`` are the indices of the slices that have been read.
    ``whole``: a single driver, the owner of the first partition, must read the entire plan."""
    unread = tuple(s for s in slices if s.index not in done)
    if not unread:
        return PlanComplete()
    if whole:
        return ReadSlices(unread) if group.reads(unread[0].partition) else WaitForOthers(unread)
    assigned = tuple(s for s in unread if group.reads(s.partition))
    return ReadSlices(assigned) if assigned else WaitForOthers(unread)


def drop_done(results: Iterable[TaskResult], done: Collection[int]) -> list[TaskResult]:
    """The results that have no slice in ``done``. A file may have rows of all slices of its task,
    so a result is kept or dropped as a whole; slices dropped with it are read again."""
    covered = set(done)
    new_results = []
    for result in results:
        indices = {receipt.slice_index for receipt in result.receipts}
        if covered.isdisjoint(indices):
            new_results.append(result)
            covered |= indices
    return new_results
