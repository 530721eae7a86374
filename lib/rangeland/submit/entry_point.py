"""The common part of the scripts in ``jobs/``: takes arguments, and gives one result and an exit
code.

A script states in a few lines what it does with a job. Reading the job file, starting Spark,
progress, logging, ``--json`` and exit codes are handled here, and behave as on the command line.
Arguments are parsed with argparse, so that a script needs nothing beyond the workers' zip.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from rangeland.cli.command_output import CommandOutput, command_output
from rangeland.errors import UsageError
from rangeland.job.command_line_overrides import load_job
from rangeland.job.job_text import check_settings_are_well_formed
from rangeland.logging_setup import LogFormat, LogLevel, LogSettings
from rangeland.monitoring.lineage_client import lineage_file
from rangeland.monitoring.metrics_file import TableName
from rangeland.results import RunResult


class ScriptEntry:
    """One call of a script: its job with all overrides applied, and Spark on demand."""

    def __init__(
        self,
        arguments: argparse.Namespace,
        settings: Sequence[str],
        output: CommandOutput,
        flags: frozenset[str] = frozenset(),
    ) -> None:
        self.flags = flags
        assignments = [*settings, *arguments.settings]
        check_settings_are_well_formed(assignments, [arguments.job_file])
        bounds = (arguments.from_bound, arguments.until_bound)
        self.job, self.text = load_job(arguments.job_file, assignments, *bounds)
        self.progress = output.progress()

    def spark(self) -> Any:
        """The session that spark-submit has prepared, or a local one. Raises UsageError for an
        unsupported version of Spark."""
        from rangeland.spark.spark_session import open_spark

        self.progress.step("starting Spark")
        return open_spark(f"rangeland {self.job.name}", table=self.job.sink.table)


def main(
    work: Callable[[ScriptEntry], RunResult],
    doc: str,
    *,
    settings: Sequence[str] = (),
    arguments: Sequence[str] | None = None,
    flags: Mapping[str, str] | None = None,
    command: str = "run",
) -> int:
    """Does ``work`` and returns the exit code. ``settings`` are overrides as for ``--set``; options
    on the command line take precedence over them. ``flags`` maps the script's own switches to their
    help texts; ``ScriptEntry.flags`` has those that were given. ``command`` is the command that the
    script stands for, as metrics name it."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    with command_output(words) as output:
        output.writes = True
        try:
            options = _parser(doc, flags).parse_args(words)
            output.configure_logging(LogSettings(options.log_level, options.log_format))
            chosen = frozenset(name for name in flags or () if getattr(options, name))
            metrics = output.open_metrics_file(options.metrics, command, [options.job_file])
            with lineage_file(options.lineage):
                entry = ScriptEntry(options, settings, output, chosen)
                if metrics is None:
                    result = work(entry)
                else:
                    name = TableName(entry.job.name, entry.job.sink.table)
                    result = metrics.record(name, lambda: work(entry))
        except KeyboardInterrupt:
            return output.report_interruption()
        except Exception as error:
            return output.fail(error)
        output.print_result(result.to_json(), result_line(result))
        return output.end(0)


def result_line(result: RunResult) -> str:
    """The result on one line, for people."""
    version = result.table_version
    where = "" if version is None else f", {result.table} version {version}"
    return f"{result.job}: {result.state}, {result.counts.landed} records{where}"


_REPEATED = re.compile(
    r"(?<=^unrecognized arguments): .*|(?<=: ignored explicit argument) .*"
    r"|(?<=^ambiguous option: )(?P<option>[\w-]+)=.*(?= could match )",
    re.DOTALL,
)
"""The parts of argparse's messages that repeat arguments, which may be secrets: with ``--set
source.security.sasl.password hunter2``, the password is an argument of its own."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        message = _REPEATED.sub(lambda it: it["option"] or ", not repeated here", message)
        raise UsageError(message, do=f"see {self.prog} --help")


def _parser(doc: str, more: Mapping[str, str] | None = None) -> argparse.ArgumentParser:
    parser = _Parser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("job_file", metavar="JOB.yaml", type=Path, help="the job file")
    add("--from", dest="from_bound", metavar="BOUND", help="where to begin")
    add("--until", dest="until_bound", metavar="BOUND", help="where to end (exclusive)")
    add(
        "--set",
        dest="settings",
        metavar="A.B=C",
        action="append",
        default=[],
        help="override a field of the job file",
    )
    add("--lineage", metavar="FILE", type=Path, help="append OpenLineage events to a file")
    for name, meaning in (more or {}).items():
        add(f"--{name}", action="store_true", help=meaning)
    add("--metrics", metavar="FILE", type=Path, help="at the end, write metrics for Prometheus")
    add("--json", action="store_true", help="print one JSON object as the last line of stdout")
    add("--quiet", "-q", action="store_true", help="show warnings but no progress")
    add("--debug", action="store_true", help="show the traceback of an error")
    for name, kind, default in (("level", LogLevel, "warning"), ("format", LogFormat, "text")):
        add(f"--log-{name}", type=kind, choices=list(kind), default=kind(default))
    return parser
