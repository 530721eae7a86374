"""Data frames of a plan, and the way of rows through a transform.

A frame reads the plan's slices in the executors and gives the columns of the contract. A
transform gets such a frame; what it returns is written by the same file writer as all else.
Receipts of the slices come home through an accumulator, keyed by slice: a stage that Spark
runs again reports the same again. A slice that no task has read to its end has no receipt,
and the proof will say so.
"""

from __future__ import annotations

import importlib
import pickle
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

from rangeland.delta.aside import AsideSettings
from rangeland.dialects.contract import load_dialect
from rangeland.dialects.rows import rows_of
from rangeland.errors import JobFileError, RangelandError
from rangeland.fetch.consumer import read_slices
from rangeland.fetch.settings import ClusterSettings
from rangeland.model import DataFile, Receipt, Slice
from rangeland.planning.plan import Plan
from rangeland.spark.filtered import SeenOffsets
from rangeland.spark.jobs import ByKey, SliceOffsets, watch
from rangeland.spark.tasks import SliceReading, WriterSettings, open_writer

FRAME_BATCH_BYTES = 8 << 20
"""The JVM holds a whole Arrow batch at a time, outside its heap."""

Transform = Callable[[DataFrame], DataFrame]
FILES_SCHEMA = "error binary, result binary"


def load_transform(name: str) -> Transform:
    """The function that ``module:function`` names, from the path or the working folder."""
    module_name, _, function_name = name.partition(":")
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        function: Any = importlib.import_module(module_name)
        for part in function_name.split("."):
            function = getattr(function, part)
    except (ImportError, AttributeError) as error:
        raise JobFileError(
            f"the transform {name} cannot be loaded",
            why=str(error),
            do="name it module:function, and put the module on the Python path",
        ) from error
    transform: Transform = function
    return transform


def transformed_schema(spark: Any, transform: Transform, rows: pa.Schema) -> pa.Schema:
    """The columns that a transform makes of such rows, without reading anything."""
    empty = spark.createDataFrame([], from_arrow_schema(rows))
    schema: pa.Schema = to_arrow_schema(transform(empty).schema, timezone="UTC")
    return schema


def plan_frame(
    spark: Any,
    tasks: Sequence[Sequence[Slice]],
    cluster: ClusterSettings,
    receipts: Any = None,
    aside: AsideSettings | None = None,
) -> DataFrame:
    """The rows of all slices, one Spark partition per task. Every action reads the same
    offsets again. ``receipts`` is an accumulator of receipts by slice index; ``aside`` is
    where goes what cannot be decoded and a policy quarantines."""
    frozen = [list(task) for task in tasks]

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for numbers in batches:
            for number in numbers.column(0).to_pylist():
                yield from frame_batches(frozen[number], cluster, receipts, aside)

    numbers = spark.range(0, len(frozen), 1, max(1, len(frozen)))
    rows = from_arrow_schema(rows_of(cluster.dialect))
    frame: DataFrame = numbers.mapInArrow(read, rows)
    return frame


def frame_batches(
    slices: Sequence[Slice],
    cluster: ClusterSettings,
    receipts: Any = None,
    aside: AsideSettings | None = None,
) -> Iterator[pa.RecordBatch]:
    """The rows of one task in batches that a JVM can hold. Without receipts, nobody would see
    where rows are missing."""
    if receipts is None:
        cluster = replace(cluster, policy=cluster.policy.without_receipts())
    reading = SliceReading(slices, aside)
    try:
        for chunk in read_slices(slices, cluster):
            reading.add(chunk)
            if chunk.batch is not None:
                yield from pieces_of(chunk.batch)
    except BaseException:
        reading.abort()
        raise
    found = {receipt.slice_index: receipt for receipt in reading.close()}
    if receipts is not None:
        receipts.add(found)


def pieces_of(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """The batch in slices of about ``FRAME_BATCH_BYTES``."""
    pieces = max(1, -(-batch.nbytes // FRAME_BATCH_BYTES))
    rows = -(-batch.num_rows // pieces)
    for start in range(0, batch.num_rows, rows):
        yield batch.slice(start, rows)


def land_transformed(
    spark: Any,
    plan: Plan,
    tasks: Sequence[Sequence[Slice]],
    cluster: ClusterSettings,
    writer: WriterSettings,
    transform: Transform,
    on_read: Callable[[SliceOffsets], None],
    stop: Callable[[], bool] = lambda: False,
) -> tuple[dict[int, Receipt], list[DataFile]]:
    """Reads through the transform and writes what it makes: receipts by slice, and files.
    Raises Stopped where ``stop`` has ended it.

    Where the rows still have topic, partition and offset, offsets that no row came of are
    counted as filtered. An offset whose rows a transform spreads over several tasks counts
    as made by each, which can only make fewer of them filtered."""
    receipts = spark.sparkContext.accumulator({}, ByKey())
    frame = transform(plan_frame(spark, tasks, cluster, receipts, writer.aside))
    written = frame.mapInArrow(_writing(writer, plan.slices, cluster.dialect), FILES_SCHEMA)

    def widths(seen: dict[int, Receipt]) -> None:
        on_read({index: r.until_offset - r.from_offset for index, r in seen.items()})

    rows = watch(spark, written.collect, receipts, widths, stop)
    files: list[DataFile] = []
    made: dict[int, int] | None = {}
    for row in rows:
        if row.error is not None:
            raise _unpickled(row.error)
        found, seen = _unpickled(row.result)
        files += found
        if seen is None:
            made = None
        elif made is not None:
            made = {i: made.get(i, 0) + seen.get(i, 0) for i in {*made, *seen}}
    return _with_filtered(dict(receipts.value), made), files


def _with_filtered(receipts: dict[int, Receipt], made: dict[int, int] | None) -> dict[int, Receipt]:
    if made is None:
        return receipts
    counted = {}
    for index, receipt in receipts.items():
        given = receipt.counts.landed
        landed = min(given, made.get(index, 0))
        filtered = receipt.counts.filtered + given - landed
        counts = replace(receipt.counts, landed=landed, filtered=filtered)
        gaps = receipt.gaps if landed == given else None
        counted[index] = replace(receipt, counts=counts, gaps=gaps)
    return counted


def _writing(
    writer: WriterSettings, slices: Sequence[Slice], dialect: str
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        files = open_writer(writer)
        offsets = SeenOffsets(slices, load_dialect(dialect).NATURE)
        try:
            for batch in batches:
                if batch.num_rows:
                    files.write(batch)
                    offsets.add(batch)
            yield _row(None, (files.close(), offsets.by_slice()))
        except RangelandError as error:
            files.abort()
            yield _row(error, None)
        except BaseException:
            files.abort()
            raise

    return write


def _row(error: RangelandError | None, result: Any) -> pa.RecordBatch:
    columns = [
        pa.array([None if item is None else pickle.dumps(item)], pa.binary())
        for item in (error, result)
    ]
    return pa.RecordBatch.from_arrays(columns, names=["error", "result"])


def _unpickled(data: Any) -> Any:
    return pickle.loads(bytes(data))
