"""The entry counts of tasks, summed by partition."""

from __future__ import annotations

import time

import pyarrow as pa

from rangeland.model import Partition
from rangeland.planning.table_audit import CountedRange
from rangeland.spark.offset_intervals import counted_ranges

A, B, C = Partition("t", 0, "1"), Partition("t", 0, "2"), Partition("t", 1, "1")


def counts(*rows: tuple[Partition, str, int, int]) -> pa.Table:
    return pa.table(
        {
            "topic": pa.array([p.topic for p, *_ in rows], pa.string()),
            "partition": pa.array([p.number for p, *_ in rows], pa.int32()),
            "broker": pa.array([p.broker for p, *_ in rows], pa.string()),
            "kind": pa.array([kind for _, kind, _, _ in rows], pa.string()),
            "number": pa.array([number for _, _, number, _ in rows], pa.int64()),
            "n": pa.array([n for *_, n in rows], pa.int64()),
        }
    )


def test_counts_of_several_tasks_are_added_and_offsets_named_once() -> None:
    table = counts(
        (A, "range", 1, 4),
        (B, "range", 0, 100),
        (A, "range", 1, 3),
        (A, "duplicate", 9, 1),
        (A, "duplicate", 7, 2),
        (A, "duplicate", 9, 5),
        (B, "outside", 3, 1),
    )
    assert counted_ranges(table, {A: 3, B: 1, C: 2}) == {
        A: CountedRange((0, 7, 0), (7, 9), ()),
        B: CountedRange((100,), (), (3,)),
        C: CountedRange((0, 0), (), ()),
    }
    assert counted_ranges(counts(), {C: 1}) == {C: CountedRange((0,), (), ())}


def test_a_thousand_partitions_are_counted_in_one_pass() -> None:
    partitions = [Partition("t", number, "1") for number in range(1_000)]
    table = counts(*((p, "range", n, 1) for n in range(10) for p in partitions))
    began = time.process_time()
    found = counted_ranges(table, dict.fromkeys(partitions, 10))
    assert time.process_time() - began < 3, "once per partition it takes far longer"
    assert {counted.rows for counted in found.values()} == {(1,) * 10}
