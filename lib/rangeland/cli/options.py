"""The options that commands share, and ``command``, which adds those that all commands have."""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import is_dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Concatenate, ParamSpec

import typer

from rangeland.cli.command_output import CommandOutput
from rangeland.cli.interruption import BEFORE_PLANS
from rangeland.errors import UsageError
from rangeland.logging_setup import LogFormat, LogLevel, LogSettings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from rich.console import RenderableType

    from rangeland.fleet.fleet_result import CommandResult
    from rangeland.job import Job
    from rangeland.job.job_text import JobText

P = ParamSpec("P")

PAGE_START = b"<!DOCTYPE html>"
"""How every page of ``report`` begins."""


def parse_path(text: str) -> Path:
    """The path that an argument names. Raises UsageError for an empty argument, which would
    otherwise mean the working directory and all the job files in it."""
    if not text:
        raise UsageError(
            "an argument is empty",
            why="a variable may be unset",
            do="name a job file, or `.` for this folder",
        )
    return Path(text)


JobPath = Annotated[
    Path, typer.Argument(metavar="JOB.yaml", parser=parse_path, help="The job file.")
]
JobPaths = Annotated[
    list[Path],
    typer.Argument(metavar="JOB.yaml...", parser=parse_path, help="Job files, or folders of them."),
]
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
    typer.Option(
        "--until",
        metavar="BOUND",
        help="Where to end (exclusive): like --from, but not checkpoint.",
    ),
]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="A.B=C", help="Override a field of the job file; repeatable."),
]

Lineage = Annotated[
    Path | None,
    typer.Option(
        "--lineage",
        metavar="FILE",
        help="Append OpenLineage events to a file, one JSON object per line. They also go where "
        "the OpenLineage client is configured to send them, such as OPENLINEAGE_URL.",
    ),
]


def _common_options(
    # CommandOutput reads these three from the raw command line, because they also apply to a
    # command line that cannot be parsed. They are declared here for the parser and the help.
    json: Annotated[
        bool,
        typer.Option("--json", help="Print one JSON object as the last line of stdout."),
    ] = False,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Show warnings but no progress.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
    log_level: Annotated[
        LogLevel,
        typer.Option("--log-level", help="The lowest level of log messages to write to stderr."),
    ] = LogLevel.WARNING,
    log_format: Annotated[
        LogFormat,
        typer.Option(
            "--log-format",
            help="The format of log lines; with json, progress and errors are log lines too.",
        ),
    ] = LogFormat.TEXT,
) -> None: ...


_COMMON = inspect.signature(_common_options, eval_str=True).parameters


def command(work: Callable[Concatenate[CommandOutput, P], None]) -> Callable[..., None]:
    """Makes a Typer command from ``work``, which takes the command's output and its own options; if
    a parameter is a dataclass, each of its fields is an option. The options that all commands have
    are added here, and handled before ``work`` is called."""
    parameters = list(inspect.signature(work, eval_str=True).parameters.values())[1:]
    grouped = [p for p in parameters if is_dataclass(p.annotation)]
    groups = {p.name: p.annotation for p in grouped}
    fields = {name: inspect.signature(g, eval_str=True).parameters for name, g in groups.items()}
    own = [option for p in parameters for option in fields.get(p.name, {p.name: p}).values()]
    context = inspect.Parameter(
        "ctx", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context
    )

    @functools.wraps(work)
    def run(ctx: typer.Context, **options: Any) -> None:
        common = {name: options.pop(name) for name in _COMMON}
        output = ctx.obj
        assert isinstance(output, CommandOutput)
        output.configure_logging(LogSettings(common["log_level"], common["log_format"]))
        output.when_interrupted = BEFORE_PLANS
        _check_settings_are_well_formed(options)
        output.when_interrupted = None
        for name, group in groups.items():
            options[name] = group(**{field: options.pop(field) for field in fields[name]})
        work(output, **options)  # type: ignore[call-arg]

    run.__signature__ = inspect.Signature([context, *own, *_COMMON.values()])  # type: ignore[attr-defined]
    return run


def _check_settings_are_well_formed(options: Mapping[str, Any]) -> None:
    """Raises UsageError for a malformed --set, and for a setting given where a file is expected."""
    from rangeland.job.job_text import check_settings_are_well_formed

    values = [value if isinstance(value, list) else [value] for value in options.values()]
    paths = [path for value in values for path in value if isinstance(path, Path)]
    check_settings_are_well_formed(options.get("settings") or (), paths)


def load_job_with(
    settings: Sequence[str] | None, until_bound: str | None = None
) -> Callable[[Path], tuple[Job, JobText]]:
    """Loads job files, with the options of a command that reads no records."""
    from rangeland.job.command_line_overrides import load_job

    return functools.partial(load_job, settings=settings or (), until_bound=until_bound)


