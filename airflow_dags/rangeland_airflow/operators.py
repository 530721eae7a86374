"""An operator that lands a range with the ``rangeland`` command, and its configuration.

A command that says "try again later" (exit 75), or was killed, is worth a retry: it raises
AirflowException, to which Airflow's ``retries`` apply. Everything else would fail again, and raises
AirflowFailException.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.sdk import Asset, AssetAlias, BaseOperator, Variable
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from .commands import (
    BadRequest,
    answers_in,
    backfill_command,
    event_extra,
    failure_text,
    is_worth_retry,
    read_answer,
    result_text,
)
from .lineage import parent_variables
from .running import Command

if TYPE_CHECKING:
    from airflow.sdk import Context

HOME = Path(__file__).parents[2]


def program() -> str:
    """The command. Read when a task runs, never when a DAG is parsed."""
    return str(Variable.get("rangeland_command", default="rangeland"))


def landing_program() -> str:
    """The command that lands a range, up to the job file. On a cluster, spark-submit's."""
    return str(Variable.get("rangeland_backfill_command", default=f"{program()} backfill"))


def directory() -> str:
    """The working directory: relative paths, of job files and in them, start here."""
    return str(Variable.get("rangeland_directory", default=str(HOME)))


def retrying(first_delay_s: float) -> dict[str, Any]:
    """``default_args`` for tasks that wait for brokers: about two hours of retries, with delays
    that double from the first one up to half an hour."""
    return {
        "retries": 8,
        "retry_delay": timedelta(seconds=first_delay_s),
        "retry_exponential_backoff": 2.0,
        "max_retry_delay": timedelta(minutes=30),
    }


def asset_of(job: str) -> Asset:
    """The asset of what a job has landed: schedule other DAGs on it."""
    return Asset(name=f"rangeland-{job}", uri=f"x-rangeland://jobs/{job}", group="rangeland")


class RangelandBackfillOperator(BaseOperator):
    """Lands ``[from_bound, until_bound)`` of a job, each record once however often it runs.
    ``job_file`` may also be a folder of job files, or have a table for each topic: all tables are
    landed in one task. For a task for each, map the operator over job files.

    Bounds are those of the command line: an ISO time, or JSON with offsets. The result is
    the command's own JSON. Each asset among ``outlets`` gets an event with the ranges; an
    alias gives it to the asset of the job. With ``preview`` nothing is landed: the result is
    the plan, and there is no event. ``metrics`` is the file on the worker that the command writes
    its metrics to, which no other task may write to."""

    template_fields: Sequence[str] = (
        "job_file",
        "from_bound",
        "until_bound",
        "preview",
        "metrics",
    )
    ui_color = "#d8ecd2"

    def __init__(
        self,
        *,
        job_file: str,
        from_bound: str,
        until_bound: str,
        preview: bool = False,
        metrics: str = "",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.job_file = job_file
        self.from_bound = from_bound
        self.until_bound = until_bound
        self.preview = preview
        self.metrics = metrics
        self._command: Command | None = None

    def execute(self, context: Context) -> dict[str, Any]:
        try:
            start = f"{program()} backfill" if self.preview else landing_program()
            arguments = backfill_command(
                start,
                self.job_file,
                self.from_bound,
                self.until_bound,
                self.preview,
                self.metrics,
            )
        except BadRequest as error:
            raise AirflowFailException(str(error)) from None
        code, stdout = self._run(arguments, parent_variables(context["ti"]))
        answer = read_answer(stdout)
        if is_worth_retry(code) or (self._command is not None and self._command.stopped):
            # Stopped from outside, for example by a worker that shuts down: not the run's fault.
            raise AirflowException(failure_text(code, answer))
        if code != 0:
            raise AirflowFailException(failure_text(code, answer))
        if not answer:
            raise AirflowFailException(
                "The command succeeded and printed no JSON: is it rangeland?"
            )
        for line in result_text(answer).splitlines():
            self.log.info("%s", line)
        if not self.preview:
            self._emit_events(context, answer)
        return answer

    def on_kill(self) -> None:
        if self._command is not None:
            self._command.stop()

    def _run(self, arguments: list[str], variables: dict[str, str]) -> tuple[int, str]:
        self.log.info("$ %s", shlex.join(arguments))
        try:
            self._command = Command(arguments, directory(), variables)
        except OSError as error:
            raise AirflowFailException(
                f"{arguments[0]} could not be started in {directory()}: {error}. Set the Airflow "
                "variables rangeland_command, rangeland_backfill_command and rangeland_directory."
            ) from error
        return self._command.follow(lambda line: self.log.info("%s", line))

    def _emit_events(self, context: Context, answer: dict[str, Any]) -> None:
        events = context["outlet_events"]
        for outlet in self.outlets:
            if isinstance(outlet, AssetAlias):
                for one in answers_in(answer):
                    events[outlet].add(asset_of(one["job"]), extra=event_extra(one))
            elif isinstance(outlet, Asset):
                events[outlet].extra.update(event_extra(answer))
