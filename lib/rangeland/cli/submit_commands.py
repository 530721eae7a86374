"""The command ``submit``, which builds a spark-submit command and the files to ship with it."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rangeland.cli.command_output import CommandOutput
from rangeland.cli.interruption import OF_SUBMITTED
from rangeland.cli.options import From, JobPath, Settings, Until, command
from rangeland.errors import UsageError

if TYPE_CHECKING:
    from rangeland.decode.payload.schema_ids.schema_catalogue import RecordField
    from rangeland.job import Job
    from rangeland.job.job_text import JobText
    from rangeland.spark.supported_versions import InstalledSpark
    from rangeland.submit.submission import ShippedFiles, Submission, SubmitChoices

LANDING_SCRIPT = '''"""Lands a job as `rangeland run` does; written by `rangeland submit`."""

import sys

from rangeland.cli.command_line import main

if __name__ == "__main__":
    sys.exit(main(["run", *sys.argv[1:]]))
'''


Run = Annotated[
    bool, typer.Option("--run/--print", help="Run the command, or only print it (default).")
]


@dataclass(frozen=True, slots=True)
class SubmitOptions:
    """The options that say where a job runs, and what is shipped there."""

    master: Annotated[
        str, typer.Option("--master", metavar="URL", help="spark://HOST:PORT, yarn, or local[*].")
    ] = "local[*]"
    deploy_mode: Annotated[
        str, typer.Option("--deploy-mode", metavar="client|cluster", help="Where the driver runs.")
    ] = "client"
    env: Annotated[
        str,
        typer.Option(
            "--env",
            metavar="zip|packed",
            help="Ship only the package, or a Python environment with everything that tasks need.",
        ),
    ] = "zip"
    delta: Annotated[
        str,
        typer.Option(
            "--delta",
            metavar="packages|jars",
            help="Have Spark download Delta, or ship the jars from this machine's cache.",
        ),
    ] = "packages"
    out: Annotated[
        Path, typer.Option("--out", metavar="FOLDER", help="Where to write the files to ship.")
    ] = Path("dist")
    entry: Annotated[
        Path | None,
        typer.Option("--entry", metavar="FILE.py", help="Your own script, like those in jobs/."),
    ] = None
    python: Annotated[
        str | None,
        typer.Option(
            "--python",
            metavar="NAME",
            help="With --env zip: the Python interpreter to run on each host.",
        ),
    ] = None
    only: Annotated[
        list[str] | None,
        typer.Option(
            "--only",
            metavar="NAME",
            help="With --env packed: pack only this installed distribution; repeatable.",
        ),
    ] = None
    speculation: Annotated[
        bool, typer.Option("--speculation", help="Run copies of slow tasks; nothing lands twice.")
    ] = False
    dynamic_allocation: Annotated[
        bool, typer.Option("--dynamic-allocation", help="Let Spark add and remove executors.")
    ] = False
    conf: Annotated[
        list[str] | None, typer.Option("--conf", metavar="K=V", help="A Spark setting; repeatable.")
    ] = None


@command
def submit(
    output: CommandOutput,
    job_file: JobPath,
    options: SubmitOptions,
    from_bound: From = None,
    until_bound: Until = None,
    settings: Settings = None,
    run: Run = False,
) -> None:
    """Build a spark-submit command for a job, and the files that it ships.

    Prints the command with an explanation of each flag. Without --run, it asks no broker and
    does not start Spark.

    \b
    Examples:
      rangeland submit orders.yaml --master spark://host:7077
      rangeland submit orders.yaml --master yarn --deploy-mode cluster --env packed
      rangeland submit orders.yaml --master spark://host:7077 --entry jobs/backfill_range.py \\
          --from 2026-01-30 --until 2026-01-31
    """
    output.writes = run

    from rangeland.job.command_line_overrides import load_job
    from rangeland.job.job_text import override
    from rangeland.spark.supported_versions import installed_spark
    from rangeland.submit.submission import submission

    job, text = load_job(job_file, settings or (), from_bound, until_bound)
    spark = installed_spark()
    choices = _choices(options, spark)
    files = _shipped_files(job, job_file, choices, options)
    assignments = list(settings or ())
    if choices.deploy_mode == "cluster":
        # The setting goes into the file, after the user's own settings, which may name the schema
        # too.
        moved = [f"decode.{name}.schema={path.name}" for name, path in files.schemas.items()]
        job_file = _whole_job_file(job, override(text, moved), options.out)
        assignments += moved
    flags = _flags(assignments, from_bound, until_bound)
    result = submission(job, job_file, choices, files, flags)
    _run_or_print(output, result, files.package, run, spark.support.java)


def _choices(options: SubmitOptions, spark: InstalledSpark) -> SubmitChoices:
    """The choices that the options stand for, provided that a submission with them can work."""
    from rangeland.submit.submission import PYTHON, SubmitChoices, check_choices_can_work

    default_python = sys.executable if options.master.startswith("local") else PYTHON
    choices = SubmitChoices(
        master=options.master,
        delta=spark.delta.package,
        deploy_mode=options.deploy_mode,
        env=options.env,
        python=options.python or default_python,
        speculation=options.speculation,
        dynamic_allocation=options.dynamic_allocation,
        conf=tuple(options.conf or ()),
    )
    check_choices_can_work(choices)
    return _with_jars(choices, spark) if _ships_jars(options.delta) else choices


def _flags(settings: Sequence[str], from_bound: str | None, until_bound: str | None) -> list[str]:
    """The options about the job itself, passed on to the script that lands it."""
    bounds = (("--from", from_bound), ("--until", until_bound))
    range_flags = [f"{flag}={bound}" for flag, bound in bounds if bound is not None]
    return [*(f"--set={setting}" for setting in settings), *range_flags]


def _run_or_print(
    output: CommandOutput, result: Submission, package: Path, run: bool, java: int
) -> None:
    code = _run(output, result.command, java) if run else None
    if output.json:
        exit_json = {} if code is None else {"exit": code}
        output.print_result({**result.to_json(), "package": str(package), **exit_json}, "")
    elif not run:
        print(result.to_shell())  # Not through a console, which would break the lines.
    if code:
        raise typer.Exit(code)


def _ships_jars(delta: str) -> bool:
    if delta not in ("packages", "jars"):
        raise UsageError(f"--delta {delta} is not understood", do="use packages or jars")
    return delta == "jars"


def _with_jars(choices: SubmitChoices, spark: InstalledSpark) -> SubmitChoices:
    """The choices with the jars of Delta and of Delta Kernel, which are then shipped rather than
    fetched where the job runs."""
    from rangeland.delta.java_bridge.delta_kernel_loader import DELTA_KERNEL_JARS
    from rangeland.jvm.jars import fetch_jars, jar_files
    from rangeland.submit.shipped_files import jars_beyond

    jars = tuple(jars_beyond(Path(spark.home, "jars"), jar_files(spark.delta.jars)))
    return replace(choices, jars=jars, delta_kernel=fetch_jars(DELTA_KERNEL_JARS))


def _shipped_files(
    job: Job,
    job_file: Path,
    choices: SubmitChoices,
    options: SubmitOptions,
) -> ShippedFiles:
    from rangeland.delta.java_bridge.delta_kernel_loader import DELTA_KERNEL_JARS
    from rangeland.job.connection_settings import tls_files
    from rangeland.jvm.jars import jar_files
    from rangeland.submit import packed_environment, shipped_files
    from rangeland.submit.submission import ShippedFiles

    out = options.out
    entry = options.entry
    if entry is not None and not entry.is_file():
        raise UsageError(
            f"--entry {entry}: there is no such file", do="name a script, like those in jobs/"
        )
    schemas = _schema_copies(job, out) if choices.deploy_mode == "cluster" else {}
    modules: list[Path] = []
    if job.sink.transform is not None:
        folders = (Path.cwd(), job_file.absolute().parent)
        modules = shipped_files.transform_files(job.sink.transform, folders, out)
    if choices.env == "zip":
        package = shipped_files.make_zip(out)
    else:
        package = packed_environment.pack_environment(out, options.only)
    if entry is None:
        entry = shipped_files.write_text(out / "land.py", LANDING_SCRIPT)
    delta_kernel = None
    if choices.deploy_mode == "cluster":
        delta_kernel = shipped_files.zip_jars(
            out, DELTA_KERNEL_JARS.name, jar_files(DELTA_KERNEL_JARS)
        )
    pem_files = tuple(dict.fromkeys(path for path in tls_files(job).values() if path.is_file()))
    return ShippedFiles(
        package=package,
        entry=entry,
        modules=tuple(modules),
        platforms=tuple(shipped_files.kernel_platforms()),
        files=pem_files,
        schemas=schemas,
        delta_kernel=delta_kernel,
    )


def _schema_copies(job: Job, out: Path) -> dict[RecordField, Path]:
    """Copies of those schema files that are on this machine, under names that cannot clash."""
    from rangeland.job.payload_formats import whole_schema_file
    from rangeland.submit.shipped_files import write_bytes

    copies: dict[RecordField, Path] = {}
    for name, path in job.decode.schema_files.items():
        if path.is_file():
            suffix, content = whole_schema_file(job, name)
            copies[name] = write_bytes(out / f"{job.name}.{name}{suffix}", content)
    return copies


def _whole_job_file(job: Job, text: JobText, out: Path) -> Path:
    """The job as a single file, together with everything that it extends, because that is easier to
    ship."""
    import yaml

    from rangeland.submit.shipped_files import write_text

    return write_text(
        out / f"{job.name}.whole.yaml", yaml.safe_dump(dict(text.values), sort_keys=False)
    )


def _run(output: CommandOutput, command: list[str], java: int) -> int:
    """Runs the command with this process's streams, and returns its exit code."""
    from rangeland.jvm.java import find_java

    find_java(java)
    program = shutil.which(command[0])
    if program is None:
        raise UsageError(
            "spark-submit was not found",
            why="it is not on the PATH",
            do="install PySpark with pip, or add the bin folder of Spark to the PATH",
        )
    output.when_interrupted = OF_SUBMITTED
    return output.signals.run_program([program, *command[1:]])
