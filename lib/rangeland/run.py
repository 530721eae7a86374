"""The commands that land."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from rangeland.cluster_access.job_survey import schema_ids_in_logs, survey_of
from rangeland.cluster_access.registry_lookup import SeenIds, look_up_row_format
from rangeland.decode.payload.row_format import RowFormat
from rangeland.dialects.row_schema import typed_rows
from rangeland.errors import Conflict
from rangeland.job import Job
from rangeland.job_group.run_lease import RunLease
from rangeland.landing.drafts.unfinished_plans import plans_to_finish
from rangeland.landing.execution.slice_tasks import tasks_of, wait_for_workers
from rangeland.landing.landing_context import LandingContext
from rangeland.landing.landing_steps import LandingSteps
from rangeland.landing.plan_surveys import PlanSurveys, SurveyOf
from rangeland.landing.special_plans.redrive import (
    quarantined_ranges,
    quarantined_schema_ids,
)
from rangeland.landing.target.landing_target import LandingTarget, open_target
from rangeland.landing.target.ledger_history import expected_speed
from rangeland.loss import DecidedLoss
from rangeland.monitoring.lineage_reporter import LandingLineage, LineageReporter, report_landing
from rangeland.planning.plan import Plan
from rangeland.planning.plan_draft import PlanDraft
from rangeland.planning.plan_kind import PlanKind
from rangeland.progress_events import Progress
from rangeland.results import AdoptResult, PlanPreview, RedriveResult, RunResult
from rangeland.spark.transform import load_transform, transformed_schema

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def open_landing(
    job: Job,
    spark: SparkSession,
    progress: Progress,
    kind: PlanKind = PlanKind.RUN,
    survey: SurveyOf | None = None,
) -> LandingContext:
    """Reads the job's table and ledger, and determines the format and the columns of its rows.
    Surveys the brokers only if the format depends on schema ids. ``survey``: a function that takes
    all surveys, in place of ``survey_of``."""
    began_at = time.monotonic()
    transform = load_transform(job.sink.transform) if job.sink.transform else None
    progress.step(f"looking at the table {job.sink.table}")
    target = open_target(spark, job)
    speed = expected_speed(target.ledger.view, job.application)
    surveys = PlanSurveys(job, target.history, progress, survey or survey_of, speed)
    row_format = _row_format(job, kind, target, surveys)
    row_schema = typed_rows(job.source.dialect, row_format)
    if transform is not None:
        row_schema = transformed_schema(spark, transform, row_schema)
    return LandingContext(
        spark, job, kind, target, surveys, progress, row_format, row_schema, transform, began_at
    )


def _row_format(
    job: Job, kind: PlanKind, target: LandingTarget, surveys: PlanSurveys
) -> RowFormat | None:
    """The row format of the records to land, or of those in quarantine if only these are read."""
    ids: SeenIds = {}
    if not kind.traits.reads_log:
        ids = quarantined_schema_ids(job, target)
    if not ids and job.decode.fields_with_schema_ids:
        ids = schema_ids_in_logs(job, surveys.early())
    return look_up_row_format(job, ids)


# --- the commands --------------------------------------------------------------------------------


def preview(
    job: Job, spark: SparkSession, progress: Progress, kind: PlanKind = PlanKind.RUN
) -> PlanPreview:
    """Previews what a run, or a backfill of this kind, would do now. Writes nothing."""
    return preview_plan(open_landing(job, spark, progress, kind))


def preview_plan(context: LandingContext) -> PlanPreview:
    """Previews the next plan of the command's kind."""
    job = context.job
    draft, unfinished = LandingSteps(context).preview()
    return PlanPreview(
        draft=draft,
        table=job.sink.table,
        logs=tuple(context.surveys.last.logs.values()),
        tasks=len(tasks_of(job, context.spark, draft.plan.slices)),
        unfinished_plans=plans_to_finish(job, unfinished),
        seconds=time.monotonic() - context.began_at,
        speed=context.surveys.speed,
        row_format=context.row_format,
        location=None if job.sink.is_catalog_name else context.target.table.location.path,
    )


def run(job: Job, spark: SparkSession, progress: Progress) -> RunResult:
    """Lands the job's range exactly once, after finishing any unfinished plans."""
    return _land(job, spark, progress, PlanKind.RUN)


