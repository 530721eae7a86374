"""Lands a plan through a transform, which gets a data frame of the plan's rows.

The rows that the transform returns are written by the same file writer as all other rows. A slice
that no task has read to its end has no receipt, so the proof fails.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark import Accumulator
from pyspark.sql import DataFrame

from rangeland.delta.parquet_files.data_files import FileWriter, FileWriterSettings
from rangeland.dialects.dialect import load_dialect
from rangeland.errors import Bug, RangelandError, TransformFailed
from rangeland.fetch.read_settings import ReadSettings
from rangeland.grouping import sum_by_key
from rangeland.model import DataFile, Slice
from rangeland.planning.plan import Plan
from rangeland.planning.slice_receipt import Receipt
from rangeland.spark.executor_logs import quiet_executors
from rangeland.spark.failing_records import (
    Trials,
    consume_rows,
    failed_slices,
    located_error,
    narrow_slices,
)
from rangeland.spark.omitted_records import OmittedRecords
from rangeland.spark.plan_frames import ReceiptsBySlice, new_receipts, plan_frame
from rangeland.spark.spark_jobs import (
    TasksToRun,
    failed_task,
    job_group,
    watch,
)
from rangeland.spark.task_context import with_task_logging
from rangeland.spark.transform import RUN_AGAIN, Transform, raised_error
from rangeland.spark.transform_coverage import SeenOffsets, SeenRecords, unread_records_error

FILES_SCHEMA = "error binary, result binary"


def run_transformed(
    plan: Plan, tasks: TasksToRun, transform: Transform
) -> tuple[dict[int, Receipt], list[DataFile]]:
    """Reads through the transform and writes its rows; returns receipts by slice, and files. Raises
    TasksStopped if ``stop`` has ended it, and TransformFailed for exceptions of the transform, with
    the records on which it fails, as well as for rows that belong to no record that was read.

    If the policy drops records that cannot be decoded, single records on which the transform fails
    are omitted, and the others are read again; but not in a plan that replaces rows.

    If the rows still have topic, partition and offset, offsets without a row count as filtered. If
    a transform spreads the rows of one offset over several tasks, the offset is counted in each of
    them, so too few offsets may count as filtered.
    """
    omitted = OmittedRecords(transform.name, tasks.settings, plan.kind)
    while True:
        try:
            receipts, files = _read_and_write(replace(tasks, settings=omitted.settings), transform)
        except _FailedTask as failed:
            read = partial(plan_frame, tasks.spark, settings=omitted.trial)
            trials = Trials(tasks.spark, transform, read)
            slices = failed_slices(tasks.slices, failed.task)
            error = omitted.omit_or_error(slices, trials, failed.error)
            if error is None:
                continue
            can_cut = not load_dialect(tasks.settings.dialect).capabilities.offsets_are_bytes
            narrowed = narrow_slices(slices, trials.try_slices, can_cut=can_cut)
            all_slices = [slice_ for task in tasks.slices for slice_ in task]
            raise located_error(error, narrowed, all_slices) from failed.__cause__
        omitted.check_some_pass(receipts.values())
        return receipts, files


class _FailedTask(Exception):
    """The transform has failed, in the task with this number if it is known."""

    def __init__(self, error: TransformFailed, task: int | None) -> None:
        super().__init__(error, task)
        self.error = error
        self.task = task


def _read_and_write(
    tasks: TasksToRun, transform: Transform
) -> tuple[dict[int, Receipt], list[DataFile]]:
    reported = new_receipts(tasks.spark)
    frame = transform(_frame_of(tasks, tasks.slices, reported))
    slices = [slice_ for task in tasks.slices for slice_ in task]
    write = _make_writer(tasks.writer.files, slices, tasks.settings)
    files_frame = frame.mapInArrow(with_task_logging(write), FILES_SCHEMA)
    group = job_group()

    def report() -> None:
        # A copy, because another thread adds to it.
        receipts = dict(reported.value)
        tasks.on_read({index: receipt.width for index, receipt in receipts.items()})

    with quiet_executors(tasks.spark):
        try:
            rows = watch(tasks.spark, files_frame.collect, report, tasks.stop, group)
        except Bug as error:
            failure = raised_error(transform, error.__cause__ or error)
            if failure is None:
                raise error from error.__cause__
            raise _FailedTask(failure, failed_task(tasks.spark, group)) from error.__cause__
    files, seen = _gather_files(rows)
    receipts = dict(reported.value)
    if unread := [slice_ for slice_ in slices if slice_.index not in receipts]:
        if files:
            raise _stopped_early_error(transform, unread)
        receipts |= _read_the_rest(tasks, unread)
    if seen is None:
        return receipts, files
    by_index = {slice_.index: slice_ for slice_ in slices}
    columns = tasks.settings.columns
    unread_error = unread_records_error(transform.name, seen, by_index, receipts, columns)
    if unread_error is not None:
        raise unread_error
    return _with_filtered(receipts, seen), files


def _frame_of(
    tasks: TasksToRun, slices: Sequence[Sequence[Slice]], receipts: Accumulator[ReceiptsBySlice]
) -> DataFrame:
    return plan_frame(tasks.spark, slices, tasks.settings, receipts, tasks.writer.quarantine)


def _gather_files(rows: Sequence[Any]) -> tuple[list[DataFile], list[SeenRecords] | None]:
    """The files of all tasks, and the records that have rows in them, if known."""
    files: list[DataFile] = []
    seen: list[SeenRecords] = []
    is_known = True
    for row in rows:
        if row.error is not None:
            raise _unpickle(row.error)
        files_of_task, seen_in_task = _unpickle(row.result)
        files += files_of_task
        if seen_in_task is None:
            is_known = False
        else:
            seen.append(seen_in_task)
    return files, seen if is_known else None


def _stopped_early_error(transform: Transform, unread: Sequence[Slice]) -> TransformFailed:
    more = f" and {len(unread) - 1} more" if len(unread) > 1 else ""
    return TransformFailed(
        f"the transform {transform.name} stopped before it had read all records",
        why=f"not all of {unread[0]}{more} was read; `limit` and `head` have this effect",
        do=f"let it read all of its rows, {RUN_AGAIN}",
        slices=[str(slice_) for slice_ in unread[:100]],
    )


def _read_the_rest(tasks: TasksToRun, slices: Sequence[Slice]) -> dict[int, Receipt]:
    """Receipts for slices that Spark has not read to their end because the query cannot have any
    rows: for example, its condition is never true, or it joins an empty table. These offsets then
    have no rows, but whether they contain markers or damage only shows when they are read."""
    reported = new_receipts(tasks.spark)
    frame = _frame_of(tasks, [[slice_] for slice_ in slices], reported)
    watch(tasks.spark, frame.mapInArrow(consume_rows, "n long").collect)
    return dict(reported.value)


def _with_filtered(
    receipts: Mapping[int, Receipt], seen: Sequence[SeenRecords]
) -> dict[int, Receipt]:
    """The receipts, in which records that have no row count as filtered."""
    with_rows = sum_by_key(item for one in seen for item in one.by_slice.items())
    corrected = {}
    for index, receipt in receipts.items():
        records = receipt.counts.landed
        # There cannot be more records with rows than this: the surplus are records with rows in
        # several tasks.
        landed = min(records, with_rows.get(index, 0))
        filtered = receipt.counts.filtered + records - landed
        counts = replace(receipt.counts, landed=landed, filtered=filtered)
        rowless = receipt.rowless if landed == records else None
        corrected[index] = replace(receipt, counts=counts, rowless=rowless)
    return corrected


def _make_writer(
    file_settings: FileWriterSettings, slices: Sequence[Slice], settings: ReadSettings
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        files = FileWriter(file_settings)
        capabilities = load_dialect(settings.dialect).capabilities
        offsets = SeenOffsets(slices, capabilities, settings.columns)
        try:
            for batch in batches:
                if batch.num_rows:
                    files.write(batch)
                    offsets.add(batch)
            yield _row(None, (files.close(), offsets.records()))
        except RangelandError as error:
            files.abort()
            yield _row(error, None)
        except Exception as error:
            files.abort()
            yield _row(Bug("could not write rows", why=f"{type(error).__name__}: {error}"), None)
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


def _unpickle(data: Any) -> Any:
    return pickle.loads(bytes(data))
