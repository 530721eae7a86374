"""The command for what could not be decoded."""

from __future__ import annotations

from typing import Annotated

import typer

from rangeland.cli.command_output import CommandOutput
from rangeland.cli.options import JobPath, Settings, command, spark_for
from rangeland.errors import UsageError


@command
def redrive(
    output: CommandOutput,
    job_file: JobPath,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Only show what is in quarantine, why, and what decodes."),
    ] = False,
    from_log: Annotated[
        bool,
        typer.Option("--from-log", help="Read the offsets again instead of the bytes kept."),
    ] = False,
    settings: Settings = None,
) -> None:
    """Decode again what was quarantined, and land what can be decoded by now.

    `policy.corrupt: quarantine` keeps the bytes of a batch that cannot be decoded, and a run
    goes on behind it. A later version may decode them; another replica, now the leader, may
    have the batch whole. What cannot be decoded stays in quarantine; nothing is landed twice.

    \b
    Examples:
      rangeland redrive orders.yaml --dry-run
      rangeland redrive orders.yaml
      rangeland redrive orders.yaml --from-log
    """
    from rangeland.job.overrides import load_job

    output.writes = not dry_run
    if dry_run and from_log:
        raise UsageError(
            "--dry-run does not read the log",
            why="it tries the bytes that were kept; whether the log has them whole shows when it "
            "is read",
            do="Leave out one of the two: what the log cannot give stays in quarantine",
        )
    job, _ = load_job(job_file, settings or ())

    from rangeland.render.loss_view import redrive_picture
    from rangeland.render.result_view import result_picture
    from rangeland.run import redrive as redrive_job

    spark = spark_for(output, job)
    result = redrive_job(job, spark, output.progress(), from_log=from_log, dry_run=dry_run)
    done = None if result.done is None else result_picture(result.done)
    output.answer(result.to_json(), redrive_picture(result, done))
