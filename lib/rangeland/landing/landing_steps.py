"""The order of the steps of a command that lands.

A run is a short loop: read the state of the table and the ledger; finish, unchanged, every
unfinished plan that comes first; make a new plan and enter it; read, prove, prepare, commit. It may
be killed between any two steps: the next run finds a plan without an outcome and reads it, or an
outcome that is not in the table and commits it. Two simultaneous runs converge on one landing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import assert_never

from rangeland.cluster_access.cluster_lookup import look_up_read_settings
from rangeland.delta.ledger.events import OutcomeEvent
from rangeland.errors import BadRecord, Conflict, RangelandError, RangeLost
from rangeland.job.connection_settings import login_packages, plaintext_secret_warnings
from rangeland.landing.drafts.landing_checks import (
    check_draft_can_land,
    check_table_and_ledger_agree,
    check_table_can_take_rows,
)
from rangeland.landing.drafts.planner import Planner
from rangeland.landing.drafts.unfinished_plans import (
    Enter,
    Finish,
    LandNothing,
    check_follows_checkpoint,
    check_still_current,
    outdated_error,
    step_before_draft,
    step_for_draft,
)
from rangeland.landing.execution.committer import CommittedPlan, PlanCommitter
from rangeland.landing.execution.plan_cluster_check import check_plan_is_of_source
from rangeland.landing.execution.plan_ending import has_landed_by_now
from rangeland.landing.execution.run_summary import result_of_plans
from rangeland.landing.execution.shared_reader_interface import SharedReader
from rangeland.landing.execution.slice_tasks import wait_for_workers
from rangeland.landing.execution.spark_plan_reader import SparkPlanReader
from rangeland.landing.landing_context import LandingContext
from rangeland.landing.special_plans.table_adoption import adopt_table
from rangeland.landing.target.job_history import EnteredPlan
from rangeland.landing.target.ledger_history import landed_clusters
from rangeland.landing.target.loss_records import losses_in
from rangeland.landing.target.table_warnings import store_warning
from rangeland.loss import DecidedLoss
from rangeland.model import Range
from rangeland.planning.coverage import covered_parts
from rangeland.planning.passed_over_ranges import passed_over_warnings
from rangeland.planning.plan import Plan
from rangeland.planning.plan_draft import PlanDraft, rebuild_draft
from rangeland.planning.retention_risk import risk_warnings
from rangeland.results import AdoptResult, RunResult
from rangeland.spark.python_workers import start_workers

MAX_LOST_RACES = 50
"""How often other drivers may enter a plan first before a run gives up, counted from the run's own
last plan."""


class LandingSteps:
    """The steps of one command, and the plans that it has finished so far, in order.
    ``land_until_done`` or ``apply`` does the work and returns the last draft, from which ``result``
    makes a summary; ``preview`` shows what would be done.
    ``shared_reader`` returns the reader for plans that are shared with other drivers, and
    ``mirror`` mirrors the checkpoint between two plans; both do nothing without a group."""

    def __init__(
        self,
        context: LandingContext,
        shared_reader: Callable[[], SharedReader | None] = lambda: None,
        mirror: Callable[[], None] = lambda: None,
    ) -> None:
        self._context = context
        self._mirror = mirror
        self.reader = SparkPlanReader(context, shared_reader)
        self._committer = PlanCommitter(context, self.reader)
        self._planner = Planner(context)
        self._finished: list[CommittedPlan] = []

    def preview(self) -> tuple[PlanDraft, Sequence[EnteredPlan]]:
        """The draft of the command's own plan, and the plans that are unfinished. Table and draft
        are checked as before a plan is entered; writes nothing."""
        unfinished = self._unfinished_plans()
        draft = self._planner.draft()
        check_draft_can_land(self._context, draft)
        if not draft.is_without_effect:
            check_table_can_take_rows(self._context)
        return draft, unfinished

    def land_until_done(self) -> PlanDraft:
        """Finishes one plan per iteration until nothing is left to land: first the plans that come
        first and those that block the run's own plan, then its own plan."""
        with self._recording_losses():
            return self._land()

    def apply(self, plan: Plan, unplanned_losses: Sequence[DecidedLoss]) -> PlanDraft | None:
        """Finishes a plan that was made earlier, after checking that it still applies unless it was
        already entered. The losses are recorded before the plan is entered, so that a driver that
        finds it entered has nothing left to record. The draft has the plan; there is none if it was
        entered by another driver."""
        with self._recording_losses():
            return self._apply(plan, unplanned_losses)

    def adopt(self) -> AdoptResult:
        """Accepts the table as it is, after committing what the job has prepared: that could not be
        committed after the adoption, which has a later sequence."""
        context = self._context
        with self.counting_landed():
            gone = []
            for entered in context.target.history.known_unfinished_plans():
                if entered.plan.application != context.job.application or entered.outcome is None:
                    continue
                if context.target.table.version is None:
                    self._warn_of_lost_table(entered.plan, entered.outcome)
                elif self._are_files_gone(entered.plan, entered.outcome):
                    gone.append(entered)
                else:
                    self._finish_entered(entered)
            return adopt_table(context, gone)

    def _warn_of_lost_table(self, plan: Plan, outcome: OutcomeEvent) -> None:
        """Without a table, nothing shows whether the plan has landed in it."""
        if outcome.files:
            self._context.warn(
                f"the prepared rows of {plan.id} are gone but count as landed: "
                "`rangeland backfill JOB.yaml --missing` lands them again"
            )

    def _are_files_gone(self, plan: Plan, outcome: OutcomeEvent) -> bool:
        """Whether the outcome has not landed and never will, because prepared files are gone. If it
        has landed, its files were replaced and removed later."""
        target = self._context.target
        if not target.table.gone_prepared_files(outcome.data_files):
            return False
        if has_landed_by_now(target, plan):
            return False
        warning = f"the prepared rows of {plan.id} are gone: the next run reads them again"
        self._context.warn(warning)
        return True

    # --- turns --------------------------------------------------------------------------

    def _land(self) -> PlanDraft:
        """Finishes plans, and returns the last draft."""
        context = self._context
        lost_ranges: tuple[Range, ...] = ()
        lost_races = 0
        while lost_races < MAX_LOST_RACES:
            unfinished = self._unfinished_plans()
            first = step_before_draft(context.job, context.kind, unfinished)
            step = first or step_for_draft(context.job, self._planner.draft(), unfinished)
            match step:
                case Finish(entered, satisfied_draft):
                    finished = self._finish_entered(entered)
                    if satisfied_draft is not None and not finished.is_given_up:
                        return satisfied_draft
                case LandNothing(draft):
                    self._record_losses(draft.unplanned_losses(context.surveys.last.logs))
                    # If another driver has landed the same ranges in the meantime, report that.
                    landed = draft.already_landed or self._landed_parts(lost_ranges)
                    return replace(draft, already_landed=landed)
                case Enter(draft):
                    if self._enter_draft(draft, unfinished):
                        self._finish_new(draft.plan)
                        if not draft.leaves_more:
                            return draft
                        lost_races = 0
                    else:
                        lost_ranges = draft.plan.ranges
                        lost_races += 1
                case _:
                    assert_never(step)
            context.surveys.forget_early()
            context.target.ledger.refresh()
            if self._finished:
                self._mirror()
        raise Conflict(
            f"the job {context.job.name} could not enter a plan in {MAX_LOST_RACES} tries",
            why="other drivers keep entering plans for the same table",
            do="run it again when they are done",
        )

    def _apply(self, plan: Plan, unplanned_losses: Sequence[DecidedLoss]) -> PlanDraft | None:
        """Finishes plans, and returns the draft that has this plan."""
        target = self._context.target
        check_table_and_ledger_agree(self._context)
        if (entered := target.history.entered_plan(plan)) is not None:
            self._finish_entered(entered)
            return None
        if plan.schema_json != self._context.schema_to_merge():
            raise outdated_error(plan, "it was made for rows with different columns")
        self._finish_prepared()
        unfinished = target.history.unfinished_plans()
        draft = self._draft_of(plan, unfinished, unplanned_losses)
        if draft.is_without_effect:
            self._record_losses(unplanned_losses, plan.made_at_ms)
            return draft
        check_draft_can_land(self._context, draft)
        if self._enter(plan, unfinished, unplanned_losses, plan.made_at_ms):
            self._finish_new(plan)
            return draft
        target.ledger.refresh()
        if (entered := target.history.entered_plan(plan)) is not None:
            self._finish_entered(entered)
            return None
        raise outdated_error(plan, "another plan was entered at the same time")

    def _landed_parts(self, ranges: Sequence[Range]) -> tuple[Range, ...]:
        """The parts of these ranges that count as landed now."""
        position = self._context.target.history.position(self._context.job.application)
        return tuple(covered_parts(ranges, position.covered))

    def _unfinished_plans(self) -> Sequence[EnteredPlan]:
        """The plans that are unfinished, in a table that agrees with its ledger."""
        check_table_and_ledger_agree(self._context)
        return self._context.target.history.unfinished_plans()

    def _finish_new(self, plan: Plan) -> None:
        self._finished.append(self._committer.finish_new(plan))

    def _finish_entered(self, entered: EnteredPlan) -> CommittedPlan:
        committed = self._committer.finish_entered(entered)
        self._finished.append(committed)
        return committed

    def _finish_prepared(self) -> None:
        """Commits prepared outcomes: a plan that was made since counts them as landed."""
        target = self._context.target
        while plans := [u for u in target.history.unfinished_plans() if u.outcome is not None]:
            self._finish_entered(plans[0])
            target.ledger.refresh()
            check_table_and_ledger_agree(self._context)

    # --- entering a plan ----------------------------------------------------------------

    def _draft_of(
        self,
        plan: Plan,
        unfinished: Sequence[EnteredPlan],
        unplanned_losses: Sequence[DecidedLoss],
    ) -> PlanDraft:
        """A draft with a plan that was made earlier. Raises Conflict if the plan no longer applies,
        and RangeLost if its offsets are gone and the policy is to fail."""
        job = self._context.job
        position = self._context.target.history.position(plan.application)
        check_still_current(plan, unfinished, position)
        view = self._context.target.ledger.view
        check_plan_is_of_source(
            plan, job.source, look_up_read_settings(job), lambda: landed_clusters(view)
        )
        self._planner.check_still_there(plan)
        is_own_run = job.is_own_run(plan)
        notes = plaintext_secret_warnings(job)
        draft = rebuild_draft(plan, unplanned_losses, position, notes, moves_checkpoint=is_own_run)
        check_follows_checkpoint(plan, draft.passed_over, job.request.from_bounds)
        return draft

    def _enter_draft(self, draft: PlanDraft, unfinished: Sequence[EnteredPlan]) -> bool:
        """Enters a draft, after issuing warnings that may be a reason to stop the run."""
        surveys = self._context.surveys
        check_draft_can_land(self._context, draft)
        risks = risk_warnings(draft.risks, surveys.speed)
        for text in (*passed_over_warnings(draft.passed_over), *risks):
            self._context.warn(text)
        return self._enter(draft.plan, unfinished, draft.unplanned_losses(surveys.last.logs))

    def _enter(
        self,
        plan: Plan,
        unfinished: Sequence[EnteredPlan],
        unplanned_losses: Sequence[DecidedLoss],
        seen_at_ms: int | None = None,
    ) -> bool:
        """Enters a plan. False if another driver has entered one since the target was refreshed."""
        context = self._context
        writer = context.target.writer
        context.progress.step("entering the plan")
        # Workers import what tasks need while the table is checked.
        start_workers(context.spark, login_packages(context.job))
        check_table_can_take_rows(context)
        wait_for_workers(context)
        writer.open_or_create(context.row_schema)
        if warning := store_warning(context.target.table.location, replaces=plan.replaces):
            context.warn(warning)
        self._record_losses(unplanned_losses, seen_at_ms)
        return writer.enter(plan, unfinished)

    # --- losses and results -------------------------------------------------------------

    def _record_losses(self, losses: Sequence[DecidedLoss], seen_at_ms: int | None = None) -> None:
        target = self._context.target
        sequence = target.identity.landed_sequence(self._context.job.application) + 1
        target.writer.record_losses(sequence, losses, seen_at_ms)

    @contextmanager
    def _recording_losses(self) -> Iterator[None]:
        """A context that records the losses that end a command, provided that the command moves
        the checkpoint and there is a ledger. Errors also say what ``counting_landed`` adds to
        them."""
        with self.counting_landed():
            try:
                yield
            except (RangeLost, BadRecord) as error:
                if self._context.kind.traits.moves_checkpoint:
                    self._record_losses_in(error)
                raise

    def _record_losses_in(self, error: RangeLost | BadRecord) -> None:
        ids = {p: log.leader.topic_id for p, log in self._context.surveys.last.logs.items()}
        try:
            losses = [replace(x, topic_id=ids.get(x.partition)) for x in losses_in(error)]
            self._record_losses(losses)
        except RangelandError as other:
            self._context.warn(f"the loss could not be recorded in the ledger: {other}")

    def result(self, draft: PlanDraft | None) -> RunResult:
        """The result of the command, once the last upkeep of table and ledger is done."""
        context = self._context
        target = context.target
        with self.counting_landed():
            notes = draft.notes if draft is not None else plaintext_secret_warnings(context.job)
            if self._finished and (warning := target.ledger.compact()):
                context.warn(warning)
            failed_maintenance = target.table.location.delta.wait_for_maintenance()
            for text in (*failed_maintenance, *notes):
                context.warn(text)
            return replace(
                result_of_plans(context, self._finished, draft),
                seconds=time.monotonic() - context.began_at,
                warnings=tuple(context.warnings),
            )

    @contextmanager
    def counting_landed(self) -> Iterator[None]:
        """A context in which an error says how many plans the command has landed by then.
        ``result`` and the methods that land do this by themselves."""
        try:
            yield
        except RangelandError as error:
            landed = sum(1 for plan in self._finished if plan.outcome.has_landed_ranges)
            raise error.after_landing(landed) from error.__cause__
