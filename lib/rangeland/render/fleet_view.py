"""The results of many jobs as text: one line for each, then the problems in full."""

from __future__ import annotations

from collections import Counter
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from rangeland.errors import public_name
from rangeland.fleet.fleet_result import FleetResult, JobResult
from rangeland.query_results import Status, VerifyResult
from rangeland.render.error_view import render_error
from rangeland.render.progress_view import LiveProgress
from rangeland.render.text_drawing import list_lines, safe_text, table_of
from rangeland.results import PlanPreview, RunResult
from rangeland.wording import count_noun, duration, number

MAX_ERRORS = 5
"""How many errors are shown in full."""


def render_fleet(result: FleetResult[Any]) -> RenderableType:
    """All jobs of a command, each with its result."""
    table = table_of("job", "table", "result", ">records", ">seconds")
    for job_result in result.jobs:
        table.add_row(
            safe_text(job_result.job),
            safe_text(job_result.table or ""),
            _word(job_result),
            safe_text(_records(job_result)),
            safe_text(f"{job_result.seconds:.1f}"),
        )
    parts: list[RenderableType] = [_title(result), Text(), table]
    failures = [
        (job_result, job_result.error) for job_result in result.jobs if job_result.error is not None
    ]
    for job_result, error in failures[:MAX_ERRORS]:
        of_one = error.with_answers(data=f"{error.data}; other tables are not affected")
        parts += [Text(), safe_text(f"{_name(job_result)}:", "bold"), render_error(of_one)]
    if len(failures) > MAX_ERRORS:
        parts.append(safe_text(f"{len(failures) - MAX_ERRORS} more errors: see them with --json"))
    warnings = [
        f"{job_result.table}: {text}"
        for job_result in result.jobs
        for text in getattr(job_result.result, "warnings", ())
    ]
    return Group(*parts, *list_lines("warning", warnings, "yellow"))


def job_line(job_result: JobResult[Any], position: int, count: int) -> str:
    """``3 of 100: lake/orders: landed 10,000 records (1.2 s)``."""
    outcome = _word(job_result).plain
    records = _records(job_result)
    if records not in ("", "0"):
        outcome += f"{'' if outcome == 'landed' else ','} {records} records"
    return f"{position} of {count}: {_name(job_result)}: {outcome} ({duration(job_result.seconds)})"


def _title(result: FleetResult[Any]) -> Text:
    failures = sum(1 for job_result in result.jobs if job_result.exit_code)
    words = Counter(_word(o).plain for o in result.jobs if not o.exit_code)
    good = [f"{number(count)} {word}" for word, count in words.items()]
    title = Text(count_noun(len(result.jobs), "table"), "bold").append(": ")
    title.append(", ".join(good), style="green" if good else "")
    if failures:
        title.append(f"{', ' if good else ''}{number(failures)} failed", style="bold red")
    return title.append_text(safe_text(f" ({duration(result.seconds)})"))


def _name(job_result: JobResult[Any]) -> str:
    return job_result.table or job_result.job


def _word(job_result: JobResult[Any]) -> Text:
    """The result of a job in a word or two."""
    if job_result.error is not None:
        return Text(f"{public_name(job_result.error)}, exit {job_result.exit_code}", "bold red")
    if job_result.exit_code:
        return Text(f"exit {job_result.exit_code}", "bold red")
    match job_result.result:
        case RunResult(state="landed"):
            return Text("landed", "green")
        case RunResult(state="already-landed"):
            return Text("already landed")
        case RunResult():
            return Text("nothing new")
        case PlanPreview() as preview:
            return Text("planned", "green") if preview.draft.plan.width else Text("nothing new")
        case Status():
            return Text("behind" if _lag(job_result.result) else "up to date")
        case VerifyResult():
            return Text("verified", "green")
    return Text("ok", "green")


def _records(job_result: JobResult[Any]) -> str:
    """The number of records, or offsets, in a result; empty if there is nothing to show."""
    match job_result.result:
        case RunResult(state="landed") as run:
            return number(run.counts.landed)
        case PlanPreview() as preview:
            return number(preview.draft.plan.width)
        case Status() as status:
            return number(_lag(status))
        case VerifyResult() as verified:
            return number(sum(landed_range.landed or 0 for landed_range in verified.landed_ranges))
    return ""


def _lag(status: Status) -> int:
    return sum(partition.lag for partition in status.partitions)


class LiveJobs:
    """Shows the progress of a session with many jobs: one line for each that is done."""

    def __init__(self, progress: LiveProgress) -> None:
        self._progress = progress
        self.step = progress.step
        self.warn = progress.warn

    def job_done(self, job_result: JobResult[Any], position: int, count: int) -> None:
        self._progress.step(job_line(job_result, position, count))
