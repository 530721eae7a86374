"""Reads the rows of a table by their offsets: with Spark, or in the driver if the table is small
and no Spark session has been made yet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from rangeland.decode.columns import LogColumns
from rangeland.delta.parquet_files.local_scan import FILE, small_table
from rangeland.delta.stores.table_path import TablePath
from rangeland.delta.table_schema.arrow_schema import fields_of
from rangeland.errors import TableRefused
from rangeland.landing.target.target_table import TargetTable
from rangeland.model import Partition
from rangeland.planning.table_audit import CountedRange, IntervalArrays, LandedRange
from rangeland.spark.deferred_session import DeferredSession
from rangeland.spark.offset_intervals import (
    COUNTED,
    KEYS,
    borders_of,
    count_ranges,
    counted_ranges,
    intervals_by_partition,
    intervals_of_rows,
)
from rangeland.spark.offset_scan import (
    files_with,
    intervals_in,
    no_positions_error,
    rows_of_entries,
    table_frame,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_NUMBERS = ("integer", "long")
_TYPES = {
    "topic": (("string",), pa.string()),
    "partition": (_NUMBERS, pa.int32()),
    "offset": (("long",), pa.int64()),
    "broker": (("string",), pa.string()),
    "position": (_NUMBERS, pa.int32()),
}
"""The types of the log's columns: every type that a column may have in Delta, since the table's
owner may have widened it, and its type in Arrow."""
_ALWAYS = ("topic", "partition", "offset")


class TableRows(Protocol):
    """The rows of one version of a table."""

    def intervals(self, *, by_broker: bool) -> dict[Partition, IntervalArrays]:
        """See ``offset_scan.intervals_in``."""

    def entries(
        self, landed_ranges: Mapping[Partition, Sequence[LandedRange]]
    ) -> dict[Partition, CountedRange]:
        """See ``offset_scan.rows_of_entries``."""

    def files_with(self, partition: Partition, offset: int) -> list[str]:
        """See ``offset_scan.files_with``."""


def table_rows(spark: SparkSession, table: TargetTable) -> TableRows:
    """The rows of the version that was last read. Raises TableRefused if there is no table, or if
    its rows do not show which offset they came from."""
    if table.version is None:
        raise TableRefused(
            f"the table {table.name} does not exist", do="land something in it first"
        )
    if isinstance(spark, DeferredSession) and not spark.has_session:
        rows = _read_here(table)
        if rows is not None:
            return DriverRows(rows, table.location.uri, table.log_columns)
    frame = table_frame(spark, table.location.uri, table.log_columns, version=table.version)
    return SparkRows(frame, table.log_columns)


def _read_here(table: TargetTable) -> pa.Table | None:
    """The rows, read in the driver; None if Spark must read or refuse the table."""
    if table.snapshot is None:
        return None
    types = {f["name"].lower(): f["type"] for f in fields_of(table.snapshot.schema_json)}
    columns = {name: table.log_columns.column_name(name) for name in _TYPES}
    usable = [
        name for name, (kinds, _) in _TYPES.items() if types.get(columns[name].lower()) in kinds
    ]
    if not set(_ALWAYS) <= set(usable):
        return None
    arrow_types = {columns[name]: _TYPES[name][1] for name in usable}
    rows = small_table(table.snapshot, table.location.storage(), arrow_types)
    return None if rows is None else rows.rename_columns([*usable, FILE])


class SparkRows:
    """The rows of a data frame."""

    def __init__(self, frame: Any, columns: LogColumns) -> None:
        self._frame = frame
        self._columns = columns

    def intervals(self, *, by_broker: bool) -> dict[Partition, IntervalArrays]:
        return intervals_in(self._frame, self._columns, by_broker=by_broker)

    def entries(
        self, landed_ranges: Mapping[Partition, Sequence[LandedRange]]
    ) -> dict[Partition, CountedRange]:
        return rows_of_entries(self._frame, landed_ranges, self._columns)

    def files_with(self, partition: Partition, offset: int) -> list[str]:
        return files_with(self._frame, partition, offset, self._columns)


class DriverRows:
    """The rows of a small table. ``rows`` have the log's columns by their plain names, and their
    files, relative to ``path``."""

    def __init__(self, rows: pa.Table, path: str, columns: LogColumns) -> None:
        self._rows = rows
        self._path = TablePath.parse(path)
        self._columns = columns

    def intervals(self, *, by_broker: bool) -> dict[Partition, IntervalArrays]:
        rows = self._select([*_ALWAYS, *(["broker"] if by_broker else [])])
        intervals = list(intervals_of_rows(rows.to_batches()))
        return intervals_by_partition(pa.Table.from_batches(intervals)) if intervals else {}

    def entries(
        self, landed_ranges: Mapping[Partition, Sequence[LandedRange]]
    ) -> dict[Partition, CountedRange]:
        rows = self._select(KEYS).filter(pc.field("broker").is_valid())
        copies = rows.group_by([*KEYS]).aggregate([([], "count_all")]).rename_columns([*KEYS, "n"])
        counts = count_ranges(copies.to_batches(), borders_of(landed_ranges))
        table = pa.Table.from_batches(counts, schema=COUNTED)
        return counted_ranges(
            table, {partition: len(ranges) for partition, ranges in landed_ranges.items()}
        )

    def files_with(self, partition: Partition, offset: int) -> list[str]:
        which = (pc.field("topic") == partition.topic) & (pc.field("offset") == offset)
        which &= pc.field("partition") == partition.number
        if partition.broker:
            which &= pc.field("broker") == partition.broker
        files = self._rows.filter(which).column(FILE).to_pylist()
        return sorted(self._path.child(file).uri for file in files)

    def _select(self, names: Sequence[str]) -> pa.Table:
        if not set(names) <= set(self._rows.column_names):
            raise no_positions_error(self._columns)
        return self._rows.select([*names])
