"""The commands that land, and the lease in its group that a run holds meanwhile."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from rangeland.cluster_access.cluster_lookup import look_up_cluster
from rangeland.cluster_access.job_survey import schema_ids_in_logs, survey_of
from rangeland.cluster_access.registry_lookup import SeenIds, look_up_row_format
from rangeland.decode.payload.row_format import RowFormat
from rangeland.dialects.row_schema import typed_rows
from rangeland.errors import Conflict, RangelandError
from rangeland.groups.lease import GroupLease, hold_lease
from rangeland.groups.offset_mirror import offsets_to_commit
from rangeland.groups.shared_plan import GroupPlanReader
from rangeland.job import Job
from rangeland.landing.drafts.unfinished_plans import plans_to_finish
from rangeland.landing.execution.slice_tasks import tasks_of, wait_for_workers
from rangeland.landing.landing_context import LandingContext
from rangeland.landing.landing_steps import LandingSteps
from rangeland.landing.plan_surveys import PlanSurveys, SurveyOf
from rangeland.landing.special_plans.redrive import (
    quarantined_ranges,
    quarantined_schema_ids,
)
from rangeland.landing.special_plans.table_adoption import adopt_table
from rangeland.landing.target.landing_target import LandingTarget, open_target
from rangeland.landing.target.ledger_history import expected_speed, recent_checkpoints
from rangeland.loss import DecidedLoss
from rangeland.model import Partition
from rangeland.planning.plan import Plan
from rangeland.planning.plan_draft import PlanDraft
from rangeland.planning.plan_kind import PlanKind
from rangeland.progress_events import Progress
from rangeland.results import AdoptResult, PlanPreview, RedriveResult, RunResult
from rangeland.spark.transform import load_transform, transformed_schema

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EARLIER = 20
"""How many landings back a group's offset may lie before we assume that another client moved it."""


def open_landing(
    job: Job,
    spark: SparkSession,
    progress: Progress,
    kind: PlanKind = PlanKind.RUN,
    survey: SurveyOf | None = None,
) -> LandingContext:
    """Reads the job's table and ledger, and settles the format and the columns of its rows. Surveys
    the brokers only if the format depends on schema ids. ``survey`` takes all surveys, in place of
    ``survey_of``."""
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
    """The row format of the records to land: of those in quarantine, if only these are read."""
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
    context = open_landing(job, spark, progress, kind)
    draft, unfinished = LandingSteps(context).preview()
    return PlanPreview(
        draft=draft,
        table=job.sink.table,
        logs=tuple(context.surveys.last.logs.values()),
        tasks=len(tasks_of(job, spark, draft.plan.slices)),
        unfinished_plans=plans_to_finish(job, unfinished),
        seconds=time.monotonic() - context.began_at,
        speed=context.surveys.speed,
        row_format=context.row_format,
        location=None if job.sink.is_catalog_name else context.target.table.location.path,
    )


def run(job: Job, spark: SparkSession, progress: Progress) -> RunResult:
    """Lands the job's range exactly once, after finishing any unfinished plans."""
    return land_plans(open_landing(job, spark, progress))


def backfill(
    job: Job, spark: SparkSession, progress: Progress, kind: PlanKind = PlanKind.BACKFILL
) -> RunResult:
    """Lands the job's range apart from its scheduled runs, without moving their checkpoint.
    ``kind`` may ask for rows that the table has lost, or for landing the range again."""
    return land_plans(open_landing(job, spark, progress, kind))


def land_plans(context: LandingContext) -> RunResult:
    """Lands plans of the command's kind until nothing is left to land, after finishing any
    unfinished plans that come first."""
    return _with_lease(context, LandingSteps.land_until_done)


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
    kind = PlanKind.REREAD if from_log else PlanKind.REDRIVE
    context = open_landing(job, spark, progress, kind)
    done = None if dry_run else land_plans(context)
    progress.step("reading the quarantine")
    context.target.ledger.refresh()
    batches = quarantined_ranges(context)
    seconds = time.monotonic() - context.began_at
    return RedriveResult(job.name, job.sink.table, tuple(batches), seconds, done)


def adopt(job: Job, spark: SparkSession, progress: Progress) -> AdoptResult:
    """Records that the table is right if it and its ledger disagree."""
    return adopt_table(open_landing(job, spark, progress))


def apply(
    job: Job,
    plan: Plan,
    unplanned_losses: Sequence[DecidedLoss],
    spark: SparkSession,
    progress: Progress,
) -> RunResult:
    """Enters a plan that was made earlier, or refuses it if it no longer applies.
    ``unplanned_losses`` were found when it was made, and are not part of it."""
    context = open_landing(job, spark, progress)
    if plan.job != job.name:
        what = f"the plan belongs to the job {plan.job}"
        why = f"the job file is that of {job.name}"
        raise Conflict(what, why=why, do="apply the plan with the job file it was made with")
    return _with_lease(context, lambda steps: steps.apply(plan, unplanned_losses))


# --- the group -----------------------------------------------------------------------------------


class RunLease:
    """The lease of a command in its job's group, if it needs one. Backfills do not: they move no
    checkpoint and may run beside runs. While there is no lease, nothing is shared or mirrored."""

    def __init__(self, context: LandingContext) -> None:
        self._context = context
        self._lease: GroupLease | None = None
        self.is_needed = context.job.group is not None and context.kind.traits.moves_checkpoint

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Holds the lease while this is open, if one is needed."""
        if not self.is_needed:
            yield
            return
        context = self._context
        job = self._context.job
        survey = context.surveys.early()
        cluster = look_up_cluster(job).with_versions_of(survey)
        partitions = list(survey.logs)
        step = context.progress.step
        with hold_lease(job, cluster, partitions, context.warn, step) as self._lease:
            yield

    def shared_reader(self) -> GroupPlanReader | None:
        """The reader for plans that the group's drivers read together, while there is a lease."""
        return None if self._lease is None else GroupPlanReader(self._lease, self._context.progress)

    def mirror(self, *, to_the_end: bool = False) -> None:
        """Mirrors what has landed so far. A failure is a warning: the rows are safe."""
        if self._lease is None:
            return
        context = self._context
        offsets = partial(checkpoint_offsets, context)
        earlier = partial(_recent_checkpoints, context)
        try:
            self._lease.mirror(offsets, earlier, to_the_end=to_the_end)
        except RangelandError as error:
            context.warn(f"the checkpoint is not mirrored: {error}")


def _with_lease(
    context: LandingContext, work: Callable[[LandingSteps], PlanDraft | None]
) -> RunResult:
    """Does the work, and mirrors the checkpoint, while holding a lease if one is needed."""
    lease = RunLease(context)
    steps = LandingSteps(context, lease.shared_reader, lease.mirror)
    if lease.is_needed:
        # A member that waits for executors would withhold its partitions from the other drivers.
        wait_for_workers(context)
    with lease.hold():
        draft = work(steps)
        lease.mirror(to_the_end=True)
    return steps.result(draft)


def _recent_checkpoints(context: LandingContext) -> set[tuple[Partition, int]]:
    """The marks at which a group's offsets may be if no other client has moved them."""
    return recent_checkpoints(context.target.ledger.view, context.job.application, EARLIER)


def checkpoint_offsets(context: LandingContext) -> dict[Partition, int]:
    """The offsets up to which logs have landed, as a group commits them. Reads the table again."""
    context.target.ledger.refresh()
    position = context.target.history.position(context.job.application)
    return offsets_to_commit(position.checkpoint, context.surveys.last.logs)
