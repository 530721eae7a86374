"""The commands that drivers of a history carry out, and what each of them may end with."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rangeland.errors import Conflict, JobFileError, RangelandError, TableRefused, UsageError
from rangeland.job import Job
from rangeland.job.range_section import RangeSpec
from rangeland.loss import DecidedLoss
from rangeland.planning.plan import Plan
from rangeland.planning.plan_kind import PlanKind
from rangeland.progress_events import NoProgress
from rangeland.queries.verify_and_find import verify
from rangeland.results import PlanPreview
from rangeland.run import adopt, apply, backfill, preview
from tests.simulation.spark import SimulatedSpark

RANGES = {
    "backfill": ("backfill", ""),
    "replace": ("replace", ""),
    "backfill-end": ("backfill", "end"),
    "backfill-start": ("backfill", "start"),
    "replace-end": ("replace", "end"),
}
"""These are asked for all of the log, its end or its start, whatever the checkpoint is."""
NAMED = tuple(command for command, (_, part) in RANGES.items() if part)
"""These begin or end at offsets that a person has named."""
COMMANDS = (
    *("run",) * 5,
    *RANGES,
    *("missing", "reread", "redrive", "verify", "plan", "apply"),
)
MAY_END_WITH: dict[str, tuple[type[RangelandError], ...]] = {
    "replace": (UsageError, TableRefused),
    "replace-end": (UsageError, TableRefused, JobFileError),
    "backfill-start": (JobFileError,),
    "backfill-end": (JobFileError,),
    "apply": (Conflict,),
}
"""Errors that a command may end with in a cluster and a table without any trouble: a range to
replace may cut a slice, a range may end before what has expired, a plan may be out of date."""


@dataclass(frozen=True)
class ReviewedPlan:
    """What a plan file keeps."""

    text: str
    unplanned_losses: tuple[DecidedLoss, ...]

    @property
    def plan(self) -> Plan:
        return Plan.from_json(json.loads(self.text))


class Operations:
    """``reviewed`` is the plan that the last ``plan`` has made."""

    def __init__(self) -> None:
        self.reviewed: ReviewedPlan | None = None

    def carry_out(
        self, command: str, job: Job, spark: SimulatedSpark, somewhere: Mapping[int, int]
    ) -> Any:
        """``somewhere`` are offsets at which a range may begin or end."""
        progress = NoProgress()
        if command in RANGES:
            command, part = RANGES[command]
            job = job.model_copy(update={"range": _range(job, part, somewhere)})
        match command:
            case "verify":
                return verify(job, spark, progress)
            case "adopt":
                return adopt(job, spark, progress)
            case "plan":
                return self._reviewed(preview(job, spark, progress))
            case "apply":
                file = self.reviewed or self._reviewed(preview(job, spark, progress))
                self.reviewed = None
                return apply(job, file.plan, file.unplanned_losses, spark, progress)
        return backfill(job, spark, progress, PlanKind(command))

    def _reviewed(self, found: PlanPreview) -> ReviewedPlan:
        text = json.dumps(found.draft.plan.to_json())
        self.reviewed = ReviewedPlan(text, tuple(found.unplanned_losses))
        return self.reviewed


def _range(job: Job, part: str, somewhere: Mapping[int, int]) -> RangeSpec:
    bounds = {topic: dict(somewhere) for topic in job.source.topics}
    asked: dict[str, Any] = {"from": "earliest"}
    if part == "end":
        asked["from"] = bounds
    elif part == "start":
        asked["until"] = bounds
    return RangeSpec.model_validate(asked)
