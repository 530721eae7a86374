"""Reads a job's position and the state of its plans from its table and the ledger beside it.

A plan has landed once the table has its transaction; the ledger shows what it landed, held and
lost. This module neither writes (``target_writer`` does) nor asks a broker.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rangeland.delta.ledger.events import LossEvent, OutcomeEvent, PlanEvent
from rangeland.errors import Bug, Conflict
from rangeland.job import Job
from rangeland.landing.target.identity_check import IdentityCheck
from rangeland.landing.target.ledger_history import (
    checkpoint_of,
    coverage_in,
    held_at_first,
    plan_of,
)
from rangeland.landing.target.target_ledger import TargetLedger
from rangeland.landing.target.target_table import TargetTable
from rangeland.planning.job_position import JobPosition
from rangeland.planning.plan import Plan, PlanId


@dataclass(frozen=True, slots=True)
class EnteredPlan:
    """A plan that is in the ledger, with its outcome (once prepared), and the table's version when
    the plan was made (if known)."""

    plan: Plan
    planned_at_version: int | None
    outcome: OutcomeEvent | None


class JobHistory:
    """The contents of table and ledger at the last refresh of the ledger."""

    def __init__(
        self, job: Job, table: TargetTable, ledger: TargetLedger, identity: IdentityCheck
    ) -> None:
        self._job = job
        self._table = table
        self._ledger = ledger
        self._identity = identity

    # --- where the job stands ----------------------------------------------------------

    def position(self, application: str) -> JobPosition:
        """The position at which the next plan of an application begins, as of the last
        ``refresh``."""
        sequence = self._identity.landed_sequence(application)
        own = self._job.application
        newest = _landed_plan(self._ledger, PlanId(own, self._identity.landed_sequence(own)))
        ledger = self._ledger.view
        checkpoint = {} if newest is None else checkpoint_of(ledger, newest)
        held = held_at_first(ledger, own) - checkpoint.keys() if checkpoint else frozenset()
        last = None if newest is None else plan_of(newest)
        return JobPosition(
            checkpoint=checkpoint,
            covered=coverage_in(ledger),
            sequence=sequence + 1,
            held_at_first=held,
            cluster=None if last is None else last.cluster,
            read_filter=None if last is None else (last.isolation, last.tags),
        )

    def last_known(self, application: str, without: Sequence[OutcomeEvent] = ()) -> JobPosition:
        """The position after the last landing in the ledger, with the last sequence in it or in the
        table, without checking that the two agree. ``without``: outcomes that can no longer
        land."""
        ledger = self._ledger.view
        left_out = {outcome.plan_id for outcome in without}
        outcomes = (one for one in ledger.outcomes(application) if one.plan_id not in left_out)
        plans = (ledger.plan_of(outcome) for outcome in outcomes)
        plan = next((plan for plan in plans if plan is not None), None)
        checkpoint = {} if plan is None else checkpoint_of(ledger, plan)
        last = max(self._table.transaction_version(application), ledger.last_sequence(application))
        return JobPosition(checkpoint, coverage_in(ledger, without), last + 1)

    def losses(self, plan_id: PlanId | None = None) -> list[LossEvent]:
        """The losses in the ledger, of one plan or of all."""
        return self._ledger.view.losses(plan_id)

    def unfinished_plans(self) -> list[EnteredPlan]:
        """Plans of any job that are entered but not in the table, oldest first."""
        plan_ids = self._ledger.view.possibly_unfinished()
        return [self._entered(p) for p in plan_ids if not self._identity.has_landed(p)]

    def known_unfinished_plans(self) -> list[EnteredPlan]:
        """The unfinished plans, except those of applications for which it is unknown what has
        landed, or for which table and ledger contradict each other."""
        plans = []
        for plan_id in self._ledger.view.possibly_unfinished():
            try:
                if not self._identity.has_landed(plan_id):
                    plans.append(self._entered(plan_id))
            except Conflict:
                continue
        return plans

    def plans_without_outcome(self, application: str) -> list[Plan]:
        """The plans of an application that an adoption ends: those that have no outcome and may
        still get one, oldest first, whether or not table and ledger agree."""
        plan_ids = self._ledger.view.without_outcome()
        return [self._entered(p).plan for p in plan_ids if p.application == application]

    def _entered(self, plan_id: PlanId) -> EnteredPlan:
        ledger = self._ledger.view
        event = ledger.plan(plan_id)
        if event is None:
            raise Bug(f"the ledger names plan {plan_id} but does not have it")
        return EnteredPlan(plan_of(event), event.table_version, ledger.outcome(plan_id))

    def entered_plan(self, plan: Plan) -> EnteredPlan | None:
        """The same plan, if it is in the ledger, finished or not."""
        same = next((u for u in self.unfinished_plans() if u.plan.hash == plan.hash), None)
        return same or self.plan_with_outcome(plan)

    def plan_with_outcome(self, plan: Plan) -> EnteredPlan | None:
        """The same plan with its outcome, if it was entered earlier and has one."""
        outcome = self._ledger.view.outcome(plan.id)
        if outcome is None or outcome.plan_hash != plan.hash:
            return None
        return EnteredPlan(plan, None, outcome)

    def landings(self) -> list[tuple[PlanEvent, OutcomeEvent]]:
        """All plans of all jobs that are in the table, in the order they were entered, each with
        its outcome. Raises Conflict if the table has rows but no ledger."""
        if self._ledger.opened is None:
            raise self._identity.disagreement_error() or Conflict(
                f"the table {self._table.name} has no ledger",
                why="this library has landed nothing in it, or its folder _rangeland is gone",
                do="land something first, or restore the folder _rangeland",
            )
        sequences: dict[str, int] = {}
        landings = []
        for plan, outcome in self._ledger.view.prepared_plans():
            application = plan.application
            if application not in sequences:
                sequences[application] = self._last_sequence(application)
            if plan.sequence <= sequences[application]:
                landings.append((plan, outcome))
        return landings

    def _last_sequence(self, application: str) -> int:
        """The last sequence in the table or, if that is unknown, in the ledger: reading the table
        then shows whether the rows are there."""
        try:
            return self._identity.landed_sequence(application)
        except Conflict:
            return self.last_known(application).sequence - 1


def _landed_plan(ledger: TargetLedger, plan_id: PlanId) -> PlanEvent | None:
    """A plan that the table has landed, as it is in the ledger; None for sequence 0, and without a
    ledger."""
    if ledger.opened is None or plan_id.sequence <= 0:
        return None
    event = ledger.view.landed_plan(plan_id)
    if event is None:
        ledger.opened.refresh()
        event = ledger.view.landed_plan(plan_id)
    if event is None:
        raise Conflict(
            f"the table says that {plan_id.application} has landed {plan_id.sequence}, but the "
            "ledger has no such plan",
            why="the ledger was deleted, or the table is a copy of another one",
            do="restore the folder _rangeland beside the table's files; or, if the table is as "
            "it should be, run `rangeland adopt JOB.yaml`, which counts its present rows as "
            "landed; or land under another job name",
        )
    return event
