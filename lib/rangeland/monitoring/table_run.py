"""How a command ended for one table, as a value. Needs no metrics library, so that a result can be
recorded without one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rangeland.errors import RangelandError
    from rangeland.results import RunResult


@dataclass(frozen=True, slots=True)
class TableRun:
    """How a command ended for one table of a job; ``table`` is None if it is not known. A run that
    ended by an interruption has neither a result nor an error."""

    command: str
    job: str
    table: str | None
    exit_code: int
    ended_at_ms: int
    seconds: float | None = None
    """How long the command worked on the table; None if it did not get that far."""
    result: RunResult | None = None
    error: RangelandError | None = None
