"""The command that commits offsets to a consumer group."""

from __future__ import annotations

from rangeland.cli.command_output import CommandOutput
from rangeland.cli.options import JobPath, Settings, command, spark_for


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

    from rangeland.job.overrides import load_job

    job, _ = load_job(job_file, settings or ())

    from rangeland.groups.mirror_now import group_of, push
    from rangeland.render.group_view import mirror_picture

    group_of(job)
    result = push(job, spark_for(output, job), output.progress())
    output.answer(result.to_json(), mirror_picture(result))
