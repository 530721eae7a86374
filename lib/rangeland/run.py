"""The commands that land, each put together from the packages below.

A run is a short loop. Read the state of the table and the ledger; finish every unfinished plan
that comes first, unchanged; make a new plan and enter it; read, prove, prepare, commit. It may be
killed between any two steps: the next run finds a plan without an outcome and reads it, or an
outcome that is not in the table and commits it. Two runs at once converge on one landing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from rangeland.cluster_access.job_survey import schema_ids_in, schema_ids_in_logs, survey_of
from rangeland.decode.payload.row_format import RowFormat
from rangeland.dialects.row_schema import typed_rows
from rangeland.errors import BadRecord, Conflict, RangelandError, RangeLost
from rangeland.groups.lease import GroupLease, hold_lease
from rangeland.groups.offset_mirror import positions
from rangeland.groups.shared_plan import GroupPlanReader
from rangeland.job import Job
from rangeland.job.connection_settings import (
    cluster_settings,
    login_packages,
    plaintext_secret_warnings,
)
from rangeland.job.payload_formats import row_format_of
from rangeland.landing.adoption import AdoptResult
from rangeland.landing.adoption import adopt as adopt_table
from rangeland.landing.committer import CommittedPlan, PlanCommitter
from rangeland.landing.job_history import UnfinishedPlan
from rangeland.landing.landing_context import LandingContext
from rangeland.landing.landing_target import LandingTarget
from rangeland.landing.loss_records import losses_in
from rangeland.landing.plan_conflicts import (
    comes_first,
    find_overlap,
    outdated_conflict,
    refuse_gaps,
    refuse_other_job,
    refuse_outdated,
)
from rangeland.landing.plan_survey import PlanSurvey, SurveyOf, plan_survey
from rangeland.landing.planner import Planner, log_made
from rangeland.landing.redrive import RedriveResult, in_quarantine, quarantined_schema_ids
from rangeland.landing.run_summary import result_of_plans
from rangeland.landing.schema_refusal import naming_schemas, refuse_unreadable
from rangeland.landing.spark_plan_reader import SparkPlanReader
from rangeland.landing.verification import refuse_undone, refuse_unknown_rows
from rangeland.model import Partition, Range, Survey
from rangeland.planning.checkpoint_move import skip_ahead_warnings
from rangeland.planning.plan import Plan, PlanKind
from rangeland.planning.plan_builder import PlanDraft, rebuild_draft
from rangeland.planning.policy import Loss
from rangeland.progress_events import Progress
from rangeland.results import PlanPreview, RunResult
from rangeland.spark.python_workers import start_workers
from rangeland.spark.transform import load_transform, transformed_schema

MAX_LOST_RACES = 50
"""How often another driver may enter a plan first, since a run has last entered one of its own."""
EARLIER = 20
"""How many landings back a group's offset may lie before we assume that another client moved it."""
_Done = tuple[list[CommittedPlan], PlanDraft | None]


def preview(job: Job, spark: Any, progress: Progress, kind: PlanKind | None = None) -> PlanPreview:
    """What a run would do now, or a backfill of this kind. Reads the cluster, the ledger and
    sometimes the table; writes nothing."""
    started = time.monotonic()
    runner = Runner(job, spark, progress, kind or PlanKind.RUN)
    runner.refuse_disagreement()
    unfinished = runner.target.history.unfinished()
    found, survey = runner.draft()
    runner.refuse_draft(found, survey)
    return PlanPreview(
        draft=found,
        table=job.sink.table,
        logs=tuple(survey.logs.values()),
        tasks=len(runner.reader.tasks(found.plan.slices)),
        pending=tuple(u.plan for u in unfinished if u.plan.job == job.job),
        seconds=time.monotonic() - started,
        speed=runner.planner.speed,
        row_format=runner.row_format,
        location=None if job.sink.is_catalog_name else runner.target.table.path,
    )


def run(job: Job, spark: Any, progress: Progress) -> RunResult:
    """Lands what the job asks for, exactly once, after finishing any unfinished plans."""
    return Runner(job, spark, progress).run()


def backfill(job: Job, spark: Any, progress: Progress, kind: PlanKind | None = None) -> RunResult:
    """Lands the job's range beside its scheduled runs, without moving their checkpoint. ``kind``
    may ask for what the table has lost, or for landing the range again."""
    return Runner(job, spark, progress, kind or PlanKind.BACKFILL).run()


