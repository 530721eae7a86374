"""The commands that drivers of a history carry out, and what each of them may end with."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rangeland.errors import Conflict, RangelandError, UsageError
from rangeland.job import Job
from rangeland.job.job_file import RangeSpec
from rangeland.planning.plan import Plan, PlanKind
from rangeland.planning.policy import Loss
from rangeland.progress_events import NoProgress
from rangeland.queries.table_queries import verify
from rangeland.results import PlanPreview
from rangeland.run import Runner, preview
from tests.simulation.spark import SimulatedSpark

COMMANDS = ("run", "run", "run", "run", "backfill", "replace", "missing", "verify", "plan", "apply")
EVERYTHING = ("backfill", "replace")
"""These are asked for the whole log, whatever the checkpoint is."""
MAY_END_WITH: dict[str, tuple[type[RangelandError], ...]] = {
    "replace": (UsageError,),
    "apply": (Conflict,),
}
"""Errors that a command may end with in a cluster and a table without any trouble: a range to
replace may cut a slice, and a plan may be out of date."""


@dataclass(frozen=True)
class ReviewedPlan:
    """What a plan file keeps."""

    text: str
    seen: tuple[Loss, ...]

    @property
    def plan(self) -> Plan:
        return Plan.from_json(json.loads(self.text))


class Operations:
    """``reviewed`` is the plan that the last ``plan`` has made."""

    def __init__(self) -> None:
        self.reviewed: ReviewedPlan | None = None

    def carry_out(self, command: str, job: Job, spark: SimulatedSpark) -> Any:
        progress = NoProgress()
        if command in EVERYTHING:
            spec = RangeSpec.model_validate({"from": "earliest"})
            job = job.model_copy(update={"range": spec})
        match command:
            case "verify":
                return verify(job, spark, progress)
            case "plan":
                return self._reviewed(preview(job, spark, progress))
            case "apply":
                file = self.reviewed or self._reviewed(preview(job, spark, progress))
                self.reviewed = None
                return Runner(job, spark, progress).apply(file.plan, file.seen)
        return Runner(job, spark, progress, PlanKind(command)).run()

    def _reviewed(self, found: PlanPreview) -> ReviewedPlan:
        text = json.dumps(found.draft.plan.to_json())
        self.reviewed = ReviewedPlan(text, tuple(found.seen))
        return self.reviewed


def may_change(commands: Sequence[str]) -> bool:
    return any(command not in ("verify", "plan") for command in commands)
