"""The commands for repairs: ``redrive`` lands quarantined records, ``adopt`` accepts a table as it
is, and ``mirror`` commits the offsets of a job's group."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from rangeland.cli.command_output import CommandOutput
from rangeland.cli.many_jobs import TableCommand, land_each, load_jobs, run_table_command
from rangeland.cli.options import (
    JobPath,
    JobPaths,
    Settings,
    command,
    load_job_with,
    load_with_schemas,
    spark_for,
)
from rangeland.errors import UsageError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from rangeland.fleet.table_job import TableJob
    from rangeland.monitoring.lineage_reporter import LineageReporter
    from rangeland.progress_events import Progress
    from rangeland.results import RedriveResult


@command
def redrive(
    output: CommandOutput,
    job_files: JobPaths,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run", help="Only show what is in quarantine, why, and what can be decoded."
        ),
    ] = False,
    from_log: Annotated[
        bool,
        typer.Option(
            "--from-log",
            help="Read the offsets from the log again instead of using the stored bytes.",
        ),
    ] = False,
    settings: Settings = None,
) -> None:
    """Try again to decode everything in quarantine, and land what can be decoded now.

    With `policy.corrupt: quarantine` a run stores the bytes of a batch that cannot be decoded, and
    continues after it. A later version may be able to decode them, or a new leader may have an
    undamaged copy. With `policy.undecodable: quarantine` it stores records that do not fit the
    schema: correct the schema in the job file first. Anything that still cannot be decoded stays in
    quarantine; nothing is landed twice. Exit 73 if the quarantine has lost bytes: everything else
    is landed, and these offsets are named.

    \b
    Examples:
      rangeland redrive orders.yaml --dry-run
      rangeland redrive orders.yaml
      rangeland redrive orders.yaml --from-log
    """
    output.writes = not dry_run

    if dry_run and from_log:
        raise UsageError(
            "--dry-run does not read the log",
            why="it only tries the stored bytes; whether the log has an undamaged copy is known "
            "only once it is read",
            do="omit one of the two: anything the log cannot provide stays in quarantine",
        )

    table_command = partial(redrive_command, from_log=from_log, dry_run=dry_run)
    run_table_command(output, load_jobs(job_files, load_with_schemas(settings)), table_command)


def redrive_command(*, from_log: bool = False, dry_run: bool = False) -> TableCommand:
    """The command ``redrive``, for one table or many."""
    from rangeland.render.result_view import render_redrive
    from rangeland.run import redrive as redrive_job

    def work(
        table_job: TableJob,
        spark: SparkSession,
        progress: Progress,
        *reporter: LineageReporter,
    ) -> RedriveResult:
        return redrive_job(
            table_job.job, spark, progress, *reporter, from_log=from_log, dry_run=dry_run
        )

    return TableCommand(work, render_redrive, None if dry_run else partial(land_each, work))


@command
def adopt(output: CommandOutput, job_file: JobPath, settings: Settings = None) -> None:
    """Accept the table as it is, once you know why it and its ledger disagree.

    Rows of the job's topics that are not in the ledger count as landed from now on, and the
    checkpoint moves past them; offsets that the ledger lists as landed stay landed. Nothing is read
    from the log. Rows that are in the ledger but not in the table can be landed again afterwards. A
    run of the job that is still reading, or whose prepared files are gone, ends with exit code 73,
    and the next one lands its offsets.

    \b
    Examples:
      rangeland adopt orders.yaml
      rangeland backfill orders.yaml --missing     land what the table lacks
    """
    output.writes = True

    job, _ = load_job_with(settings)(job_file)

    from rangeland.render.result_view import render_adopt
    from rangeland.run import adopt as adopt_table

    result = adopt_table(job, spark_for(output, job), output.progress())
    output.print_result(result.to_json(), render_adopt(result))


@command
def mirror(output: CommandOutput, job_file: JobPath, settings: Settings = None) -> None:
    """Commit the checkpoint as the offsets of the job's group, where other tools look for it.

    Every run does this at its end. Use this command if a run could not reach the group, or if
    somebody has changed its offsets. Exit 73 if the group has live members.

    \b
    Example:
      rangeland mirror orders.yaml
    """
    output.writes = True

    job, _ = load_job_with(settings)(job_file)

    from rangeland.job_group.mirror_command import group_of, push
    from rangeland.render.group_view import render_mirror

    group_of(job)
    result = push(job, spark_for(output, job), output.progress())
    output.print_result(result.to_json(), render_mirror(result))
