"""Runs many jobs side by side in one Spark session.

Each job is a separate run, with its own table, ledger, plan and proof; the jobs share the session
and the survey of their cluster. A job that fails does not stop the others. The driver may be killed
at any moment: the next run finishes each table's plan separately.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from rangeland.cluster_access.cluster_lookup import look_up_cluster
from rangeland.errors import Conflict, RangelandError
from rangeland.fleet.fleet_lineage import report_fleet
from rangeland.fleet.fleet_result import CommandResult, FleetResult, JobResult
from rangeland.fleet.job_threads import results_of
from rangeland.fleet.shared_survey import SharedSurveys, SurveyTicket
from rangeland.fleet.table_job import TableJob
from rangeland.fleet.topic_jobs import FailedFile, LoadedFile, table_jobs
from rangeland.job import Job
from rangeland.job_group.mirror_command import push_offsets
from rangeland.job_group.run_lease import checkpoint_offsets
from rangeland.landing.landing_context import LandingContext
from rangeland.model import Partition
from rangeland.monitoring.lineage_reporter import LandingLineage, LineageReporter
from rangeland.planning.job_position import JobPosition
from rangeland.planning.plan_kind import PlanKind
from rangeland.progress_events import NoProgress, Progress
from rangeland.results import PlanPreview, RunResult
from rangeland.run import land_plans, open_landing, preview_plan
from rangeland.spark.spark_errors import as_own_error
from rangeland.survey.survey_request import SurveyRequest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logging.getLogger(__name__)

R = TypeVar("R", bound=CommandResult)
MAX_TABLES_AT_A_TIME = 16
"""The default maximum number of tables at a time: all share one driver, its memory and its JVM."""


class JobsProgress(Protocol):
    """Receives what happens in a session of many jobs, from many threads."""

    def step(self, text: str) -> None: ...

    def warn(self, text: str) -> None: ...

    def job_done(self, job_result: JobResult[Any], position: int, count: int) -> None: ...


class NoJobsProgress:
    """A ``JobsProgress`` that ignores what it receives."""

    def step(self, text: str) -> None: ...

    def warn(self, text: str) -> None: ...

    def job_done(self, job_result: JobResult[Any], position: int, count: int) -> None: ...


@dataclass(frozen=True, slots=True)
class Fleet:
    """The jobs of one command whose tables are known, and the files that cannot be used."""

    jobs: tuple[TableJob, ...]
    failed: tuple[FailedFile, ...] = ()


class TableProgress(NoProgress):
    """The progress of one job of many: only its warnings are shown, with its table's name."""

    def __init__(self, table_job: TableJob, progress: JobsProgress) -> None:
        self._table = table_job.table
        self._progress = progress

    def warn(self, text: str) -> None:
        self._progress.warn(f"{self._table}: {text}")


def fleet_of(
    files: Iterable[LoadedFile],
    failed: Iterable[FailedFile],
    spark: SparkSession,
    progress: JobsProgress,
) -> Fleet:
    """The jobs of these files. No table may have two jobs of the same name."""
    progress.step("looking for the tables of the jobs")
    jobs: list[TableJob] = []
    all_failed = list(failed)
    owners: dict[tuple[str, str], str] = {}
    for file in files:
        try:
            jobs_of_file = table_jobs(file, spark)
            for table_job in jobs_of_file:
                _check_named_once(table_job, file.text.name, owners)
            jobs += jobs_of_file
        except Exception as error:  # one file's failure is its own, whatever it is
            all_failed.append(FailedFile(file.text.name, as_own_error(error), file.job.name))
    return Fleet(tuple(jobs), tuple(all_failed))


def _check_named_once(table_job: TableJob, name: str, owners: dict[tuple[str, str], str]) -> None:
    """Raises Conflict if another file has a job of the same name for the same table. Adds the
    file's name to ``owners``."""
    key = (table_job.job.name, table_job.table)
    owner = owners.setdefault(key, name)
    if owner != name:
        raise Conflict(
            f"{owner} and {name} are both the job {key[0]} of the table {key[1]}",
            why="they would share one checkpoint",
            do="give one of them another name or another table",
        )


def for_each(
    fleet: Fleet,
    work: Callable[[TableJob], R],
    progress: JobsProgress,
    parallel: int | None = None,
) -> FleetResult[R]:
    """Does the work for every job, at most ``parallel`` at a time, in the order given."""
    works = [(table_job, partial(work, table_job)) for table_job in fleet.jobs]
    return _work_side_by_side(works, fleet.failed, progress, parallel)


