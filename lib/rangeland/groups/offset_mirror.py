"""The checkpoint, pushed to where the log's own tools look for it, and read back.

The checkpoint is the truth, and the group's offsets are its picture: they are written for
what has landed and for nothing else, and are held against the checkpoint afterwards. What
an earlier run could not write is written by the next.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass

from rangeland.groups.backend import GroupBackend
from rangeland.model import LogState, Partition
from rangeland.planning.incarnation import LogMark, recreated

log = logging.getLogger(__name__)

Offsets = Mapping[Partition, int]


def positions(
    checkpoint: Mapping[Partition, LogMark], logs: Mapping[Partition, LogState]
) -> dict[Partition, int]:
    """What a group may be told: where the checkpoint stands in logs that are there, in the
    same life of their topics."""
    return {
        partition: mark.until_offset
        for partition, mark in sorted(checkpoint.items())
        if partition in logs and not recreated(mark, logs[partition])
    }


@dataclass(frozen=True, slots=True)
class MirrorOutcome:
    """What the group had, and what it has now. None where it has nothing."""

    checkpoint: Offsets
    before: Mapping[Partition, int | None]
    after: Mapping[Partition, int | None]

    @property
    def changed(self) -> tuple[Partition, ...]:
        return tuple(p for p in self.checkpoint if self.before.get(p) != self.after.get(p))

    @property
    def differing(self) -> tuple[Partition, ...]:
        """Where what was read back is not the checkpoint."""
        return tuple(p for p, offset in self.checkpoint.items() if self.after.get(p) != offset)

    @property
    def stood_elsewhere(self) -> bool:
        """The group had other offsets, by whomever."""
        return any(self.before.get(p) not in (None, at) for p, at in self.checkpoint.items())

    def moved(self, earlier: Collection[tuple[Partition, int]]) -> tuple[Partition, ...]:
        """Where the group stood at an offset that none of these landings has put there."""
        return tuple(
            p
            for p, offset in self.checkpoint.items()
            if (stood := self.before.get(p)) is not None
            and stood != offset
            and (p, stood) not in earlier
        )

    def of(self, partitions: Collection[Partition]) -> MirrorOutcome:
        """The same, of some partitions."""
        mine = {p: offset for p, offset in self.checkpoint.items() if p in partitions}
        return MirrorOutcome(mine, self.before, self.after)


def told(
    group: str, found: MirrorOutcome, earlier: Collection[tuple[Partition, int]]
) -> Iterator[str]:
    """What a person should know of it: that somebody else has moved the group, or does."""
    if moved := found.moved(earlier):
        p = moved[0]
        more = f", and so with {len(moved) - 1} more partitions" if moved[1:] else ""
        yield (
            f"group {group} stood at {found.before[p]} of {p}, where no landing of this job has "
            f"put it{more}: it is at the checkpoint now, {found.checkpoint[p]}"
        )
    if differing := found.differing:
        p = differing[0]
        more = f", and so with {len(differing) - 1} more partitions" if differing[1:] else ""
        yield (
            f"group {group} is at {found.after.get(p)} of {p} after the checkpoint "
            f"{found.checkpoint[p]} was mirrored{more}: somebody else commits to it. The next "
            "run repairs that, or `rangeland mirror`"
        )


def mirror(
    home: GroupBackend, group: str, checkpoint: Offsets, commit: Callable[[Offsets], None]
) -> MirrorOutcome:
    """Commits what differs, through ``commit``, and reads it back. Raises Unreachable, and
    what ``commit`` raises."""
    if not checkpoint:
        return MirrorOutcome({}, {}, {})
    partitions = tuple(checkpoint)
    before = home.offsets(group, partitions)
    stale = {p: offset for p, offset in checkpoint.items() if before.get(p) != offset}
    if not stale:
        return MirrorOutcome(checkpoint, before, before)
    commit(stale)
    for partition, offset in stale.items():
        log.debug("Committed offset %d of %s to group %s", offset, partition, group)
    log.info("Mirrored the checkpoint of %d partitions to group %s", len(stale), group)
    return MirrorOutcome(checkpoint, before, home.offsets(group, partitions))
