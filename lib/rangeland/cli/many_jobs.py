"""Runs a command for one table or for many: several job files, a folder of them, or a table per
topic.

A command first loads its files. If they make one job with one table, it prints the result.
Otherwise it does the same work for each table in one Spark session, and the result lists the jobs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rangeland.cli.command_output import CommandOutput
from rangeland.cli.interruption import OF_MANY_TABLES
from rangeland.cli.options import end_with_result, spark_for, start_spark
from rangeland.errors import RangelandError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from rich.console import RenderableType

    from rangeland.fleet.fleet_result import CommandResult, FleetResult
    from rangeland.fleet.fleet_run import Fleet, JobsProgress
    from rangeland.fleet.table_job import TableJob
    from rangeland.fleet.topic_jobs import FailedFile, LoadedFile
    from rangeland.job import Job
    from rangeland.job.job_text import JobText
    from rangeland.monitoring.lineage_reporter import LineageReporter
    from rangeland.progress_events import Progress

Parallel = Annotated[
    int | None,
    typer.Option(
        "--parallel",
        metavar="N",
        min=1,
        help="With many tables: how many at a time. By default two per core, at most 16.",
    ),
]


@dataclass(frozen=True, slots=True)
class TableCommand:
    """What a command does with one table, and how its result is drawn. ``work_for_many`` does it
    for many tables together; without it, each table is worked on separately."""

    work: Callable[[TableJob, Any, Progress], CommandResult]
    render: Callable[[Any], RenderableType]
    work_for_many: Callable[[Fleet, Any, JobsProgress, int | None], FleetResult[Any]] | None = None


def work_on_job(work: Callable[..., CommandResult], **options: Any) -> Callable[..., CommandResult]:
    """Turns ``work``, which takes a job, into the work of a ``TableCommand``."""
    return lambda table_job, *context: work(table_job.job, *context, **options)


def land_each(
    work: Callable[[TableJob, Any, Progress, LineageReporter], CommandResult],
    fleet: Fleet,
    spark: Any,
    progress: JobsProgress,
    parallel: int | None,
) -> FleetResult[Any]:
    """Does work that lands, separately for each table, and reports all of it with one reporter."""
    from rangeland.fleet.fleet_lineage import report_fleet
    from rangeland.fleet.fleet_run import TableProgress, for_each

    def land(reporter: LineageReporter) -> FleetResult[Any]:
        def land_table(table_job: TableJob) -> CommandResult:
            return work(table_job, spark, TableProgress(table_job, progress), reporter)

        return for_each(fleet, land_table, progress, parallel)

    return report_fleet(fleet.failed, progress, land)


@dataclass(frozen=True, slots=True)
class ManyJobs:
    """The jobs of a command that is about many tables, or about files some of which cannot be
    used."""

    files: list[LoadedFile]
    failed: list[FailedFile]
    parallel: int | None = None
    """How many tables to work on at a time, if that was given."""


def load_jobs(
    paths: Sequence[Path],
    load: Callable[[Path], tuple[Job, JobText]],
    parallel: int | None = None,
    *,
    asks_cluster: bool = True,
) -> TableJob | ManyJobs:
    """The jobs of a command line. Raises JobFileError for a single file that cannot be used, and
    UsageError for a folder without job files."""
    if len(paths) == 1 and not paths[0].is_dir():
        job, text = load(paths[0])
        if not job.sink.is_per_topic:
            from rangeland.fleet.table_job import TableJob

            return TableJob(job, text)

    from rangeland.fleet.job_folders import job_files
    from rangeland.fleet.topic_jobs import load_files

    files, failures = load_files(job_files(paths), load, asks_cluster=asks_cluster)
    return ManyJobs(files, failures, parallel)


def run_table_command(
    output: CommandOutput,
    jobs: TableJob | ManyJobs,
    table_command: Callable[[], TableCommand],
    *,
    asks_brokers: bool = False,
) -> None:
    """Does the work for each table, and prints the result. ``table_command`` is called once Spark
    is being started, so that the JVM starts while modules are imported. ``asks_brokers``: the
    command needs brokers, so a job whose brokers do not answer fails at once."""
    if isinstance(jobs, ManyJobs):
        _run_for_many(output, jobs, table_command, asks_brokers=asks_brokers)
        return
    try:
        spark = spark_for(output, jobs.job, asks_brokers=asks_brokers)
    except RangelandError as error:
        if output.writes:
            from rangeland.monitoring.lineage_reporter import LineageReporter

            with LineageReporter(output.progress().warn) as reporter:
                reporter.report_failure(jobs.job, error)
        raise
    command = table_command()
    result = command.work(jobs, spark, output.progress())
    end_with_result(output, result, command.render(result))


def _run_for_many(
    output: CommandOutput,
    many: ManyJobs,
    table_command: Callable[[], TableCommand],
    *,
    asks_brokers: bool,
) -> None:
    """Prints the results, and ends with the most severe exit code. Spark is not started if none of
    the files can be used."""
    output.when_interrupted = OF_MANY_TABLES if output.writes else None
    if asks_brokers:
        many = _without_unreachable(output, many)
    spark: Any = _session(output, many) if many.files else None

    from rangeland.fleet.fleet_run import TableProgress, fleet_of, for_each
    from rangeland.render.fleet_view import LiveJobs, render_fleet

    command = table_command()
    progress = LiveJobs(output.progress())
    fleet = fleet_of(many.files, many.failed, spark, progress)
    if command.work_for_many is not None:
        result = command.work_for_many(fleet, spark, progress, many.parallel)
    else:
        result = for_each(
            fleet,
            lambda table_job: command.work(table_job, spark, TableProgress(table_job, progress)),
            progress,
            many.parallel,
        )
    end_with_result(output, result, render_fleet(result))


def _without_unreachable(output: CommandOutput, many: ManyJobs) -> ManyJobs:
    """The jobs, except those from files whose clusters cannot be reached. Files with a pattern are
    not checked again, because their clusters have already been asked for topics."""
    from rangeland.cluster_access.broker_check import find_unreachable
    from rangeland.fleet.topic_jobs import FailedFile

    output.progress().step("asking for leaders")
    was_asked = [_has_asked_cluster(file) for file in many.files]
    jobs = [file.job for file, is_known in zip(many.files, was_asked, strict=True) if not is_known]
    errors = iter(find_unreachable(jobs))
    reachable = []
    failures = list(many.failed)
    for file, is_known in zip(many.files, was_asked, strict=True):
        error = None if is_known else next(errors)
        if error is None:
            reachable.append(file)
        else:
            failures.append(FailedFile(file.text.name, error, file.job.name, table_of(file.job)))
    return ManyJobs(reachable, failures, many.parallel)


def table_of(job: Job) -> str | None:
    """The job's table; None for one with a table for each topic."""
    return None if job.sink.is_per_topic else job.sink.table


def _has_asked_cluster(file: LoadedFile) -> bool:
    return file.job.source.topic_pattern is not None and file.topics is not None


def _session(output: CommandOutput, many: ManyJobs) -> SparkSession:
    """One session for all tables, in which their Spark jobs share the cores fairly."""
    tables = [file.job.sink.table for file in many.files]
    names = sorted({file.job.name for file in many.files})
    return start_spark(output, ", ".join(names)[:100], tables, {"spark.scheduler.mode": "FAIR"})
