"""What landing needs from a reader that shares a plan with other drivers, and gives to it.

A driver that works alone reads all slices of a plan itself. A driver in a group hands the plan to a
``SharedReader``, which reads part of it and waits for the rest. Landing knows nothing about groups:
``run`` passes in a reader while there is one.

Drivers share a plan only if they write the same columns. A driver that reads alone writes those of
its own job file: if that has been corrected, the plan might otherwise never be finished.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from rangeland.delta.ledger.events import EventFile, OutcomeEvent
from rangeland.landing.execution.final_log_check import LogsBefore, LogsChanged
from rangeland.landing.execution.slice_tasks import SliceTasks
from rangeland.landing.landing_context import LandingContext
from rangeland.planning.plan import Plan
from rangeland.planning.slice_receipt import Receipt

RecordOutcome = Callable[[Mapping[int, Receipt], Sequence[EventFile]], OutcomeEvent]


@dataclass(frozen=True, slots=True)
class PlanToRead:
    """A plan without an outcome, and the means to read it. ``tasks`` read slices. ``before``: its
    logs before this driver reads them. ``find_change`` returns how the logs that receipts come from
    have changed, if they have. ``record_outcome`` proves, checks and records what all drivers have
    read, and returns the outcome that counts."""

    plan: Plan
    context: LandingContext
    tasks: SliceTasks
    before: LogsBefore
    find_change: Callable[[LogsBefore, Iterable[Receipt]], LogsChanged | None]
    record_outcome: RecordOutcome

    @property
    def is_transformed(self) -> bool:
        """Whether a transform makes the rows. One driver has to read all slices then."""
        return self.context.transform is not None


@dataclass(frozen=True, slots=True)
class SharedOutcome:
    """The outcome of a plan. ``with_others``: other drivers took part while this one worked."""

    outcome: OutcomeEvent
    with_others: bool


SharedReader = Callable[[PlanToRead], SharedOutcome | LogsChanged]
"""Reads a plan together with other drivers. Returns once it has an outcome, prepared here or by
another driver, or its logs have changed."""
