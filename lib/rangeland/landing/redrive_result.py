"""The result of ``redrive``: what it has landed, and what is left in quarantine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rangeland.landing.redrive import QuarantinedRange
from rangeland.results import RunResult, range_json


@dataclass(frozen=True, slots=True)
class RedriveResult:
    """``left`` is what is in quarantine now. ``done`` is None for a dry run."""

    job: str
    table: str
    left: tuple[QuarantinedRange, ...]
    seconds: float
    done: RunResult | None = None

    def to_json(self) -> dict[str, Any]:
        if self.done is not None:
            first = self.done.to_json()
        else:
            first = {"job": self.job, "table": self.table, "seconds": round(self.seconds, 3)}
        return {**first, "quarantine": [_batch_json(one) for one in self.left]}


def _batch_json(one: QuarantinedRange) -> dict[str, Any]:
    return {
        **range_json(one.batch.range),
        "application": one.batch.application,
        "sequence": one.batch.sequence,
        "bytes": one.batch.size_bytes,
        "leader": one.batch.leader or None,
        "reason": one.batch.reason,
        "decodes": one.decodes,
        "why": one.why or None,
    }
