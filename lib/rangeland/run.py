"""The commands that land."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rangeland.job import Job
from rangeland.landing.drafts.unfinished_plans import plans_to_finish
from rangeland.landing.special_plans.redrive import RedriveResult, in_quarantine
from rangeland.landing.special_plans.table_adoption import AdoptResult, adopt_table
from rangeland.loss import DecidedLoss
from rangeland.planning.plan import Plan
from rangeland.planning.plan_kind import PlanKind
from rangeland.progress_events import Progress
from rangeland.results import PlanPreview, RunResult
from rangeland.runner import Runner

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def preview(
    job: Job, spark: SparkSession, progress: Progress, kind: PlanKind = PlanKind.RUN
) -> PlanPreview:
    """Previews what a run, or a backfill of this kind, would do now. Writes nothing."""
    started = time.monotonic()
    runner = Runner(job, spark, progress, kind)
    runner.check_table_and_ledger_agree()
    unfinished = runner.target.history.unfinished_plans()
    draft = runner.draft()
    runner.check_draft_can_land(draft)
    return PlanPreview(
        draft=draft,
        table=job.sink.table,
        logs=tuple(runner.surveys.last.logs.values()),
        tasks=len(runner.reader.tasks(draft.plan.slices)),
        unfinished_plans=plans_to_finish(job, unfinished),
        seconds=time.monotonic() - started,
        speed=runner.surveys.speed,
        row_format=runner.row_format,
        location=None if job.sink.is_catalog_name else runner.target.table.path,
    )


def run(job: Job, spark: SparkSession, progress: Progress) -> RunResult:
    """Lands the job's range exactly once, after finishing any unfinished plans."""
    return Runner(job, spark, progress).run()


def backfill(
    job: Job, spark: SparkSession, progress: Progress, kind: PlanKind = PlanKind.BACKFILL
) -> RunResult:
    """Lands the job's range apart from its scheduled runs, without moving their checkpoint.
    ``kind`` may ask for rows that the table has lost, or for landing the range again."""
    return Runner(job, spark, progress, kind).run()


def redrive(
    job: Job,
    spark: SparkSession,
    progress: Progress,
    *,
    from_log: bool = False,
    dry_run: bool = False,
) -> RedriveResult:
    """Lands quarantined batches that can be decoded now, from the kept bytes or from the log; a
    dry run only reports them."""
    started = time.monotonic()
    runner = Runner(job, spark, progress, PlanKind.REREAD if from_log else PlanKind.REDRIVE)
    done = None if dry_run else runner.run()
    progress.step("reading the quarantine")
    runner.target.refresh()
    batches = in_quarantine(job, runner.target, runner.row_format)
    seconds = time.monotonic() - started
    return RedriveResult(job.name, job.sink.table, tuple(batches), seconds, done)


def adopt(job: Job, spark: SparkSession, progress: Progress) -> AdoptResult:
    """Records that the table is right if it and its ledger disagree."""
    return adopt_table(job, Runner(job, spark, progress).row_schema, spark, progress)


def apply(
    job: Job,
    plan: Plan,
    unplanned_losses: Sequence[DecidedLoss],
    spark: SparkSession,
    progress: Progress,
) -> RunResult:
    """Enters a plan that was made earlier, or refuses it if it no longer applies.
    ``unplanned_losses`` were found when it was made, and are not part of it."""
    return Runner(job, spark, progress).apply(plan, unplanned_losses)
