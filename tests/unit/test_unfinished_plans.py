"""What is said of plans that are entered and have not landed: who finishes them."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console

from rangeland.delta.ledger.events import OutcomeEvent
from rangeland.errors import Conflict
from rangeland.job import Job
from rangeland.job.job_text import parse_job_text
from rangeland.landing.drafts.unfinished_plans import (
    Enter,
    Finish,
    LandNothing,
    comes_first,
    find_overlap,
    plans_to_finish,
    step_before_draft,
    step_for_draft,
)
from rangeland.landing.target.job_history import EnteredPlan
from rangeland.planning.plan import Plan
from rangeland.planning.plan_draft import PlanDraft
from rangeland.planning.plan_kind import PlanKind
from rangeland.render.unfinished_view import unfinished_lines
from rangeland.results import FinishedBy, PlanToFinish
from tests import sample_results as made

JOB = Job.of(parse_job_text(made.JOB_YAML, "orders.yaml"))


def a_plan(kind: PlanKind = PlanKind.RUN, job: str = "orders") -> Plan:
    plan = made.a_plan([made.a_range(0, 0, 10)])
    return replace(plan, kind=kind, job=job, application=kind.application(job, "0123456789abcdef"))


def outcome(plan: Plan) -> OutcomeEvent:
    return OutcomeEvent(plan.application, plan.job, plan.sequence, plan.hash, (), (), 0)


@pytest.mark.parametrize(
    ("plan", "is_prepared", "by"),
    [
        (a_plan(), False, FinishedBy.NEXT_RUN),
        (a_plan(PlanKind.HOLES), False, FinishedBy.NEXT_RUN),
        (a_plan(PlanKind.REDRIVE), False, FinishedBy.NEXT_RUN),
        (a_plan(PlanKind.BACKFILL), False, FinishedBy.SAME_OFFSETS),
        (a_plan(PlanKind.REPLACE), False, FinishedBy.SAME_OFFSETS),
        (a_plan(PlanKind.REREAD), False, FinishedBy.SAME_OFFSETS),
        (a_plan(PlanKind.REPLACE), True, FinishedBy.NEXT_RUN),
        (a_plan(job="clicks"), False, FinishedBy.OTHER_JOB),
        (a_plan(PlanKind.HOLES, "clicks"), False, FinishedBy.OTHER_JOB),
        (a_plan(job="clicks"), True, FinishedBy.NEXT_RUN),
    ],
)
def test_the_next_run_is_named_for_the_plans_that_it_finishes_first_and_no_others(
    plan: Plan, is_prepared: bool, by: FinishedBy
) -> None:
    unfinished = EnteredPlan(plan, None, outcome(plan) if is_prepared else None)
    assert plans_to_finish(JOB, [unfinished]) == (PlanToFinish(plan, by),)
    assert comes_first(JOB, PlanKind.RUN, unfinished) is (by is FinishedBy.NEXT_RUN)


@pytest.mark.parametrize(
    ("plan", "by", "text"),
    [
        (a_plan(), FinishedBy.NEXT_RUN, "the next run finishes it"),
        (
            a_plan(PlanKind.BACKFILL),
            FinishedBy.SAME_OFFSETS,
            "the next run or backfill of any of these offsets finishes it",
        ),
        (
            a_plan(PlanKind.REPLACE),
            FinishedBy.SAME_OFFSETS,
            "the next `rangeland backfill --replace` of any of these offsets finishes it",
        ),
        (a_plan(job="clicks"), FinishedBy.OTHER_JOB, "only the job clicks finishes it"),
    ],
)
def test_people_read_whose_a_plan_is_and_which_command_finishes_it(
    plan: Plan, by: FinishedBy, text: str
) -> None:
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(*unfinished_lines([PlanToFinish(plan, by)]))
    head = f"entered but not landed yet: plan 12 of {plan.application}, 10 offsets: "
    assert console.export_text().strip() == head + text


def of_topic(kind: PlanKind, topic_id: str) -> Plan:
    return replace(a_plan(kind), ranges=(replace(made.a_range(0, 0, 10), topic_id=topic_id),))


@pytest.mark.parametrize(
    ("new", "entered", "is_in_the_way"),
    [
        (PlanKind.RUN, PlanKind.BACKFILL, False),
        (PlanKind.RUN, PlanKind.HOLES, True),
        (PlanKind.HOLES, PlanKind.RUN, True),
        (PlanKind.REPLACE, PlanKind.BACKFILL, True),
        (PlanKind.REDRIVE, PlanKind.REPLACE, True),
    ],
)
def test_plans_that_may_remove_rows_share_offsets_with_those_of_every_incarnation(
    new: PlanKind, entered: PlanKind, is_in_the_way: bool
) -> None:
    """Rows are removed by their offsets, and a table does not tell incarnations apart."""
    before = EnteredPlan(of_topic(entered, "old"), None, None)
    found = find_overlap(of_topic(new, "new"), [before])
    assert found == (before if is_in_the_way else None)


def draft_of(plan: Plan, moves: bool = False) -> PlanDraft:
    return PlanDraft(plan=plan, requested=(), moves_without_landing=moves)


def entered(kind: PlanKind, job: str = "orders") -> EnteredPlan:
    return EnteredPlan(a_plan(kind, job), None, None)


NEW = draft_of(a_plan())
EMPTY = draft_of(replace(a_plan(), ranges=()))
MOVES = draft_of(replace(a_plan(), ranges=()), moves=True)
REPLACES = draft_of(a_plan(PlanKind.REPLACE))
ELSEWHERE = EnteredPlan(made.a_plan([made.a_range(1, 0, 10)]), None, None)


@pytest.mark.parametrize(
    ("draft", "unfinished", "step"),
    [
        (EMPTY, [entered(PlanKind.BACKFILL)], LandNothing(EMPTY)),
        (MOVES, [], Enter(MOVES)),
        (NEW, [], Enter(NEW)),
        (NEW, [ELSEWHERE], Enter(NEW)),
        (NEW, [ELSEWHERE, entered(PlanKind.BACKFILL)], Finish(entered(PlanKind.BACKFILL))),
        (NEW, [entered(PlanKind.REPLACE)], Finish(entered(PlanKind.REPLACE))),
        (REPLACES, [entered(PlanKind.REPLACE)], Finish(entered(PlanKind.REPLACE), REPLACES)),
        (REPLACES, [entered(PlanKind.BACKFILL)], Finish(entered(PlanKind.BACKFILL))),
    ],
)
def test_what_a_run_does_with_its_draft(
    draft: PlanDraft, unfinished: list[EnteredPlan], step: Finish | Enter | LandNothing
) -> None:
    assert step_for_draft(JOB, draft, unfinished) == step


def test_a_plan_of_another_job_in_the_way_is_refused() -> None:
    with pytest.raises(Conflict, match="the job clicks is landing offsets"):
        step_for_draft(JOB, NEW, [entered(PlanKind.RUN, "clicks")])


def test_what_comes_first_is_finished_before_a_draft_is_made() -> None:
    waits, first = entered(PlanKind.BACKFILL), entered(PlanKind.REDRIVE)
    assert step_before_draft(JOB, PlanKind.RUN, [waits, first]) == Finish(first)
    assert step_before_draft(JOB, PlanKind.RUN, [waits]) is None
