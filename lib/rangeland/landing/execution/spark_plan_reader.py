"""Reads plans, and confirms that their logs are the ones that were planned.

A driver reads all slices of a plan, or its own slices of a plan that several drivers share. The
result is receipts and files; the committer proves and commits them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from rangeland.errors import Conflict
from rangeland.landing.execution.final_log_check import (
    FinalLogCheck,
    LogsChanged,
    logs_changed_error,
)
from rangeland.landing.execution.plan_settings import look_up_log_settings, look_up_plan_settings
from rangeland.landing.execution.shared_reader_interface import (
    PlanReceipts,
    PlanToRead,
    SharedReader,
    SharedReading,
)
from rangeland.landing.execution.slice_tasks import SliceTasks
from rangeland.landing.landing_context import LandingContext
from rangeland.landing.target.ledger_history import landed_clusters
from rangeland.planning.log_identity import Changed
from rangeland.planning.plan import Plan


class SparkPlanReader:
    """Reads plans for one job's table. ``shared_reader`` returns the reader for plans that are
    shared with other drivers, while this driver takes part in that."""

    def __init__(
        self, context: LandingContext, shared_reader: Callable[[], SharedReader | None]
    ) -> None:
        self._context = context
        self._tasks = SliceTasks(context)
        ledger = context.target.ledger
        self.log_check = FinalLogCheck(
            context.job,
            partial(look_up_log_settings, context),
            lambda: landed_clusters(ledger.view),
        )
        self._shared_reader = shared_reader

    def read(self, plan: Plan, *, is_new: bool) -> PlanReceipts:
        """Reads all slices of a plan, from logs that do not change while they are read. If a log
        does change and the policy allows it, everything is read once more, so that tasks find the
        loss at the start. Raises RangeLost for losses, and Unreachable if a log keeps changing."""
        reading = self._read_once(plan, None, is_new=is_new)
        if isinstance(reading, LogsChanged):
            return self.read_after_change(plan, reading)
        return reading

    def read_after_change(self, plan: Plan, changed: LogsChanged) -> PlanReceipts:
        """Reads a plan again after a log has changed. Another change is an error."""
        self._context.warn(f"{changed.what}; it is read once more")
        reading = self._read_once(plan, changed.change, is_new=False)
        if isinstance(reading, LogsChanged):
            raise logs_changed_error(reading)
        return reading

    def read_shared(self, plan: Plan) -> SharedReading | LogsChanged | None:
        """Reads a plan together with other drivers, unless its logs change; None for a plan of
        another sequence, and if this driver reads alone."""
        read_with_others = self._shared_reader()
        if read_with_others is None:
            return None
        # All drivers that share a plan have to write the same columns.
        context = self._context
        if not context.job.is_own_run(plan) or plan.schema_json != context.schema_to_merge():
            return None
        before = self.log_check.logs_before(look_up_log_settings(context, plan), plan)
        find_change = self.log_check.find_change
        return read_with_others(PlanToRead(plan, context, self._tasks, before, find_change))

    def _read_once(
        self, plan: Plan, after: Changed | None, *, is_new: bool
    ) -> PlanReceipts | LogsChanged:
        self._check_is_of_this_job(plan)
        settings = look_up_plan_settings(self._context, plan)
        before = self.log_check.logs_before(settings, plan, after)
        receipts, files = self._tasks.read_all(plan, settings, is_new=is_new)
        if (changed := self.log_check.find_change(before, receipts.values())) is not None:
            return changed
        regrown = {} if after is None else after.regrown_offsets(plan, receipts.values())
        return PlanReceipts(receipts, files, regrown)

    def _check_is_of_this_job(self, plan: Plan) -> None:
        name = self._context.job.name
        if plan.job != name:
            raise Conflict(
                f"a plan of the job {plan.job} has to be read again to be finished",
                why=f"{plan.id} is prepared, and its files "
                "are gone or no longer fit the table; "
                f"{name} has other brokers, or another transform",
                do=f"run {plan.job} to completion first",
            )
