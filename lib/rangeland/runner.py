"""One command that lands: the order of its steps.

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
from typing import TYPE_CHECKING

from rangeland.cluster_access.cluster_lookup import cluster_settings, read_settings
from rangeland.cluster_access.job_survey import schema_ids_in, schema_ids_in_logs, survey_of
from rangeland.cluster_access.registry_lookup import SeenIds, row_format_of
from rangeland.decode.payload.row_format import RowFormat
from rangeland.dialects.row_schema import typed_rows
from rangeland.errors import BadRecord, Conflict, RangelandError, RangeLost
from rangeland.groups.lease import GroupLease, hold_lease
from rangeland.groups.offset_mirror import offsets_to_commit
from rangeland.groups.shared_plan import GroupPlanReader
from rangeland.job import Job
from rangeland.job.connection_settings import login_packages, plaintext_secret_warnings
from rangeland.landing.audit.row_checks import check_rows_are_known, check_rows_remain
from rangeland.landing.drafts.planner import Planner
from rangeland.landing.drafts.schema_refusal import check_schemas_are_readable, naming_schemas
from rangeland.landing.drafts.unfinished_plans import (
    Enter,
    Finish,
    LandNothing,
    check_follows_checkpoint,
    check_still_current,
    first_step,
    next_step,
    outdated_error,
)
from rangeland.landing.execution.committer import CommittedPlan, PlanCommitter
from rangeland.landing.execution.run_summary import result_of_plans
from rangeland.landing.execution.spark_plan_reader import SparkPlanReader
from rangeland.landing.landing_context import LandingContext
from rangeland.landing.plan_surveys import PlanSurveys, SurveyOf
from rangeland.landing.special_plans.redrive import quarantined_schema_ids
from rangeland.landing.target.job_history import EnteredPlan
from rangeland.landing.target.landing_target import LandingTarget
from rangeland.landing.target.loss_records import losses_in
from rangeland.loss import DecidedLoss
from rangeland.model import Partition, Range
from rangeland.planning.passed_over_ranges import passed_over_warnings
from rangeland.planning.plan import Plan
from rangeland.planning.plan_builder import rebuild_draft
from rangeland.planning.plan_draft import PlanDraft
from rangeland.planning.plan_kind import PlanKind
from rangeland.planning.retention_risk import risk_warnings
from rangeland.progress_events import Progress
from rangeland.results import RunResult
from rangeland.spark.python_workers import start_workers
from rangeland.spark.transform import load_transform, transformed_schema

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MAX_LOST_RACES = 50
"""How often other drivers may enter a plan first before a run gives up; counted from its own last
plan."""
EARLIER = 20
"""How many landings back a group's offset may lie before we assume that another client moved it."""
_Work = Callable[[], PlanDraft | None]  # finishes plans, and returns the last draft


