"""The command that writes down a decision, where a table and its ledger disagree."""

from __future__ import annotations

import typer

from rangeland.cli.options import Debug, JobPath, Json, Quiet, Settings, ending_of, spark_for


def adopt(
    ctx: typer.Context,
    job_file: JobPath,
    settings: Settings = None,
    json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Take the table as it is, after somebody has looked why it and its ledger disagree.

    Rows of the job's topics that the ledger does not know count as landed from now on, and the
    checkpoint moves to behind them; what the ledger calls landed stays so. Nothing is read from
    the log. Rows that the ledger has and the table has not can be landed again afterwards.

    \b
    Examples:
      rangeland adopt orders.yaml
      rangeland backfill orders.yaml --missing     what the table lacks, again
    """
    from rangeland.job.overrides import load_job

    end = ending_of(ctx, writes=True)
    job, _ = load_job(job_file, settings or ())

    from rangeland.render.result_view import adopt_picture
    from rangeland.run import adopt as adopt_table

    result = adopt_table(job, spark_for(end, job), end.progress())
    end.answer(result.to_json(), adopt_picture(result))
