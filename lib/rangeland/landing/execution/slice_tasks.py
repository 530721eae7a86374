"""Reads slices of a plan with Spark tasks: from slices to receipts and files."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from rangeland.delta.parquet_files.data_files import FileWriterSettings
from rangeland.delta.stores.store_access import StoreSettings
from rangeland.delta.stores.table_path import TablePath
from rangeland.delta.transaction_log.table_commit import gone_files
from rangeland.errors import RangelandError, RangeLost, TableRefused
from rangeland.fetch.backoff import shared_rates
from rangeland.fetch.read_settings import ReadSettings
from rangeland.grouping import sum_by_key
from rangeland.job import Job
from rangeland.job.connection_settings import login_packages
from rangeland.landing.landing_context import LandingContext
from rangeland.landing.target.loss_records import whole_log_error
from rangeland.model import Range, Slice
from rangeland.planning.plan import Plan, in_planned_epochs
from rangeland.planning.slice_receipt import Receipt, TaskResult, WrittenFile
from rangeland.planning.task_packing import pack_tasks
from rangeland.spark.deferred_session import parallelism_of
from rangeland.spark.executor_tasks import WriterSettings
from rangeland.spark.python_workers import start_workers
from rangeland.spark.spark_errors import translate_spark_error
from rangeland.spark.spark_jobs import (
    TasksStopped,
    TasksToRun,
    run_tasks,
    run_tasks_until_stopped,
)
from rangeland.spark.transform import Transform
from rangeland.spark.transformed_landing import run_transformed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FinishedTasks = tuple[list[TaskResult], RangelandError | None]
"""The results of the tasks that finished, and the error that ended the reading, if any."""

logger = logging.getLogger(__name__)


class SliceTasks:
    """Reads slices of plans for one job's table, with ``ReadSettings`` that the caller has looked
    up."""

    def __init__(self, context: LandingContext) -> None:
        self._context = context

    def read_all(
        self, plan: Plan, settings: ReadSettings, *, is_new: bool
    ) -> tuple[dict[int, Receipt], list[WrittenFile]]:
        """Reads all slices of a plan: receipts by slice index, and files. In a plan that is not new
        the leaders may have changed, or lead another log: tasks then look them up first and check
        that the log is the same."""
        if not plan.slices:
            return {}, []
        context = self._context
        wait_for_workers(context)
        tasks = self._tasks_to_run(plan, settings, plan.slices, is_new=is_new)
        with self._reading(plan):
            if context.transform is None:
                results = run_tasks(tasks)
            else:
                results = [_run_transformed(plan, tasks, context.transform)]
        files = self.files_of(plan, results)
        check_files_are_visible(context, files)
        receipts = {r.slice_index: r for result in results for r in result.receipts}
        logger.info("Read %d slices of plan %s: %d files", len(receipts), plan.id, len(files))
        return receipts, files

    def read_until_stopped(
        self,
        plan: Plan,
        settings: ReadSettings,
        slices: Sequence[Slice],
        stop: Callable[[], bool],
        read_widths: Mapping[int, int],
    ) -> FinishedTasks:
        """Reads slices of a plan that may not be new, until all are read, one fails, or ``stop``
        returns true. ``read_widths`` are the widths of slices that were read earlier, by index."""
        context = self._context
        wait_for_workers(context)
        tasks = self._tasks_to_run(plan, settings, slices, read_widths, stop)
        with self._reading(plan):
            if context.transform is None:
                results, error = run_tasks_until_stopped(tasks)
            else:
                results, error = _run_transformed_until_stopped(plan, tasks, context.transform)
        check_files_are_visible(context, self.files_of(plan, results))
        return results, whole_log_error(plan, error) if isinstance(error, RangeLost) else error

    def files_of(self, plan: Plan, results: Sequence[TaskResult]) -> list[WrittenFile]:
        """The files of these tasks. After a transform, each may have rows of any slice."""
        if self._context.transform is None:
            return written_files(results, plan)
        return [WrittenFile(file) for result in results for file in result.files]

    @contextmanager
    def _reading(self, plan: Plan) -> Iterator[None]:
        """Ends the report of progress, and lets a loss name the whole log of its partition."""
        try:
            yield
        except RangeLost as lost:
            raise whole_log_error(plan, lost) from lost
        finally:
            self._context.progress.done()

    def _tasks_to_run(
        self,
        plan: Plan,
        settings: ReadSettings,
        slices: Sequence[Slice],
        read_widths: Mapping[int, int] | None = None,
        stop: Callable[[], bool] = lambda: False,
        *,
        is_new: bool = False,
    ) -> TasksToRun:
        context = self._context
        table = context.target.table
        sink = context.job.sink
        files = FileWriterSettings(
            table=table.location.storage(),
            layout=table.schema.layout(context.row_schema),
            compression=sink.compression,
            compression_level=sink.compression_level,
            target_file_bytes=sink.target_file_bytes,
            name_prefix=plan.hash[:12],
            columns=table.log_columns,
        )
        writer = WriterSettings(files, context.target.quarantine.writer_settings(plan))
        tasks = self._tasks_of(in_planned_epochs(plan, slices))
        if rate := context.job.limits.broker_bytes_per_second:
            rates = shared_rates(tasks, parallelism_of(context.spark), rate)
            settings = replace(settings, rates=rates)
        if not is_new and plan.kind.traits.reads_log:
            tasks = [[replace(slice_, leader=None) for slice_ in task] for task in tasks]
        on_read = self._reporter(plan, read_widths or {})
        return TasksToRun(context.spark, tasks, settings, writer, on_read, stop)

    def _tasks_of(self, slices: Sequence[Slice]) -> list[list[Slice]]:
        return tasks_of(self._context.job, self._context.spark, slices)

    def _reporter(
        self, plan: Plan, read_widths: Mapping[int, int]
    ) -> Callable[[Mapping[int, int]], None]:
        """A function that takes widths by slice, and reports them by partition."""
        partitions = {s.index: s.partition for s in plan.slices}

        def on_read(widths: Mapping[int, int]) -> None:
            by_slice = {**read_widths, **widths}
            self._context.progress.read(sum_by_key((partitions[i], w) for i, w in by_slice.items()))

        return on_read


def wait_for_workers(context: LandingContext) -> None:
    """Waits until the workers can read. Call it before a plan is entered."""
    workers = start_workers(context.spark, login_packages(context.job))
    if not workers.is_ready:
        context.progress.step("waiting for the cluster's workers")
    workers.wait(translate_spark_error)


def tasks_of(job: Job, spark: SparkSession, slices: Sequence[Slice]) -> list[list[Slice]]:
    """Slices packed by leader: enough tasks for every core, and no more than their bytes need."""
    return pack_tasks(slices, job.slices.target_bytes, parallelism_of(spark))


def _run_transformed(plan: Plan, tasks: TasksToRun, transform: Transform) -> TaskResult:
    receipts, files = run_transformed(plan, tasks, transform)
    return TaskResult(tuple(receipts.values()), tuple(files))


def _run_transformed_until_stopped(
    plan: Plan, tasks: TasksToRun, transform: Transform
) -> FinishedTasks:
    """Reads slices through a transform, which takes them all together, so that there is one result,
    or none."""
    try:
        return [_run_transformed(plan, tasks, transform)], None
    except TasksStopped:
        return [], None
    except RangelandError as error:
        return [], error


def written_files(results: Sequence[TaskResult], plan: Plan) -> list[WrittenFile]:
    """Each file, with its range if its task had one slice."""
    slices = {s.index: s for s in plan.slices}
    files = []
    for result in results:
        only = slices[result.receipts[0].slice_index] if len(result.receipts) == 1 else None
        where = Range(only.partition, *only.interval, only.topic_id) if only else None
        files += [WrittenFile(file, where) for file in result.files]
    return files


def check_files_are_visible(context: LandingContext, files: Sequence[WrittenFile]) -> None:
    """Raises TableRefused for files that the driver cannot see: a path on a local disk is a
    different folder on each host of a cluster."""
    where = context.target.table.location.uri
    is_local = str(context.spark.sparkContext.master).startswith("local")
    if is_local or not TablePath.parse(where).is_local:
        return
    if paths := gone_files(StoreSettings(where), [f.file for f in files]):
        raise TableRefused(
            f"{len(paths)} of {len(files)} files that the executors have written are not "
            f"in {where} as this driver sees it",
            why=f"the first is {paths[0]}; the path is not the same folder on all hosts",
            do="name a table in sink.table that driver and executors share (HDFS, an object "
            "store, a disk mounted at the same place everywhere), then run again; remove "
            "what was written to that path on the executors' hosts",
            missing=list(paths[:10]),
        )