class Runner:
    """One command at work. ``run`` and ``apply`` hold a lease, if there is a group, while
    ``_land_until_done`` or ``_apply`` does the work."""

    lease: GroupLease | None = None
    """The lease in the job's group, while this run holds one."""

    def __init__(
        self,
        job: Job,
        spark: SparkSession,
        progress: Progress,
        kind: PlanKind = PlanKind.RUN,
        survey: SurveyOf | None = None,
    ) -> None:
        self.started = time.monotonic()
        self.job, self.spark, self.progress, self.kind = job, spark, progress, kind
        transform = load_transform(job.sink.transform) if job.sink.transform else None
        progress.step(f"looking at the table {job.sink.table}")
        self.target = LandingTarget(spark, job)
        self.surveys = PlanSurveys(job, self.target.history, progress, survey or survey_of)
        self.row_format = self._row_format()
        self.row_schema = typed_rows(job.source.dialect, self.row_format)
        if transform is not None:
            self.row_schema = transformed_schema(spark, transform, self.row_schema)
        self.warnings: list[str] = []
        self.finished: list[CommittedPlan] = []
        context = LandingContext(
            spark, job, self.target, self.surveys, progress, self._warn, self.row_format
        )
        self.reader = SparkPlanReader(context, self.row_schema, transform, self._shared_reader)
        self.committer = PlanCommitter(context, self.reader)
        self.planner = Planner(context, kind)

    def _row_format(self) -> RowFormat | None:
        ids: SeenIds = {}
        if not self.kind.traits.reads_log:
            ids = quarantined_schema_ids(self.job, self.target)
        if not ids and self.job.decode.fields_with_schema_ids:
            ids = schema_ids_in_logs(self.job, self.surveys.early())
        return row_format_of(self.job, ids)

    def run(self) -> RunResult:
        return self._with_lease(self._land_until_done)

    def apply(self, plan: Plan, unplanned_losses: Sequence[DecidedLoss]) -> RunResult:
        if plan.job != self.job.name:
            what = f"the plan belongs to the job {plan.job}"
            why = f"the job file is that of {self.job.name}"
            raise Conflict(what, why=why, do="apply the plan with the job file it was made with")
        return self._with_lease(partial(self._apply, plan, unplanned_losses))

    # --- the order of a run -------------------------------------------------------------

    def _land_until_done(self) -> PlanDraft | None:
        """Finishes one plan per turn until nothing is left to land: first the plans that come first
        and those that block its own plan, then its own plan."""
        lost_ranges: tuple[Range, ...] = ()
        lost_races = 0
        while lost_races < MAX_LOST_RACES:
            self.check_table_and_ledger_agree()
            unfinished = self.target.history.unfinished_plans()
            first = first_step(self.job, self.kind, unfinished)
            match first or next_step(self.job, self.draft(), unfinished):
                case Finish(entered, instead_of):
                    self.finished.append(self.committer.finish_entered(entered))
                    if instead_of is not None and self.finished[-1].outcome.ranges:
                        return instead_of
                case LandNothing(draft):
                    self._record_losses(draft.unplanned_losses(self.surveys.last.logs))
                    # If another driver has landed the same ranges in the meantime, say so.
                    return replace(draft, already_landed=draft.already_landed or lost_ranges)
                case Enter(draft):
                    if self._enter_draft(draft, unfinished):
                        self.finished.append(self.committer.finish_new(draft.plan))
                        if not draft.leaves_more:
                            return draft
                        lost_races = 0
                    else:
                        lost_ranges = draft.plan.ranges
                        lost_races += 1
            self.surveys.forget_early()
            self.target.refresh()
            if self.finished:
                self._mirror(to_the_end=False)
        raise Conflict(
            f"the job {self.job.name} could not enter a plan in {MAX_LOST_RACES} tries",
            why="other drivers keep entering plans for the same table",
            do="run it again when they are done",
        )

    def _apply(self, plan: Plan, unplanned_losses: Sequence[DecidedLoss]) -> PlanDraft | None:
        """Finishes a plan that was made earlier, after checking that it still applies unless it was
        already entered. The losses are recorded before the plan is entered, so that a driver that
        finds it entered has nothing left to record."""
        self.check_table_and_ledger_agree()
        if (entered := self.target.history.entered_plan(plan)) is not None:
            self.finished.append(self.committer.finish_entered(entered))
            return None
        if plan.schema_json != self.reader.schema_to_merge():
            raise outdated_error(plan, "it was made for rows with other columns")
        self._finish_prepared()
        unfinished = self.target.history.unfinished_plans()
        position = self.target.history.position(plan.application)
        check_still_current(plan, unfinished, position)
        self.reader.log_check.check_same_cluster(read_settings(self.job), plan)
        self.planner.check_still_there(plan)
        is_own_run, notes = self.job.is_own_run(plan), plaintext_secret_warnings(self.job)
        draft = rebuild_draft(plan, unplanned_losses, position, notes, moves_checkpoint=is_own_run)
        check_follows_checkpoint(plan, draft.passed_over, self.job.request.from_bounds)
        if draft.is_without_effect:
            self._record_losses(unplanned_losses, plan.made_at_ms)
            return draft
        self.check_draft_can_land(draft)
        if self._enter(plan, unfinished, unplanned_losses, plan.made_at_ms):
            self.finished.append(self.committer.finish_new(plan))
            return draft
        self.target.refresh()
        if (entered := self.target.history.entered_plan(plan)) is not None:
            self.finished.append(self.committer.finish_entered(entered))
            return None
        raise outdated_error(plan, "another plan was entered at the same time")

    # --- the steps of a run -------------------------------------------------------------

    def check_table_and_ledger_agree(self) -> None:
        """Raises Conflict if table and ledger disagree: nothing may land then."""
        self.target.identity.check_table_and_ledger_agree()
        if not self.kind.traits.repairs:
            check_rows_remain(self.spark, self.target, self.job, self.progress)

    def _finish_prepared(self) -> None:
        """Commits prepared outcomes: a plan that was made since counts them as landed."""
        history = self.target.history
        while plans := [u for u in history.unfinished_plans() if u.outcome is not None]:
            self.finished.append(self.committer.finish_entered(plans[0]))
            self.target.refresh()
            self.check_table_and_ledger_agree()

    def draft(self) -> PlanDraft:
        """A plan based on the current state."""
        draft = self.planner.draft()
        return replace(draft, plan=replace(draft.plan, schema_json=self.reader.schema_to_merge()))

    def check_draft_can_land(self, draft: PlanDraft) -> None:
        """Raises Conflict for rows that are in no ledger, and for schemas that do not fit."""
        if self.kind.traits.resolves_bounds and not self.kind.traits.replaces:
            check_rows_are_known(self.spark, self.target, draft.plan.ranges)
            ids_in = partial(schema_ids_in, self.job, survey=self.surveys.last)
            policy = self.job.request.policy
            check_schemas_are_readable(self.row_format, policy, draft.plan.slices, ids_in)

    def _enter_draft(self, draft: PlanDraft, unfinished: Sequence[EnteredPlan]) -> bool:
        """Enters a draft, after warnings that may be a reason to stop the run."""
        self.check_draft_can_land(draft)
        risks = risk_warnings(draft.risks, self.surveys.speed)
        for text in (*passed_over_warnings(draft.passed_over), *risks):
            self._warn(text)
        return self._enter(draft.plan, unfinished, draft.unplanned_losses(self.surveys.last.logs))

    def _enter(
        self,
        plan: Plan,
        unfinished: Sequence[EnteredPlan],
        unplanned_losses: Sequence[DecidedLoss],
        seen_at_ms: int | None = None,
    ) -> bool:
        """False if another driver has entered a plan since the target was refreshed."""
        self.progress.step("entering the plan")
        start_workers(self.spark, login_packages(self.job))
        with naming_schemas(self.target, self.row_format):
            self.target.schema.layout(self.row_schema)
        self.reader.wait_for_workers()
        self.target.open_or_create(self.row_schema)
        if warning := self.target.table.store_warning(replaces=plan.replaces):
            self._warn(warning)
        self._record_losses(unplanned_losses, seen_at_ms)
        return self.target.enter(plan, unfinished)

    # --- losses and warnings ------------------------------------------------------------

    def _record_losses(self, losses: Sequence[DecidedLoss], seen_at_ms: int | None = None) -> None:
        sequence = self.target.identity.landed_sequence(self.job.application) + 1
        self.target.record_losses(sequence, losses, seen_at_ms)

    def _run_and_record_losses(self, work: _Work) -> PlanDraft | None:
        """Does the work. A loss that ends a run is recorded in the ledger, if there is one. An
        error says how many plans had landed before it."""
        try:
            return work()
        except RangelandError as error:
            if self.kind.traits.moves_checkpoint and isinstance(error, RangeLost | BadRecord):
                self._record_losses_in(error)
            landed = sum(1 for plan in self.finished if plan.outcome.ranges)
            raise error.after_landing(landed) from error.__cause__

    def _record_losses_in(self, error: RangeLost | BadRecord) -> None:
        ids = {p: log.leader.topic_id for p, log in self.surveys.last.logs.items()}
        try:
            losses = [replace(x, topic_id=ids.get(x.partition)) for x in losses_in(error)]
            self._record_losses(losses)
        except RangelandError as other:
            self._warn(f"the loss could not be recorded in the ledger: {other}")

    def _warn(self, text: str) -> None:
        if text not in self.warnings:
            self.warnings.append(text)
            self.progress.warn(text)

    def _result(self, draft: PlanDraft | None) -> RunResult:
        finished = self.finished
        notes = draft.notes if draft is not None else plaintext_secret_warnings(self.job)
        if finished and (warning := self.target.ledger.compact()):
            self._warn(warning)
        for text in (*self.target.table.delta.wait_for_maintenance(), *notes):
            self._warn(text)
        return replace(
            result_of_plans(self.job, self.target, finished, draft, self.row_format, self._warn),
            seconds=time.monotonic() - self.started,
            warnings=tuple(self.warnings),
            replaced=self.committer.replaced if any(f.is_ours for f in finished) else None,
        )

    # --- the group --------------------------------------------------------------------

    def _with_lease(self, work: _Work) -> RunResult:
        """Does the work while holding a lease in the job's group, if it has one, and mirrors the
        checkpoint. Backfills take no lease: they move no checkpoint and may run beside runs."""
        if self.job.group is None or not self.kind.traits.moves_checkpoint:
            return self._result(self._run_and_record_losses(work))
        # A member that waits for executors would withhold its partitions from the other drivers.
        self.reader.wait_for_workers()
        survey, step = self.surveys.early(), self.progress.step
        cluster = cluster_settings(self.job).with_versions_of(survey)
        with hold_lease(self.job, cluster, list(survey.logs), self._warn, step) as lease:
            self.lease = lease
            draft = self._run_and_record_losses(work)
            self._mirror(to_the_end=True)
        return self._result(draft)

    def _shared_reader(self) -> GroupPlanReader | None:
        return None if self.lease is None else GroupPlanReader(self.lease, self.progress)

    def _mirror(self, *, to_the_end: bool) -> None:
        """Mirrors what has landed so far. A failure is a warning: the rows are safe."""
        if self.lease is None:
            return
        earlier = partial(self.target.history.checkpoints, self.job.application, EARLIER)
        try:
            self.lease.mirror(self.checkpoint_offsets, earlier, to_the_end=to_the_end)
        except RangelandError as error:
            self._warn(f"the checkpoint is not mirrored: {error}")

    def checkpoint_offsets(self) -> dict[Partition, int]:
        """The offsets up to which logs have landed, as a group commits them."""
        self.target.refresh()
        position = self.target.history.position(self.job.application)
        return offsets_to_commit(position.checkpoint, self.surveys.last.logs)