def backfill(
    job: Job, spark: SparkSession, progress: Progress, kind: PlanKind = PlanKind.BACKFILL
) -> RunResult:
    """Lands the job's range independently of its scheduled runs, without moving their checkpoint.
    ``kind``: the kind of the plans, for new offsets, for rows that the table has lost, or for
    landing the range again."""
    return _land(job, spark, progress, kind)


def _land(job: Job, spark: SparkSession, progress: Progress, kind: PlanKind) -> RunResult:
    def land(landing: LandingLineage) -> RunResult:
        return land_plans(landing.note_opened(open_landing(job, spark, progress, kind)))

    return report_landing(job, progress, land)


def land_plans(context: LandingContext) -> RunResult:
    """Lands plans of the command's kind until nothing is left to land, after finishing any
    unfinished plans that come first."""
    steps, draft = _with_lease(context, LandingSteps.land_until_done)
    return steps.result(draft)


def redrive(
    job: Job,
    spark: SparkSession,
    progress: Progress,
    reporter: LineageReporter | None = None,
    *,
    from_log: bool = False,
    dry_run: bool = False,
) -> RedriveResult:
    """Lands quarantined batches that can be decoded now, from the kept bytes or from the log; a
    dry run only reports them. ``reporter``: that of a command for many tables."""
    kind = PlanKind.REREAD if from_log else PlanKind.REDRIVE
    if dry_run:
        return _redrive_result(open_landing(job, spark, progress, kind), None)

    def land(landing: LandingLineage) -> RedriveResult:
        context = landing.note_opened(open_landing(job, spark, progress, kind))
        steps, draft = _with_lease(context, LandingSteps.land_until_done)
        done = steps.result(draft)
        landing.complete(done)
        with steps.counting_landed():
            return _redrive_result(context, done)

    return report_landing(job, progress, land, reporter)


def _redrive_result(context: LandingContext, done: RunResult | None) -> RedriveResult:
    """What was landed, unless it was a dry run, and what is in quarantine now."""
    job = context.job
    context.progress.step("reading the quarantine")
    context.target.ledger.refresh()
    batches = quarantined_ranges(context)
    seconds = time.monotonic() - context.began_at
    return RedriveResult(job.name, job.sink.table, tuple(batches), seconds, done)


def adopt(job: Job, spark: SparkSession, progress: Progress) -> AdoptResult:
    """Records the decision that the table is right, if it and its ledger disagree."""
    return LandingSteps(open_landing(job, spark, progress)).adopt()


def apply(
    job: Job,
    plan: Plan,
    unplanned_losses: Sequence[DecidedLoss],
    spark: SparkSession,
    progress: Progress,
    reporter: LineageReporter | None = None,
) -> RunResult:
    """Enters a plan that was made earlier, or refuses it if it no longer applies.
    ``unplanned_losses`` were found when it was made, and are not part of it. ``reporter``: that of
    a command for many tables."""

    def land(landing: LandingLineage) -> RunResult:
        context = landing.note_opened(open_landing(job, spark, progress))
        if plan.job != job.name:
            what = f"the plan belongs to the job {plan.job}"
            why = f"the job file is that of {job.name}"
            raise Conflict(what, why=why, do="apply the plan with the job file it was made with")
        steps, draft = _with_lease(context, lambda steps: steps.apply(plan, unplanned_losses))
        return steps.result(draft)

    return report_landing(job, progress, land, reporter)


# --- the group -----------------------------------------------------------------------------------


def _with_lease(
    context: LandingContext, work: Callable[[LandingSteps], PlanDraft | None]
) -> tuple[LandingSteps, PlanDraft | None]:
    """Does the work, and mirrors the checkpoint, while holding a lease if one is needed. Returns
    the steps that are done, with the last draft."""
    lease = RunLease(context)
    steps = LandingSteps(context, lease.shared_reader, lease.mirror)
    if lease.is_needed:
        # A member that waits for executors would keep its partitions from the other drivers.
        wait_for_workers(context)
    with lease.hold():
        draft = work(steps)
        lease.mirror(to_the_end=True)
    return steps, draft
