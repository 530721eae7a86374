"""The commands that land records (``run``, ``apply``, ``backfill``, ``demo``), and ``plan``, which
shows what would be landed."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rangeland.cli.command_output import CommandOutput
from rangeland.cli.many_jobs import (
    ManyJobs,
    Parallel,
    TableCommand,
    land_each,
    load_jobs,
    run_table_command,
    work_on_job,
)
from rangeland.cli.metrics_option import Metrics, record_metrics
from rangeland.cli.options import (
    From,
    JobPaths,
    Lineage,
    Settings,
    Until,
    command,
    load_with_schemas,
    parse_path,
)
from rangeland.errors import RangelandError, UsageError
from rangeland.monitoring.lineage_client import lineage_file

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from rangeland.fleet.table_job import TableJob
    from rangeland.monitoring.lineage_reporter import LineageReporter
    from rangeland.planning.plan_kind import PlanKind
    from rangeland.progress_events import Progress
    from rangeland.results import PlanPreview, RunResult


@command
def plan(
    output: CommandOutput,
    job_files: JobPaths,
    from_bound: From = None,
    until_bound: Until = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="FILE",
            help="Write the plan to a file, for `apply`; with many tables, write their plans to "
            "a folder of that name.",
        ),
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
    if out is not None and str(out).startswith("-"):
        raise UsageError(f"--out {out}: that is an option", do="name the file right after --out")
    if out is not None and not out.absolute().parent.is_dir():
        raise UsageError(f"--out {out}: its folder does not exist", do="create it, or name another")
    jobs = load_jobs(job_files, load_with_schemas(settings, from_bound, until_bound))

    from rangeland.planning.plan_kind import PlanKind

    _preview(output, jobs, PlanKind.RUN, out)


@command
def run(
    output: CommandOutput,
    job_files: JobPaths,
    from_bound: From = None,
    until_bound: Until = None,
    parallel: Parallel = None,
    metrics: Metrics = None,
    lineage: Lineage = None,
    settings: Settings = None,
) -> None:
    """Land what is new. Running it again at any time lands nothing twice.

    If an earlier run died, its plan is finished first, with exactly the same ranges. Several
    jobs, and the tables of a job whose sink.table contains {topic}, are landed side by side in one
    Spark session; one that fails does not stop the others.

    \b
    Examples:
      rangeland run orders.yaml
      rangeland run orders.yaml --until 2026-01-31T06:00:00Z --json
      rangeland run orders.yaml --set limits.max_records=1000000
      rangeland run orders.yaml clicks.yaml
      rangeland run jobs/ --parallel 8
      rangeland run orders.yaml --metrics /var/lib/node_exporter/textfile/orders.prom
    """
    output.writes = True
    metrics_file = output.open_metrics_file(metrics, "run", job_files)

    def table_command() -> TableCommand:
        from rangeland.fleet.fleet_run import run_all
        from rangeland.render.result_view import render_result
        from rangeland.run import run as run_job

        return TableCommand(work_on_job(run_job), render_result, run_all)

    with lineage_file(lineage):
        jobs = load_jobs(job_files, load_with_schemas(settings, from_bound, until_bound), parallel)
        recorded = record_metrics(metrics_file, jobs, table_command)
        run_table_command(output, jobs, recorded, asks_brokers=True)


@command
def apply(
    output: CommandOutput,
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="[JOB.yaml] PLAN.json",
            parser=parse_path,
            help="A file written by `plan --out`, or a folder of such files.",
        ),
    ],
    settings: Settings = None,
) -> None:
    """Land exactly what is in a reviewed plan file, or nothing (exit 73) if it is out of date.

    The file contains its job and the full path of the table, so any working directory will do.
    A job file named before it replaces that job, and --set overrides a field of either: use them
    for other servers or secrets, not for another table.

    \b
    Examples:
      rangeland plan orders.yaml --out plan.json
      rangeland apply plan.json
      rangeland apply plan.json --set source.timeouts.request_ms=60000
    """
    output.writes = True

    from rangeland.landing.drafts.plan_file import job_of_plan, read_plan_file

    if len(files) == 1 and files[0].is_dir():
        _apply_each(output, files[0], settings or ())
        return
    if len(files) > 2:
        raise UsageError(f"apply takes one plan file, not {len(files)} files", do="name one")
    plan = read_plan_file(files[-1])
    job = job_of_plan(plan, files[0] if len(files) == 2 else None, settings or ())

    from rangeland.fleet.table_job import TableJob
    from rangeland.job.payload_formats import check_schemas_are_usable

    check_schemas_are_usable(job)
    run_table_command(output, TableJob(job, plan.text, reviewed=plan), apply_command)


@command
def backfill(
    output: CommandOutput,
    job_files: JobPaths,
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
    parallel: Parallel = None,
    metrics: Metrics = None,
    lineage: Lineage = None,
    settings: Settings = None,
) -> None:
    """Land a range of your choice, without moving the checkpoint of the scheduled runs.

    Offsets that are already landed are left out, so repeating a backfill lands nothing twice.
    With --replace the range is landed again, and differences from the old rows are shown. With
    --missing the range is whatever the table has lost.

    \b
    Examples:
      rangeland backfill orders.yaml --from 2026-01-30 --until 2026-01-31 --dry-run
      rangeland backfill orders.yaml --from 2026-01-30 --until 2026-01-31
      rangeland backfill orders.yaml --from '{"orders": {"0": 23}}' --until '{"orders": {"0": 40}}'
      rangeland backfill orders.yaml --from 2026-01-30 --until 2026-01-31 --replace
      rangeland backfill orders.yaml --missing
    """
    output.writes = not dry_run
    if dry_run:
        _check_nothing_is_reported({"--metrics": metrics, "--lineage": lineage})
    metrics_file = output.open_metrics_file(metrics, "backfill", job_files)

    from rangeland.job.command_line_overrides import check_range_is_for_backfill

    check = partial(check_range_is_for_backfill, missing=missing, replace=replace)
    load = load_with_schemas(settings, from_bound, until_bound, check=check)

    from rangeland.planning.plan_kind import backfill_kind

    kind = backfill_kind(missing=missing, replace=replace)
    with lineage_file(lineage):
        jobs = load_jobs(job_files, load, parallel)
        if dry_run:
            _preview(output, jobs, kind)
        else:
            recorded = record_metrics(metrics_file, jobs, partial(_backfill_command, kind))
            run_table_command(output, jobs, recorded, asks_brokers=True)


def _check_nothing_is_reported(files: Mapping[str, Path | None]) -> None:
    """Raises UsageError for a dry run with an option that names a file."""
    for option, file in files.items():
        if file is not None:
            raise UsageError(
                f"--dry-run and {option} cannot be combined",
                why="a dry run lands nothing that could be reported",
                do="leave out one of them",
            )


def _backfill_command(kind: PlanKind) -> TableCommand:
    from rangeland.fleet.fleet_run import run_all
    from rangeland.render.result_view import render_result
    from rangeland.run import backfill as backfill_job

    work = work_on_job(backfill_job, kind=kind)
    return TableCommand(work, render_result, partial(run_all, kind=kind))


# --- shared --------------------------------------------------------------------


def _preview(
    output: CommandOutput,
    jobs: TableJob | ManyJobs,
    kind: PlanKind,
    out: Path | None = None,
) -> None:
    """Shows the plan and writes it to the file ``out``; if there are many tables, ``out`` is a
    folder, and each plan goes to a file of its own there."""
    are_many = isinstance(jobs, ManyJobs)
    if out is not None and are_many:
        _make_empty_folder(out)
    written: list[str] = []

    def table_command() -> TableCommand:
        from rangeland.landing.drafts.plan_file import PlanFolder, write_plan_file
        from rangeland.render.plan_view import render_plan
        from rangeland.run import preview

        folder = PlanFolder(out) if out is not None and are_many else None

        def preview_table(
            table_job: TableJob, spark: SparkSession, progress: Progress
        ) -> PlanPreview:
            if table_job.template is None:
                return preview(table_job.job, spark, progress, kind)

            from rangeland.fleet.fleet_run import preview_job

            return preview_job(table_job, spark, progress, kind)

        def work(table_job: TableJob, spark: SparkSession, progress: Progress) -> PlanPreview:
            result = preview_table(table_job, spark, progress)
            if folder is not None:
                folder.write(table_job.name, result, table_job.text)
                written.append(table_job.name)
            elif out is not None:
                write_plan_file(out, result, table_job.text)
                written.append(table_job.name)
            return result

        return TableCommand(work, render_plan)

    try:
        run_table_command(output, jobs, table_command, asks_brokers=True)
    finally:  # Some plans may have been written even though others have failed.
        if written and not output.quiet:
            print(f"Written to {out}. Land it with: rangeland apply {out}", file=sys.stderr)


def _make_empty_folder(out: Path) -> None:
    """Raises UsageError if the folder contains files: they might be older plans."""
    try:
        out.mkdir(exist_ok=True)
        is_empty = not any(out.iterdir())
    except OSError as error:
        raise UsageError(
            f"--out {out}: the plans of many tables need a folder",
            why=error.strerror or str(error),
            do="name a new folder",
        ) from error
    if not is_empty:
        raise UsageError(f"--out {out}: that folder is not empty", do="name a new folder")


def _apply_each(output: CommandOutput, folder: Path, settings: Sequence[str]) -> None:
    """Applies each plan file in a folder written by ``plan --out``."""
    from rangeland.fleet.job_folders import files_in
    from rangeland.fleet.topic_jobs import FailedFile, LoadedFile
    from rangeland.landing.drafts.plan_file import job_of_plan, read_plan_file

    files: list[LoadedFile] = []
    failures: list[FailedFile] = []
    for path in files_in(folder, [".json"], "plan files"):
        try:
            plan = read_plan_file(path)
            job = job_of_plan(plan, None, settings)
            files.append(LoadedFile(job, plan.text, reviewed=plan))
        except RangelandError as error:
            failures.append(FailedFile(str(path), error))

    run_table_command(output, ManyJobs(files, failures), apply_command)


def apply_command() -> TableCommand:
    """The command ``apply``, whose tables have a plan each."""
    from rangeland.render.result_view import render_result
    from rangeland.run import apply as apply_job

    def work(
        table_job: TableJob,
        spark: SparkSession,
        progress: Progress,
        *reporter: LineageReporter,
    ) -> RunResult:
        reviewed = table_job.reviewed
        assert reviewed is not None
        plan, losses = reviewed.plan, reviewed.unplanned_losses
        return apply_job(table_job.job, plan, losses, spark, progress, *reporter)

    return TableCommand(work, render_result, partial(land_each, work))


@command
def demo(
    output: CommandOutput,
    records: Annotated[
        int,
        typer.Option(
            "--records", metavar="N", min=1_000, help="How many records to write and land."
        ),
    ] = 100_000,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the table and the job file.")] = False,
) -> None:
    """See it work: a real Kafka broker on this machine, a topic, a table, and the proof.

    Needs a JDK or JRE 17 or later, and downloads the broker's jars the first time. Everything is
    in a temporary folder, which is removed at the end.

    \b
    Examples:
      rangeland demo
      rangeland demo --records 1000000 --keep
    """
    output.writes = True

    from rangeland.testing.demo import show

    show(output, records, keep)