def load_with_schemas(
    settings: Sequence[str] | None,
    from_bound: str | None = None,
    until_bound: str | None = None,
    *,
    check: Callable[[JobText, Job], None] = lambda text, job: None,
) -> Callable[[Path], tuple[Job, JobText]]:
    """Loads job files, with the options of a command that reads records. Refuses a schema that
    cannot be used, and anything for which ``check`` raises UsageError."""
    from rangeland.job.command_line_overrides import load_job
    from rangeland.job.payload_formats import check_schemas_are_usable

    def load(path: Path) -> tuple[Job, JobText]:
        job, text = load_job(path, settings or (), from_bound, until_bound)
        check(text, job)
        check_schemas_are_usable(job)
        return job, text

    return load


def write_out(out: Path, text: str) -> None:
    """Writes the file given by ``--out``. Raises UsageError if it cannot be written."""
    try:
        out.write_text(text, encoding="utf-8")
    except OSError as error:
        raise _unwritable_error(out, error) from error


def check_can_be_written(out: Path) -> None:
    """Raises UsageError if a file given by ``--out`` cannot be written later by ``write_whole``.
    Writes nothing."""
    if str(out).startswith("-"):
        raise UsageError(f"--out {out}: that is an option", do="name the file right after --out")
    if out.exists() and not out.is_file():
        raise UsageError(f"--out {out}: it is not a file", do="name a file")
    folder = out.resolve().parent
    if not folder.is_dir():
        raise UsageError(f"--out {out}: its folder does not exist", do="create it, or name another")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise UsageError(
            f"--out {out}: its folder cannot be written to", do="name a file in another folder"
        )


def check_is_no_other_file(out: Path, job_file: Path) -> None:
    """Raises UsageError if ``--out`` names the job file, or a file that is not an HTML page, so
    that a mistyped name does not overwrite a file. Call ``check_can_be_written`` first."""
    if not out.exists():
        return
    if job_file.exists() and out.samefile(job_file):
        raise UsageError(f"--out {out}: it is the job file", do="name another file")
    try:
        with out.open("rb") as file:
            start = file.read(len(PAGE_START))
    except OSError as error:
        raise UsageError(
            f"--out {out}: it cannot be read, so it may not be a page",
            why=error.strerror or str(error),
            do="name another file",
        ) from error
    if start not in (b"", PAGE_START):
        raise UsageError(
            f"--out {out}: it exists and is not an HTML page",
            do="name another file, or remove it first",
        )


def write_whole(out: Path, content: bytes) -> None:
    """Writes the file given by ``--out``, or leaves what is there as it is. Raises UsageError if it
    cannot be written."""
    target = out.resolve()
    partial = target.with_name(f".{target.name[:100]}.{os.getpid()}.partial")
    try:
        try:
            partial.write_bytes(content)
            partial.replace(target)
        finally:
            partial.unlink(missing_ok=True)
    except OSError as error:
        raise _unwritable_error(out, error) from error


def _unwritable_error(out: Path, error: OSError) -> UsageError:
    return UsageError(
        f"--out {out}: it cannot be written",
        why=error.strerror or str(error),
        do="name a file in a folder that exists and can be written to",
    )


def end_with_result(
    output: CommandOutput, result: CommandResult, renderable: RenderableType
) -> None:
    """Prints a result, and ends the command with the result's exit code."""
    output.print_result(result.to_json(), renderable)
    if result.exit_code:
        raise typer.Exit(result.exit_code)


def spark_for(output: CommandOutput, job: Job, *, asks_brokers: bool = False) -> SparkSession:
    """Starts Spark for a job. ``asks_brokers``: the command needs brokers, so Spark is started only
    once one of them has answered."""
    if asks_brokers:
        from rangeland.cluster_access.broker_check import check_brokers_answer

        output.progress().step(f"asking {job.source.where} for leaders")
        check_brokers_answer(job)

    return start_spark(output, job.name, [job.sink.table])


def start_spark(
    output: CommandOutput,
    name: str,
    tables: Sequence[str],
    settings: Mapping[str, str] | None = None,
) -> SparkSession:
    """Starts Spark under this name, for these tables. Meanwhile imports the other modules that
    commands need: pyarrow alone takes about a second."""
    from rangeland.spark.spark_session import open_deferred

    output.progress().step("starting Spark")
    return open_deferred(
        f"rangeland {name}",
        settings=settings,
        tables=tables,
        meanwhile=functools.partial(import_module, "rangeland.run"),
        makes_archive=output.writes,
    )
