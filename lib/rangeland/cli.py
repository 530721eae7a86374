"""The command line, thin: flags into a job, a job into ``run``, a result onto stdout.

Nothing is decided here. What a command does is in ``run``, how it ends in ``endings``,
what it looks like in ``pictures``. All that is slow to import is imported by the command
that needs it, and Spark is started last, when everything that can be refused without it
has been.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rangeland.endings import INTERRUPTED, Ending, as_bug, as_usage_error, ending
from rangeland.errors import Conflict, RangelandError, UsageError

if TYPE_CHECKING:
    from rangeland.job import Job
    from rangeland.planning.plan import Plan
    from rangeland.results import PlanPreview, RunResult

# Typer has carried a copy of click since 0.20 or so; this is the class in both.
_Mistyped: type[Exception] = next(
    kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException"
)

app = typer.Typer(
    name="rangeland",
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)

JobPath = Annotated[Path, typer.Argument(metavar="JOB.yaml", help="The job file.")]
From = Annotated[
    str | None,
    typer.Option(
        "--from",
        metavar="BOUND",
        help="Where to begin: checkpoint, earliest, latest, an ISO time, group:<id>, or JSON "
        'such as \'{"orders": {"0": 23}}\'.',
    ),
]
Until = Annotated[
    str | None,
    typer.Option("--until", metavar="BOUND", help="Where to end (not included); as for --from."),
]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="A.B=C", help="Override a field of the job file; repeatable."),
]
# These three are read from the raw command line by `Ending`, since they also hold for a
# command line that cannot be parsed. They are declared here to be known and explained.
Json = Annotated[
    bool, typer.Option("--json", help="One JSON object as the last line of stdout, nothing else.")
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress, only warnings.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]


def main(arguments: Sequence[str] | None = None) -> int:
    """The console entry: runs one command and returns its exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    with ending(given) as end:
        try:
            return _dispatch(given, end)
        except RangelandError as error:
            return end.fail(error)
        except _Mistyped as error:
            return end.fail(as_usage_error(error))
        except (KeyboardInterrupt, typer.Abort):
            return end.interrupted()
        except BrokenPipeError:
            # `| head` has seen enough. Python would complain once more when it flushes.
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            return 0 if end.answered else 141
        except Exception as error:
            return end.fail(as_bug(error))


def _dispatch(given: list[str], end: Ending) -> int:
    code = app(args=given, prog_name="rangeland", standalone_mode=False, obj=end)
    if code == INTERRUPTED:  # Typer has caught it on its way here.
        return end.interrupted()
    return code if isinstance(code, int) else 0


def _show_version(wanted: bool) -> None:
    if not wanted:
        return
    from rangeland import __version__

    print(f"rangeland {__version__}")
    raise typer.Exit


