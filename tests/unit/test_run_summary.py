"""The result of a command, summed over the plans that it has finished."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from rangeland.delta.ledger.events import LossEvent
from rangeland.delta.transaction_log.table_commit import CommittedOutcome
from rangeland.job.decode_section import Decode
from rangeland.landing.execution.committer import CommittedPlan
from rangeland.landing.execution.run_summary import result_of_plans
from rangeland.loss import Action, DecidedLoss, LossKind
from rangeland.model import Counts, Isolation, Partition, Range, Survey
from rangeland.planning.incarnation import LogMark
from rangeland.planning.job_position import JobPosition
from rangeland.planning.plan import Plan
from rangeland.planning.plan_draft import PlanDraft
from rangeland.planning.plan_kind import PlanKind
from rangeland.planning.slice_receipt import RangeResult
from rangeland.planning.table_audit import ReplacedRange
from rangeland.results import RunResult
from tests import sample_results as made
from tests.fakes.landing import landing_context

P0 = Partition("orders", 0)
NAME = ("rangeland/orders", "orders")


def held(from_offset: int, sequence: int) -> LossEvent:
    loss = DecidedLoss(
        P0, from_offset, from_offset + 10, LossKind.RECREATED, "its id", action=Action.HOLD
    )
    return LossEvent(*NAME, sequence, loss, 0, 0, plan_hash="hash")


def committed(sequence: int, replaced: ReplacedRange | None = None) -> CommittedPlan:
    plan = Plan("orders", NAME[0], sequence, "kafka", Isolation.READ_COMMITTED, (), ())
    landed = CommittedOutcome(sequence, is_new=True)
    outcome: Any = SimpleNamespace(ranges=(), files=(), has_landed_ranges=False)
    return CommittedPlan(plan, outcome, landed, recovered=False, replaced=replaced)


def test_a_held_partition_is_shown_where_its_checkpoint_stays() -> None:
    """Every slice of it may have a loss of its own; the last plan counts."""
    events = {1: [held(0, 1)], 2: [held(10, 2), held(20, 2), held(30, 2)]}
    history = SimpleNamespace(losses=lambda plan_id: events[plan_id.sequence])
    target: Any = SimpleNamespace(history=history, table=SimpleNamespace(version=2))
    finished = [committed(1), committed(2)]
    result = result_of_plans(landing_context(target, _job()), finished, None)
    assert result.held == ("orders/0 [10, 20) is recreated",)
    assert [event.loss.from_offset for event in result.losses] == [0, 10, 20, 30]


def test_the_checkpoint_is_that_of_the_last_plan_of_the_job_without_what_is_held() -> None:
    position = JobPosition(checkpoint={P0: LogMark(7, None)})
    history = SimpleNamespace(
        losses=lambda plan_id: [held(20, 2)] if plan_id.sequence == 2 else [],
        position=lambda application: position,
    )
    target: Any = SimpleNamespace(
        history=history,
        table=SimpleNamespace(version=2),
        identity=SimpleNamespace(landed_sequence=lambda application: 2),
    )
    survey = Survey(0, {P0: made.a_log(0, 0, 40)})
    surveys = SimpleNamespace(last=survey)

    def result(*finished: CommittedPlan, kind: PlanKind = PlanKind.RUN) -> RunResult:
        context = landing_context(target, _job(), kind, surveys=surveys)
        return result_of_plans(context, finished, None)

    plans = [with_checkpoint(committed(1), 10), with_checkpoint(committed(2), 30)]
    others = replace(
        plans[0], plan=replace(plans[0].plan, application="rangeland/orders/missing/1")
    )
    assert result(plans[0]).checkpoint == {P0: LogMark(10, None)}
    assert result(*plans, others).checkpoint == {P0: LogMark(20, None)}
    assert result().checkpoint == result(others).checkpoint == {P0: LogMark(7, None)}
    assert result(*plans, kind=PlanKind.BACKFILL).checkpoint is None
    assert list(result().logs) == list(survey.logs.values())


def test_an_idle_run_does_not_read_its_position_again() -> None:
    """With many partitions that takes longer than anything else that it does at its end."""
    target: Any = SimpleNamespace(
        history=SimpleNamespace(),  # which has no position
        table=SimpleNamespace(version=2),
        identity=SimpleNamespace(landed_sequence=lambda application: 2),
    )
    plan = with_checkpoint(committed(3), 7).plan
    idle = PlanDraft(plan=plan, requested=())
    result = result_of_plans(landing_context(target, _job()), [], idle)
    assert result.checkpoint == {P0: LogMark(7, None)}


def test_a_draft_that_was_not_landed_moves_no_checkpoint() -> None:
    position = JobPosition(checkpoint={P0: LogMark(7, None)})
    target: Any = SimpleNamespace(
        history=SimpleNamespace(position=lambda application: position),
        table=SimpleNamespace(version=2),
        identity=SimpleNamespace(landed_sequence=lambda application: 2),
    )
    plan = with_checkpoint(committed(3), 30).plan
    moving = PlanDraft(plan=plan, requested=(), moves_without_landing=True)
    result = result_of_plans(landing_context(target, _job()), [], moving)
    assert result.checkpoint == {P0: LogMark(7, None)}


def with_checkpoint(one: CommittedPlan, until_offset: int) -> CommittedPlan:
    return replace(one, plan=replace(one.plan, checkpoint={P0: LogMark(until_offset, None)}))


def test_what_is_only_for_metrics_is_not_in_the_json() -> None:
    result = made.a_result()
    more = replace(
        result,
        checkpoint={P0: LogMark(5, None)},
        logs=(made.a_log(0, 0, 9),),
        skipped_losses=(skipped(),),
    )
    assert more.to_json() == result.to_json()


def test_losses_that_the_draft_skips_beside_its_plan_are_in_the_result() -> None:
    history = SimpleNamespace(losses=lambda plan_id: [])
    one = committed(1)
    draft = PlanDraft(plan=one.plan, requested=(), skipped_losses=(skipped(),))
    context = landing_context(SimpleNamespace(history=history), _job())
    assert result_of_plans(context, [one], draft).skipped_losses == (skipped(),)
    assert result_of_plans(context, [one], None).skipped_losses == ()


def skipped() -> DecidedLoss:
    return made.a_loss(0, 30, 30, LossKind.RECREATED).with_action(Action.SKIP)


def test_what_replacements_have_changed_is_added_up() -> None:
    history = SimpleNamespace(losses=lambda plan_id: [])
    context = landing_context(SimpleNamespace(history=history), _job())
    one, other = ReplacedRange(same=3, changed=1), ReplacedRange(added=2)
    plans = [committed(1, one), committed(2), committed(3, other)]
    assert result_of_plans(context, plans, None).replaced == one + other
    assert result_of_plans(context, [committed(2)], None).replaced is None


def test_what_another_driver_has_held_is_not_already_landed() -> None:
    history = SimpleNamespace(losses=lambda plan_id: [])
    context = landing_context(SimpleNamespace(history=history), _job())
    ranges = Range(P0, 0, 10), Range(Partition("orders", 1), 0, 5)
    one = committed(1)
    theirs = replace(
        one,
        plan=replace(one.plan, ranges=ranges),
        outcome=replace_ranges(
            one.outcome, RangeResult(replace(ranges[0], until_offset=4), Counts(landed=4))
        ),
        landed=CommittedOutcome(1, is_new=False),
    )
    result = result_of_plans(context, [theirs], None)
    assert [str(r) for r in result.already_landed] == ["orders/0 [0, 4)"]
    assert result.state == "already-landed"
    nothing = replace(theirs, outcome=one.outcome)
    result = result_of_plans(context, [nothing], None)
    assert (result.state, result.already_landed) == ("nothing", ())


def replace_ranges(outcome: Any, *ranges: RangeResult) -> Any:
    return SimpleNamespace(**{**vars(outcome), "ranges": ranges})


def _job() -> Any:
    return SimpleNamespace(
        name="orders",
        application=NAME[0],
        sink=SimpleNamespace(table="lake/orders"),
        decode=Decode(),
    )
