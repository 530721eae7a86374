"""Decides what a run does next, and whether other plans or later landings block a plan from being
entered. Pure.

An entered plan blocks others until it is finished, even if it can no longer be read. If its offsets
are gone or its bytes are damaged, a policy of *skip* lets the next run finish it, with the loss
counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from rangeland.errors import Conflict
from rangeland.job import Job
from rangeland.landing.target.job_history import EnteredPlan
from rangeland.model import Bounds, FromCheckpoint, Range
from rangeland.planning.coverage import coverage_of, covered_parts
from rangeland.planning.job_position import JobPosition
from rangeland.planning.plan import Plan
from rangeland.planning.plan_draft import PlanDraft
from rangeland.planning.plan_kind import PlanKind
from rangeland.results import FinishedBy, PlanToFinish


@dataclass(frozen=True, slots=True)
class Finish:
    """Finish a plan that was entered before. ``satisfied_draft``: the draft, if an earlier driver
    was asked to replace the same ranges. Once that plan has landed, so has the draft."""

    entered: EnteredPlan
    satisfied_draft: PlanDraft | None = None


@dataclass(frozen=True, slots=True)
class Enter:
    """Enter the draft's plan and finish it."""

    draft: PlanDraft


@dataclass(frozen=True, slots=True)
class LandNothing:
    """Just record the draft's losses, since it has nothing to land."""

    draft: PlanDraft


def step_before_draft(job: Job, kind: PlanKind, unfinished: Sequence[EnteredPlan]) -> Finish | None:
    """The step that a run takes before it makes a draft, if any."""
    return next((Finish(plan) for plan in unfinished if comes_first(job, kind, plan)), None)


def step_for_draft(
    job: Job, draft: PlanDraft, unfinished: Sequence[EnteredPlan]
) -> Finish | Enter | LandNothing:
    """The step that a run takes with its draft. Raises Conflict for a blocking plan that this job
    cannot finish."""
    if draft.is_without_effect:
        return LandNothing(draft)
    blocking = find_overlap(draft.plan, unfinished)
    if blocking is None:
        return Enter(draft)
    check_same_job(job, blocking)
    both_replace = blocking.plan.replaces and draft.plan.replaces
    is_same = both_replace and blocking.plan.ranges == draft.plan.ranges
    return Finish(blocking, draft if is_same else None)


def comes_first(job: Job, kind: PlanKind, unfinished: EnteredPlan) -> bool:
    """Whether a command that makes plans of this kind finishes this one first. Every command
    commits prepared outcomes. Unfinished plans of its own sequence, and plans of its job that
    repair the table or land quarantined batches, are also finished first."""
    plan = unfinished.plan
    own = job.is_own_run(plan) and kind.traits.moves_checkpoint
    is_urgent = plan.job == job.name and plan.kind.traits.is_finished_first
    return own or is_urgent or unfinished.outcome is not None


def plans_to_finish(job: Job, unfinished: Sequence[EnteredPlan]) -> tuple[PlanToFinish, ...]:
    """Who finishes each of these plans, according to ``comes_first``, ``find_overlap`` and
    ``check_same_job``."""
    return tuple(PlanToFinish(entered.plan, _finished_by(job, entered)) for entered in unfinished)


def _finished_by(job: Job, unfinished: EnteredPlan) -> FinishedBy:
    if comes_first(job, PlanKind.RUN, unfinished):
        return FinishedBy.NEXT_RUN
    is_own = unfinished.plan.job == job.name
    return FinishedBy.SAME_OFFSETS if is_own else FinishedBy.OTHER_JOB


def find_overlap(plan: Plan, unfinished: Sequence[EnteredPlan]) -> EnteredPlan | None:
    """The first unfinished plan that shares an offset with this one. A plan that may remove rows
    finds them only by their offsets, and so shares offsets with every incarnation of the topic."""
    for other in unfinished:
        ranges: Sequence[Range] = plan.ranges
        if plan.kind.traits.may_remove_rows or other.plan.kind.traits.may_remove_rows:
            ranges = [replace(r, topic_id=None) for r in ranges]
        if covered_parts(ranges, coverage_of(other.plan.ranges)):
            return other
    return None


def check_same_job(job: Job, unfinished: EnteredPlan) -> None:
    """Raises Conflict for a blocking plan that this job cannot finish."""
    plan = unfinished.plan
    if plan.job == job.name:
        return
    raise Conflict(
        f"the job {plan.job} is landing offsets of the same range in the table {job.sink.table}",
        why=f"its plan {plan.id} is not finished",
        do=f"run {plan.job} to completion first",
    )


def check_still_current(
    plan: Plan, unfinished: Sequence[EnteredPlan], position: JobPosition
) -> None:
    """Raises Conflict for a plan that was made earlier and can no longer be entered."""
    if position.sequence != plan.sequence:
        raise outdated_error(
            plan,
            f"it is plan {plan.sequence} of {plan.application}, and the next one to land is "
            f"{position.sequence}",
        )
    if covered := covered_parts(plan.ranges, position.covered):
        raise outdated_error(plan, f"{covered[0]} has landed already")
    if any(other.plan.application == plan.application for other in unfinished):
        # With two plans of one sequence, the checkpoint of one would count for the other's rows.
        why = f"{plan.id} was entered already, as another plan"
        raise outdated_error(
            plan, why, f"run {plan.job} to completion, then make a new plan and review it"
        )
    if blocking := find_overlap(plan, unfinished):
        raise outdated_error(
            plan, f"{blocking.plan.application} is landing some of the same offsets"
        )


def check_follows_checkpoint(plan: Plan, passed_over: Sequence[Range], from_bounds: Bounds) -> None:
    """Raises Conflict for offsets between the checkpoint and a plan that should continue from it.
    When the plan was made, they counted as landed by another plan, which has been given up
    since."""
    for r in passed_over:
        if isinstance(from_bounds.of(r.partition), FromCheckpoint):
            raise outdated_error(plan, f"it leaves out {r}, which has not landed")


def outdated_error(plan: Plan, why: str, do: str = "make a new plan and review it") -> Conflict:
    error = Conflict(f"plan {plan.hash[:12]} no longer applies", why=why, do=do)
    return error.with_answers(retry="not this plan: make a new one")