@app.callback(invoke_without_command=True)
def rangeland(
    ctx: typer.Context,
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_show_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    """Land bounded ranges of a log in Delta tables, exactly once, with proof.

    \b
    New here? See it work on this machine, with a broker of its own:
      rangeland demo
    \b
    With a job file of your own:
      rangeland check orders.yaml     can everything be reached and written?
      rangeland plan orders.yaml      what would be landed? (writes nothing)
      rangeland run orders.yaml       land it
      rangeland status orders.yaml    where does the job stand?
    \b
    Exit codes: 0 done, also when there was nothing to do. 64 usage, 78 job file,
    75 try again later, 66 range lost, 65 bad record, 73 conflict, 70 our bug.
    Only 75 is worth a retry by a scheduler.
    """
    if ctx.invoked_subcommand is None:
        if ctx.obj.json:
            raise UsageError("there is no command", do="See `rangeland --help`")
        print(ctx.get_help())
        raise typer.Exit(UsageError.exit_code)


@app.command(short_help="Try all that a run needs. Writes nothing.")
def check(
    ctx: typer.Context,
    job_file: JobPath,
    settings: Settings = None,
    json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Try all that a run needs: job file, brokers, topics, Spark, table. Writes nothing.

    \b
    Example:
      rangeland check orders.yaml
    """
    from rangeland.flags import load_job

    end = _ending(ctx)
    job, _ = load_job(job_file, settings or ())

    from rangeland.inspection import check as check_job
    from rangeland.pictures import check_picture

    result = check_job(job, lambda: _spark(end, job), end.progress())
    end.answer(result.to_json(), check_picture(result))
    if not result.is_well:
        raise typer.Exit(result.exit_code)


@app.command(short_help="Show what a run would land now. Writes nothing.")
def plan(
    ctx: typer.Context,
    job_file: JobPath,
    from_bound: From = None,
    until_bound: Until = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE", help="Keep the plan in a file, for `apply`."),
    ] = None,
    settings: Settings = None,
    json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Show what a run would land now. Writes nothing to table or ledger.

    \b
    Examples:
      rangeland plan orders.yaml
      rangeland plan orders.yaml --until 2026-01-31T06:00:00Z
      rangeland plan orders.yaml --out plan.json    review it, then
      rangeland apply plan.json                     do exactly that
    """
    from rangeland.flags import load_job

    end = _ending(ctx)
    job, text = load_job(job_file, settings or (), from_bound, until_bound)
    if out is not None and str(out).startswith("-"):
        raise UsageError(f"--out {out}: that is an option", do="Name the file right after --out")
    if out is not None and not out.absolute().parent.is_dir():
        raise UsageError(f"--out {out}: its folder does not exist", do="Make it, or name another")
    preview = _preview(end, job)
    if out is not None:
        from rangeland.planfile import write_plan_file

        write_plan_file(out, preview, text)
        if not end.quiet:
            print(f"Written to {out}. Do it with: rangeland apply {out}", file=sys.stderr)


@app.command(short_help="Land what is new; never anything twice.")
def run(
    ctx: typer.Context,
    job_file: JobPath,
    from_bound: From = None,
    until_bound: Until = None,
    settings: Settings = None,
    json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Land what is new. Running it again, at any time, lands nothing twice.

    A run that died is finished first, with the very ranges it had planned.

    \b
    Examples:
      rangeland run orders.yaml
      rangeland run orders.yaml --until 2026-01-31T06:00:00Z --json
      rangeland run orders.yaml --set limits.max_records=1000000
    """
    from rangeland.flags import load_job

    end = _ending(ctx, writes=True)
    job, _ = load_job(job_file, settings or (), from_bound, until_bound)

    from rangeland.run import run as run_job

    _answer_run(end, run_job(job, _spark(end, job), end.progress()))


@app.command(short_help="Land exactly what a reviewed plan file says.")
def apply(
    ctx: typer.Context,
    files: Annotated[
        list[Path],
        typer.Argument(metavar="[JOB.yaml] FILE", help="A file that `plan --out` has written."),
    ],
    json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Land exactly what a reviewed plan file says, or nothing (exit 73) if its ground has moved.

    The file carries its job. With a job file before it, that one is used instead: for other
    servers or secrets, never for another table.

    \b
    Examples:
      rangeland plan orders.yaml --out plan.json
      rangeland apply plan.json
    """
    from rangeland.planfile import read_plan_file

    end = _ending(ctx, writes=True)
    if len(files) > 2:
        raise UsageError(f"apply takes one plan file, not {len(files)} files", do="Name one")
    job, wanted = read_plan_file(files[-1])
    if len(files) == 2:
        job = _job_of_plan(files[0], job, wanted)

    from rangeland.run import apply as apply_job

    _answer_run(end, apply_job(job, wanted, _spark(end, job), end.progress()))


@app.command(short_help="Land a range of your choice, beside the runs.")
def backfill(
    ctx: typer.Context,
    job_file: JobPath,
    from_bound: From = None,
    until_bound: Until = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show what would be landed, as `plan` does.")
    ] = False,
    settings: Settings = None,
    json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Land a range of your choice, beside the scheduled runs and without moving their checkpoint.

    What is in the table already is left out; the same backfill twice lands nothing twice.

    \b
    Examples:
      rangeland backfill orders.yaml --from 2026-01-30 --until 2026-01-31 --dry-run
      rangeland backfill orders.yaml --from 2026-01-30 --until 2026-01-31
      rangeland backfill orders.yaml --from '{"orders": {"0": 23}}' --until '{"orders": {"0": 40}}'
    """
    from rangeland.flags import load_job, require_closed_range

    end = _ending(ctx, writes=not dry_run)
    job, text = load_job(job_file, settings or (), from_bound, until_bound)
    require_closed_range(text, job)
    if dry_run:
        _preview(end, job)
        return

    from rangeland.run import backfill as backfill_job

    _answer_run(end, backfill_job(job, _spark(end, job), end.progress()))


@app.command(short_help="Show where a job stands: checkpoint, end, lag.")
def status(
    ctx: typer.Context,
    job_file: JobPath,
    settings: Settings = None,
    json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Show where a job stands against its logs: checkpoint, end, lag. Writes nothing.

    \b
    Examples:
      rangeland status orders.yaml
      rangeland status orders.yaml --json | tail -n 1 | jq '[.partitions[].lag] | add'
    """
    from rangeland.flags import load_job

    end = _ending(ctx)
    job, _ = load_job(job_file, settings or ())

    from rangeland.inspection import status as status_job
    from rangeland.pictures import status_picture

    result = status_job(job, _spark(end, job), end.progress())
    end.answer(result.to_json(), status_picture(result))


@app.command(short_help="See it work here, with a broker of its own.")
def demo(
    ctx: typer.Context,
    records: Annotated[
        int, typer.Option("--records", metavar="N", min=1_000, help="How many to write and land.")
    ] = 100_000,
    keep: Annotated[
        bool, typer.Option("--keep", help="Keep the table and the job file for looking around.")
    ] = False,
    json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """See it work: a real Kafka broker on this machine, a topic, a table, and the proof.

    Needs a JDK or JRE 17 or later; fetches the broker's jars the first time. Everything is
    in a temporary folder and is removed at the end.

    \b
    Examples:
      rangeland demo
      rangeland demo --records 1000000 --keep
    """
    from rangeland.testing.demo import show

    end = _ending(ctx, writes=True)
    show(end, records, keep)


# --- what the commands share ------------------------------------------------------------


def _ending(ctx: typer.Context, writes: bool = False) -> Ending:
    end = ctx.obj
    assert isinstance(end, Ending)
    end.writes = writes
    return end


def _spark(end: Ending, job: Job) -> Any:
    from rangeland.spark.session import open_spark

    end.progress().step("starting Spark")
    return open_spark(f"rangeland {job.job}")


def _preview(end: Ending, job: Job) -> PlanPreview:
    from rangeland.pictures import plan_picture
    from rangeland.run import preview

    result = preview(job, _spark(end, job), end.progress())
    end.answer(result.to_json(), plan_picture(result))
    return result


def _answer_run(end: Ending, result: RunResult) -> None:
    from rangeland.pictures import result_picture

    end.answer(result.to_json(), result_picture(result))


def _job_of_plan(job_file: Path, reviewed: Job, plan: Plan) -> Job:
    """The job of the file, if it is the one the plan was made for."""
    from rangeland.flags import load_job

    job, _ = load_job(job_file)
    pairs = {
        "job": (job.job, reviewed.job),
        "source.dialect": (job.source.dialect, plan.dialect),
        "source.isolation": (job.source.isolation, plan.isolation),
        "sink": (job.sink, reviewed.sink),
    }
    other = [field for field, (mine, theirs) in pairs.items() if mine != theirs]
    if other:
        raise Conflict(
            f"{job_file} is not the job that the plan was made for",
            why=f"{' and '.join(other)} differ",
            do="Make the plan again from this job file, or apply the plan file alone",
            fields=other,
        )
    return job


if __name__ == "__main__":
    sys.exit(main())
