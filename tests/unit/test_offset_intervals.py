"""Rows of many partitions, in any order and in many batches, become the intervals of each."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa

from rangeland.model import Partition
from rangeland.spark.offset_intervals import intervals_by_partition, intervals_of_rows

PARTITIONS = 3_000
Row = tuple[str | None, int | None, str | None, int | None]


def table_of(rows: list[Row]) -> pa.Table:
    topics, numbers, brokers, offsets = zip(*rows, strict=True)
    columns = {
        "topic": pa.array(topics, pa.string()),
        "partition": pa.array(numbers, pa.int32()),
        "broker": pa.array(brokers, pa.string()),
        "offset": pa.array(offsets, pa.int64()),
    }
    return pa.table(columns)


def found_in(rows: list[Row], batch_rows: int) -> dict[Partition, list[tuple[int, int]]]:
    intervals = list(intervals_of_rows(table_of(rows).to_batches(max_chunksize=batch_rows)))
    found = intervals_by_partition(pa.Table.from_batches(intervals))
    return {
        partition: sorted(zip(*(side.tolist() for side in both), strict=True))
        for partition, both in found.items()
    }


def test_each_of_many_partitions_has_its_own_spans() -> None:
    rows: list[Row] = [
        (f"orders-{n % 7}", n // 7, None if n % 2 else "broker-a", offset)
        for n in range(PARTITIONS)
        for offset in (n, n + 1, n + 5)
    ]
    random.Random(1).shuffle(rows)
    found = found_in(rows, 1_000)
    assert len(found) == PARTITIONS
    for n in range(PARTITIONS):
        partition = Partition(f"orders-{n % 7}", n // 7, "" if n % 2 else "broker-a")
        assert found[partition] == [(n, n + 2), (n + 5, n + 6)]


def test_rows_without_topic_partition_or_offset_are_left_out() -> None:
    rows: list[Row] = [
        ("orders", 0, None, 4),
        (None, 0, None, 5),
        ("orders", None, None, 6),
        ("orders", 0, None, None),
        ("orders", 0, None, 4),
    ]
    assert found_in(rows, 2) == {Partition("orders", 0): [(4, 5), (4, 5)]}


def test_rows_that_all_lack_an_offset_have_no_spans() -> None:
    assert list(intervals_of_rows(table_of([("orders", 0, None, None)]).to_batches())) == []


def test_numbers_of_a_partition_keep_their_type_beside_others_that_lack_some() -> None:
    far = 2**53 + 1  # not a float
    intervals = list(
        intervals_of_rows(table_of([("a", 0, None, far), ("b", 0, None, None)]).to_batches())
    )
    ((starts, _),) = intervals_by_partition(pa.Table.from_batches(intervals)).values()
    assert starts.dtype == np.int64
    assert starts.tolist() == [far]
