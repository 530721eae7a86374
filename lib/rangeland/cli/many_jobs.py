"""Commands about one table or many: several job files, a folder of them, or a table for each topic.

A command first loads its files. With one job of one table the answer is its result. Otherwise the
same work is done for each table in one Spark session, and the answer lists the jobs.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from rangeland.cli.command_output import CommandOutput
from rangeland.cli.options import answer_result, import_commands, spark_for

if TYPE_CHECKING:
    from rich.console import RenderableType

    from rangeland.fleet.fleet_result import FleetResult
    from rangeland.fleet.fleet_run import JobsProgress, TableJobs
    from rangeland.fleet.table_jobs import FailedFile, LoadedFile
    from rangeland.job import Job
    from rangeland.job.job_text import JobText
    from rangeland.job.topic_tables import TableJob
    from rangeland.progress_events import Progress

TableCommand: TypeAlias = (
    "tuple[Callable[[TableJob, Any, Progress], Any], Callable[[Any], RenderableType]]"
)
"""What a command does with each table, and what draws the result of one."""

Parallel = Annotated[
    int | None,
    typer.Option(
        "--parallel",
        metavar="N",
        min=1,
        help="With many tables: how many at a time. Two for each core by default, at most 16.",
    ),
]
MOST_AT_A_TIME = 16
INTERRUPTED_MESSAGE = (
    "Interrupted. Each table holds all records of its plan or none, never a part. Run the same "
    "command again: it finishes what has begun, and no offset is landed twice."
)


@dataclass(frozen=True, slots=True)
class ManyJobs:
    """The command is about many tables, or about files some of which cannot be used."""

    files: list[LoadedFile]
    failed: list[FailedFile]
    asked_parallel: int | None = None

    @property
    def parallel(self) -> int:
        """The number of tables that are landed at a time."""
        return self.asked_parallel or min(MOST_AT_A_TIME, 2 * (os.cpu_count() or 1))


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
            from rangeland.job.topic_tables import TableJob

            return TableJob(job, text)

    from rangeland.fleet.job_folders import job_files
    from rangeland.fleet.table_jobs import load_files

    files, failed = load_files(job_files(paths), load, asks_cluster=asks_cluster)
    return ManyJobs(files, failed, parallel)


def answer_all(
    output: CommandOutput,
    many: ManyJobs,
    act: Callable[[TableJobs, Any, JobsProgress, int], FleetResult[Any]],
    *,
    asks_brokers: bool = False,
) -> None:
    """Does the work for all tables, and prints the answer with the most severe exit code. Spark is
    not started where no file can be used. ``asks_brokers``: jobs fail without them, so those that
    no broker answers fail at once."""
    output.when_interrupted = INTERRUPTED_MESSAGE if output.writes else ""
    if asks_brokers:
        many = _without_unreachable(output, many)
    spark = _session(output, many) if many.files else None

    from rangeland.fleet.fleet_run import jobs_of
    from rangeland.render.fleet_view import LiveJobs, render_fleet

    progress = LiveJobs(output.progress())
    jobs = jobs_of(many.files, many.failed, spark, progress)
    result = act(jobs, spark, progress, many.parallel)
    answer_result(output, result, render_fleet(result))


def answer_each(
    output: CommandOutput,
    jobs: TableJob | ManyJobs,
    table_command: Callable[[], TableCommand],
    *,
    asks_brokers: bool = False,
) -> None:
    """Does the work for each table by itself. ``table_command`` is called once Spark has been
    started, so that the JVM starts while it imports modules."""
    if isinstance(jobs, ManyJobs):
        answer_all(output, jobs, partial(_for_each_table, table_command), asks_brokers=asks_brokers)
        return
    spark = spark_for(output, jobs.job, asks_brokers=asks_brokers)
    work, picture = table_command()
    result = work(jobs, spark, output.progress())
    answer_result(output, result, picture(result))


def _for_each_table(
    table_command: Callable[[], TableCommand],
    jobs: TableJobs,
    spark: Any,
    progress: JobsProgress,
    parallel: int,
) -> FleetResult[Any]:
    from rangeland.fleet.fleet_run import TableProgress, for_each

    work, _ = table_command()
    return for_each(
        jobs, lambda one: work(one, spark, TableProgress(one, progress)), progress, parallel
    )


def _without_unreachable(output: CommandOutput, many: ManyJobs) -> ManyJobs:
    """The jobs without the files whose clusters cannot be reached. Files with a pattern are not
    asked for: their clusters have been asked for topics already."""
    from rangeland.cluster_access.broker_check import find_unreachable
    from rangeland.fleet.table_jobs import FailedFile

    output.progress().step("asking for leaders")
    was_asked = [bool(file.job.source.topic_pattern and file.topics) for file in many.files]
    to_ask = [file.job for file, known in zip(many.files, was_asked, strict=True) if not known]
    errors = iter(find_unreachable(to_ask))
    left, failed = [], list(many.failed)
    for file, known in zip(many.files, was_asked, strict=True):
        error = None if known else next(errors)
        if error is None:
            left.append(file)
        else:
            failed.append(FailedFile(file.text.name, error, file.job.job))
    return ManyJobs(left, failed, many.asked_parallel)


def _session(output: CommandOutput, many: ManyJobs) -> Any:
    """One session for all, in which the Spark jobs of different tables share the cores fairly."""
    from rangeland.delta.stores.store_kinds import S3_SCHEMES, scheme_of
    from rangeland.spark.spark_session import open_deferred

    output.progress().step("starting Spark")
    tables = [file.job.sink.table for file in many.files]
    on_s3 = next((table for table in tables if scheme_of(table) in S3_SCHEMES), tables[0])
    names = sorted({file.job.job for file in many.files})
    fair = {"spark.scheduler.mode": "FAIR"}
    app = f"rangeland {', '.join(names)[:100]}"
    return open_deferred(
        app, fair, table=on_s3, meanwhile=import_commands, makes_archive=output.writes
    )
