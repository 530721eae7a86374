"""Chunks to receipts: the counts that the proof is based on. Pure functions.

A chunk covers the offsets from its own beginning to that of the next one, within its slice, and
its counts must add up to that. A slice gets a receipt only if its chunks reach its end without a
gap; otherwise ProofFailed is raised here, before anything is prepared.

Offsets without a row are recorded as intervals, so that a later verification can distinguish a
missing row from one that never existed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rangeland.decode.columns import PLAIN_COLUMNS, LogColumns
from rangeland.errors import ProofFailed
from rangeland.model import Counts, QuarantinedBytes, Slice
from rangeland.planning.policy import Action, Loss
from rangeland.planning.slice_receipt import Receipt

MAX_GAPS = 10_000
"""Per slice. A compacted log may have as many gaps as records."""


@dataclass(frozen=True, slots=True)
class LostRecords:
    """Records of a chunk that have no row because they could not be decoded, and their bytes
    if they are quarantined."""

    loss: Loss
    quarantined_bytes: QuarantinedBytes | None = None


@dataclass(frozen=True, slots=True)
class SliceChunk:
    """A piece of one slice: offsets ``[from_offset, until_offset)``, the rows of those that are
    records (a RecordBatch or None), and a class for each offset. ``entry_span``: how many offsets
    its entries span, where offsets are bytes. A chunk whose ``loss`` is held has no width: its
    slice ends there. ``quarantined_bytes``: those of a loss that is quarantined. ``records``:
    losses within the chunk. ``schema_ids``: how many values named each writer's schema."""

    slice_index: int
    from_offset: int
    until_offset: int
    counts: Counts
    batch: Any = None
    leader: str = ""
    bytes_read: int = 0
    loss: Loss | None = None
    entry_span: int | None = None
    quarantined_bytes: QuarantinedBytes | None = None
    records: tuple[LostRecords, ...] = ()
    schema_ids: Mapping[int, int] = field(default_factory=dict)


@dataclass(slots=True)
class _SliceCount:
    slice: Slice
    position: int
    counts: Counts
    leader: str
    bytes_read: int
    losses: list[Loss]
    gaps: list[tuple[int, int]] = field(default_factory=list)
    entry_span: int | None = None
    is_held: bool = False
    schema_ids: dict[int, int] = field(default_factory=dict)

    def is_read(self) -> bool:
        return self.is_held or self.position == self.slice.until_offset

    def without_rows(self, start: int, end: int) -> None:
        if self.gaps and self.gaps[-1][1] == start:
            start = self.gaps.pop()[0]
        self.gaps.append((start, end))


class ReceiptBuilder:
    """The counts of one task's slices while they are read, whose rows have these columns."""

    def __init__(self, slices: Sequence[Slice], columns: LogColumns = PLAIN_COLUMNS) -> None:
        self._offset = columns.offset
        self._lines = {s.index: _SliceCount(s, s.from_offset, Counts(), "", 0, []) for s in slices}

    def add(self, chunk: SliceChunk) -> None:
        """Raises ProofFailed unless the chunk begins exactly where the one before it ended."""
        line = self._lines[chunk.slice_index]
        width = chunk.until_offset - chunk.from_offset
        rows = chunk.batch.num_rows if chunk.batch is not None else 0
        offsets = chunk.counts.total if chunk.entry_span is None else chunk.entry_span
        adds_up = offsets == width and rows == chunk.counts.landed
        if chunk.from_offset != line.position or not adds_up:
            raise ProofFailed(
                f"a piece of {line.slice} does not add up",
                why=f"the slice was read up to {line.position}; the piece is "
                f"[{chunk.from_offset}, {chunk.until_offset}) with {rows} rows and {chunk.counts}",
                do="report this; nothing was committed",
                slice=line.slice.index,
            )
        if chunk.entry_span is not None:
            line.entry_span = (line.entry_span or 0) + chunk.entry_span
        elif len(line.gaps) <= MAX_GAPS:
            for start, end in gaps_of(chunk, self._offset):
                line.without_rows(start, end)
        line.position = chunk.until_offset
        line.counts = line.counts + chunk.counts
        line.bytes_read += chunk.bytes_read
        line.leader = chunk.leader or line.leader
        line.losses.extend(one.loss for one in chunk.records)
        for schema_id, count in chunk.schema_ids.items():
            line.schema_ids[schema_id] = line.schema_ids.get(schema_id, 0) + count
        if chunk.loss is not None:
            line.losses.append(chunk.loss)
            line.is_held = chunk.loss.action is Action.HOLD

    def receipts(self) -> tuple[Receipt, ...]:
        """One receipt per slice. Raises ProofFailed for a slice that was not read to its end."""
        for line in self._lines.values():
            if not line.is_read() and line.slice.width > 0:
                raise ProofFailed(
                    f"{line.slice} was read only up to {line.position}",
                    do="report this; nothing was committed",
                    slice=line.slice.index,
                )
        return tuple(
            Receipt(
                slice_index=line.slice.index,
                partition=line.slice.partition,
                from_offset=line.slice.from_offset,
                until_offset=line.position if line.is_held else line.slice.until_offset,
                counts=line.counts,
                leader=line.leader,
                bytes_read=line.bytes_read,
                losses=tuple(line.losses),
                gaps=None
                if len(line.gaps) > MAX_GAPS or line.entry_span is not None
                else tuple(line.gaps),
                entry_span=line.entry_span,
                schema_ids=tuple(sorted(line.schema_ids.items())),
            )
            for line in self._lines.values()
        )


def gaps_of(chunk: SliceChunk, column: str) -> Iterator[tuple[int, int]]:
    """The offsets of a chunk that have no row, as intervals in order. ``column``: the one that
    holds offsets."""
    if chunk.counts.landed == chunk.until_offset - chunk.from_offset:
        return
    if chunk.batch is None or not chunk.batch.num_rows:
        if chunk.from_offset < chunk.until_offset:
            yield chunk.from_offset, chunk.until_offset
        return
    offsets = chunk.batch.column(column).to_numpy()
    edges = np.concatenate(([chunk.from_offset - 1], offsets, [chunk.until_offset]))
    for before in np.flatnonzero(np.diff(edges) > 1):
        yield int(edges[before]) + 1, int(edges[before + 1])
