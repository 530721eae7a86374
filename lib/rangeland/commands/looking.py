"""The commands that look and write nothing."""

from __future__ import annotations

import typer

from rangeland.commands.options import (
    Debug,
    JobPath,
    Json,
    Quiet,
    Settings,
    ending_of,
    spark_for,
)


def check(
    ctx: typer.Context,
    job_file: JobPath,
    settings: Settings = None,
    json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Try all that a run needs: job file, brokers, topics, Spark, table. Writes nothing.

    \b
    Example:
      rangeland check orders.yaml
    """
    from rangeland.flags import load_job

    end = ending_of(ctx)
    job, _ = load_job(job_file, settings or ())

    from rangeland.inspection import check as check_job
    from rangeland.pictures import check_picture

    result = check_job(job, lambda: spark_for(end, job), end.progress())
    end.answer(result.to_json(), check_picture(result))
    if not result.is_well:
        raise typer.Exit(result.exit_code)


def status(
    ctx: typer.Context,
    job_file: JobPath,
    settings: Settings = None,
    json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Show where a job stands against its logs: checkpoint, end, lag. Writes nothing.

    \b
    Examples:
      rangeland status orders.yaml
      rangeland status orders.yaml --json | tail -n 1 | jq '[.partitions[].lag] | add'
    """
    from rangeland.flags import load_job

    end = ending_of(ctx)
    job, _ = load_job(job_file, settings or ())

    from rangeland.inspection import status as status_job
    from rangeland.pictures import status_picture

    result = status_job(job, spark_for(end, job), end.progress())
    end.answer(result.to_json(), status_picture(result))
