"""The commands that land records, and ``plan``, which shows what would be landed."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rangeland.cli.command_output import CommandOutput
from rangeland.cli.options import From, JobPath, Settings, Until, command, spark_for_rows
from rangeland.errors import Conflict, UsageError

if TYPE_CHECKING:
    from rangeland.job import Job
    from rangeland.landing.plan_file import ReviewedPlan
    from rangeland.planning.plan import PlanKind
    from rangeland.results import PlanPreview, RunResult


@command
def plan(
    output: CommandOutput,
    job_file: JobPath,
    from_bound: From = None,
    until_bound: Until = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE", help="Write the plan to a file, for `apply`."),
    ] = None,
    settings: Settings = None,
) -> None:
    """Show what a run would land now. Writes nothing to the table or the ledger.

    \b
    Examples:
      rangeland plan orders.yaml
      rangeland plan orders.yaml --until 2026-01-31T06:00:00Z
      rangeland plan orders.yaml --out plan.json    review it, then
      rangeland apply plan.json                     land exactly that
    """
    from rangeland.job.overrides import load_job

    job, text = load_job(job_file, settings or (), from_bound, until_bound)
    if out is not None and str(out).startswith("-"):
        raise UsageError(f"--out {out}: that is an option", do="Name the file right after --out")
    if out is not None and not out.absolute().parent.is_dir():
        raise UsageError(f"--out {out}: its folder does not exist", do="Create it, or name another")
    preview = _preview(output, job)
    if out is not None:
        from rangeland.landing.plan_file import write_plan_file

        write_plan_file(out, preview, text)
        if not output.quiet:
            print(f"Written to {out}. Do it with: rangeland apply {out}", file=sys.stderr)


@command
def run(
    output: CommandOutput,
    job_file: JobPath,
    from_bound: From = None,
    until_bound: Until = None,
    settings: Settings = None,
) -> None:
    """Land what is new. Running it again at any time lands nothing twice.

    If an earlier run died, its plan is finished first, with exactly the same ranges.

    \b
    Examples:
      rangeland run orders.yaml
      rangeland run orders.yaml --until 2026-01-31T06:00:00Z --json
      rangeland run orders.yaml --set limits.max_records=1000000
    """
    output.writes = True

    from rangeland.job.overrides import load_job

    job, _ = load_job(job_file, settings or (), from_bound, until_bound)

    from rangeland.run import run as run_job

    _answer_run(output, run_job(job, spark_for_rows(output, job), output.progress()))


@command
def apply(
    output: CommandOutput,
    files: Annotated[
        list[Path],
        typer.Argument(metavar="[JOB.yaml] FILE", help="A file written by `plan --out`."),
    ],
    settings: Settings = None,
) -> None:
    """Land exactly what is in a reviewed plan file, or nothing (exit 73) if it is out of date.

    The file contains its job and the full path of the table, so any working directory will do.
    A job file before it replaces that job, and --set overrides a field of either: use them for
    other servers or secrets, not for another table.

    \b
    Examples:
      rangeland plan orders.yaml --out plan.json
      rangeland apply plan.json
      rangeland apply plan.json --set source.timeouts.request_ms=60000
    """
    output.writes = True

    from rangeland.landing.plan_file import read_plan_file

    if len(files) > 2:
        raise UsageError(f"apply takes one plan file, not {len(files)} files", do="Name one")
    reviewed = read_plan_file(files[-1])
    job = _job_of_plan(files, reviewed, settings or ())

    from rangeland.run import apply as apply_job

    spark = spark_for_rows(output, job)
    _answer_run(output, apply_job(job, reviewed.plan, reviewed.seen, spark, output.progress()))


@command
def backfill(
    output: CommandOutput,
    job_file: JobPath,
    from_bound: From = None,
    until_bound: Until = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show what would be landed, as `plan` does.")
    ] = False,
    missing: Annotated[
        bool,
        typer.Option("--missing", help="Land again what `verify` finds missing from the table."),
    ] = False,
    replace: Annotated[
        bool,
        typer.Option("--replace", help="Land the range again, replacing the rows that are there."),
    ] = False,
    settings: Settings = None,
) -> None:
    """Land a range of your choice, without moving the checkpoint of the scheduled runs.

    What is already landed is left out, so the same backfill twice lands nothing twice. With
    --replace the range is landed again, and differences to the old rows are shown. With --missing
    the range is whatever the table has lost.

    \b
    Examples:
      rangeland backfill orders.yaml --from 2026-01-30 --until 2026-01-31 --dry-run
      rangeland backfill orders.yaml --from 2026-01-30 --until 2026-01-31
      rangeland backfill orders.yaml --from '{"orders": {"0": 23}}' --until '{"orders": {"0": 40}}'
      rangeland backfill orders.yaml --from 2026-01-30 --until 2026-01-31 --replace
      rangeland backfill orders.yaml --missing
    """
    output.writes = not dry_run

    from rangeland.job.overrides import load_job, require_closed_range

    if missing and (replace or from_bound is not None or until_bound is not None):
        raise UsageError(
            "--missing finds its ranges itself", do="Leave out --replace, --from and --until"
        )
    job, text = load_job(job_file, settings or (), from_bound, until_bound)
    if not missing:
        require_closed_range(text, job)

    from rangeland.planning.plan import PlanKind
    from rangeland.run import backfill as backfill_job

    kind = PlanKind.MISSING if missing else PlanKind.REPLACE if replace else PlanKind.BACKFILL
    if dry_run:
        _preview(output, job, kind)
        return
    _answer_run(output, backfill_job(job, spark_for_rows(output, job), output.progress(), kind))


# --- shared --------------------------------------------------------------------


def _preview(output: CommandOutput, job: Job, kind: PlanKind | None = None) -> PlanPreview:
    from rangeland.render.plan_view import plan_picture
    from rangeland.run import preview

    result = preview(job, spark_for_rows(output, job), output.progress(), kind)
    output.answer(result.to_json(), plan_picture(result))
    return result


def _answer_run(output: CommandOutput, result: RunResult) -> None:
    from rangeland.render.result_view import result_picture

    output.answer(result.to_json(), result_picture(result))


def _job_of_plan(files: Sequence[Path], reviewed: ReviewedPlan, settings: Sequence[str]) -> Job:
    """The job of the job file, or else of the plan file, with the overrides applied. Raises
    Conflict if the plan was not made for it."""
    from rangeland.job.overrides import load_job

    of_file = len(files) == 2
    job = load_job(files[0], settings)[0] if of_file else reviewed.job_with(settings)
    plan, planned = reviewed.plan, reviewed.job
    pairs = {
        "job": (job.job, planned.job),
        "source.dialect": (job.source.dialect, plan.dialect),
        "source.isolation": (job.source.isolation, plan.isolation),
        "source.tags": (job.source.tags, plan.tags),
        "sink": (job.sink, planned.sink),
    }
    other = [field for field, (mine, theirs) in pairs.items() if mine != theirs]
    if other:
        named = [str(files[0])] if of_file else []
        named += [f"--set {setting}" for setting in settings]
        raise Conflict(
            f"{' with '.join(named)} is not the job that the plan was made for",
            why=f"{' and '.join(other)} differ",
            do="Make the plan again from this job, or apply the plan file alone",
            fields=other,
        )
    return reviewed.in_place(job)
