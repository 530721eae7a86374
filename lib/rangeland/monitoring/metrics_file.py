"""The metrics file of a command: whether it can be written, what is recorded for it while the
command runs, and its writing at the end.

The file replaces the earlier one in one step, so that nobody reads half of it. Imports little,
since a command line needs it before Spark starts.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from rangeland.clock import wall_ms
from rangeland.errors import RangelandError, UsageError
from rangeland.fleet.fleet_result import JobResult
from rangeland.monitoring.table_run import TableRun

if TYPE_CHECKING:
    from rangeland.fleet.fleet_run import JobsProgress
    from rangeland.results import RunResult

OUR_BEGINNING = b"# HELP rangeland_"
LIBRARY = "prometheus_client"
REQUIREMENT = "prometheus-client>=0.22"
"""As in the package's own requirements, which nothing checks where it is used from a zip."""


class TableName(NamedTuple):
    """The names of a job and of its table, which is None if it is not known."""

    job: str
    table: str | None


class MetricsFile:
    """Records how a command ends for each of its tables, and writes that to a file. Whatever goes
    wrong is only a warning, passed to ``warn``: it changes nothing about what lands."""

    def __init__(self, path: Path, command: str, warn: Callable[[str], None]) -> None:
        self._path = path
        self._command = command
        self._warn = warn
        self._expected: list[TableName] = []
        self._began_at: float | None = None
        """When the work on the only table began. Which of many have begun is not known."""
        self._runs: dict[TableName, TableRun] = {}

    def expect(self, names: Iterable[TableName]) -> None:
        """Sets the tables that the command is about, as far as they are known yet."""
        self._expected = list(names)

    def add(self, job_result: JobResult[RunResult]) -> None:
        """Records how the command ended for one table. If it was recorded before, only the result
        is replaced."""
        with self._warning_of_failures(f"the metrics of {job_result.job} cannot be recorded"):
            name = TableName(job_result.job, job_result.table)
            before = self._runs.get(name)
            ended_at_ms = wall_ms() if before is None else before.ended_at_ms
            self._runs[name] = table_run(self._command, name, job_result, ended_at_ms)

    def record(self, name: TableName, work: Callable[[], RunResult]) -> RunResult:
        """Does the work for the only table, and records its result."""
        self.expect([name])
        self._began_at = time.monotonic()
        result = work()
        self.add(JobResult(*name, result, None, result.seconds))
        return result

    def write(self, exit_code: int, error: RangelandError | None) -> None:
        """Writes the file when the command has ended with this exit code, and with this error if
        there is one; they count for the tables that have no result."""
        with self._warning_of_failures(_cannot_write(self._path)):
            write_metrics_file(self._path, [*self._runs.values(), *self._ended(exit_code, error)])

    @contextmanager
    def _warning_of_failures(self, what: str) -> Iterator[None]:
        """A context in which a failure is only a warning that says ``what`` has failed."""
        try:
            yield
        except Exception as failure:  # whatever it is, the landing is reported
            self._warn(f"{what}: {_reason(failure)}")

    def _ended(self, exit_code: int, error: RangelandError | None) -> list[TableRun]:
        seconds = None if self._began_at is None else time.monotonic() - self._began_at
        names = [name for name in dict.fromkeys(self._expected) if name not in self._runs]
        return [
            TableRun(self._command, *name, exit_code, wall_ms(), seconds, error=error)
            for name in names
        ]


class RecordingProgress:
    """The progress of many jobs, which also records their results for the metrics file."""

    def __init__(self, progress: JobsProgress, file: MetricsFile) -> None:
        self.step = progress.step
        self.warn = progress.warn
        self._progress = progress
        self._file = file

    def job_done(self, job_result: JobResult[Any], position: int, count: int) -> None:
        self._file.add(job_result)
        self._progress.job_done(job_result, position, count)


def table_run(
    command: str, name: TableName, job_result: JobResult[RunResult], ended_at_ms: int
) -> TableRun:
    return TableRun(
        command,
        *name,
        job_result.exit_code,
        ended_at_ms,
        job_result.seconds or None,  # a job that was not worked on took no time
        job_result.result,
        job_result.error,
    )


def write_metrics_file(path: Path, runs: Iterable[TableRun]) -> None:
    """Raises OSError if the file cannot be written."""
    from prometheus_client import CollectorRegistry, write_to_textfile

    from rangeland.monitoring.run_metrics import RunCollector

    registry = CollectorRegistry()
    registry.register(RunCollector(tuple(runs)))
    write_to_textfile(str(path), registry)


def check_metrics_can_be_written(path: Path) -> None:
    """Raises UsageError if the file cannot be written, or contains anything but our metrics. Tries
    it with a temporary file in the same folder, which is what writing it begins with."""
    if str(path).startswith("-"):
        raise UsageError(
            _cannot_write(path), why="that is an option", do="name the file right after --metrics"
        )
    try:
        if path.exists() and not path.is_file():
            raise UsageError(_cannot_write(path), why="it is not a file", do="name a file")
        tempfile.TemporaryFile(dir=path.absolute().parent).close()
        beginning = _beginning_of(path) if path.exists() else b""
    except OSError as error:
        raise UsageError(
            _cannot_write(path),
            why=_reason(error),
            do="name a file in a folder that exists and can be written to",
        ) from error
    if beginning not in (b"", OUR_BEGINNING):
        # For example a job file, if the name of the metrics file was forgotten.
        raise UsageError(
            _cannot_write(path),
            why=f"it contains something else: it does not begin with `{OUR_BEGINNING.decode()}`",
            do="name a file of its own right after --metrics",
        )
    _check_metrics_can_be_made(path)


def _beginning_of(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(len(OUR_BEGINNING))


def _check_metrics_can_be_made(path: Path) -> None:
    """Raises UsageError if metrics cannot be made. Imports all that makes them, since an old
    library lacks only some names, and nothing may fail once rows have landed."""
    try:
        from rangeland.monitoring.run_metrics import RunCollector  # noqa: F401
    except ImportError as error:
        is_missing = error.name == LIBRARY and isinstance(error, ModuleNotFoundError)
        raise UsageError(
            _cannot_write(path),
            why=f"the Python package {LIBRARY} "
            + ("is missing" if is_missing else f"cannot be used: {error}"),
            do=f"run `pip install '{REQUIREMENT}'` where the driver runs",
        ) from error


def _cannot_write(path: Path) -> str:
    return f"the metrics file {path} cannot be written"


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)
