"""What landing needs from a reader that shares a plan with other drivers.

A driver that works alone reads all slices of a plan itself. A driver in a group hands the plan to a
``SharedReader``, which reads part of it and waits for the rest. Landing knows nothing about groups:
``run`` passes in a reader if there is one.

Drivers share a plan only if they write the same columns. A driver that reads alone writes those of
its own job file: if that has been corrected, the plan might otherwise never be finished.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from rangeland.delta.ledger.events import EventFile, OutcomeEvent
from rangeland.errors import RangelandError
from rangeland.landing.target.landing_target import LandingTarget
from rangeland.model import Slice
from rangeland.planning.plan import Plan
from rangeland.planning.slice_receipt import Receipt, TaskResult

FinishedTasks = tuple[list[TaskResult], RangelandError | None]
"""The results of the tasks that finished, and the error that ended the reading, if any."""
ReadTasks = Callable[[Sequence[Slice], Callable[[], bool], Mapping[int, int]], FinishedTasks]
"""Reads slices until all are read, one fails, or the stop function returns true. The third argument
has the widths of what was read earlier, by slice index."""

PrepareOutcome = Callable[[Mapping[int, Receipt], Sequence[EventFile]], OutcomeEvent]


@dataclass(frozen=True, slots=True)
class PlanToRead:
    """A plan without an outcome, and the means to read it. ``whole``: one driver must read all of
    its slices.

    ``check_part_is_valid`` raises if the receipts do not add up, or come from logs that are no
    longer the plan's: such a part would block the plan for ever. ``prepare``
    takes the receipts and files of all slices, proves and checks them, and returns the outcome that
    counts."""

    plan: Plan
    target: LandingTarget
    read: ReadTasks
    files_of: Callable[[Sequence[TaskResult]], list[EventFile]]
    check_part_is_valid: Callable[[Mapping[int, Receipt]], None]
    prepare: PrepareOutcome
    whole: bool


@dataclass(frozen=True, slots=True)
class SharedOutcome:
    """The outcome of a plan. ``with_others``: other drivers took part while this one worked."""

    outcome: OutcomeEvent
    with_others: bool


class SharedReader(Protocol):
    """Reads plans together with other drivers."""

    @property
    def is_available(self) -> bool:
        """False if this driver has to read alone."""

    def read(self, work: PlanToRead) -> SharedOutcome:
        """Returns once the plan has an outcome, prepared here or by another driver."""
