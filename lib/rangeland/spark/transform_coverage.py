"""Finds which offsets have rows after a transform, if its rows still show this.

A transform may drop or multiply rows, but not make up rows of records that were not read. Topic,
partition and offset in its rows show which offsets it kept, together with the broker if each broker
numbers its own partitions, and the position if records share an offset. These are collected by
partition and sorted once at the end; they take a few bytes each. Without those columns the coverage
is unknown. That a row really comes from the record named in these columns has to be taken on trust:
nothing else connects the two.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rangeland.decode.columns import PLAIN_COLUMNS, LogColumns
from rangeland.dialects.capabilities import Capabilities
from rangeland.errors import TransformFailed
from rangeland.grouping import by_partition
from rangeland.model import Partition, Slice
from rangeland.planning.slice_receipt import Receipt
from rangeland.spark.transform import RUN_AGAIN


@dataclass(frozen=True, slots=True)
class SeenRecords:
    """The records that have rows in one task: how many there are in each slice, by its index, and
    the first one that is in none of the slices."""

    by_slice: Mapping[int, int]
    outside: tuple[Partition, int] | None = None


class SeenOffsets:
    """The offsets in the rows of one task. Columns count only if they have the public types,
    because a transform may have renamed or recast them."""

    def __init__(
        self,
        slices: Sequence[Slice],
        capabilities: Capabilities,
        columns: LogColumns = PLAIN_COLUMNS,
    ) -> None:
        self._slices = slices
        self._columns = columns
        self._types = {
            columns.topic: pa.string(),
            columns.partition: pa.int32(),
            columns.offset: pa.int64(),
            columns.broker: pa.string(),
            columns.position: pa.int32(),
        }
        self._where = [
            columns.topic,
            columns.partition,
            *([columns.broker] if capabilities.numbered_per_broker else []),
        ]
        self._record = [columns.offset]
        if capabilities.offsets_are_bytes:
            self._record.append(columns.position)
        self._tables: dict[Partition, list[pa.Table]] = {}
        self._is_known = True

    def add(self, batch: pa.RecordBatch) -> None:
        types = {name: batch.schema.field(name).type for name in batch.schema.names}
        needed = [*self._where, *self._record]
        if any(types.get(name) != self._types[name] for name in needed):
            self._is_known = False
            return
        rows = pa.Table.from_batches([batch]).select(needed)
        for key in rows.select(self._where).group_by(self._where).aggregate([]).to_pylist():
            if None in key.values():
                continue
            of_partition = rows
            for name in self._where:
                of_partition = of_partition.filter(pc.equal(of_partition.column(name), key[name]))
            columns = self._columns
            partition = Partition(
                key[columns.topic], key[columns.partition], key.get(columns.broker, "")
            )
            is_valid = pc.is_valid(of_partition.column(columns.offset))
            records = self._distinct(of_partition.select(self._record).filter(is_valid))
            self._tables.setdefault(partition, []).append(records)

    def _distinct(self, rows: pa.Table) -> pa.Table:
        return rows.group_by(self._record).aggregate([])

    def records(self) -> SeenRecords | None:
        """The records that have a row; None if the rows do not show this."""
        if not self._is_known:
            return None
        slices = by_partition(self._slices)
        counts: dict[int, int] = {}
        outside = []
        for partition, tables in self._tables.items():
            records = self._distinct(pa.concat_tables(tables))
            offsets = np.sort(records.column(self._columns.offset).to_numpy())
            is_outside = np.ones(len(offsets), bool)
            for slice_ in slices.get(partition, ()):
                low, high = np.searchsorted(offsets, [slice_.from_offset, slice_.until_offset])
                counts[slice_.index] = int(high - low)
                is_outside[low:high] = False
            outside += [(partition, int(offset)) for offset in offsets[is_outside][:1]]
        return SeenRecords(counts, min(outside, default=None))


def unread_records_error(
    transform: str,
    seen: Iterable[SeenRecords],
    slices: Mapping[int, Slice],
    receipts: Mapping[int, Receipt],
    columns: LogColumns = PLAIN_COLUMNS,
) -> TransformFailed | None:
    """The error for rows that belong to no record that was read: they are outside all slices, or
    there are more records in a slice than it has. Only the rows of one task are compared with a
    slice, since a record may have rows in several tasks. ``slices`` and ``receipts`` are those that
    were read, by index."""
    names = f"{columns.topic}, {columns.partition} and {columns.offset}"
    do = f"let it keep {names} as they are, or give other values other names, {RUN_AGAIN}"
    for one in seen:
        if one.outside is not None:
            partition, offset = one.outside
            return TransformFailed(
                f"the transform {transform} returned a row that belongs to no record that was read",
                why=f"it belongs to {partition} at offset {offset}, outside the ranges that were "
                "read",
                do=do,
                topic=partition.topic,
                partition=partition.number,
                broker=partition.broker or None,
                offset=offset,
            )
        for index, count in one.by_slice.items():
            read = receipts[index].counts.landed
            if count > read:
                return TransformFailed(
                    f"the transform {transform} returned rows of more records than were read",
                    why=f"they are of {count} records of {slices[index]}, which has {read}",
                    do=do,
                    slices=[str(slices[index])],
                )
    return None