def _work_side_by_side(
    works: Sequence[tuple[TableJob, Callable[[], R]]],
    failed_files: Sequence[FailedFile],
    progress: JobsProgress,
    parallel: int | None,
) -> FleetResult[R]:
    """Does the work of each job, at most ``parallel`` at a time. The result begins with the files
    that cannot be used."""
    began_at = time.monotonic()
    count = len(works) + len(failed_files)
    job_failures = [
        JobResult[R](f.job or f.name, f.table, None, f.error, 0.0) for f in failed_files
    ]
    for position, job_result in enumerate(job_failures, 1):
        progress.job_done(job_result, position, count)

    job_results: dict[int, JobResult[R]] = {}
    acts = [partial(_result_of, job, work) for job, work in works]
    with results_of(acts, tables_at_a_time(parallel)) as results:
        for index, job_result in results:
            job_results[index] = job_result
            progress.job_done(job_result, len(job_failures) + len(job_results), count)
    all_of_them = (*job_failures, *(job_results[index] for index in sorted(job_results)))
    return FleetResult(all_of_them, time.monotonic() - began_at)


def tables_at_a_time(parallel: int | None) -> int:
    """How many tables are worked on at a time: ``parallel``, or by default two for each core, but
    no more than ``MAX_TABLES_AT_A_TIME``."""
    return max(
        1,
        parallel if parallel is not None else min(MAX_TABLES_AT_A_TIME, 2 * (os.cpu_count() or 1)),
    )


def _result_of(table_job: TableJob, work: Callable[[], R]) -> JobResult[R]:
    began_at = time.monotonic()
    names = (table_job.job.name, table_job.table)
    try:
        return JobResult(*names, work(), None, time.monotonic() - began_at)
    except Exception as cause:  # one job's failure is its own, whatever it is
        return JobResult(*names, None, as_own_error(cause), time.monotonic() - began_at)


# --- landing ---------------------------------------------------------------------------------


def run_all(
    fleet: Fleet,
    spark: SparkSession,
    progress: JobsProgress,
    parallel: int | None = None,
    kind: PlanKind = PlanKind.RUN,
) -> FleetResult[RunResult]:
    """Lands the range of each job, the largest first. The tables are read before the clusters are
    asked, so that one survey serves all jobs of a cluster."""
    surveys = SharedSurveys()
    parallel = tables_at_a_time(parallel)

    def open_table(table_job: TableJob) -> OpenedJob | UnopenedJob:
        try:
            return open_job(table_job, spark, progress, kind, surveys)
        except Exception as error:  # raised where the job is run
            return UnopenedJob(table_job, error)

    progress.step(f"looking at {len(fleet.jobs)} tables")
    openings = [partial(open_table, table_job) for table_job in fleet.jobs]
    with results_of(openings, parallel) as results:
        opened = dict(results)
    all_jobs = [opened[index] for index in range(len(openings))]
    if kind.traits.resolves_bounds:
        all_jobs = [_announce_survey(job) for job in all_jobs]
    progress.step("asking for leaders and offsets")
    largest_first = sorted(all_jobs, key=_offsets_to_read, reverse=True)
    progress.step(f"landing {len(fleet.jobs)} tables, {parallel} at a time")

    def land(reporter: LineageReporter) -> FleetResult[RunResult]:
        works = [
            (job.table_job, partial(reporter.report, job.table_job.job, job.run))
            for job in largest_first
        ]
        fleet_result = _work_side_by_side(works, fleet.failed, progress, parallel)
        job_results = _in_order(fleet_result.jobs, fleet.jobs)
        if kind.traits.moves_checkpoint:
            opened_jobs = [job for job in all_jobs if isinstance(job, OpenedJob)]
            job_results = mirror_checkpoints(job_results, opened_jobs, progress)
        return replace(fleet_result, jobs=job_results)

    return report_fleet(fleet.failed, progress, land)


def open_job(
    table_job: TableJob,
    spark: SparkSession,
    progress: JobsProgress,
    kind: PlanKind,
    surveys: SharedSurveys,
) -> OpenedJob:
    """Reads the table of a job. Raises Conflict if the table of a template's topic has another
    topic, and the errors of ``open_landing``."""
    ticket = SurveyTicket(table_job.job, surveys)
    of_table = TableProgress(table_job, progress)
    context = open_landing(table_job.job, spark, of_table, kind, ticket.survey_of)
    position = context.target.history.position(table_job.job.application)
    if table_job.template is not None:
        _check_only_its_topic_has_landed(table_job, position.topics)
    request = context.surveys.request_for_plan(position)
    return OpenedJob(table_job, context, position, ticket, request)


def preview_job(
    table_job: TableJob, spark: SparkSession, progress: Progress, kind: PlanKind
) -> PlanPreview:
    """Previews the plan of a template's topic. Raises Conflict if ``open_job`` does."""
    context = open_landing(table_job.job, spark, progress, kind)
    position = context.target.history.position(table_job.job.application)
    _check_only_its_topic_has_landed(table_job, position.topics)
    return preview_plan(context)


