"""Builds receipts from chunks: the counts that the proof is based on. No I/O.

Within its slice, a chunk covers the offsets from its own beginning to that of the next chunk, and
its counts must add up to that width. A slice gets a receipt only if its chunks follow one another
to its end, or to where it is held; otherwise ProofFailed is raised here, before anything is
prepared.

Offsets without a row are recorded as intervals, so that a later verification can distinguish a
missing row from one that never existed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from rangeland.decode.columns import PLAIN_COLUMNS, LogColumns
from rangeland.errors import ProofFailed
from rangeland.fetch.slice_chunks import SliceChunk
from rangeland.loss import DecidedLoss
from rangeland.model import Counts, Slice
from rangeland.planning.slice_receipt import Receipt, later_epoch

MAX_ROWLESS_INTERVALS = 10_000
"""A compacted log may have as many intervals as records, so a receipt keeps at most this many."""


@dataclass(slots=True)
class _SliceCount:
    slice: Slice
    next_offset: int
    counts: Counts = field(default_factory=Counts)
    address: str = ""
    bytes_read: int = 0
    losses: list[DecidedLoss] = field(default_factory=list)
    rowless: list[tuple[int, int]] = field(default_factory=list)
    offsets_are_bytes: bool = False
    entry_span: int = 0
    is_held: bool = False
    schema_ids: Counter[int] = field(default_factory=Counter)
    leader_epoch: int | None = None

    def is_read(self) -> bool:
        return self.is_held or self.next_offset == self.slice.until_offset

    def add_rowless(self, from_offset: int, until_offset: int) -> None:
        if self.rowless and self.rowless[-1][1] == from_offset:
            from_offset = self.rowless.pop()[0]
        self.rowless.append((from_offset, until_offset))

    def receipt(self) -> Receipt:
        is_recorded = not self.offsets_are_bytes and len(self.rowless) <= MAX_ROWLESS_INTERVALS
        return Receipt(
            slice_index=self.slice.index,
            partition=self.slice.partition,
            from_offset=self.slice.from_offset,
            until_offset=self.next_offset if self.is_held else self.slice.until_offset,
            counts=self.counts,
            address=self.address,
            bytes_read=self.bytes_read,
            losses=tuple(self.losses),
            rowless=tuple(self.rowless) if is_recorded else None,
            entry_span=self.entry_span if self.offsets_are_bytes else None,
            schema_ids=tuple(sorted(self.schema_ids.items())),
            leader_epoch=self.leader_epoch,
        )


class ReceiptBuilder:
    """The counts of one task's slices while they are read. ``columns``: the columns of their
    rows."""

    def __init__(self, slices: Sequence[Slice], columns: LogColumns = PLAIN_COLUMNS) -> None:
        self._offset = columns.offset
        self._counts = {s.index: _SliceCount(s, s.from_offset) for s in slices}

    def add(self, chunk: SliceChunk) -> None:
        """Counts a chunk. Raises ProofFailed unless it begins where the previous one ended."""
        slice_count = self._counts[chunk.slice_index]
        is_counted = chunk.offsets_are_bytes or chunk.counts.total == chunk.width
        adds_up = is_counted and chunk.row_count == chunk.counts.landed
        if chunk.from_offset != slice_count.next_offset or not adds_up:
            raise ProofFailed(
                f"a chunk of {slice_count.slice} does not add up",
                why=f"the slice was read up to {slice_count.next_offset}; the chunk is "
                f"[{chunk.from_offset}, {chunk.until_offset}) with {chunk.row_count} rows and "
                f"{chunk.counts}",
                do="report this; nothing was committed",
                slice=slice_count.slice.index,
            )
        if chunk.offsets_are_bytes:
            slice_count.offsets_are_bytes = True
            slice_count.entry_span += chunk.width
        elif len(slice_count.rowless) <= MAX_ROWLESS_INTERVALS:
            for interval in rowless_intervals(chunk, self._offset):
                slice_count.add_rowless(*interval)
        slice_count.next_offset = chunk.until_offset
        slice_count.counts = slice_count.counts + chunk.counts
        slice_count.bytes_read += chunk.bytes_read
        slice_count.address = chunk.address or slice_count.address
        slice_count.losses.extend(lost.loss for lost in chunk.lost_offsets)
        slice_count.schema_ids.update(chunk.schema_ids)
        slice_count.leader_epoch = later_epoch(slice_count.leader_epoch, chunk.leader_epoch)
        slice_count.is_held = chunk.is_held

    def receipts(self) -> tuple[Receipt, ...]:
        """One receipt per slice. Raises ProofFailed for a slice that was not read to its end."""
        for slice_count in self._counts.values():
            if not slice_count.is_read() and slice_count.slice.width > 0:
                raise ProofFailed(
                    f"{slice_count.slice} was read only up to {slice_count.next_offset}",
                    do="report this; nothing was committed",
                    slice=slice_count.slice.index,
                )
        return tuple(slice_count.receipt() for slice_count in self._counts.values())


def rowless_intervals(chunk: SliceChunk, column: str) -> Iterator[tuple[int, int]]:
    """The offsets of a chunk that have no row, as intervals in order. ``column``: the name of the
    offset column."""
    if chunk.counts.landed == chunk.width:
        return
    if not chunk.row_count:
        if chunk.from_offset < chunk.until_offset:
            yield chunk.from_offset, chunk.until_offset
        return
    offsets = chunk.rows.column(column).to_numpy()
    edges = np.concatenate(([chunk.from_offset - 1], offsets, [chunk.until_offset]))
    for index in np.flatnonzero(np.diff(edges) > 1):
        yield int(edges[index]) + 1, int(edges[index + 1])
