"""What landing needs from a reader that shares a plan with other drivers, and gives to it.

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
from rangeland.landing.execution.final_log_check import LogsChanged
from rangeland.landing.execution.plan_settings import look_up_plan_settings
from rangeland.landing.execution.slice_tasks import FinishedTasks, SliceTasks
from rangeland.landing.landing_context import LandingContext
from rangeland.landing.target.target_writer import TargetWriter
from rangeland.model import Slice
from rangeland.planning.file_proof import prove_files
from rangeland.planning.plan import Plan
from rangeland.planning.proof import prove_part
from rangeland.planning.slice_receipt import Receipt, TaskResult

PrepareOutcome = Callable[[Mapping[int, Receipt], Sequence[EventFile]], OutcomeEvent]


@dataclass(frozen=True, slots=True)
class PlanToRead:
    """A plan without an outcome, and the means to read it. ``find_change`` returns how the
    logs that receipts come from have changed, if they have, and ``prepare_outcome`` proves, checks
    and prepares what all drivers have read."""

    plan: Plan
    context: LandingContext
    tasks: SliceTasks
    find_change: Callable[[Mapping[int, Receipt]], LogsChanged | None]
    prepare_outcome: PrepareOutcome

    @property
    def writer(self) -> TargetWriter:
        return self.context.target.writer

    @property
    def whole(self) -> bool:
        """Whether one driver must read all slices."""
        return self.context.transform is not None

    def read(
        self,
        slices: Sequence[Slice],
        stop: Callable[[], bool],
        read_widths: Mapping[int, int],
    ) -> FinishedTasks:
        """Reads slices until all are read, one fails, or ``stop`` returns true. ``read_widths`` are
        the widths of what was read earlier, by slice index."""
        settings = look_up_plan_settings(self.context, self.plan)
        return self.tasks.read_until_stopped(self.plan, settings, slices, stop, read_widths)

    def files_of(self, results: Sequence[TaskResult]) -> list[EventFile]:
        return self.tasks.files_of(self.plan, results)

    def prove_part(
        self, receipts: Mapping[int, Receipt], files: Sequence[EventFile]
    ) -> LogsChanged | None:
        """Raises if the receipts or the files do not add up; returns the change if they come from
        logs that are no longer the plan's. Such a part would block the plan for ever."""
        prove_part(self.plan, receipts)
        prove_files(self.plan, receipts, files, are_transformed=self.context.transform is not None)
        return self.find_change(receipts)

    def prepare(
        self, receipts: Mapping[int, Receipt], files: Sequence[EventFile]
    ) -> OutcomeEvent | LogsChanged:
        """The outcome that counts, from the receipts and files of all slices, unless their logs
        have changed."""
        return self.find_change(receipts) or self.prepare_outcome(receipts, files)


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

    def read(self, work: PlanToRead) -> SharedOutcome | LogsChanged:
        """Returns once the plan has an outcome, prepared here or by another driver, or its logs
        have changed."""
