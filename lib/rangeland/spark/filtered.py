"""Which offsets a transform has made rows of, as far as its rows still say.

A transform may drop rows or make several of one; topic, partition and offset in its rows
tell which offsets it kept. Offsets are gathered per partition and sorted once at the end,
eight bytes each. Without those columns nothing can be told, and nothing is.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rangeland.model import Slice

NEEDED = ("topic", "partition", "offset")


class SeenOffsets:
    """The offsets in the rows of one task. The columns must have the types of the contract
    to count; a transform that renames or recasts them has made them something else."""

    def __init__(self, slices: Sequence[Slice]) -> None:
        self._slices = slices
        self._seen: dict[tuple[str, int], list[np.ndarray]] = {}
        self._told = True

    def add(self, batch: pa.RecordBatch) -> None:
        types = {name: batch.schema.field(name).type for name in batch.schema.names}
        wanted = dict(zip(NEEDED, (pa.string(), pa.int32(), pa.int64()), strict=True))
        if any(types.get(name) != kind for name, kind in wanted.items()):
            self._told = False
            return
        topics = batch.column("topic").dictionary_encode()
        for number, topic in enumerate(topics.dictionary.to_pylist()):
            of_topic = batch.filter(pc.equal(topics.indices, number))
            for partition in of_topic.column("partition").unique().to_pylist():
                rows = of_topic.filter(pc.equal(of_topic.column("partition"), partition))
                offsets = rows.column("offset").drop_null().to_numpy(zero_copy_only=False)
                self._seen.setdefault((topic, partition), []).append(np.unique(offsets))

    def by_slice(self) -> dict[int, int] | None:
        """How many offsets of each slice have a row; None where the rows do not tell."""
        if not self._told:
            return None
        counts: dict[int, int] = {}
        distinct = {key: np.unique(np.concatenate(found)) for key, found in self._seen.items()}
        for piece in self._slices:
            offsets = distinct.get((piece.partition.topic, piece.partition.number))
            if offsets is not None:
                low, high = np.searchsorted(offsets, [piece.from_offset, piece.until_offset])
                counts[piece.index] = int(high - low)
        return counts
