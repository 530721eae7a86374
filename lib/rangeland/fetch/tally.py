"""Chunks into receipts: the counting that the proof rests on. Pure.

A chunk covers the offsets from where it was asked to where the next begins, clipped to its
slice, and its counts must add up to that. A slice has a receipt only when its chunks reach
its end without a gap; anything else is ProofFailed here, before anything is prepared.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rangeland.errors import ProofFailed
from rangeland.model import Counts, Receipt, Slice
from rangeland.planning.policy import Loss


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of one slice: offsets ``[from_offset, until_offset)``, the rows of those that
    are records (a RecordBatch or None), and a class for each offset."""

    slice_index: int
    from_offset: int
    until_offset: int
    counts: Counts
    batch: Any = None
    leader: str = ""
    bytes_read: int = 0
    loss: Loss | None = None


@dataclass(slots=True)
class _Line:
    slice: Slice
    position: int
    counts: Counts
    leader: str
    bytes_read: int
    losses: list[Loss]


class Tally:
    """The counts of one task's slices while they are read."""

    def __init__(self, slices: Sequence[Slice]) -> None:
        self._lines = {s.index: _Line(s, s.from_offset, Counts(), "", 0, []) for s in slices}

    def add(self, chunk: Chunk) -> None:
        """Raises ProofFailed unless the chunk goes on exactly where its slice stood."""
        line = self._lines[chunk.slice_index]
        width = chunk.until_offset - chunk.from_offset
        rows = chunk.batch.num_rows if chunk.batch is not None else 0
        adds_up = chunk.counts.total == width and rows == chunk.counts.landed
        if chunk.from_offset != line.position or not adds_up:
            raise ProofFailed(
                f"a piece of {line.slice} does not add up",
                why=f"the slice stood at {line.position}; the piece is "
                f"[{chunk.from_offset}, {chunk.until_offset}) with {rows} rows and {chunk.counts}",
                do="report this; nothing was committed",
                slice=line.slice.index,
            )
        line.position = chunk.until_offset
        line.counts = line.counts + chunk.counts
        line.bytes_read += chunk.bytes_read
        line.leader = chunk.leader or line.leader
        if chunk.loss is not None:
            line.losses.append(chunk.loss)

    def receipts(self) -> tuple[Receipt, ...]:
        """One receipt per slice. Raises ProofFailed for a slice that was not read to its end."""
        for line in self._lines.values():
            if line.position != line.slice.until_offset and line.slice.width > 0:
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
                until_offset=line.slice.until_offset,
                counts=line.counts,
                leader=line.leader,
                bytes_read=line.bytes_read,
                losses=tuple(
                    (loss.from_offset, loss.until_offset, loss.verdict.value, loss.evidence)
                    for loss in line.losses
                ),
            )
            for line in self._lines.values()
        )
