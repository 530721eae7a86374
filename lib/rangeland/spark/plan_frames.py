"""Data frames of a plan, which read its slices in the executors and have the public columns.

Receipts are returned through an accumulator, keyed by slice: a stage that Spark runs again reports
the same receipts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark import Accumulator, AccumulatorParam
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import from_arrow_schema

from rangeland.delta.quarantine.quarantine_writer import QuarantineWriterSettings
from rangeland.dialects.row_schema import typed_rows
from rangeland.errors import Bug, RangelandError
from rangeland.fetch.read_settings import ReadSettings
from rangeland.fetch.slice_reading import read_slices
from rangeland.model import Slice
from rangeland.planning.plan import Plan
from rangeland.planning.slice_receipt import Receipt
from rangeland.spark.executor_tasks import TaskReceipts, logged_reading
from rangeland.spark.task_context import with_task_logging

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FRAME_BATCH_BYTES = 8 << 20
"""The size of an Arrow batch, which the JVM keeps off-heap as a whole."""
ReceiptsBySlice = dict[int, Receipt]
"""Receipts by slice index."""


class _MergedReceipts(AccumulatorParam[ReceiptsBySlice]):
    def zero(self, value: ReceiptsBySlice) -> ReceiptsBySlice:
        return {}

    def addInPlace(self, value1: ReceiptsBySlice, value2: ReceiptsBySlice) -> ReceiptsBySlice:
        value1.update(value2)
        return value1


def new_receipts(spark: SparkSession) -> Accumulator[ReceiptsBySlice]:
    """An accumulator that collects the receipts of data frames."""
    return spark.sparkContext.accumulator({}, _MergedReceipts())


def plan_frame(
    spark: SparkSession,
    tasks: Sequence[Sequence[Slice]],
    settings: ReadSettings,
    receipts: Accumulator[ReceiptsBySlice] | None = None,
    quarantine: QuarantineWriterSettings | None = None,
    plan: Plan | None = None,
) -> DataFrame:
    """The rows of all slices, with one Spark partition per task. Every action reads the same
    offsets again. ``receipts`` collects the receipts of slices that were read to their end;
    ``quarantine`` receives bytes that cannot be decoded, if a policy quarantines them. ``plan``:
    its logs are checked by each task, because nobody checks them afterwards."""
    frozen_plan = None if plan is None else replace(plan, slices=())  # closures are sent to tasks
    frozen = [list(task) for task in tasks]

    def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for numbers in batches:
            for number in numbers.column(0).to_pylist():
                with no_foreign_errors():
                    task = frozen[number]
                    if frozen_plan is None:
                        yield from frame_batches(task, settings, receipts, quarantine)
                    else:
                        yield from checked_batches(frozen_plan, task, settings)

    numbers = spark.range(0, len(frozen), 1, max(1, len(frozen)))
    rows = from_arrow_schema(typed_rows(settings.dialect, settings.row_format))
    frame: DataFrame = numbers.mapInArrow(with_task_logging(read), rows)
    return frame


def frame_batches(
    slices: Sequence[Slice],
    settings: ReadSettings,
    receipts: Accumulator[ReceiptsBySlice] | None = None,
    quarantine: QuarantineWriterSettings | None = None,
) -> Iterator[pa.RecordBatch]:
    """The rows of one task, in batches that a JVM can hold. Without ``receipts``, only policies
    that need none apply: losses that would be held or quarantined fail, and records that are
    skipped show only in the executor's log."""
    if receipts is None:
        settings = replace(settings, policy=settings.policy.without_receipts())
    builder = TaskReceipts(slices, settings, quarantine)
    yield from _batches(builder, slices, settings)
    by_slice = {receipt.slice_index: receipt for receipt in builder.close()}
    if receipts is not None:
        receipts.add(by_slice)


def checked_batches(
    plan: Plan, slices: Sequence[Slice], settings: ReadSettings
) -> Iterator[pa.RecordBatch]:
    """The rows of one task of a frame, as from ``frame_batches`` without receipts. The last batch
    follows once the logs are known to be those of the plan: an action that takes all rows cannot
    end without that."""
    from rangeland.spark.frame_log_check import check_logs_are_planned

    settings = replace(settings, policy=settings.policy.without_receipts())
    builder = TaskReceipts(slices, settings, None)
    held: list[pa.RecordBatch] = []
    for batch in _batches(builder, slices, settings):
        yield from held
        held = [batch]
    check_logs_are_planned(plan, settings, builder.close())
    yield from held


def _batches(
    builder: TaskReceipts, slices: Sequence[Slice], settings: ReadSettings
) -> Iterator[pa.RecordBatch]:
    try:
        with logged_reading(slices):
            for chunk in read_slices(slices, settings):
                builder.add(chunk)
                if chunk.rows is not None:
                    yield from batches_of(chunk.rows)
    except BaseException:
        builder.abort()
        raise


@contextmanager
def no_foreign_errors() -> Iterator[None]:
    """Turns foreign exceptions into Bug, so that they are not blamed on the transform."""
    try:
        yield
    except RangelandError:
        raise
    except Exception as error:
        raise Bug("a task of this run failed", why=f"{type(error).__name__}: {error}") from error


def batches_of(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """The batch in slices of about ``FRAME_BATCH_BYTES``."""
    count = max(1, -(-batch.nbytes // FRAME_BATCH_BYTES))
    rows = -(-batch.num_rows // count)
    for start in range(0, batch.num_rows, max(rows, 1)):
        yield batch.slice(start, rows)
