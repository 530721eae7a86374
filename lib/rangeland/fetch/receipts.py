"""Chunks into receipts: the counting that the proof rests on. Pure.

A chunk covers the offsets from where it was asked to where the next begins, clipped to its
slice, and its counts must add up to that. A slice has a receipt only when its chunks reach
its end without a gap; anything else is ProofFailed here, before anything is prepared.

Offsets without a row are noted as intervals, so that whoever looks at the table later can
tell a row that is gone from one that never was.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rangeland.errors import ProofFailed
from rangeland.model import Counts, QuarantinedBytes, Receipt, Slice
from rangeland.planning.policy import Action, Loss

MAX_GAPS = 10_000
"""Per slice. A compacted log may have as many gaps as records."""


@dataclass(frozen=True, slots=True)
class SliceChunk:
    """A piece of one slice: offsets ``[from_offset, until_offset)``, the rows of those that
    are records (a RecordBatch or None), and a class for each offset. ``taken_up`` is how many
    offsets its entries take up, where those are not as many as its records: bytes. A ``loss``
    that is to be held has no width: its slice ends there. ``kept`` goes with one that is
    quarantined."""

    slice_index: int
    from_offset: int
    until_offset: int
    counts: Counts
    batch: Any = None
    leader: str = ""
    bytes_read: int = 0
    loss: Loss | None = None
    taken_up: int | None = None
    kept: QuarantinedBytes | None = None


@dataclass(slots=True)
class _SliceCount:
    slice: Slice
    position: int
    counts: Counts
    leader: str
    bytes_read: int
    losses: list[Loss]
    gaps: list[tuple[int, int]] = field(default_factory=list)
    taken_up: int | None = None
    held: Loss | None = None

    def told_of(self, action: Action) -> tuple[tuple[int, int, str, str], ...]:
        return tuple(_told(loss) for loss in self.losses if loss.action is action)

    def is_read(self) -> bool:
        return self.held is not None or self.position == self.slice.until_offset

    def without_rows(self, start: int, end: int) -> None:
        if self.gaps and self.gaps[-1][1] == start:
            start = self.gaps.pop()[0]
        self.gaps.append((start, end))


class ReceiptBuilder:
    """The counts of one task's slices while they are read."""

    def __init__(self, slices: Sequence[Slice]) -> None:
        self._lines = {s.index: _SliceCount(s, s.from_offset, Counts(), "", 0, []) for s in slices}

    def add(self, chunk: SliceChunk) -> None:
        """Raises ProofFailed unless the chunk goes on exactly where its slice stood."""
        line = self._lines[chunk.slice_index]
        width = chunk.until_offset - chunk.from_offset
        rows = chunk.batch.num_rows if chunk.batch is not None else 0
        offsets = chunk.counts.total if chunk.taken_up is None else chunk.taken_up
        adds_up = offsets == width and rows == chunk.counts.landed
        if chunk.from_offset != line.position or not adds_up:
            raise ProofFailed(
                f"a piece of {line.slice} does not add up",
                why=f"the slice stood at {line.position}; the piece is "
                f"[{chunk.from_offset}, {chunk.until_offset}) with {rows} rows and {chunk.counts}",
                do="report this; nothing was committed",
                slice=line.slice.index,
            )
        if chunk.taken_up is not None:
            line.taken_up = (line.taken_up or 0) + chunk.taken_up
        elif len(line.gaps) <= MAX_GAPS:
            for start, end in gaps_of(chunk):
                line.without_rows(start, end)
        line.position = chunk.until_offset
        line.counts = line.counts + chunk.counts
        line.bytes_read += chunk.bytes_read
        line.leader = chunk.leader or line.leader
        if chunk.loss is not None and chunk.loss.action is Action.HOLD:
            line.held = chunk.loss
        elif chunk.loss is not None:
            line.losses.append(chunk.loss)

    def receipts(self) -> tuple[Receipt, ...]:
        """One receipt per slice. Raises ProofFailed for a slice that was not read to its end."""
        for line in self._lines.values():
            if not line.is_read() and line.slice.width > 0:
                raise ProofFailed(
                    f"{line.slice} was read up to {line.position} only",
                    do="report this; nothing was committed",
                    slice=line.slice.index,
                )
        return tuple(
            Receipt(
                slice_index=line.slice.index,
                partition=line.slice.partition,
                from_offset=line.slice.from_offset,
                until_offset=line.position if line.held else line.slice.until_offset,
                counts=line.counts,
                leader=line.leader,
                bytes_read=line.bytes_read,
                losses=line.told_of(Action.SKIP),
                quarantined=line.told_of(Action.QUARANTINE),
                held=_told(line.held) if line.held else None,
                gaps=None
                if len(line.gaps) > MAX_GAPS or line.taken_up is not None
                else tuple(line.gaps),
                taken_up=line.taken_up,
            )
            for line in self._lines.values()
        )


def _told(loss: Loss) -> tuple[int, int, str, str]:
    return loss.from_offset, loss.until_offset, loss.verdict.value, loss.evidence


def gaps_of(chunk: SliceChunk) -> Iterator[tuple[int, int]]:
    """The offsets of a chunk that have no row, as intervals in order."""
    if chunk.counts.landed == chunk.until_offset - chunk.from_offset:
        return
    if chunk.batch is None or not chunk.batch.num_rows:
        if chunk.from_offset < chunk.until_offset:
            yield chunk.from_offset, chunk.until_offset
        return
    offsets = chunk.batch.column("offset").to_numpy()
    edges = np.concatenate(([chunk.from_offset - 1], offsets, [chunk.until_offset]))
    for before in np.flatnonzero(np.diff(edges) > 1):
        yield int(edges[before]) + 1, int(edges[before + 1])
