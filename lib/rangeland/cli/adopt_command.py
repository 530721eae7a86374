"""The command that writes down a decision, where a table and its ledger disagree."""

from __future__ import annotations

from rangeland.cli.command_output import CommandOutput
from rangeland.cli.options import JobPath, Settings, command, spark_for


@command
def adopt(output: CommandOutput, job_file: JobPath, settings: Settings = None) -> None:
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

    output.writes = True
    job, _ = load_job(job_file, settings or ())

    from rangeland.render.result_view import adopt_picture
    from rangeland.run import adopt as adopt_table

    result = adopt_table(job, spark_for(output, job), output.progress())
    output.answer(result.to_json(), adopt_picture(result))
