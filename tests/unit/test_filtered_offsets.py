"""Offsets for which a transform returned no row."""

from __future__ import annotations

import pyarrow as pa
import pytest

from rangeland.decode.columns import LogColumns
from rangeland.dialects.capabilities import Capabilities
from rangeland.model import Counts, Partition, Slice
from rangeland.planning.slice_receipt import Receipt
from rangeland.spark.transform_coverage import SeenOffsets, SeenRecords, unread_records_error

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
    assert seen.records() == SeenRecords({0: 2, 1: 1, 2: 1, 3: 1})


@pytest.mark.parametrize(
    ("row", "outside"),
    [
        (("a", 0, 99), (Partition("a", 0), 99)),
        (("a", 0, -1), (Partition("a", 0), -1)),
        (("a", 1, 10), (Partition("a", 1), 10)),
        (("c", 0, 1), (Partition("c", 0), 1)),
        (("a", 0, None), None),
    ],
)
def test_the_first_row_of_no_slice_is_named_and_one_without_an_offset_says_nothing(
    row: tuple[str, int, int | None], outside: tuple[Partition, int] | None
) -> None:
    seen = SeenOffsets(SLICES, Capabilities())
    seen.add(rows(("a", 0, 3), row, ("z", 0, 5) if outside else row))
    found = seen.records()
    assert found is not None
    assert found.outside == outside
    assert found.by_slice[0] == 1


def test_rows_without_the_columns_tell_nothing() -> None:
    seen = SeenOffsets(SLICES, Capabilities())
    seen.add(rows(("a", 0, 1)))
    seen.add(pa.RecordBatch.from_arrays([pa.array([1])], names=["n"]))
    assert seen.records() is None


def test_a_task_without_rows_has_seen_none() -> None:
    assert SeenOffsets(SLICES, Capabilities()).records() == SeenRecords({})


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
    assert seen.records() == SeenRecords({0: 3, 1: 1})


BY_INDEX = {s.index: s for s in SLICES}
RECEIPTS = {
    s.index: Receipt(s.index, s.partition, *s.interval, Counts(landed=7, control=3)) for s in SLICES
}


@pytest.mark.parametrize(
    ("seen", "words"),
    [
        ([SeenRecords({0: 7, 1: 7})], ""),
        ([SeenRecords({0: 7}), SeenRecords({0: 7})], ""),  # the same records in two tasks
        ([SeenRecords({0: 7}), SeenRecords({1: 8})], "8 records of a/0 [10, 20), which has 7"),
        ([SeenRecords({0: 7}, (Partition("c", 0), 1))], "c/0 at offset 1, outside the ranges"),
    ],
)
def test_rows_of_records_that_were_not_read_are_an_error(
    seen: list[SeenRecords], words: str
) -> None:
    error = unread_records_error("my_module:change", seen, BY_INDEX, RECEIPTS, LogColumns("_"))
    assert (error is None) == (not words)
    if error is not None:
        assert words in str(error)
        assert "_topic, _partition and _offset" in str(error)
