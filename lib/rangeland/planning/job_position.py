"""The position that a job's next plan continues from; by default, nothing is covered."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from rangeland.model import Cluster, Isolation, Partition
from rangeland.planning.coverage import Coverage
from rangeland.planning.incarnation import LogMark


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

    @property
    def landed_partitions(self) -> frozenset[Partition]:
        """The partitions that have landed, whichever job landed them, with or without a checkpoint:
        backfills have none."""
        covered = (*self.covered.intervals, *self.landed_again.intervals)
        return frozenset({*self.checkpoint, *(partition for partition, _ in covered)})

    @property
    def landed_topics(self) -> frozenset[str]:
        return frozenset(partition.topic for partition in self.landed_partitions)
