"""Offsets that a transform made no row of."""

from __future__ import annotations

import pyarrow as pa

from rangeland.model import Partition, Slice
from rangeland.spark.filtered import SeenOffsets

SLICES = [
    Slice(0, Partition("a", 0), 0, 10),
    Slice(1, Partition("a", 0), 10, 20),
    Slice(2, Partition("a", 1), 0, 10),
    Slice(3, Partition("b", 0), 0, 10),
]


def rows(*made: tuple[str, int, int | None]) -> pa.RecordBatch:
    topics, partitions, offsets = zip(*made, strict=True)
    return pa.RecordBatch.from_arrays(
        [
            pa.array(topics, pa.string()),
            pa.array(partitions, pa.int32()),
            pa.array(offsets, pa.int64()),
        ],
        names=["topic", "partition", "offset"],
    )


def test_each_slice_counts_its_own_offsets_once() -> None:
    seen = SeenOffsets(SLICES)
    seen.add(rows(("a", 0, 1), ("a", 0, 1), ("a", 0, 9), ("a", 0, 10), ("b", 0, 3)))
    seen.add(rows(("a", 0, 1), ("a", 1, 0)))
    assert seen.by_slice() == {0: 2, 1: 1, 2: 1, 3: 1}


def test_rows_of_nowhere_count_for_nothing() -> None:
    seen = SeenOffsets(SLICES)
    seen.add(rows(("a", 0, 99), ("c", 0, 1), ("a", 0, None)))
    assert seen.by_slice() == {0: 0, 1: 0}


def test_rows_without_the_columns_tell_nothing() -> None:
    seen = SeenOffsets(SLICES)
    seen.add(rows(("a", 0, 1)))
    seen.add(pa.RecordBatch.from_arrays([pa.array([1])], names=["n"]))
    assert seen.by_slice() is None


def test_a_task_without_rows_has_seen_none() -> None:
    assert SeenOffsets(SLICES).by_slice() == {}
