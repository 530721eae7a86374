"""Finds which offsets have rows in a table, as intervals. It reads three columns and shuffles
nothing.

Each task collects the offsets that it reads, eight bytes per row, and returns their intervals; an
offset with several rows is in several intervals. Files of the table that are gone from its store
are ignored, unless all files are required, so their rows show up as holes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from rangeland.decode.columns import PLAIN_COLUMNS, LogColumns
from rangeland.errors import TableRefused
from rangeland.model import Partition
from rangeland.planning.table_audit import CountedRange, IntervalArrays, LandedRange
from rangeland.spark.arrow_frames import collect_rows
from rangeland.spark.offset_intervals import (
    COUNTED,
    INTERVALS,
    KEYS,
    borders_of,
    count_ranges,
    counted_ranges,
    intervals_by_partition,
    intervals_of_rows,
)
from rangeland.spark.session_copy import ignoring_missing_files, requiring_all_files

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_NUMBERS = ("int", "bigint")
"""The types that a column of 32-bit numbers may have: the table's owner may have widened it."""
_NEEDED = {"topic": ("string",), "partition": _NUMBERS, "offset": ("bigint",)}
_HIGHEST = (1 << 31) - 1


def table_frame(
    spark: SparkSession,
    path: str,
    columns: LogColumns = PLAIN_COLUMNS,
    *,
    version: int | None = None,
    all_files: bool = False,
) -> Any:
    """The table as it is now, or in a certain ``version``. A missing file counts as having no rows;
    with ``all_files``, reading fails instead. Raises TableRefused if these columns of its rows do
    not say from which offset the rows come."""
    session = requiring_all_files(spark) if all_files else ignoring_missing_files(spark)
    reader = session.read.format("delta")
    frame = (reader if version is None else reader.option("versionAsOf", version)).load(path)
    types = {name.lower(): kind for name, kind in frame.dtypes}
    needed = {columns.column_name(name).lower(): kinds for name, kinds in _NEEDED.items()}
    wrong = [name for name, kinds in needed.items() if types.get(name) not in kinds]
    if wrong:
        raise TableRefused(
            f"the rows of {path} do not say which offset they came from",
            why=f"there is no column {' or '.join(wrong)} of the expected type",
            do=f"let the transform keep {columns.topic}, {columns.partition} and {columns.offset} "
            "as they are",
        )
    return frame


def intervals_in(
    frame: Any, columns: LogColumns = PLAIN_COLUMNS, *, by_broker: bool = False
) -> dict[Partition, IntervalArrays]:
    """The intervals of offsets that have rows, by partition. Rows without an offset are left out.
    ``by_broker``: each broker numbers its own partitions; without it, a column ``broker`` is not
    the log's."""
    names = [*_NEEDED, *(["broker"] if by_broker else [])]
    plain = _plain(frame, names, columns)
    table = collect_rows(plain.mapInArrow(intervals_of_rows, _spark_schema(INTERVALS)))
    return intervals_by_partition(table)


def rows_of_entries(
    frame: Any,
    landed_ranges: Mapping[Partition, Sequence[LandedRange]],
    columns: LogColumns = PLAIN_COLUMNS,
) -> dict[Partition, CountedRange]:
    """The distinct rows of every range, by offset and position. The ``landed_ranges`` of each
    partition must be sorted and disjoint. Raises TableRefused if rows have no position."""
    from pyspark.sql import functions as f

    types = {name.lower(): kind for name, kind in frame.dtypes}
    if types.get(columns.position) not in _NUMBERS or types.get(columns.broker) != "string":
        raise no_positions_error(columns)
    borders = borders_of(landed_ranges)

    def count(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from count_ranges(batches, borders)

    plain = _plain(frame, KEYS, columns)
    rows = plain.where(f.col("broker").isNotNull()).groupBy(*KEYS).agg(f.count("*").alias("n"))
    table = collect_rows(rows.mapInArrow(count, _spark_schema(COUNTED)))
    return counted_ranges(
        table, {partition: len(ranges) for partition, ranges in landed_ranges.items()}
    )


def _spark_schema(schema: pa.Schema) -> Any:
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(schema)


def no_positions_error(columns: LogColumns) -> TableRefused:
    """The error for a table whose rows do not say which record of an entry they are."""
    return TableRefused(
        "the rows of the table do not say which record of an entry they are",
        why=f"there is no column {columns.position} or {columns.broker} of the expected type",
        do=f"let the transform keep {columns.broker}, {columns.offset} and {columns.position} "
        "as they are",
    )


def _plain(frame: Any, names: Sequence[str], columns: LogColumns) -> Any:
    """These columns of the log, without the table's prefix and in the log's own types. A number
    that no log can have becomes null."""
    from pyspark.sql import functions as f

    plain_columns = []
    for name in names:
        column = f.col(columns.column_name(name))
        if name in ("partition", "position"):
            column = f.when(column.between(-_HIGHEST, _HIGHEST), column).cast("int")
        plain_columns.append(column.alias(name))
    return frame.select(*plain_columns)


def has_rows(frame: Any, where: str) -> bool:
    """Whether the table has a row for which this SQL condition is true."""
    return bool(frame.where(where).limit(1).count())


def files_with(
    frame: Any,
    partition: Partition,
    offset: int,
    columns: LogColumns = PLAIN_COLUMNS,
) -> list[str]:
    """The files that have a row for the offset: one name per row."""
    from pyspark.sql import functions as f

    rows = frame.where(f.col(columns.topic) == partition.topic)
    rows = rows.where(f.col(columns.partition) == partition.number)
    rows = rows.where(f.col(columns.offset) == offset)
    if partition.broker:
        rows = rows.where(f.col(columns.broker) == partition.broker)
    return sorted(row[0] for row in rows.select("_metadata.file_path").collect())
