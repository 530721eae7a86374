"""A deferrable sensor: waits until the logs of a job have reached a time or an offset.

It checks once in the worker, which takes a second and detects a wrong topic at once, and only
then defers to the triggerer. No worker is occupied while it waits.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseSensorOperator
from airflow.sdk.exceptions import AirflowFailException

from .commands import BadRequest, judge_reached, reached_command, read_answer
from .operators import directory, program
from .running import Command
from .triggers import LogReachedTrigger

if TYPE_CHECKING:
    from airflow.sdk import Context


class LogReachedSensor(BaseSensorOperator):
    """Waits until the logs of ``job_file`` have reached ``until_bound``: an ISO time, or JSON
    such as ``{"orders": {"0": 40}}``.

    A time is reached when every partition holds a record at or after it. A partition that
    nobody writes to never does: with ``idle_after`` it counts as idle that long after the
    time, by the clock of this machine. ``timeout`` (seconds) ends the wait."""

    template_fields: Sequence[str] = ("job_file", "until_bound")
    ui_color = "#e6e2f5"

    def __init__(
        self,
        *,
        job_file: str,
        until_bound: str,
        idle_after: timedelta | None = None,
        poll_every: timedelta = timedelta(seconds=30),
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.job_file = job_file
        self.until_bound = until_bound
        self.idle_after = idle_after
        self.poll_every = poll_every

    def execute(self, context: Context) -> None:
        idle_after_s = None if self.idle_after is None else self.idle_after.total_seconds()
        try:
            arguments = reached_command(program(), self.job_file, self.until_bound, idle_after_s)
            command = Command(arguments, directory())
        except (BadRequest, OSError) as error:
            raise AirflowFailException(str(error)) from error
        code, stdout = command.follow(lambda line: self.log.info("%s", line))
        result = judge_reached(code, read_answer(stdout))
        if result["state"] != "waiting":
            self.resume(context, result)
            return
        self.log.info("%s", result["text"])
        self.defer(
            trigger=LogReachedTrigger(arguments, directory(), self.poll_every.total_seconds()),
            method_name="resume",
            timeout=timedelta(seconds=self.timeout),
        )

    def resume(self, context: Context, event: dict[str, str]) -> None:
        if event["state"] == "failed":
            raise AirflowFailException(event["text"])
        self.log.info("%s", event["text"])
