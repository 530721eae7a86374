"""The command that accepts a table which disagrees with its ledger."""

from __future__ import annotations

from rangeland.cli.command_output import CommandOutput
from rangeland.cli.options import JobPath, Settings, command, spark_for


@command
def adopt(output: CommandOutput, job_file: JobPath, settings: Settings = None) -> None:
    """Accept the table as it is, once you know why it and its ledger disagree.

    Rows of the job's topics that are not in the ledger count as landed from now on, and the
    checkpoint moves past them; what the ledger lists as landed stays landed. Nothing is read from
    the log. Rows that are in the ledger but not in the table can be landed again afterwards.

    \b
    Examples:
      rangeland adopt orders.yaml
      rangeland backfill orders.yaml --missing     land what the table lacks
    """
    output.writes = True

    from rangeland.job.overrides import load_job

    job, _ = load_job(job_file, settings or ())

    from rangeland.render.result_view import adopt_picture
    from rangeland.run import adopt as adopt_table

    result = adopt_table(job, spark_for(output, job), output.progress())
    output.answer(result.to_json(), adopt_picture(result))
