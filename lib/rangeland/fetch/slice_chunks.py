"""Chunks: consecutive offsets of one slice, decoded or lost, as a task passes them on. Both kinds
have the same properties, so few callers need to know which kind a chunk is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, ClassVar

from rangeland.loss import Action, DecidedLoss, QuarantinedBytes
from rangeland.model import Counts


@dataclass(frozen=True, slots=True)
class LostOffsets:
    """Offsets of a chunk that have no rows because they are lost; with their bytes if they are
    quarantined."""

    loss: DecidedLoss
    quarantined_bytes: QuarantinedBytes | None = None


@dataclass(frozen=True, slots=True)
class ReadChunk:
    """Decoded offsets ``[from_offset, until_offset)`` of one slice: rows for the offsets that are
    records, and a count of the offsets in each class."""

    slice_index: int
    from_offset: int
    until_offset: int
    counts: Counts
    rows: Any = None
    """A RecordBatch, or None without rows."""
    address: str = ""
    """The address of the broker that served it."""
    bytes_read: int = 0
    offsets_are_bytes: bool = False
    """Its offsets are positions of entries, so they are accounted for by the chunk's width."""
    lost_offsets: tuple[LostOffsets, ...] = ()
    schema_ids: Mapping[int, int] = field(default_factory=dict)
    """How many values named each writer's schema."""
    leader_epoch: int | None = None
    """The leader epoch in which it was read, if known."""
    is_held: ClassVar[bool] = False

    @property
    def width(self) -> int:
        return self.until_offset - self.from_offset

    @property
    def row_count(self) -> int:
        return 0 if self.rows is None else int(self.rows.num_rows)


@dataclass(frozen=True, slots=True)
class LostChunk:
    """Offsets of one slice that have no rows because they are lost. If the loss is held, the chunk
    has no width and is the last one of its slice."""

    slice_index: int
    loss: DecidedLoss
    address: str
    offsets_are_bytes: bool
    bytes_read: int = 0
    quarantined_bytes: QuarantinedBytes | None = None
    """The bytes of a loss that is quarantined."""
    is_unlogged: bool = True
    """Its loss is still to be logged. Of the gaps lost in one slice, only the first and one that is
    held are logged."""
    leader_epoch: int | None = None
    """The latest leader epoch that was known when it was lost."""
    rows: ClassVar[Any] = None
    row_count: ClassVar[int] = 0
    schema_ids: ClassVar[Mapping[int, int]] = MappingProxyType({})

    @property
    def is_held(self) -> bool:
        return self.loss.action is Action.HOLD

    @property
    def from_offset(self) -> int:
        return self.loss.from_offset

    @property
    def until_offset(self) -> int:
        return self.loss.from_offset if self.is_held else self.loss.until_offset

    @property
    def width(self) -> int:
        return self.until_offset - self.from_offset

    @property
    def counts(self) -> Counts:
        if self.loss.action is Action.QUARANTINE:
            return Counts(quarantined=self.width)
        return Counts(lost=self.width)

    @property
    def lost_offsets(self) -> tuple[LostOffsets, ...]:
        return (LostOffsets(self.loss, self.quarantined_bytes),)


SliceChunk = ReadChunk | LostChunk
