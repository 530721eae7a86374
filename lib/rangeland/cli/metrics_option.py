"""The option ``--metrics`` of the commands that land."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rangeland.cli.many_jobs import ManyJobs, TableCommand, table_of
from rangeland.monitoring.metrics_file import MetricsFile, RecordingProgress, TableName

if TYPE_CHECKING:
    from rangeland.fleet.fleet_result import FleetResult
    from rangeland.fleet.fleet_run import Fleet, JobsProgress
    from rangeland.fleet.table_job import TableJob
    from rangeland.fleet.topic_jobs import FailedFile
    from rangeland.progress_events import Progress
    from rangeland.results import RunResult

Metrics = Annotated[
    Path | None,
    typer.Option(
        "--metrics",
        metavar="FILE",
        help="When the command ends, write its metrics to a file as Prometheus text. For "
        "node_exporter, name a .prom file in its textfile folder.",
    ),
]


def record_metrics(
    file: MetricsFile | None,
    jobs: TableJob | ManyJobs,
    table_command: Callable[[], TableCommand],
) -> Callable[[], TableCommand]:
    """The same command, whose results are recorded for the metrics file, if there is one."""
    if file is None:
        return table_command
    file.expect(_names_before_spark(jobs))

    def recorded() -> TableCommand:
        command = table_command()
        work: Callable[..., Any] = command.work
        work_for_many = command.work_for_many
        assert work_for_many is not None

        def work_on_one(table_job: TableJob, spark: Any, progress: Progress) -> RunResult:
            return file.record(_name(table_job), lambda: work(table_job, spark, progress))

        def work_on_many(
            fleet: Fleet, spark: Any, progress: JobsProgress, parallel: int | None
        ) -> FleetResult[Any]:
            file.expect([*map(_name, fleet.jobs), *map(_name_of_failed, fleet.failed)])
            result = work_for_many(fleet, spark, RecordingProgress(progress, file), parallel)
            for job_result in result.jobs:  # with warnings that came later
                file.add(job_result)
            return result

        return replace(command, work=work_on_one, work_for_many=work_on_many)

    return recorded


def _names_before_spark(jobs: TableJob | ManyJobs) -> list[TableName]:
    """Job files with a table for each topic have no tables yet."""
    if not isinstance(jobs, ManyJobs):
        return [_name(jobs)]
    of_files = [TableName(file.job.name, table_of(file.job)) for file in jobs.files]
    return [*of_files, *map(_name_of_failed, jobs.failed)]


def _name(table_job: TableJob) -> TableName:
    return TableName(table_job.job.name, table_job.table)


def _name_of_failed(file: FailedFile) -> TableName:
    return TableName(file.job or file.name, file.table)
