"""The interface between landing and a reader that shares a plan with other drivers.

A driver that works alone reads all slices of a plan itself. A driver in a group passes the plan to
a ``SharedReader``, which reads part of it and waits for the rest. Landing knows nothing about
groups: ``run`` passes in a reader while there is one.

Drivers share a plan only if they write the same columns. A driver that reads alone writes the
columns of its own job file. Otherwise, a plan might never be finished after a job file was
corrected.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from rangeland.delta.ledger.events import OutcomeEvent
from rangeland.landing.execution.final_log_check import LogsBefore, LogsChanged
from rangeland.landing.execution.slice_tasks import SliceTasks
from rangeland.landing.landing_context import LandingContext
from rangeland.loss import DecidedLoss
from rangeland.planning.plan import Plan
from rangeland.planning.slice_receipt import Receipt, WrittenFile


@dataclass(frozen=True, slots=True)
class PlanReceipts:
    """The result of reading a plan. ``regrown`` are offsets that were truncated after they were
    planned and written again before they were read, each with the leader epoch of the records that
    were read there."""

    receipts: Mapping[int, Receipt]
    files: Sequence[WrittenFile] = ()
    regrown: Mapping[DecidedLoss, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PlanToRead:
    """A plan without an outcome, and the means to read it. ``tasks`` reads slices. ``before``: the
    state of its logs before this driver reads them. ``find_change`` returns how the logs that
    receipts come from have changed, if they have."""

    plan: Plan
    context: LandingContext
    tasks: SliceTasks
    before: LogsBefore
    find_change: Callable[[LogsBefore, Iterable[Receipt]], LogsChanged | None]

    @property
    def is_transformed(self) -> bool:
        """Whether a transform makes the rows. One driver has to read all slices then."""
        return self.context.transform is not None


@dataclass(frozen=True, slots=True)
class SharedReading:
    """The receipts and files of a plan that the drivers of a group have read, perhaps one of them
    alone, or the outcome that another driver has prepared meanwhile. ``with_others``: other drivers
    took part while this one worked."""

    result: PlanReceipts | OutcomeEvent
    with_others: bool


SharedReader = Callable[[PlanToRead], SharedReading | LogsChanged]
"""Reads a plan together with other drivers. Returns once all of it is read, another driver has
recorded its outcome, or its logs have changed."""
