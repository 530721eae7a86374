"""Ends plans in ways other than landing what this driver has read.

A plan that can never succeed is given up if its kind allows that: it gets an outcome that lands
nothing. If another driver has prepared or landed an outcome for it in the meantime, that one
counts.
"""

from __future__ import annotations

from dataclasses import dataclass

from rangeland.delta.ledger.events import OutcomeEvent
from rangeland.delta.transaction_log.table_commit import CommittedOutcome
from rangeland.error_answers import PlanStage, at_stage
from rangeland.errors import RangelandError
from rangeland.landing.landing_context import LandingContext
from rangeland.landing.target.landing_commits import landing_commit
from rangeland.landing.target.landing_target import LandingTarget
from rangeland.landing.target.loss_records import losses_in
from rangeland.landing.target.target_table import TargetTable
from rangeland.landing.target.target_writer import check_outcome_is_not_ended
from rangeland.planning.plan import Plan


@dataclass(frozen=True, slots=True)
class Superseded:
    """The plan has an outcome that counts: another driver has prepared or landed it in the
    meantime. It must be committed, unless it has landed."""

    outcome: OutcomeEvent


def has_landed_by_now(target: LandingTarget, plan: Plan) -> bool:
    """Whether the table has a plan now. If this raises an error, it is unknown."""
    with at_stage(PlanStage.UNCONFIRMED):
        target.table.refresh_same_table()
        return target.identity.has_landed(plan.id)


def check_plan_is_not_ended(target: LandingTarget, plan: Plan) -> None:
    """Raises Conflict if an adoption has ended a plan that this driver has seen prepared: the table
    has a later sequence then, and not its rows. After any other error, it is unknown."""
    with at_stage(PlanStage.UNCONFIRMED):
        target.ledger.refresh()
        entered = target.history.plan_with_outcome(plan)
    if entered is not None and entered.outcome is not None:
        check_outcome_is_not_ended(plan, entered.outcome)


def give_up(
    context: LandingContext,
    plan: Plan,
    error: RangelandError,
    earlier_outcome: OutcomeEvent | None,
) -> Superseded | None:
    """Ends a plan that cannot succeed, without changing the table; then returns None. Does nothing
    if it has landed, or another driver has read it successfully."""
    target = context.target
    if earlier_outcome is not None and has_landed_by_now(target, plan):
        return Superseded(earlier_outcome)
    context.progress.step("giving up the plan")
    attempt = 0 if earlier_outcome is None else earlier_outcome.attempt + 1
    outcome = target.writer.give_up(plan, losses_in(error), attempt)
    if not outcome.is_given_up(plan.kind):
        return Superseded(outcome)
    committed = target.writer.commit_outcome(outcome)
    is_new = isinstance(committed, CommittedOutcome) and committed.is_new
    if (
        earlier_outcome is not None
        and not is_new
        and _has_landed_as(target.table, plan, earlier_outcome)
    ):
        return Superseded(earlier_outcome)
    return None


def _has_landed_as(table: TargetTable, plan: Plan, outcome: OutcomeEvent) -> bool:
    """Whether a plan that is in the table landed there with the rows of this outcome: another
    driver may also have given it up."""
    location = table.location
    with at_stage(PlanStage.UNCONFIRMED):
        table.refresh_same_table()
        if not plan.replaces:
            return table.has_one_of(outcome.data_files)
        # Spark has written the rows of a replacement to files of its own.
        commit = landing_commit(location.delta, location.uri, plan.id)
        return commit is not None and commit.has_condition
