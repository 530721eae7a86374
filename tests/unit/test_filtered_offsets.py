"""Offsets for which a transform returned no row."""

from __future__ import annotations

import pyarrow as pa

from rangeland.dialects.capabilities import Capabilities
from rangeland.model import Partition, Slice
from rangeland.spark.transform_coverage import SeenOffsets

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
    seen = SeenOffsets(SLICES, Capabilities())
    seen.add(rows(("a", 0, 1), ("a", 0, 1), ("a", 0, 9), ("a", 0, 10), ("b", 0, 3)))
    seen.add(rows(("a", 0, 1), ("a", 1, 0)))
    assert seen.by_slice() == {0: 2, 1: 1, 2: 1, 3: 1}


def test_rows_of_nowhere_count_for_nothing() -> None:
    seen = SeenOffsets(SLICES, Capabilities())
    seen.add(rows(("a", 0, 99), ("c", 0, 1), ("a", 0, None)))
    assert seen.by_slice() == {0: 0, 1: 0}


def test_rows_without_the_columns_tell_nothing() -> None:
    seen = SeenOffsets(SLICES, Capabilities())
    seen.add(rows(("a", 0, 1)))
    seen.add(pa.RecordBatch.from_arrays([pa.array([1])], names=["n"]))
    assert seen.by_slice() is None


def test_a_task_without_rows_has_seen_none() -> None:
    assert SeenOffsets(SLICES, Capabilities()).by_slice() == {}


def test_records_that_share_an_offset_are_counted_by_their_position() -> None:
    nature = Capabilities(numbered_per_broker=True, offsets_are_bytes=True)
    one, two = Partition("t", 0, "1"), Partition("t", 0, "2")
    seen = SeenOffsets([Slice(0, one, 0, 90), Slice(1, two, 0, 90)], nature)
    rows = {
        "topic": pa.array(["t"] * 5, pa.string()),
        "partition": pa.array([0] * 5, pa.int32()),
        "broker": pa.array(["1", "1", "1", "2", "1"], pa.string()),
        "offset": pa.array([0, 0, 40, 0, 40], pa.int64()),
        "position": pa.array([0, 1, 0, 0, 0], pa.int32()),
    }
    seen.add(pa.RecordBatch.from_pydict(rows))
    assert seen.by_slice() == {0: 3, 1: 1}
