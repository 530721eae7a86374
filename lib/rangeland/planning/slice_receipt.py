"""What became of the offsets of a slice, and of a range once its slices are proved."""

from __future__ import annotations

from dataclasses import dataclass

from rangeland.loss import Action, DecidedLoss
from rangeland.model import Counts, DataFile, OffsetInterval, Partition, Range


@dataclass(frozen=True, slots=True)
class Receipt(OffsetInterval):
    """The receipt of one slice: a class for each of its offsets. ``address``: the broker that
    served its last byte."""

    slice_index: int
    partition: Partition
    from_offset: int
    until_offset: int
    counts: Counts
    address: str = ""
    bytes_read: int = 0
    losses: tuple[DecidedLoss, ...] = ()
    """The losses that a policy has skipped, quarantined or held while reading. The widths of
    skipped losses add up to ``counts.lost``, the widths of quarantined ones to
    ``counts.quarantined``. At most one is held: the rest of the slice, from ``until_offset`` on,
    where reading stopped."""
    rowless: tuple[tuple[int, int], ...] | None = None
    """The intervals ``[from, until)`` of offsets that have no row, sorted and apart; None if they
    were not recorded: there were too many, or a transform made them."""
    entry_span: int | None = None
    """The number of offsets in whole entries and losses, if offsets are bytes; None if each offset
    is at most one record."""
    quarantine_files: tuple[DataFile, ...] = ()
    """The bytes of the quarantined losses."""
    schema_ids: tuple[tuple[int, int], ...] = ()
    """How many values named each writer's schema."""
    leader_epoch: int | None = None
    """The latest leader epoch in which any of it was read or found lost; None if none is known."""

    @property
    def offsets_are_bytes(self) -> bool:
        return self.entry_span is not None

    @property
    def offsets(self) -> int:
        """The number of offsets that are accounted for."""
        return self.counts.total if self.entry_span is None else self.entry_span

    @property
    def held(self) -> DecidedLoss | None:
        return next(iter(self.losses_by(Action.HOLD)), None)

    def losses_by(self, action: Action) -> tuple[DecidedLoss, ...]:
        return tuple(loss for loss in self.losses if loss.action is action)


def later_epoch(epoch: int | None, other: int | None) -> int | None:
    """The later of two leader epochs, of which either may be unknown."""
    return max((e for e in (epoch, other) if e is not None), default=None)


@dataclass(frozen=True, slots=True)
class RangeResult:
    """One range of a plan and what became of each of its offsets. ``rowless`` as in ``Receipt``."""

    range: Range
    counts: Counts
    address: str = ""
    """The address of the broker that served its end; empty if it is not known."""
    rowless: tuple[tuple[int, int], ...] | None = None
    offsets_are_bytes: bool = False
    """Its offsets are the byte positions of entries: there are fewer rows than offsets, and rows
    may share one."""


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A data file that was written for a plan. ``range`` is the whole slice of its rows; None if
    they may be of several (after a transform)."""

    file: DataFile
    range: Range | None = None


@dataclass(frozen=True, slots=True)
class TaskResult:
    """The result that one task returns to the driver. A file may have rows of several slices."""

    receipts: tuple[Receipt, ...]
    files: tuple[DataFile, ...] = ()
