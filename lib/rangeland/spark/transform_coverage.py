"""Finds which offsets have rows after a transform, if its rows still show it.

A transform may drop rows or multiply them; topic, partition and offset in its rows show which
offsets it kept, with broker if partitions are numbered per broker and position if records share an
offset. These are collected by partition and sorted once at the end, a few bytes each. Without those
columns the coverage is unknown.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rangeland.decode.columns import PLAIN_COLUMNS, LogColumns
from rangeland.dialects.capabilities import Capabilities
from rangeland.model import Partition, Slice


class SeenOffsets:
    """The offsets in the rows of one task. Columns count only if they have the public types: a
    transform may have renamed or recast them."""

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

    def by_slice(self) -> dict[int, int] | None:
        """The number of records of each slice that have a row; None if the rows do not show it."""
        if not self._is_known:
            return None
        counts: dict[int, int] = {}
        distinct = {
            partition: np.sort(
                self._distinct(pa.concat_tables(tables)).column(self._columns.offset).to_numpy()
            )
            for partition, tables in self._tables.items()
        }
        for slice_ in self._slices:
            offsets = distinct.get(slice_.partition)
            if offsets is not None:
                low, high = np.searchsorted(offsets, [slice_.from_offset, slice_.until_offset])
                counts[slice_.index] = int(high - low)
        return counts
