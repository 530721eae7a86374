"""Commits the checkpoint to where the log's own tools look for it, and reads it back.

The checkpoint is the truth; the group's offsets are a copy. They are written only for landed
offsets, and compared with the checkpoint afterwards. Offsets that one run could not write are
written by the next.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from rangeland.errors import Conflict
from rangeland.groups.backend import GroupBackend
from rangeland.logging_setup import partition_fields
from rangeland.model import LogState, Partition, Survey
from rangeland.planning.incarnation import LogMark, is_recreated, recreation_loss
from rangeland.wording import count_noun

logger = logging.getLogger(__name__)

Offsets = Mapping[Partition, int]

EARLIER = 20
"""How many landings old a group's offset may be before we assume that another client moved it."""


def offsets_to_commit(
    checkpoint: Mapping[Partition, LogMark], logs: Mapping[Partition, LogState]
) -> dict[Partition, int]:
    """The offsets to commit: the checkpoint in logs that still exist, in the same incarnation of
    their topics."""
    return {
        partition: mark.until_offset
        for partition, mark in sorted(checkpoint.items())
        if partition in logs and not is_recreated(mark, logs[partition])
    }


def why_left_out(partition: Partition, mark: LogMark, survey: Survey) -> str:
    """Why the offset of a partition is not among ``offsets_to_commit``."""
    if (log := survey.logs.get(partition)) is not None:
        return recreation_loss(mark, log).evidence
    if (why := survey.absent.why_unreachable(partition)) is not None:
        return why
    if partition in survey.absent.excluded:
        return "the job no longer reads it"
    return "the cluster does not show it"


@dataclass(frozen=True, slots=True)
class MirroredOffsets:
    """The group's offsets before and after; None for a partition without one."""

    checkpoint: Offsets
    before: Mapping[Partition, int | None]
    after: Mapping[Partition, int | None]

    @property
    def changed(self) -> tuple[Partition, ...]:
        return tuple(p for p in self.checkpoint if self.before.get(p) != self.after.get(p))

    @property
    def differing(self) -> tuple[Partition, ...]:
        """Partitions whose offset, read back, is not the checkpoint."""
        return tuple(p for p, offset in self.checkpoint.items() if self.after.get(p) != offset)

    @property
    def differed_before(self) -> bool:
        """Whether the group had offsets other than the checkpoint."""
        return any(self.before.get(p) not in (None, at) for p, at in self.checkpoint.items())

    def moved_partitions(self, earlier: Collection[tuple[Partition, int]]) -> tuple[Partition, ...]:
        """Partitions whose group offset did not come from any of these landings."""
        return tuple(
            p
            for p, offset in self.checkpoint.items()
            if (offset_before := self.before.get(p)) is not None
            and offset_before != offset
            and (p, offset_before) not in earlier
        )

    def of(self, partitions: Collection[Partition]) -> MirroredOffsets:
        """The same, restricted to these partitions."""
        checkpoint = {p: offset for p, offset in self.checkpoint.items() if p in partitions}
        return MirroredOffsets(checkpoint, self.before, self.after)


def notices(
    group: str, mirrored: MirroredOffsets, earlier: Collection[tuple[Partition, int]]
) -> Iterator[str]:
    """Warnings that another client has moved the group's offsets, or keeps moving them."""
    if moved := mirrored.moved_partitions(earlier):
        p = moved[0]
        yield (
            f"group {group} was at {mirrored.before[p]} of {p}, an offset that none of the last "
            f"{EARLIER} landings of this job has committed{_likewise(moved)}: it is at the "
            "checkpoint now, "
            f"{mirrored.checkpoint[p]}"
        )
    if differing := mirrored.differing:
        p = differing[0]
        yield (
            f"group {group} is at {mirrored.after.get(p)} of {p} after the checkpoint "
            f"{mirrored.checkpoint[p]} was mirrored{_likewise(differing)}: another client commits "
            "to it. The next run or `rangeland mirror` repairs that"
        )


def moved_each_time_error(group: str, tries: int) -> Conflict:
    """The error if runs land whenever the checkpoint is mirrored from outside the group."""
    return Conflict(
        f"the checkpoint moved during each of {tries} attempts to mirror it to the group {group}",
        why="runs of this job land at the same time",
        do="wait for them to end: they mirror the checkpoint themselves",
        group=group,
    )


def _likewise(partitions: Sequence[Partition]) -> str:
    more = len(partitions) - 1
    return f", and {count_noun(more, 'more partition')} likewise" if more else ""


def mirror(
    backend: GroupBackend, group: str, checkpoint: Offsets, commit: Callable[[Offsets], None]
) -> MirroredOffsets:
    """Commits the offsets that differ, with ``commit``, and reads them back. Raises Unreachable,
    and what ``commit`` raises."""
    if not checkpoint:
        return MirroredOffsets({}, {}, {})
    partitions = tuple(checkpoint)
    before = backend.offsets(group, partitions)
    stale = {p: offset for p, offset in checkpoint.items() if before.get(p) != offset}
    if not stale:
        return MirroredOffsets(checkpoint, before, before)
    commit(stale)
    for partition, offset in stale.items():
        where = partition_fields(partition, offset)
        logger.debug("Committed offset %d of %s to group %s", offset, partition, group, extra=where)
    logger.info("Mirrored the checkpoint of %d partitions to group %s", len(stale), group)
    return MirroredOffsets(checkpoint, before, backend.offsets(group, partitions))
