"""The Python interface: ``plan(job, spark).read(spark)``, ``land(job, spark)`` and so on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rangeland import run as commands
from rangeland.clock import wall_ms
from rangeland.cluster_access.cluster_lookup import look_up_cleanup, look_up_read_settings
from rangeland.dataframe.frozen_plan import log_left_out
from rangeland.errors import UsageError
from rangeland.fetch.backoff import shared_rates
from rangeland.fleet.fleet_result import FleetResult, JobResult
from rangeland.fleet.fleet_run import JobsProgress, NoJobsProgress, fleet_of, run_all
from rangeland.fleet.job_folders import job_files
from rangeland.fleet.topic_jobs import load_files
from rangeland.job import Job
from rangeland.job.command_line_overrides import load_job
from rangeland.landing.execution.slice_tasks import tasks_of
from rangeland.model import FromCheckpoint, Range, Slice
from rangeland.monitoring.metrics_file import (
    TableName,
    check_metrics_can_be_written,
    table_run,
    write_metrics_file,
)
from rangeland.planning.plan import Plan, in_planned_epochs
from rangeland.planning.plan_kind import backfill_kind
from rangeland.progress_events import NoProgress, Progress
from rangeland.queries import verify_and_find
from rangeland.query_results import VerifyResult
from rangeland.results import PlanPreview, RunResult
from rangeland.spark.deferred_session import parallelism_of
from rangeland.spark.plan_frames import plan_frame

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class FrozenPlan:
    """A plan for what a run of the job would land now. ``read`` always reads exactly these offsets;
    ``apply`` lands them, or raises Conflict if the plan no longer applies."""

    job: Job
    preview: PlanPreview

    @property
    def plan(self) -> Plan:
        return self.preview.draft.plan

    @property
    def hash(self) -> str:
        return self.plan.hash

    @property
    def ranges(self) -> tuple[Range, ...]:
        return self.plan.ranges

    @property
    def slices(self) -> tuple[Slice, ...]:
        return self.plan.slices

    def to_json(self) -> dict[str, Any]:
        """The plan as ``rangeland plan --json`` prints it."""
        return self.preview.to_json()

    def read(self, spark: SparkSession) -> Any:
        """A data frame with the columns of the table. Lands nothing. What the plan leaves out of
        the job's range is logged."""
        log_left_out(self.preview.draft)
        slices = in_planned_epochs(self.plan, self.plan.slices)
        tasks = tasks_of(self.job, spark, slices)
        topics = {s.partition.topic for s in slices}
        settings = replace(look_up_read_settings(self.job), row_format=self.preview.row_format)
        if rate := self.job.limits.broker_bytes_per_second:
            settings = replace(settings, rates=shared_rates(tasks, parallelism_of(spark), rate))
        settings = look_up_cleanup(self.job, settings, topics)
        return plan_frame(spark, tasks, settings, plan=self.plan)

    def apply(self, spark: SparkSession, progress: Progress | None = None) -> RunResult:
        """Lands exactly this plan. Raises Conflict if the plan no longer applies."""
        return commands.apply(
            self.job, self.plan, self.preview.unplanned_losses, spark, progress or NoProgress()
        )


def plan(job: Job, spark: SparkSession, progress: Progress | None = None) -> FrozenPlan:
    """Makes a plan from the cluster and the ledger as they are now. Writes nothing."""
    return FrozenPlan(job, commands.preview(job, spark, progress or NoProgress()))


def land(job: Job, spark: SparkSession, progress: Progress | None = None) -> RunResult:
    """Lands the job's range exactly once, as ``rangeland run`` does."""
    return commands.run(job, spark, progress or NoProgress())


def run_jobs(
    paths: Sequence[str | Path],
    spark: SparkSession,
    *,
    parallel: int | None = None,
    settings: Sequence[str] = (),
    progress: JobsProgress | None = None,
) -> FleetResult[RunResult]:
    """Lands many job files, as ``rangeland run`` does. ``paths`` are files or folders; a file whose
    ``sink.table`` contains ``{topic}`` lands each topic in its own table. ``parallel`` is how many
    tables land at a time: by default two for each core, at most 16. ``settings`` are overrides as
    for ``--set``. Failures are part of the result; this raises only UsageError, for a folder
    without job files."""
    jobs_progress = progress or NoJobsProgress()
    files, failed = load_files(
        job_files(map(Path, paths)), lambda path: load_job(path, settings), asks_cluster=True
    )
    fleet = fleet_of(files, failed, spark, jobs_progress)
    return run_all(fleet, spark, jobs_progress, parallel)


def backfill(
    job: Job,
    spark: SparkSession,
    progress: Progress | None = None,
    *,
    missing: bool = False,
    replace: bool = False,
) -> RunResult:
    """Lands the job's range independently of its scheduled runs, as ``rangeland backfill`` does.
    ``missing`` lands rows that the table has lost, in any range; ``replace`` lands the range again
    and replaces its rows. Raises UsageError if both are given, or if the range begins at the
    checkpoint, which belongs to the scheduled runs."""
    if missing and replace:
        raise UsageError(
            "missing and replace cannot be combined",
            do="leave out one of them",
        )
    if not missing and any(isinstance(bound, FromCheckpoint) for bound in job.range.from_.every):
        raise UsageError(
            "a backfill does not follow the checkpoint",
            do="give the job a range.from and a range.until of its own",
        )
    kind = backfill_kind(missing=missing, replace=replace)
    return commands.backfill(job, spark, progress or NoProgress(), kind)


def write_metrics(
    path: str | Path, result: RunResult | FleetResult[RunResult], command: str = "run"
) -> None:
    """Writes what ``rangeland run --metrics`` writes: ``command`` is the value of its label. Jobs
    that have failed are in the result of ``run_jobs``. Raises UsageError if the file cannot be
    written."""
    file = Path(path)
    check_metrics_can_be_written(file)
    job_results: Sequence[JobResult[RunResult]]
    if isinstance(result, FleetResult):
        job_results = result.jobs
    else:
        job_results = [JobResult(result.job, result.table, result, None, result.seconds)]
    now = wall_ms()
    runs = [table_run(command, TableName(x.job, x.table), x, now) for x in job_results]
    write_metrics_file(file, runs)


def verify(job: Job, spark: SparkSession, progress: Progress | None = None) -> VerifyResult:
    """Checks that the table has each landed offset exactly once, as ``rangeland verify`` does."""
    return verify_and_find.verify(job, spark, progress or NoProgress())
