"""The results of many jobs, as values. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Generic, Protocol, TypeVar

from rangeland.errors import (
    BadRecord,
    Bug,
    Conflict,
    JobFileError,
    RangelandError,
    RangeLost,
    Unreachable,
    UsageError,
    error_json,
)

BY_SEVERITY = (Bug, JobFileError, UsageError, RangeLost, BadRecord, Conflict, Unreachable)
"""The most severe first: errors that need a repair, then a decision, then only time."""


class CommandResult(Protocol):
    """The result of a command for one job."""

    @property
    def exit_code(self) -> int: ...
    def to_json(self) -> dict[str, Any]: ...


R = TypeVar("R", bound=CommandResult, covariant=True)


@dataclass(frozen=True)
class JobResult(Generic[R]):
    """The result of one job of many, or the error that ended it. ``table`` is None if the job's
    tables are not known, and ``seconds`` is 0 if it was not worked on."""

    job: str
    table: str | None
    result: R | None
    error: RangelandError | None
    seconds: float

    @property
    def exit_code(self) -> int:
        """The exit code of the error or the result; for a table that lacks rows, it is not 0."""
        ended_with = self.result if self.error is None else self.error
        return 0 if ended_with is None else ended_with.exit_code

    def with_warning(self, text: str) -> JobResult[R]:
        """The same with one more warning in its result, unless that is empty or there is no
        result."""
        from rangeland.results import add_warning  # A command line needs this module early.

        return replace(self, result=add_warning(self.result, text))

    def to_json(self) -> dict[str, Any]:
        document = error_json(self.error) if self.error is not None else {}
        document |= self.result.to_json() if self.result is not None else {}
        name = {"job": self.job, "table": self.table, "exit": self.exit_code}
        return {**document, **name, "seconds": round(self.seconds, 3)}


@dataclass(frozen=True)
class FleetResult(Generic[R]):
    """The results of all jobs of one command, in the order of their files and tables."""

    jobs: tuple[JobResult[R], ...]
    seconds: float

    @property
    def exit_code(self) -> int:
        """The most severe exit code of the jobs."""
        return most_severe(job.exit_code for job in self.jobs)

    def to_json(self) -> dict[str, Any]:
        return {
            "jobs": [job.to_json() for job in self.jobs],
            "exit": self.exit_code,
            "seconds": round(self.seconds, 3),
        }


def most_severe(exit_codes: Iterable[int]) -> int:
    """The exit code of many jobs: the most severe of all."""
    order = [kind.exit_code for kind in BY_SEVERITY]
    failures = {code for code in exit_codes if code != 0}
    return min(failures, key=lambda code: order.index(code) if code in order else -1, default=0)
