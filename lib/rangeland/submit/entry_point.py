"""What the scripts of ``jobs/`` share: arguments in, one answer and an exit code out.

A script says what it does with a job in a few lines; reading the job file, Spark, progress,
``--json`` and the ways a run may end are here, and are those of the command line. Arguments
are read with argparse, so that a script needs nothing that the workers' zip has not.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from rangeland.cli.exits import CommandEnding, ending
from rangeland.errors import UsageError
from rangeland.job.overrides import load_job
from rangeland.results import RunResult


class ScriptEntry:
    """One call of a script: its job with all flags laid over it, and Spark when asked for."""

    def __init__(
        self,
        arguments: argparse.Namespace,
        settings: Sequence[str],
        end: CommandEnding,
        flags: frozenset[str] = frozenset(),
    ) -> None:
        self.flags = flags
        given = [*settings, *arguments.settings]
        bounds = (arguments.from_bound, arguments.until_bound)
        self.job, self.text = load_job(arguments.job_file, given, *bounds)
        self.progress = end.progress()

    def spark(self) -> Any:
        """The session that spark-submit has prepared, or a local one. Raises UsageError for
        a Spark that is not the one we are made for."""
        from rangeland.spark.spark_session import open_spark

        self.progress.step("starting Spark")
        return open_spark(f"rangeland {self.job.job}", table=self.job.sink.table)


def main(
    work: Callable[[ScriptEntry], RunResult],
    doc: str,
    *,
    settings: Sequence[str] = (),
    arguments: Sequence[str] | None = None,
    flags: Mapping[str, str] | None = None,
) -> int:
    """Does ``work`` and returns the exit code. ``settings`` are the script's own, as for
    ``--set``; whoever calls it may override them. ``flags`` are switches of its own, each
    with what it means; ``Entry.flags`` has those that were given."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    with ending(given) as end:
        end.writes = True
        try:
            read = _parser(doc, flags).parse_args(given)
            chosen = frozenset(name for name in flags or () if getattr(read, name))
            result = work(ScriptEntry(read, settings, end, chosen))
        except KeyboardInterrupt:
            return end.interrupted()
        except Exception as error:
            return end.fail(error)
        end.answer(result.to_json(), told(result))
        return 0


def told(result: RunResult) -> str:
    """The one line for people."""
    version = "" if result.table_version is None else f", {result.table} version "
    version += "" if result.table_version is None else str(result.table_version)
    return f"{result.job}: {result.state}, {result.counts.landed} records{version}"


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(message, do=f"See {self.prog} --help")


def _parser(doc: str, more: Mapping[str, str] | None = None) -> argparse.ArgumentParser:
    parser = _Parser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("job_file", metavar="JOB.yaml", type=Path, help="the job file")
    add("--from", dest="from_bound", metavar="BOUND", help="where to begin")
    add("--until", dest="until_bound", metavar="BOUND", help="where to end, not included")
    add(
        "--set",
        dest="settings",
        metavar="A.B=C",
        action="append",
        default=[],
        help="override a field of the job file",
    )
    for name, meaning in (more or {}).items():
        add(f"--{name}", action="store_true", help=meaning)
    add("--json", action="store_true", help="one JSON object as the last line of stdout")
    add("--quiet", "-q", action="store_true", help="no progress, only warnings")
    add("--debug", action="store_true", help="show the traceback of an error")
    return parser
