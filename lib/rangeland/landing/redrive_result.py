"""The result of ``redrive``: what it has landed, and what is left in quarantine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rangeland.landing.redrive import QuarantinedRange
from rangeland.result_json import RESULT_JSON, JsonResult
from rangeland.results import RunResult


@dataclass(frozen=True, slots=True)
class RedriveResult(JsonResult):
    """``left`` is what is in quarantine now. ``done`` is None for a dry run."""

    VIEW = "job table seconds"

    job: str
    table: str
    left: tuple[QuarantinedRange, ...]
    seconds: float
    done: RunResult | None = None

    def to_json(self) -> dict[str, Any]:
        first = RESULT_JSON.write(self) if self.done is None else self.done.to_json()
        return {**first, "quarantine": [RESULT_JSON.write(one) for one in self.left]}
