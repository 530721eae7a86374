"""Turns rows into intervals of offsets, and counts them by landed range. Arrow in, values out.

Here the log's columns have their plain names, without a table's prefix. Executors and the driver
use the same functions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rangeland.model import Partition
from rangeland.planning.table_audit import CountedRange, IntervalArrays, LandedRange, intervals_of

KEYS = ("topic", "partition", "broker", "offset", "position")
"""The columns that distinguish rows where offsets are bytes."""
_RANGE, _DUPLICATE, _OUTSIDE = "range", "duplicate", "outside"
_LOG = {"topic": pa.string(), "partition": pa.int32(), "broker": pa.string()}
INTERVALS = pa.schema({**_LOG, "first": pa.int64(), "until": pa.int64()})
"""The schema of ``intervals_of_rows``."""
COUNTED = pa.schema({**_LOG, "kind": pa.string(), "number": pa.int64(), "n": pa.int64()})
"""The schema of ``count_ranges``."""
Borders = Mapping[tuple[str, int, str], tuple[list[int], list[int]]]
"""Starts and ends of the ranges of each topic, partition and broker."""


def intervals_of_rows(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The intervals of all rows, by partition. Each row takes up eight bytes until the end."""
    offsets_of: dict[tuple[str, int, str], list[np.ndarray]] = {}
    for batch in batches:
        for topic, number, broker, offsets in _groups(pa.Table.from_batches([batch])):
            offsets_of.setdefault((topic, number, broker), []).append(offsets)
    for (topic, number, broker), parts in offsets_of.items():
        firsts, untils = intervals_of(np.concatenate(parts))
        count = len(firsts)
        yield pa.RecordBatch.from_arrays(
            [
                *_repeat(topic, number, broker or None, times=count),
                pa.array(firsts, pa.int64()),
                pa.array(untils, pa.int64()),
            ],
            schema=INTERVALS,
        )


def intervals_by_partition(table: pa.Table) -> dict[Partition, IntervalArrays]:
    """The intervals that ``intervals_of_rows`` has found, in the driver or in tasks."""
    parts_of: dict[Partition, list[IntervalArrays]] = {}
    for topic, number, broker, firsts, untils in _groups(table):
        parts_of.setdefault(Partition(topic, number, broker), []).append((firsts, untils))
    return {
        partition: (
            np.concatenate([firsts for firsts, _ in parts]),
            np.concatenate([untils for _, untils in parts]),
        )
        for partition, parts in parts_of.items()
    }


def count_ranges(batches: Iterable[pa.RecordBatch], borders: Borders) -> Iterator[pa.RecordBatch]:
    """Rows (partition, kind, number, n). They say that a range, given by its number, has n distinct
    rows, or that an offset has a duplicate row or is in no range."""
    for batch in batches:
        for topic, number, broker, offsets, _, copies in _groups(pa.Table.from_batches([batch])):
            if (topic, number, broker) not in borders:
                continue
            starts, ends = (np.array(side, np.int64) for side in borders[topic, number, broker])
            place = np.searchsorted(starts, offsets, side="right") - 1
            in_range = (place >= 0) & (offsets < ends[np.maximum(place, 0)])
            counts_by_kind = {
                _RANGE: np.unique(place[in_range], return_counts=True),
                _DUPLICATE: np.unique(offsets[in_range & (copies > 1)], return_counts=True),
                _OUTSIDE: np.unique(offsets[~in_range], return_counts=True),
            }
            for kind, (numbers, counts) in counts_by_kind.items():
                size = len(numbers)
                yield pa.RecordBatch.from_arrays(
                    [
                        *_repeat(topic, number, broker, times=size),
                        pa.repeat(pa.scalar(kind, pa.string()), size),
                        pa.array(numbers, pa.int64()),
                        pa.array(counts, pa.int64()),
                    ],
                    schema=COUNTED,
                )


def _repeat(topic: str, number: int, broker: str | None, *, times: int) -> list[pa.Array]:
    """The columns that name a partition, repeated for each row."""
    values = zip((topic, number, broker), _LOG.values(), strict=True)
    return [pa.repeat(pa.scalar(value, kind), times) for value, kind in values]


def borders_of(landed_ranges: Mapping[Partition, Sequence[LandedRange]]) -> Borders:
    """The borders of ranges, which must be sorted and disjoint in each partition."""
    return {
        (p.topic, p.number, p.broker): (
            [landed_range.range.from_offset for landed_range in ranges],
            [landed_range.range.until_offset for landed_range in ranges],
        )
        for p, ranges in landed_ranges.items()
    }


def counted_ranges(
    table: pa.Table, landed_ranges: Mapping[Partition, int]
) -> dict[Partition, CountedRange]:
    """The sums of the rows of ``count_ranges``, by partition; ``landed_ranges`` says how many
    ranges each partition has."""
    rows = {partition: [0] * count for partition, count in landed_ranges.items()}
    duplicates: dict[Partition, list[int]] = {partition: [] for partition in landed_ranges}
    outside: dict[Partition, list[int]] = {partition: [] for partition in landed_ranges}
    keys = [*_LOG, "kind", "number"]
    sums = table.group_by(keys).aggregate([("n", "sum")]).select([*keys, "n_sum"])
    columns = [column.to_pylist() for column in sums.columns]
    for topic, partition_number, broker, kind, number, count in zip(*columns, strict=True):
        partition = Partition(topic, partition_number, broker)
        if kind == _RANGE:
            rows[partition][number] = count
        else:
            (duplicates if kind == _DUPLICATE else outside)[partition].append(number)
    return {
        p: CountedRange(tuple(rows[p]), tuple(sorted(duplicates[p])), tuple(sorted(outside[p])))
        for p in landed_ranges
    }


def _groups(table: pa.Table) -> Iterator[tuple[Any, ...]]:
    """(topic, partition, broker, *numbers) for each partition in the rows; the numbers are the
    remaining columns, as arrays. Rows are sorted once, however many partitions there are."""
    keys = [name for name in _LOG if name in table.column_names]
    names = [name for name in table.column_names if name not in keys]
    for name in ("topic", "partition", names[0]):
        table = table.filter(pc.is_valid(table.column(name)))
    if not table.num_rows:
        return
    groups = np.zeros(table.num_rows, np.int64)
    values: list[tuple[np.ndarray, pa.Array]] = []
    for name in keys:
        # Only the numbers are concatenated: the text of a long column may not fit in one array.
        column = table.column(name)
        if name == "broker":
            column = column.fill_null("")
        chunks = column.dictionary_encode().unify_dictionaries().chunks
        numbers = np.concatenate([chunk.indices.to_numpy() for chunk in chunks])
        values.append((numbers, chunks[0].dictionary))
        groups = groups * len(chunks[0].dictionary) + numbers
    order = np.argsort(groups, kind="stable")
    starts = np.flatnonzero(np.diff(groups[order], prepend=-1))
    (rest,) = table.select(names).combine_chunks().to_batches()
    for row_numbers in np.split(order, starts[1:]):
        key = [dictionary[int(numbers[row_numbers[0]])].as_py() for numbers, dictionary in values]
        rows = rest if len(starts) == 1 else rest.take(pa.array(row_numbers))
        topic, number, *broker = key
        columns = [column.to_numpy(zero_copy_only=False) for column in rows.columns]
        yield (topic, number, broker[0] if broker else "", *columns)
