"""Reads slices of a plan with Spark, and confirms that their logs are the ones that were planned.

A driver reads all slices of a plan, or its own slices of a plan that several drivers share. The
result is receipts and files; the committer proves and commits them.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from rangeland.cluster_access.cluster_lookup import look_up_cleanup, look_up_read_settings
from rangeland.decode.payload.row_format import RowFormat
from rangeland.decode.payload.schema_ids.schema_catalogue import WrittenBefore
from rangeland.delta.ledger.events import EventFile, OutcomeEvent
from rangeland.delta.parquet_files.data_files import FileWriterSettings
from rangeland.delta.stores.table_path import TablePath
from rangeland.delta.transaction_log.table_commit import gone_files
from rangeland.errors import Conflict, RangelandError, RangeLost, TableRefused
from rangeland.fetch.pacing import shared_rates
from rangeland.fetch.read_settings import ReadSettings
from rangeland.grouping import sum_by_key
from rangeland.job import Job
from rangeland.job.connection_settings import login_packages
from rangeland.landing.execution.final_log_check import FinalLogCheck, Fingerprints, LogChange
from rangeland.landing.execution.shared_reader import (
    PlanToRead,
    PrepareOutcome,
    SharedOutcome,
    SharedReader,
)
from rangeland.landing.landing_context import LandingContext
from rangeland.landing.special_plans.redrive import HOLD_ALL, KEEP, settings_of
from rangeland.landing.target.landing_target import LandingTarget
from rangeland.landing.target.loss_records import whole_log_error
from rangeland.loss import DecidedLoss
from rangeland.model import Range, Slice
from rangeland.planning.coverage import coverage_of, leave_out
from rangeland.planning.plan import Plan
from rangeland.planning.proof import RangeResult, prove_part
from rangeland.planning.slice_receipt import Receipt, TaskResult
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
from rangeland.spark.transformed_landing import run_transformed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PlanReceipts:
    """The result of reading a plan. ``regrown`` are offsets that were truncated after they were
    planned and written again before they were read, each with the leader epoch of what was read
    there."""

    receipts: Mapping[int, Receipt]
    files: Sequence[EventFile] = ()
    regrown: Mapping[DecidedLoss, int] = field(default_factory=dict)


class SparkPlanReader:
    """Reads slices of plans for one job's table. ``shared_reader`` returns the reader for plans
    that are shared with other drivers, while this driver takes part in that."""

    def __init__(
        self, context: LandingContext, shared_reader: Callable[[], SharedReader | None]
    ) -> None:
        self._spark, self._job, self._target = context.spark, context.job, context.target
        self._surveys, self._progress, self._warn = context.surveys, context.progress, context.warn
        self._row_format, self._transform = context.row_format, context.transform
        self.row_schema = context.row_schema
        self.log_check = FinalLogCheck(self._job, lambda: self._target.history.clusters())
        self._shared_reader = shared_reader

    def read(self, plan: Plan, *, is_new: bool) -> PlanReceipts:
        """Reads all slices of a plan, from logs that do not change while they are read. If one does
        and the policy allows it, everything is read once more, so that tasks find the loss at the
        start. Raises RangeLost for losses, and Unreachable if a log keeps changing."""
        try:
            return self._read_unchanged(plan, None, is_new=is_new)
        except LogChange as error:
            change = error
        return self.read_after_change(plan, change)

    def read_after_change(self, plan: Plan, change: LogChange) -> PlanReceipts:
        """Reads a plan again after a log has changed: the next change is an error."""
        self._warn(f"{change.what}; it is read once more")
        try:
            return self._read_unchanged(plan, change, is_new=False)
        except LogChange as another:
            raise another.final_error() from None

    def _read_unchanged(self, plan: Plan, after: LogChange | None, *, is_new: bool) -> PlanReceipts:
        fingerprints = self._fingerprints(plan)
        receipts, files = self._read_slices(plan, is_new=is_new)
        self._check_same_logs(plan, receipts, fingerprints, after)
        regrown = {} if after is None else after.regrown_offsets(plan, receipts.values())
        return PlanReceipts(receipts, files, regrown)

    def _fingerprints(self, plan: Plan) -> Fingerprints:
        """The fingerprints of the logs that a plan reads. Bytes in quarantine cannot change, and
        have none."""
        if not plan.kind.traits.reads_log:
            return {}
        return self.log_check.fingerprint(self.read_settings(plan), plan)

    def _check_same_logs(
        self,
        plan: Plan,
        receipts: Mapping[int, Receipt],
        fingerprints: Fingerprints,
        after: LogChange | None = None,
    ) -> None:
        if plan.kind.traits.reads_log:
            settings = self.read_settings(plan)
            changes = self.log_check.changes(settings, plan, receipts.values(), fingerprints, after)
            self.log_check.check_same_logs(plan, changes, after)

    def _read_slices(
        self, plan: Plan, *, is_new: bool
    ) -> tuple[dict[int, Receipt], list[EventFile]]:
        """In a plan that is not new the leaders may have changed, or lead another log: tasks then
        look them up first and check that the log is the same."""
        if plan.job != self._job.name:
            raise Conflict(
                f"a plan of the job {plan.job} has to be read again to be finished",
                why=f"{plan.id} is prepared, and its files "
                "are gone or no longer fit the table; "
                f"{self._job.name} has other brokers, or another transform",
                do=f"run {plan.job} to its end first",
            )
        if not plan.slices:
            return {}, []
        self.wait_for_workers()
        tasks = self._tasks_to_run(plan, plan.slices, {}, is_new=is_new)
        try:
            if self._transform is None:
                results = run_tasks(tasks)
                receipts = {r.slice_index: r for result in results for r in result.receipts}
                files = event_files(results, plan)
            else:
                receipts, data_files = run_transformed(plan, tasks, self._transform)
                files = [EventFile(file) for file in data_files]
        except RangeLost as lost:
            raise whole_log_error(plan, lost) from lost
        finally:
            self._progress.done()
        check_files_are_visible(self._spark, self._target, files)
        counts = (len(receipts), plan.id, len(files))
        logger.info("Read %d slices of plan %s: %d files", *counts)
        return receipts, files

    def _tasks_to_run(
        self,
        plan: Plan,
        slices: Sequence[Slice],
        read_widths: Mapping[int, int],
        stop: Callable[[], bool] = lambda: False,
        *,
        is_new: bool = False,
    ) -> TasksToRun:
        """``read_widths`` are the widths of slices that were read earlier, by index."""
        files = FileWriterSettings(
            table=self._target.table.delta.storage(str(self._target.table.path)),
            layout=self._target.schema.layout(self.row_schema),
            compression=self._job.sink.compression,
            compression_level=self._job.sink.compression_level,
            target_file_bytes=self._job.sink.target_file_bytes,
            name_prefix=plan.hash[:12],
            columns=self._target.table.log_columns,
        )
        writer = WriterSettings(files, self._target.quarantine.writer_settings(plan))
        tasks, settings = self.tasks(slices), self.read_settings(plan)
        if rate := self._job.limits.broker_bytes_per_second:
            rates = shared_rates(tasks, parallelism_of(self._spark), rate)
            settings = replace(settings, rates=rates)
        if not is_new and plan.kind.traits.reads_log:
            tasks = [[replace(slice_, leader=None) for slice_ in task] for task in tasks]
        on_read = self._reporter(plan, read_widths)
        return TasksToRun(self._spark, tasks, settings, writer, on_read, stop)

    def read_settings(self, plan: Plan) -> ReadSettings:
        """The settings for reading a plan, from the log or from the bytes in quarantine."""
        if not plan.kind.traits.reads_log:
            settings = settings_of(self._job, plan, self._target, self._row_format)
            return settings if self._transform is None else replace(settings, policy=KEEP)
        settings = look_up_read_settings(self._job).with_filter(plan.isolation, plan.tags)
        settings = replace(settings, row_format=self._row_format_of(plan))
        settings = look_up_cleanup(self._job, settings, (s.partition.topic for s in plan.slices))
        settings = settings.with_versions_of(self._surveys.last)
        return replace(settings, policy=HOLD_ALL) if plan.kind.traits.holds_all else settings

    def _row_format_of(self, plan: Plan) -> RowFormat | None:
        """All records of a plan were in the log when it was made."""
        bound = WrittenBefore(plan.made_at_ms, time.time_ns() // 1_000_000)
        return self._row_format and replace(self._row_format, written=bound)

    # --- together with other drivers -----------------------------------------------------------

    def read_shared(self, plan: Plan, prepare: PrepareOutcome) -> SharedOutcome | None:
        """The outcome of a plan that several drivers read together, made by ``prepare`` once
        everything is read; None for a plan of another sequence, and if this driver reads alone."""
        # All drivers that share a plan have to write the same columns.
        is_shared = self._job.is_own_run(plan) and plan.schema_json == self.schema_to_merge()
        shared_reader = self._shared_reader()
        if shared_reader is None or not shared_reader.is_available or not is_shared:
            return None
        self.wait_for_workers()
        fingerprints = self._fingerprints(plan)

        def check_part_is_valid(receipts: Mapping[int, Receipt]) -> None:
            prove_part(plan, receipts)
            self._check_same_logs(plan, receipts, fingerprints)

        def prepare_unchanged(
            receipts: Mapping[int, Receipt], files: Sequence[EventFile]
        ) -> OutcomeEvent:
            self._check_same_logs(plan, receipts, fingerprints)
            return prepare(receipts, files)

        work = PlanToRead(
            plan,
            self._target,
            read=partial(self._read_some, plan),
            files_of=partial(self._event_files, plan),
            check_part_is_valid=check_part_is_valid,
            prepare=prepare_unchanged,
            whole=self._transform is not None,
        )
        return shared_reader.read(work)

    def _read_some(
        self,
        plan: Plan,
        slices: Sequence[Slice],
        stop: Callable[[], bool],
        read_widths: Mapping[int, int],
    ) -> tuple[list[TaskResult], RangelandError | None]:
        """The results of the tasks that finished, and the error that ended the reading."""
        tasks = self._tasks_to_run(plan, slices, read_widths, stop)
        error: RangelandError | None = None
        try:
            if self._transform is None:
                results, error = run_tasks_until_stopped(tasks)
            else:
                receipts, files = run_transformed(plan, tasks, self._transform)
                results = [TaskResult(tuple(receipts.values()), tuple(files))]
        except TasksStopped:
            results = []
        except RangeLost as lost:
            raise whole_log_error(plan, lost) from lost
        finally:
            self._progress.done()
        check_files_are_visible(self._spark, self._target, self._event_files(plan, results))
        if isinstance(error, RangeLost):
            error = whole_log_error(plan, error)
        return results, error

    def _event_files(self, plan: Plan, results: Sequence[TaskResult]) -> list[EventFile]:
        if self._transform is None:
            return event_files(results, plan)
        return [EventFile(file) for result in results for file in result.files]

    def schema_to_merge(self) -> str:
        """The schema of the written rows, if the table may have to follow it."""
        return self._target.schema.schema_to_merge(self.row_schema)

    # --- helpers -------------------------------------------------------------------

    def _reporter(
        self, plan: Plan, read_widths: Mapping[int, int]
    ) -> Callable[[dict[int, int]], None]:
        """Reports progress."""
        partitions = {s.index: s.partition for s in plan.slices}

        def on_read(widths: dict[int, int]) -> None:
            by_slice = {**read_widths, **widths}
            self._progress.read(sum_by_key((partitions[i], w) for i, w in by_slice.items()))

        return on_read

    def wait_for_workers(self) -> None:
        """Waits until the workers can read. Call it before a plan is entered."""
        workers = start_workers(self._spark, login_packages(self._job))
        if not workers.is_ready:
            self._progress.step("waiting for the cluster's workers")
        workers.wait(translate_spark_error)

    def tasks(self, slices: Sequence[Slice]) -> list[list[Slice]]:
        """The tasks that read these slices."""
        return tasks_of(self._job, self._spark, slices)


def tasks_of(job: Job, spark: SparkSession, slices: Sequence[Slice]) -> list[list[Slice]]:
    """Slices packed by leader: enough tasks for every core, and no more than their bytes need."""
    return pack_tasks(slices, job.slices.target_bytes, parallelism_of(spark))


def event_files(results: Sequence[TaskResult], plan: Plan) -> list[EventFile]:
    """Each file, with its range if its task had one slice."""
    slices = {s.index: s for s in plan.slices}
    files = []
    for result in results:
        only = slices[result.receipts[0].slice_index] if len(result.receipts) == 1 else None
        where = Range(only.partition, *only.interval, only.topic_id) if only else None
        files += [EventFile(file, where) for file in result.files]
    return files


def check_files_are_visible(
    spark: SparkSession, target: LandingTarget, files: Sequence[EventFile]
) -> None:
    """Raises TableRefused for files that the driver cannot see: a path on a local disk is a
    different folder on each host of a cluster."""
    where = str(target.table.path)
    is_local = str(spark.sparkContext.master).startswith("local")
    if is_local or not TablePath.parse(where).is_local:
        return
    if paths := gone_files(where, [f.file for f in files]):
        raise TableRefused(
            f"{len(paths)} of {len(files)} files that the executors have written are not "
            f"in {where} as this driver sees it",
            why=f"the first is {paths[0]}; the path is not the same folder on all hosts",
            do="name a table in sink.table that driver and executors share (HDFS, an object "
            "store, a disk mounted at the same place everywhere), then run again; remove "
            "what was written to that path on the executors' hosts",
            missing=list(paths[:10]),
        )


def check_covers_outcome(old: OutcomeEvent, results: Sequence[RangeResult]) -> None:
    """Raises RangeLost if a new attempt lacks ranges of the old outcome, which count as landed."""
    coverage = coverage_of(one.range for one in results)
    if lost := leave_out([one.range for one in old.ranges], coverage):
        raise RangeLost(
            f"{lost[0]} was prepared, its files are gone, and it cannot be read again",
            why="the log has lost it since, or its bytes are damaged, and a policy holds it",
            do="let the policy skip it, and run again",
        )
