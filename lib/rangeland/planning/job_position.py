"""The position that a job's next plan continues from; by default, nothing is covered."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from rangeland.model import Cluster, Isolation, Partition
from rangeland.planning.coverage import Coverage
from rangeland.planning.incarnation import LogMark
from rangeland.planning.listed_partitions import is_read


@dataclass(frozen=True, slots=True)
class JobPosition:
    """The position of a sequence of landings, from the ledger."""

    checkpoint: Mapping[Partition, LogMark] = field(default_factory=dict)
    covered: Coverage = field(default_factory=Coverage)
    """The offsets in the ranges of prepared or landed outcomes, whichever job made them. No new
    plan includes them, whether or not they have rows."""
    sequence: int = 1
    """The sequence of the next plan."""
    held_at_first: frozenset[Partition] = frozenset()
    """Partitions held by the first run and not landed since."""
    cluster: Cluster | None = None
    """The cluster of the checkpoint's offsets, if known."""
    read_filter: tuple[Isolation, tuple[str, ...]] | None = None
    """The isolation and tags of the last landing, if there was one."""
    landed_again: Coverage = field(default_factory=Coverage)
    """What a replacement leaves out of ``covered``, since its plan has it again."""

    @property
    def topics(self) -> frozenset[str]:
        """The topics that have a checkpoint."""
        return frozenset(partition.topic for partition in self.checkpoint)

    def landed_partitions(
        self, listed: Mapping[str, Collection[int | str]]
    ) -> frozenset[Partition]:
        """The partitions with a checkpoint and, of those that only backfills or other jobs have
        landed, the ones that the job reads. ``listed``: the partitions that it lists, by topic."""
        covered = (*self.covered.intervals, *self.landed_again.intervals)
        read = (p for p, _ in covered if is_read(p, listed.get(p.topic)))
        return frozenset({*self.checkpoint, *read})

    def landed_topics(self, listed: Mapping[str, Collection[int | str]]) -> frozenset[str]:
        """The topics of these partitions."""
        return frozenset(partition.topic for partition in self.landed_partitions(listed))