@dataclass(frozen=True, slots=True)
class OpenedJob:
    """A job whose table has been read."""

    table_job: TableJob
    context: LandingContext
    position: JobPosition
    ticket: SurveyTicket
    request: SurveyRequest
    """The survey that its first plan needs."""

    @property
    def names(self) -> tuple[str, str]:
        """The names of job and table. No other job has the same two names."""
        return (self.table_job.job.name, self.table_job.table)

    def run(self, landing: LandingLineage) -> RunResult:
        return land_plans(landing.note_opened(self.context))

    def offsets_to_read(self) -> int:
        """A rough size of the job's work, to order the jobs."""
        survey = self.ticket.ahead()
        if survey is None:
            return 0
        begins = {p: mark.until_offset for p, mark in self.position.checkpoint.items()}
        return sum(
            max(0, log.end_offset - max(log.start_offset, begins.get(p, 0)))
            for p, log in survey.logs.items()
        )


@dataclass(frozen=True, slots=True)
class UnopenedJob:
    """A job whose table could not be read. Running it raises the error."""

    table_job: TableJob
    error: Exception

    def run(self, landing: LandingLineage) -> RunResult:
        raise self.error

    def offsets_to_read(self) -> int:
        return 0


def _announce_survey(job: OpenedJob | UnopenedJob) -> OpenedJob | UnopenedJob:
    """Lets an opened job wait for a shared survey. After an unexpected error, the job is not
    run."""
    try:
        if isinstance(job, OpenedJob):
            job.ticket.announce(job.request)
    except Exception as error:  # one job's failure is its own, whatever it is
        return UnopenedJob(job.table_job, error)
    return job


def _offsets_to_read(job: OpenedJob | UnopenedJob) -> int:
    """The size of the job's work; 0 if it cannot be determined, which does not prevent the job."""
    try:
        return job.offsets_to_read()
    except Exception as error:  # if it lasts, it is raised where the job is run
        logger.info("The size of the job %s is unknown: %s", job.table_job.job.name, error)
        return 0


def _check_only_its_topic_has_landed(table_job: TableJob, landed: Iterable[str]) -> None:
    (topic,) = table_job.job.source.topics
    if other_topics := sorted(set(landed) - {topic}):
        raise Conflict(
            f"the table {table_job.table} has {', '.join(other_topics)}, not {topic}",
            why="another topic of this job was landed in it",
            do="land one of them in another table, with a separate job file",
        )


def _in_order(
    job_results: Sequence[JobResult[R]], jobs: Sequence[TableJob]
) -> tuple[JobResult[R], ...]:
    """The results in the order of files and topics, not of landings."""
    positions = {(job.job.name, job.table): index for index, job in enumerate(jobs)}
    return tuple(sorted(job_results, key=lambda o: positions.get((o.job, o.table or ""), -1)))


# --- groups ----------------------------------------------------------------------------------


def mirror_checkpoints(
    job_results: tuple[JobResult[RunResult], ...],
    opened: Sequence[OpenedJob],
    progress: JobsProgress,
) -> tuple[JobResult[RunResult], ...]:
    """Commits the checkpoints of a template's tables to its group in one operation, except those of
    jobs that have failed, whose tables may lack rows. A failure is a warning in the results of the
    jobs: the rows are safe, and the next run commits the checkpoints."""
    succeeded = {(result.job, result.table) for result in job_results if result.error is None}
    for template, jobs in groupby(opened, key=lambda job: job.table_job.template):
        of_template = [job for job in jobs if job.names in succeeded]
        if template is None or template.group is None or not of_template:
            continue
        progress.step(f"mirroring the checkpoint to the group {template.group.id}")
        errors = _mirror_template(template, of_template)
        texts = {x: f"the checkpoint is not mirrored: {error}" for x, error in errors.items()}
        for text in dict.fromkeys(texts.values()):
            progress.warn(text)
        job_results = tuple(
            result.with_warning(texts.get((result.job, result.table or ""), ""))
            for result in job_results
        )
    return job_results


def _mirror_template(
    template: Job, jobs: Sequence[OpenedJob]
) -> dict[tuple[str, str], RangelandError]:
    """Commits the checkpoints of these jobs. Returns the errors of those that were not
    committed."""
    errors: dict[tuple[str, str], RangelandError] = {}

    def checkpoint_now() -> dict[Partition, int]:
        checkpoint: dict[Partition, int] = {}
        for job in jobs:
            if job.names in errors:
                continue
            try:
                checkpoint |= checkpoint_offsets(job.context)
            except Exception as error:  # whatever it is, the landings are reported
                errors[job.names] = as_own_error(error)
        return checkpoint

    try:
        push_offsets(template, look_up_cluster(template), checkpoint_now)
    except Exception as error:  # as above
        return {job.names: as_own_error(error) for job in jobs} | errors
    return errors
