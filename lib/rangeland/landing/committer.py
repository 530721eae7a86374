"""Takes one plan to its end: read, prove, prepare, commit; from wherever it was left.

A plan may be new, or in the ledger with or without an outcome. Each step is recorded before the
next begins, so a plan that was interrupted goes on where it stopped. Which plan to finish is
decided elsewhere.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from rangeland.connection.cluster_settings import ClusterSettings
from rangeland.delta.ledger.events import FileEntry, OutcomeEvent
from rangeland.delta.table_commit import CommittedOutcome, FilesMissing, landed_at
from rangeland.errors import (
    BadRecord,
    Bug,
    Conflict,
    RangelandError,
    RangeLost,
    StorageFailed,
    TableRefused,
    TransformFailed,
)
from rangeland.fetch.throttle import shared_rates
from rangeland.job import Job
from rangeland.job.source_settings import cluster_settings, login_packages, with_cleanup
from rangeland.landing.job_history import UnfinishedPlan
from rangeland.landing.log_confirmation import Confirmation
from rangeland.landing.loss_records import losses_in
from rangeland.landing.plan_reader import PlanReader, PlanToRead, SharedOutcome
from rangeland.landing.redrive import HOLD_ALL, settings_of
from rangeland.landing.replacement import Replacement, refuse_lost
from rangeland.landing.target_state import LandingTarget, refuse_other_plan
from rangeland.landing.task_output import file_entries, refuse_less, refuse_unseen
from rangeland.landing.untimed_records import without_time
from rangeland.logs import partition_fields
from rangeland.model import DataFile, Partition, Slice, Survey
from rangeland.planning.plan import Plan, PlanKind
from rangeland.planning.policy import Loss
from rangeland.planning.proof import prove
from rangeland.planning.slice_receipt import Receipt, TaskResult
from rangeland.planning.slices import pack
from rangeland.planning.table_audit import ReplacedRange
from rangeland.progress_events import Progress
from rangeland.spark.executor_tasks import WriterSettings
from rangeland.spark.plan_frames import land_transformed
from rangeland.spark.python_workers import start_workers
from rangeland.spark.spark_jobs import TasksStopped, land_tasks, land_until, translated
from rangeland.spark.transform import Transform
from rangeland.wording import counted

logger = logging.getLogger(__name__)

_Reading = tuple[
    list[list[Slice]], ClusterSettings, WriterSettings, Callable[[dict[int, int]], None]
]
_PERMANENT = (RangeLost, BadRecord, TableRefused, TransformFailed)
"""Errors that another attempt at the same plan would meet again."""


@dataclass(frozen=True, slots=True)
class CommittedPlan:
    """One plan that is in the table now. ``recovered``: another or an earlier driver entered it.
    ``read_here``: this driver read the log for it, alone or together with others."""

    plan: Plan
    outcome: OutcomeEvent
    landed: CommittedOutcome
    recovered: bool
    read_here: bool
    is_shared: bool = False

    @property
    def is_ours(self) -> bool:
        """This driver has landed it, alone or with others."""
        return self.landed.is_new or self.is_shared


class PlanCommitter:
    """Finishes plans of one job's table. ``warn`` reports warnings; ``replaced`` counts what
    replacements have changed."""

    def __init__(
        self,
        spark: Any,
        job: Job,
        target: LandingTarget,
        rows: pa.Schema,
        transform: Transform | None,
        progress: Progress,
        warn: Callable[[str], None],
    ) -> None:
        self.spark = spark
        self.job = job
        self.target = target
        self.rows = rows
        self.transform = transform
        self.progress = progress
        self.replacement = Replacement(spark, target)
        self.confirmation = Confirmation(job, lambda: target.history.clusters())
        self.replaced: ReplacedRange | None = None
        self.survey: Survey | None = None
        """The last survey of the cluster, if there was one."""
        self.shared_reader: PlanReader | None = None
        """Reads the plans of the job's runs together with other drivers, if it shares them."""
        self._warn = warn

    def finish(self, plan: Plan, left: UnfinishedPlan | None, *, recovered: bool) -> CommittedPlan:
        self.progress.planned(plan, recovered)
        if recovered:
            logger.info(
                "Finishing plan %s %d, which another run entered", plan.application, plan.sequence
            )
        outcome = left.outcome if left is not None else None
        since = left.table_version if left is not None else self.target.table.version
        read_here = outcome is None
        shared = self._read_shared(plan) if outcome is None and plan.slices else None
        if shared is not None:
            outcome = shared.outcome
            recovered = recovered and not shared.with_others
        elif outcome is None:
            outcome = self._read(plan, not recovered)
        refuse_other_plan(plan, outcome)
        landed = self._land(plan, outcome, since)
        if isinstance(landed, FilesMissing):
            outcome = self._read_again(plan, outcome, landed)
            landed = self._land(plan, outcome, since)
        if isinstance(landed, FilesMissing):
            raise StorageFailed(
                f"files of {plan.application} {plan.sequence} are gone again",
                why=f"there are {len(landed.paths)}; the first is {landed.paths[0]}",
                do="find out what removes files from the table's folder, then run again",
            )
        _log_committed(outcome, landed)
        nulls = [f for f in outcome.files if None in f.file.partition_values.values()]
        if landed.is_new and nulls:
            for text in without_time(nulls, self.target.table.layout(self.rows)):
                self._warn(text)
        return CommittedPlan(plan, outcome, landed, recovered, read_here, shared is not None)

    def _land(
        self, plan: Plan, outcome: OutcomeEvent, since: int | None
    ) -> CommittedOutcome | FilesMissing:
        if self.target.identity.landed_sequence(plan.application) >= plan.sequence:
            where = (
                self.target.table.kernel,
                self.target.table.there(),
                plan.application,
                plan.sequence,
            )
            return CommittedOutcome(landed_at(*where, since or 0), is_new=False)
        if outcome.kept or outcome.attempt:
            if outcome.kept:
                self.progress.step(f"keeping {counted(len(outcome.kept), 'file')} in quarantine")
            if (missing := self.target.keep(outcome)) is not None:
                return missing
        if plan.kind is PlanKind.REPLACE:
            return self._replace(plan, outcome, since)
        self.progress.step(f"committing {counted(len(outcome.files), 'file')}")
        if plan.kind is not PlanKind.MISSING:
            return self.target.land(outcome, since)
        if self.replacement.has_rows_of(plan):
            # The missing rows are back by other means: replace them with these.
            return self.replacement.land(plan, outcome, since)
        return self.target.land(outcome, since, self.target.table.dead_files())

    def _replace(
        self, plan: Plan, outcome: OutcomeEvent, since: int | None
    ) -> CommittedOutcome | FilesMissing:
        if not outcome.ranges:
            self._warn(f"{plan.application} was given up: the rows in the table stay")
            return self.target.land(outcome, since)
        if gone := self.target.table.missing(outcome):
            return FilesMissing(gone)
        self._compare(plan, outcome)
        self.progress.step("replacing rows")
        return self.replacement.land(plan, outcome, since)

    def _compare(self, plan: Plan, outcome: OutcomeEvent) -> None:
        """Counts what the replacement changes. For information only: the plan goes on if rows of
        some type cannot be compared."""
        self.progress.step("comparing with the rows in the table")
        try:
            found = self.replacement.differences(plan, outcome)
        except StorageFailed as error:
            self._warn(str(error))
            return
        self.replaced = (self.replaced or ReplacedRange()) + found

    def _read(self, plan: Plan, is_new: bool) -> OutcomeEvent:
        """Reads all slices, proves the counts and prepares the outcome."""
        try:
            receipts, files = self._read_unchanged(plan, is_new=is_new)
            outcomes = prove(plan, receipts)
            if plan.replaces:
                refuse_lost(plan, receipts)
                self.replacement.refuse_strays(plan, files)
        except _PERMANENT as error:
            return self._given_up(plan, error)
        self.progress.step("preparing the outcome")
        outcome, is_mine = self.target.prepare(plan, outcomes, files, receipts)
        if not is_mine:
            self._warn("another driver has read the same plan; its files are landed instead")
        return outcome

    def _read_again(self, plan: Plan, outcome: OutcomeEvent, missing: FilesMissing) -> OutcomeEvent:
        """Reads a plan again because prepared files are gone."""
        n = len(missing.paths)
        gone = (
            "1 prepared file is gone and is" if n == 1 else f"{n} prepared files are gone and are"
        )
        self._warn(f"{gone} read from the log again")
        try:
            receipts, files = self._read_unchanged(plan, is_new=False)
            outcomes = prove(plan, receipts)
            if plan.replaces:
                refuse_lost(plan, receipts)
            refuse_less(outcome, outcomes)
        except _PERMANENT as error:
            return self._given_up(plan, error, outcome.attempt + 1)
        return self.target.replace_outcome(outcome, plan, outcomes, files, receipts)

    def _given_up(self, plan: Plan, error: RangelandError, attempt: int = 0) -> OutcomeEvent:
        """Ends a replacement that cannot succeed without changing the table: it would block every
        later run. Raises the error, unless another driver has read the plan successfully: its
        outcome counts."""
        if not plan.replaces:
            raise error
        self.progress.step("giving up the replacement")
        outcome = self.target.give_up(plan, losses_in(error), attempt)
        if outcome.ranges:
            return outcome
        self.target.land(outcome, None)
        raise error

    def _read_unchanged(
        self, plan: Plan, *, is_new: bool
    ) -> tuple[dict[int, Receipt], list[FileEntry]]:
        """Reads all slices and confirms afterwards that the logs are those that were planned."""
        return self.confirmation.confirmed(
            lambda again: self._read_slices(plan, is_new=is_new and not again),
            lambda: self._before(plan),
            lambda receipts, before: self._changes(plan, receipts, before),
            self._warn,
        )

    def _before(self, plan: Plan) -> dict[Partition, int]:
        return (
            {}
            if plan.kind is PlanKind.REDRIVE
            else self.confirmation.before(self._cluster(plan), plan)
        )

    def _changes(
        self, plan: Plan, receipts: Mapping[int, Receipt], before: Mapping[Partition, int]
    ) -> list[Loss]:
        """The losses in the logs of a plan since it was made."""
        if plan.kind is PlanKind.REDRIVE:
            return []
        return self.confirmation.changes(self._cluster(plan), plan, receipts.values(), before)

    def _read_slices(
        self, plan: Plan, *, is_new: bool
    ) -> tuple[dict[int, Receipt], list[FileEntry]]:
        """The leaders in a plan that is not new may have changed, or lead another log: readers
        then look them up first and check that the log is the same."""
        if plan.job != self.job.job:
            raise Conflict(
                f"a plan of the job {plan.job} has to be read again to be finished",
                why=f"{plan.application} {plan.sequence} is prepared, and its files are gone; "
                f"{self.job.job} has other brokers, or another transform",
                do=f"run {plan.job} to its end first",
            )
        if not plan.slices:
            return {}, []
        self.wait_for_workers()
        reading = self._reading(plan, plan.slices, {}, is_new=is_new)
        try:
            if self.transform is None:
                results = land_tasks(self.spark, *reading)
                receipts = {r.slice_index: r for result in results for r in result.receipts}
                entries = file_entries(results, plan)
            else:
                receipts, files = self._read_transformed(plan, reading)
                entries = [FileEntry(file) for file in files]
        finally:
            self.progress.done()
        refuse_unseen(self.spark, self.target, entries)
        name = (plan.application, plan.sequence)
        logger.info("Read %d slices of plan %s %d: %d files", len(receipts), *name, len(entries))
        return receipts, entries

    def _reading(
        self,
        plan: Plan,
        slices: Sequence[Slice],
        before: Mapping[int, int],
        *,
        is_new: bool = False,
    ) -> _Reading:
        """What the tasks need: their slices, the cluster, the writer, and the progress callback."""
        writer = WriterSettings(
            table=self.target.table.kernel.storage(str(self.target.table.path)),
            layout=self.target.table.layout(self.rows),
            compression=self.job.sink.compression,
            target_file_bytes=self.job.sink.target_file_bytes,
            prefix=plan.hash[:12],
            quarantine=self.target.table.quarantine_settings(plan),
        )
        tasks, cluster = self.tasks(slices), self._cluster(plan)
        if rate := self.job.limits.broker_bytes_per_second:
            cluster = replace(cluster, rates=shared_rates(tasks, self._slots(), rate))
        if not is_new and plan.kind is not PlanKind.REDRIVE:
            tasks = [[replace(piece, leader=None) for piece in task] for task in tasks]
        return tasks, cluster, writer, self._reporter(plan, before)

    def _cluster(self, plan: Plan) -> ClusterSettings:
        """Where a plan is read from: the log, or the bytes kept in quarantine."""
        if plan.kind is PlanKind.REDRIVE:
            return settings_of(self.job, plan, self.target)
        cluster = replace(cluster_settings(self.job), isolation=plan.isolation, tags=plan.tags)
        cluster = with_cleanup(self.job, cluster, (s.partition.topic for s in plan.slices))
        if self.survey is not None:
            cluster = cluster.knowing(self.survey)
        return replace(cluster, policy=HOLD_ALL) if plan.kind is PlanKind.REREAD else cluster

    def _read_transformed(
        self, plan: Plan, reading: _Reading, stop: Callable[[], bool] = lambda: False
    ) -> tuple[dict[int, Receipt], list[DataFile]]:
        if self.transform is None:
            raise Bug("there is no transform to read through")
        tasks, cluster, writer, on_read = reading
        how = (cluster, writer, self.transform, on_read, stop)
        return land_transformed(self.spark, plan, tasks, *how)

    # --- together with other drivers -----------------------------------------------------------

    def _read_shared(self, plan: Plan) -> SharedOutcome | None:
        """The outcome of a plan that several drivers read together; None for a plan of another
        sequence, and where this driver reads alone."""
        of_runs = plan.application == self.job.application and plan.kind is PlanKind.RUN
        if self.shared_reader is None or not self.shared_reader.is_available or not of_runs:
            return None
        self.wait_for_workers()
        before = self._before(plan)
        work = PlanToRead(
            plan,
            self.target,
            lambda slices, stop, before: self._read_some(plan, slices, stop, before),
            lambda results: self._entries(plan, results),
            lambda receipts: self.confirmation.refuse(self._changes(plan, receipts, before)),
            whole=self.transform is not None,
        )
        return self.shared_reader.read(work)

    def _read_some(
        self,
        plan: Plan,
        slices: Sequence[Slice],
        stop: Callable[[], bool],
        before: Mapping[int, int],
    ) -> tuple[list[TaskResult], RangelandError | None]:
        """The results of the tasks that finished, and the error that ended the reading."""
        reading = self._reading(plan, slices, before)
        error: RangelandError | None = None
        try:
            if self.transform is None:
                results, error = land_until(self.spark, *reading, stop)
            else:
                receipts, files = self._read_transformed(plan, reading, stop)
                results = [TaskResult(tuple(receipts.values()), tuple(files))]
        except TasksStopped:
            results = []
        finally:
            self.progress.done()
        refuse_unseen(self.spark, self.target, self._entries(plan, results))
        return results, error

    def _entries(self, plan: Plan, results: Sequence[TaskResult]) -> list[FileEntry]:
        if self.transform is None:
            return file_entries(results, plan)
        return [FileEntry(file) for unit in results for file in unit.files]

    # --- helpers -------------------------------------------------------------------

    def _reporter(self, plan: Plan, before: Mapping[int, int]) -> Callable[[dict[int, int]], None]:
        """Reports progress; ``before`` are the widths of slices read earlier."""
        partitions = {s.index: s.partition for s in plan.slices}

        def on_read(widths: dict[int, int]) -> None:
            offsets: dict[Any, int] = {}
            for index, width in {**before, **widths}.items():
                partition = partitions[index]
                offsets[partition] = offsets.get(partition, 0) + width
            self.progress.read(offsets)

        return on_read

    def wait_for_workers(self) -> None:
        """Waits until the workers can read, before a plan is entered."""
        workers = start_workers(self.spark, login_packages(self.job))
        if not workers.is_ready:
            self.progress.step("waiting for the cluster's workers")
        workers.wait(translated)

    def tasks(self, slices: Sequence[Slice]) -> list[list[Slice]]:
        """Slices packed by leader: enough tasks for every core, and no more than the bytes need."""
        return pack(slices, self.job.slices.target_bytes, self._slots())

    def _slots(self) -> int:
        """How many tasks run at the same time."""
        return int(self.spark.sparkContext.defaultParallelism)


def _log_committed(outcome: OutcomeEvent, landed: CommittedOutcome) -> None:
    name = (outcome.application, outcome.sequence)
    if not landed.is_new:
        logger.info("Found plan %s %d in the table already", *name)
        return
    counts = (len(outcome.files), len(outcome.ranges))
    logger.info(
        "Committed plan %s %d at version %s: %d files, %d ranges", *name, landed.version, *counts
    )
    for entry in outcome.ranges:
        where = partition_fields(entry.range.partition, entry.range.from_offset)
        logger.debug("Committed %s with plan %s %d", entry.range, *name, extra=where)