def redrive(
    job: Job, spark: Any, progress: Progress, *, from_log: bool = False, dry_run: bool = False
) -> RedriveResult:
    """Lands quarantined batches that can be decoded now, from the kept bytes or from the log; a
    dry run only reports them."""
    started = time.monotonic()
    runner = Runner(job, spark, progress, PlanKind.REREAD if from_log else PlanKind.REDRIVE)
    done = None if dry_run else runner.run()
    progress.step("reading the quarantine")
    runner.target.refresh()
    left = in_quarantine(job, runner.target, runner.row_format)
    return RedriveResult(job.job, job.sink.table, tuple(left), time.monotonic() - started, done)


def adopt(job: Job, spark: Any, progress: Progress) -> AdoptResult:
    """Records that the table is right where it and its ledger disagree."""
    return adopt_table(job, Runner(job, spark, progress).rows, spark, progress)


def apply(
    job: Job, plan: Plan, beside: Sequence[Loss], spark: Any, progress: Progress
) -> RunResult:
    """Enters a plan that was made earlier, or refuses it if it no longer applies. ``beside``
    are the losses that were found when it was made and are not part of it."""
    return Runner(job, spark, progress).apply(plan, beside)


class Runner:
    """One command at work."""

    lease: GroupLease | None = None
    """The lease in the job's group, while this run holds one."""

    def __init__(
        self,
        job: Job,
        spark: Any,
        progress: Progress,
        kind: PlanKind = PlanKind.RUN,
        survey: SurveyOf | None = None,
    ) -> None:
        survey = survey or survey_of
        self.job = job
        self.spark = spark
        self.progress = progress
        self.kind = kind
        transform = load_transform(job.sink.transform) if job.sink.transform else None
        progress.step(f"looking at the table {job.sink.table}")
        self.target = LandingTarget(spark, job)
        self.row_format, ahead = self._row_format(survey)
        self.rows = typed_rows(job.source.dialect, self.row_format)
        if transform is not None:
            self.rows = transformed_schema(spark, transform, self.rows)
        self.started = time.monotonic()
        self.warnings: list[str] = []
        context = LandingContext(
            spark, job, self.target, progress, warn=self._warn, row_format=self.row_format
        )
        self.reader = SparkPlanReader(context, self.rows, transform)
        self.committer = PlanCommitter(context, self.reader)
        self.planner = Planner(context, kind, self.committer.replacement, survey, ahead)

    def _row_format(self, survey: SurveyOf) -> tuple[RowFormat | None, PlanSurvey | None]:
        """And the survey that showed which schemas the records have, for the first plan."""
        kept = (
            quarantined_schema_ids(self.job, self.target) if self.kind is PlanKind.REDRIVE else {}
        )
        if kept or not self.job.decode.registered:
            return row_format_of(self.job, kept), None
        ahead = plan_survey(self.job, self.target, survey)
        return row_format_of(self.job, schema_ids_in_logs(self.job, ahead.survey)), ahead

    def draft(self) -> tuple[PlanDraft, Survey]:
        """A plan based on what is known now, and the survey that it was made from."""
        found, self.reader.survey = self.planner.draft()
        found = replace(found, plan=replace(found.plan, columns=self.reader.columns_to_add()))
        log_made(found.plan)
        return found, self.reader.survey

    def refuse_disagreement(self) -> None:
        """Raises Conflict where table and ledger disagree: nothing may be landed then."""
        self.target.identity.refuse_disagreement()
        if self.kind is not PlanKind.HOLES:
            refuse_undone(self.spark, self.target, self.job, self.progress)

    def refuse_draft(self, found: PlanDraft, survey: Survey) -> None:
        """Raises Conflict for rows that no ledger knows, and for schemas that do not fit."""
        if self.kind in (PlanKind.RUN, PlanKind.BACKFILL):
            refuse_unknown_rows(self.spark, self.target, found.plan.ranges)
            ids_in = partial(schema_ids_in, self.job, survey=survey)
            policy = self.job.request.policy
            refuse_unreadable(self.row_format, policy, found.plan.slices, ids_in)

    # --- the group --------------------------------------------------------------------

    def _with_lease(self, work: Callable[[], _Done]) -> RunResult:
        """Does the work while holding a lease in the job's group, if it has one, and mirrors the
        checkpoint. Backfills take no lease: they move no checkpoint and may run beside runs."""
        if self.job.group is None or self.kind is not PlanKind.RUN:
            return self._result(*work())
        # A member that waits for executors would keep its partitions from the other drivers.
        self.reader.wait_for_workers()
        survey = self.reader.survey = self.planner.survey_early()
        partitions, step = list(survey.logs), self.progress.step
        cluster = cluster_settings(self.job).knowing(survey)
        with hold_lease(self.job, cluster, partitions, self._warn, step) as lease:
            if lease is not None:
                self.lease = lease
                self.reader.shared_reader = GroupPlanReader(lease, self.progress)
            done = work()
            self._mirror(to_the_end=True)
        return self._result(*done)

    def _mirror(self, *, to_the_end: bool) -> None:
        """Mirrors what has landed so far. A failure is a warning: the rows are safe."""
        if self.lease is None:
            return
        application = self.job.application

        def checkpoint_now() -> dict[Partition, int]:
            self.target.refresh()
            position = self.target.history.position(application)
            return positions(position.checkpoint, self.planner.logs)

        try:
            earlier = partial(self.target.history.checkpoints, application, EARLIER)
            self.lease.mirror(checkpoint_now, earlier, to_the_end=to_the_end)
        except RangelandError as error:
            self._warn(f"the checkpoint is not mirrored: {error}")

    # --- the loop ---------------------------------------------------------------------

    def run(self) -> RunResult:
        return self._with_lease(lambda: self._explain_errors_of(self._land))

    def _explain_errors_of(self, work: Callable[[list[CommittedPlan]], _Done]) -> _Done:
        """Does the ``work``, which adds the plans that it finishes to a list. An error that ends it
        says which of them are landed; a loss that ends a run is recorded in the ledger, if there
        is one."""
        finished: list[CommittedPlan] = []
        try:
            return work(finished)
        except RangelandError as error:
            if self.kind is PlanKind.RUN and isinstance(error, RangeLost | BadRecord):
                self._record_loss(error)
            landed = sum(1 for plan in finished if plan.outcome.ranges)
            raise error.after_landing(landed) from error.__cause__

    def _record_loss(self, error: RangeLost | BadRecord) -> None:
        ids = {partition: log.leader.topic_id for partition, log in self.planner.logs.items()}
        found = losses_in(error)
        try:
            self._record([replace(x, topic_id=ids.get(x.partition)) for x in found])
        except RangelandError as other:
            self._warn(f"the loss could not be recorded in the ledger: {other}")

    def _record(self, losses: Sequence[Loss], seen_at_ms: int | None = None) -> None:
        sequence = self.target.identity.landed_sequence(self.job.application) + 1
        self.target.record_losses(sequence, losses, seen_at_ms)

    def _land(self, finished: list[CommittedPlan]) -> _Done:
        outrun: tuple[Range, ...] = ()
        lost_races, is_first = 0, True
        while lost_races < MAX_LOST_RACES:
            if not is_first:
                self.planner.forget()
                self.target.refresh()
            is_first = False
            if finished:
                self._mirror(to_the_end=False)
            self.refuse_disagreement()
            unfinished = self.target.history.unfinished()
            first = next((u for u in unfinished if comes_first(self.job, self.kind, u)), None)
            if first is not None:
                finished.append(self.committer.finish(first.plan, first, recovered=True))
                continue
            found, survey = self.draft()
            beside = found.losses_beside(self.planner.logs)
            if found.is_empty and not found.begins:
                self._record(beside)
                # If another driver has landed the same ranges meanwhile, say so.
                return finished, replace(found, already=found.already or outrun)
            blocking = find_overlap(found.plan, unfinished)
            if blocking is not None:
                refuse_other_job(self.job, blocking)
                finished.append(self.committer.finish(blocking.plan, blocking, recovered=True))
                same = blocking.plan.replaces and blocking.plan.ranges == found.plan.ranges
                if same and finished[-1].outcome.ranges:
                    return finished, found  # an earlier driver was asked to replace the same ranges
                continue
            self.refuse_draft(found, survey)
            self._warn_of(found)
            plan = self._enter(found.plan, unfinished, beside)
            if plan is not None:
                finished.append(self.committer.finish(plan, None, recovered=False))
                if found.leaves_more:
                    lost_races = 0
                    continue
                return finished, found
            outrun = found.plan.ranges
            lost_races += 1
        raise Conflict(
            f"the job {self.job.job} could not enter a plan in {MAX_LOST_RACES} tries",
            why="other drivers keep entering plans for the same table",
            do="run it again when they are done",
        )

    def apply(self, plan: Plan, beside: Sequence[Loss]) -> RunResult:
        if plan.job != self.job.job:
            raise Conflict(
                f"the plan belongs to the job {plan.job}, the job file to {self.job.job}"
            )
        return self._with_lease(lambda: self._explain_errors_of(partial(self._apply, plan, beside)))

    def _apply(self, plan: Plan, beside: Sequence[Loss], finished: list[CommittedPlan]) -> _Done:
        """The losses are recorded before the plan is entered, so that a driver that finds the plan
        entered has nothing left to record."""
        self.refuse_disagreement()
        if (same := self._find_entered(plan, self.target.history.unfinished())) is not None:
            return [self.committer.finish(same.plan, same, recovered=True)], None
        if plan.columns != self.reader.columns_to_add():
            raise outdated_conflict(plan, "it was made for rows with other columns")
        self._finish_prepared(finished)
        unfinished = self.target.history.unfinished()
        position = self.target.history.position(plan.application)
        refuse_outdated(plan, unfinished, position)
        self.reader.log_check.refuse_other_cluster(cluster_settings(self.job), plan)
        self.reader.survey = self.planner.survey_for_apply(plan)
        is_own = plan.application == self.job.application
        found = rebuild_draft(
            plan, beside, position, plaintext_secret_warnings(self.job), moves_checkpoint=is_own
        )
        refuse_gaps(plan, found.passed_over, self.job.request.from_bounds)
        if found.is_empty and not found.begins:
            self._record(beside, plan.made_at_ms)
            return finished, found
        self.refuse_draft(found, self.reader.survey)
        if self._enter(plan, unfinished, beside, plan.made_at_ms) is not None:
            return [*finished, self.committer.finish(plan, None, recovered=False)], found
        self.target.refresh()
        if (same := self._find_entered(plan, self.target.history.unfinished())) is not None:
            return [*finished, self.committer.finish(same.plan, same, recovered=True)], None
        raise outdated_conflict(plan, "another plan was entered at the same time")

    def _finish_prepared(self, finished: list[CommittedPlan]) -> None:
        """Commits what is prepared: a plan that was made since counts it as landed."""
        while left := [u for u in self.target.history.unfinished() if u.outcome is not None]:
            finished.append(self.committer.finish(left[0].plan, left[0], recovered=True))
            self.target.refresh()
            self.refuse_disagreement()

    def _find_entered(
        self, plan: Plan, unfinished: Sequence[UnfinishedPlan]
    ) -> UnfinishedPlan | None:
        """The same plan, if it is in the ledger already."""
        same = next((u for u in unfinished if u.plan.hash == plan.hash), None)
        return same or self.target.history.landed_plan(plan)

    def _enter(
        self,
        plan: Plan,
        unfinished: Sequence[UnfinishedPlan],
        beside: Sequence[Loss],
        seen_at_ms: int | None = None,
    ) -> Plan | None:
        self.progress.step("entering the plan")
        start_workers(self.spark, login_packages(self.job))
        with naming_schemas(self.target, self.row_format):
            self.target.table.layout(self.rows)
        self.reader.wait_for_workers()
        self.target.open_or_create(self.rows)
        if warning := self.target.table.warning(replaces=plan.replaces):
            self._warn(warning)
        self._record(beside, seen_at_ms)
        return plan if self.target.enter(plan, unfinished) else None

    def _warn_of(self, found: PlanDraft) -> None:
        """Warnings that matter before the plan is entered, while the run can still be stopped."""
        for text in skip_ahead_warnings(found.passed_over):
            self._warn(text)
        if risks := found.risks:
            more = f" and {len(risks) - 1} more" if len(risks) > 1 else ""
            self._warn(
                f"retention may take {risks[0]}{more}, before all is read at {self.planner.speed}; "
                "they are read first"
            )

    def _warn(self, text: str) -> None:
        if text not in self.warnings:
            self.warnings.append(text)
            self.progress.warn(text)

    def _result(self, finished: Sequence[CommittedPlan], found: PlanDraft | None) -> RunResult:
        notes = found.notes if found is not None else plaintext_secret_warnings(self.job)
        if finished and (failed := self.target.ledger.compact()):
            self._warn(failed)
        for text in (*self.target.table.kernel.settle(), *notes):
            self._warn(text)
        return replace(
            result_of_plans(self.job, self.target, finished, found, self.row_format, self._warn),
            seconds=time.monotonic() - self.started,
            warnings=tuple(self.warnings),
            replaced=self.committer.replaced if any(f.is_ours for f in finished) else None,
        )
