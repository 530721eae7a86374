"""Which offsets have rows in a table, as runs: reads three columns and shuffles nothing.

Each task collects the offsets it reads, eight bytes a row, and returns their runs; an offset
with several rows is in several runs. Missing files of the table are ignored: their rows are
then reported as holes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rangeland.decode.columns import PLAIN_COLUMNS, LogColumns
from rangeland.errors import TableRefused
from rangeland.model import Partition
from rangeland.planning.table_audit import CountedRange, LandedPiece, Runs, runs_of
from rangeland.spark.arrow_frames import collected

_NEEDED = {"topic": "string", "partition": "int", "offset": "bigint"}
_MISSING_FILES = "spark.sql.files.ignoreMissingFiles"
_RUNS = "topic string, partition int, broker string, first bigint, until bigint"
_COUNTS = "topic string, partition int, broker string, kind string, number bigint, n bigint"
_PIECE, _DUPLICATE, _OUTSIDE = "piece", "duplicate", "outside"
_SCHEMA = pa.schema(
    [
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("broker", pa.string()),
        pa.field("first", pa.int64()),
        pa.field("until", pa.int64()),
    ]
)


def table_frame(
    spark: Any, path: str, columns: LogColumns = PLAIN_COLUMNS, *, version: int | None = None
) -> Any:
    """The table as it is now, or in one ``version``. Raises TableRefused if its rows do not say, in
    these columns, which offset they came from."""
    reader = spark.read.format("delta")
    frame = (reader if version is None else reader.option("versionAsOf", version)).load(path)
    types = {name.lower(): kind for name, kind in frame.dtypes}
    needed = {columns.named(name): kind for name, kind in _NEEDED.items()}
    wrong = [name for name, kind in needed.items() if types.get(name) != kind]
    if wrong:
        raise TableRefused(
            f"the rows of {path} do not say which offset they came from",
            why=f"there is no column {' or '.join(wrong)} of the expected type",
            do=f"let the transform keep {columns.topic}, {columns.partition} and {columns.offset} "
            "as they are",
        )
    return frame


def runs_in(
    spark: Any, frame: Any, columns: LogColumns = PLAIN_COLUMNS, *, by_broker: bool = False
) -> dict[Partition, Runs]:
    """The runs of offsets that have rows, by partition. Rows without an offset are left out.
    ``by_broker``: partitions are numbered per broker; otherwise a column ``broker`` is not
    ours."""
    names = [*_NEEDED, *(["broker"] if by_broker else [])]
    with _passing_over_missing_files(spark):
        table = collected(_plain(frame, names, columns).mapInArrow(_runs_of_task, _RUNS))
    found: dict[Partition, list[Runs]] = {}
    for topic, number, broker, firsts, untils in _groups(table):
        found.setdefault(Partition(topic, number, broker), []).append((firsts, untils))
    return {
        partition: (
            np.concatenate([firsts for firsts, _ in parts]),
            np.concatenate([untils for _, untils in parts]),
        )
        for partition, parts in found.items()
    }


def rows_of_entries(
    spark: Any,
    frame: Any,
    pieces: Mapping[Partition, Sequence[LandedPiece]],
    columns: LogColumns = PLAIN_COLUMNS,
) -> dict[Partition, CountedRange]:
    """The distinct rows of every piece, by offset and position. ``pieces`` of each partition
    are sorted and disjoint. Raises TableRefused if rows have no position."""
    from pyspark.sql import functions as f

    types = {name.lower(): kind for name, kind in frame.dtypes}
    if types.get(columns.position) != "int" or types.get(columns.broker) != "string":
        raise TableRefused(
            "the rows of the table do not say which record of an entry they are",
            why=f"there is no column {columns.position} or {columns.broker} of the type of the "
            "contract",
            do=f"let the transform keep {columns.broker}, {columns.offset} and {columns.position} "
            "as they are",
        )
    keys = ["topic", "partition", "broker", "offset", "position"]
    borders = {
        (p.topic, p.number, p.broker): (
            [piece.range.from_offset for piece in mine],
            [piece.range.until_offset for piece in mine],
        )
        for p, mine in pieces.items()
    }

    def count(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from _count_pieces(batches, borders)

    with _passing_over_missing_files(spark):
        plain = _plain(frame, keys, columns)
        rows = plain.where(f.col("broker").isNotNull()).groupBy(*keys).agg(f.count("*").alias("n"))
        table = collected(rows.mapInArrow(count, _COUNTS))
    return _counted(table, {partition: len(mine) for partition, mine in pieces.items()})


def _plain(frame: Any, names: Sequence[str], columns: LogColumns) -> Any:
    """These columns of the log, without the table's prefix."""
    from pyspark.sql import functions as f

    return frame.select(*[f.col(columns.named(name)).alias(name) for name in names])


def _count_pieces(
    batches: Iterator[pa.RecordBatch],
    borders: Mapping[tuple[str, int, str], tuple[list[int], list[int]]],
) -> Iterator[pa.RecordBatch]:
    """Rows (partition, kind, number, n): for a piece, how many distinct rows it has; for an
    offset, that a row of it is duplicated, or that it is in no piece."""
    for batch in batches:
        for topic, number, broker, offsets, _, copies in _groups(pa.Table.from_batches([batch])):
            if (topic, number, broker) not in borders:
                continue
            starts, ends = (np.array(side, np.int64) for side in borders[topic, number, broker])
            place = np.searchsorted(starts, offsets, side="right") - 1
            inside = (place >= 0) & (offsets < ends[np.maximum(place, 0)])
            which, rows = np.unique(place[inside], return_counts=True)
            found = {
                _PIECE: (which, rows),
                _DUPLICATE: np.unique(offsets[inside & (copies > 1)], return_counts=True),
                _OUTSIDE: np.unique(offsets[~inside], return_counts=True),
            }
            for kind, (numbers, counts) in found.items():
                size = len(numbers)
                yield pa.RecordBatch.from_arrays(
                    [
                        pa.repeat(pa.scalar(topic, pa.string()), size),
                        pa.repeat(pa.scalar(number, pa.int32()), size),
                        pa.repeat(pa.scalar(broker, pa.string()), size),
                        pa.repeat(pa.scalar(kind, pa.string()), size),
                        pa.array(numbers, pa.int64()),
                        pa.array(counts, pa.int64()),
                    ],
                    names=["topic", "partition", "broker", "kind", "number", "n"],
                )


def _counted(table: pa.Table, pieces: Mapping[Partition, int]) -> dict[Partition, CountedRange]:
    """The sums of what all tasks have counted, by partition; ``pieces`` are the numbers of
    pieces."""
    rows = {partition: [0] * count for partition, count in pieces.items()}
    duplicates: dict[Partition, list[int]] = {partition: [] for partition in pieces}
    outside: dict[Partition, list[int]] = {partition: [] for partition in pieces}
    keys = ["topic", "partition", "broker", "kind", "number"]
    summed = table.group_by(keys).aggregate([("n", "sum")]).select([*keys, "n_sum"])
    columns = [column.to_pylist() for column in summed.columns]
    for topic, which, broker, kind, number, count in zip(*columns, strict=True):
        partition = Partition(topic, which, broker)
        if kind == _PIECE:
            rows[partition][number] = count
        else:
            (duplicates if kind == _DUPLICATE else outside)[partition].append(number)
    return {
        p: CountedRange(tuple(rows[p]), tuple(sorted(duplicates[p])), tuple(sorted(outside[p])))
        for p in pieces
    }


def has_rows(spark: Any, frame: Any, where: str) -> bool:
    """Whether the table has a row for which this SQL condition is true."""
    with _passing_over_missing_files(spark):
        return bool(frame.where(where).limit(1).count())


def files_with(
    spark: Any,
    frame: Any,
    partition: Partition,
    offset: int,
    columns: LogColumns = PLAIN_COLUMNS,
) -> list[str]:
    """The files that have a row of the offset, one name for each row."""
    from pyspark.sql import functions as f

    rows = frame.where(f.col(columns.topic) == partition.topic)
    rows = rows.where(f.col(columns.partition) == partition.number)
    rows = rows.where(f.col(columns.offset) == offset)
    if partition.broker:
        rows = rows.where(f.col(columns.broker) == partition.broker)
    with _passing_over_missing_files(spark):
        return sorted(row[0] for row in rows.select("_metadata.file_path").collect())


def _runs_of_task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    seen: dict[tuple[str, int, str], list[np.ndarray]] = {}
    for batch in batches:
        for topic, number, broker, offsets in _groups(pa.Table.from_batches([batch])):
            seen.setdefault((topic, number, broker), []).append(offsets)
    for (topic, number, broker), parts in seen.items():
        firsts, untils = runs_of(np.concatenate(parts))
        count = len(firsts)
        yield pa.RecordBatch.from_arrays(
            [
                pa.repeat(pa.scalar(topic, pa.string()), count),
                pa.repeat(pa.scalar(number, pa.int32()), count),
                pa.repeat(pa.scalar(broker or None, pa.string()), count),
                pa.array(firsts, pa.int64()),
                pa.array(untils, pa.int64()),
            ],
            schema=_SCHEMA,
        )


def _groups(table: pa.Table) -> Iterator[tuple[Any, ...]]:
    """(topic, partition, broker, *numbers) of each partition in the rows, where the numbers
    are the columns that are left, as arrays."""
    names = [name for name in table.column_names if name not in ("topic", "partition", "broker")]
    keys = [name for name in ("topic", "partition", "broker") if name in table.column_names]
    whole = table.filter(pc.is_valid(table.column(names[0])))
    groups = whole.select(keys).group_by(keys).aggregate([]).to_pylist()
    for group in groups:
        rows = whole
        if len(groups) > 1:
            mask = None
            for name in keys:
                column = rows.column(name)
                value = group[name]
                same = pc.is_null(column) if value is None else pc.equal(column, value)
                mask = same if mask is None else pc.and_kleene(mask, same)
            rows = whole.filter(mask)
        if group["topic"] is None or group["partition"] is None:
            continue
        numbers = [rows.column(name).to_numpy() for name in names]
        yield (group["topic"], group["partition"], group.get("broker") or "", *numbers)


@contextmanager
def _passing_over_missing_files(spark: Any) -> Iterator[None]:
    before = spark.conf.get(_MISSING_FILES, None)
    spark.conf.set(_MISSING_FILES, "true")
    try:
        yield
    finally:
        if before is None:
            spark.conf.unset(_MISSING_FILES)
        else:
            spark.conf.set(_MISSING_FILES, before)
