"""A plan that was reviewed brings its losses to the ledger, once, wherever it was killed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from rangeland.delta.ledger.events import OutcomeEvent
from rangeland.delta.ledger.ledger_table import Ledger
from rangeland.errors import Conflict
from rangeland.landing import landing_steps
from rangeland.landing.execution.run_summary import result_of_plans
from rangeland.landing.target.landing_target import LandingTarget
from rangeland.landing.target.target_schema import TargetSchema
from rangeland.landing.target.target_writer import TargetWriter
from rangeland.loss import Action, DecidedLoss, LossKind
from rangeland.model import Counts, Partition, Survey
from rangeland.planning.coverage import coverage_of, uncovered_parts
from rangeland.planning.plan import Plan
from rangeland.planning.plan_draft import PlanDraft
from rangeland.planning.plan_kind import PlanKind
from rangeland.planning.proof import prove
from rangeland.planning.slice_receipt import Receipt
from rangeland.results import RunResult
from tests.fakes.landing import landing_context
from tests.unit import test_landing_target
from tests.unit.test_landing_target import (
    P0,
    Drivers,
    LakeInMemory,
    columns_are_there,
    finisher_of,
    reading_of,
)
from tests.unit.test_landing_target import plan as plan_of

drivers, lake = test_landing_target.drivers, test_landing_target.lake

P1, P2 = Partition("orders", 1), Partition("orders", 2)
HELD = DecidedLoss(
    P1, 0, 5, LossKind.EXPIRED, "the log begins at 5", action=Action.HOLD, topic_id="id"
)
PASSED = DecidedLoss(
    P2, 9, 12, LossKind.TRUNCATED, "the log ends at 9", action=Action.SKIP, topic_id="id"
)
SEEN = (HELD, PASSED)
MADE_AT_MS = 1_700_000_000_000
PLAN = plan_of(made_at_ms=MADE_AT_MS)


class Driving(landing_steps.LandingSteps):
    """One driver over tables in memory; its log has what ``PLAN`` says."""

    def __init__(self, target: LandingTarget, seen: tuple[DecidedLoss, ...] = SEEN) -> None:
        surveys = SimpleNamespace(last=Survey(0, {}), speed=None, forget_early=lambda: None)
        context = landing_context(target, target.writer._job, surveys=surveys)
        super().__init__(context)
        self.target = target
        self._planner = cast(
            Any, SimpleNamespace(check_still_there=lambda plan: None, draft=self.draft)
        )
        self.drawn = seen
        self.reader = self.reading = reading_of(target)
        self.reading.receipts = {0: Receipt(0, P0, 0, 100, Counts(filtered=100))}
        self._committer = finisher_of(self.reading)

    def applied(self, plan: Plan, losses: tuple[DecidedLoss, ...]) -> RunResult:
        return self.summed_up(self.apply(plan, losses))

    def run(self) -> RunResult:
        return self.summed_up(self.land_until_done())

    def summed_up(self, draft: PlanDraft | None) -> RunResult:
        return result_of_plans(self._context, self._finished, draft)

    def draft(self) -> Any:
        position = self.target.history.position(self._context.job.application)
        left = uncovered_parts(PLAN.ranges, position.covered)
        plan = (
            PLAN if left else Plan("orders", PLAN.application, 2, "kafka", PLAN.isolation, (), ())
        )
        held = tuple(one for one in self.drawn if one.action is Action.HOLD)
        skipped = tuple(one for one in self.drawn if one.action is Action.SKIP)
        return PlanDraft(plan=plan, requested=plan.ranges, held=held, skipped_losses=skipped)


@pytest.fixture(autouse=True)
def little_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    columns_are_there(monkeypatch)
    monkeypatch.setattr(landing_steps, "start_workers", lambda *about: None)
    monkeypatch.setattr(landing_steps, "wait_for_workers", lambda context: None)
    monkeypatch.setattr(landing_steps, "store_warning", lambda *about, **more: "")
    monkeypatch.setattr(landing_steps, "check_table_and_ledger_agree", lambda context: None)
    left_out = (
        (TargetSchema, "layout"),
        (TargetWriter, "open_or_create"),
    )
    for holder, name in left_out:
        monkeypatch.setattr(holder, name, lambda *about, **more: None)


def told(target: LandingTarget) -> list[tuple[Any, ...]]:
    target.ledger.refresh()
    return sorted(
        (x.partition, x.from_offset, x.until_offset, x.kind, x.action)
        for x in (event.loss for event in target.history.losses())
    )


BOTH = [(P1, 0, 5, "expired", "hold"), (P2, 9, 12, "truncated", "skip")]


def test_what_a_reviewed_plan_holds_and_passes_over_is_reported_as_a_run_tells_it(
    drivers: Drivers,
) -> None:
    result = Driving(drivers.another()).applied(PLAN, SEEN)
    assert (result.state, result.held) == ("landed", (str(HELD),))
    target = drivers.another()
    assert told(target) == BOTH
    rows = target.history.losses()
    assert {(x.sequence, x.plan_hash, x.seen_at_ms) for x in rows} == {(1, "", MADE_AT_MS)}
    assert {x.loss.topic_id for x in rows} == {"id"}
    assert all(x.written_at_ms > MADE_AT_MS and x.loss.evidence for x in rows)
    # What the first landing has held back is remembered, as a run's is.
    assert target.history.position(PLAN.application).held_at_first == {P1}


class Killed(BaseException): ...


STEPS = [
    (Ledger, "record_losses"), (TargetWriter, "enter"),
    (test_landing_target.Failing, "read_all"),
    (TargetWriter, "prepare_outcome"), (TargetWriter, "commit_outcome"),
]  # fmt: skip


@pytest.mark.parametrize("then", ["apply", "run"])
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize(("owner", "step"), STEPS, ids=[step for _, step in STEPS])
def test_killed_at_any_step_it_is_reported_once_by_whoever_comes_next(
    drivers: Drivers,
    monkeypatch: pytest.MonkeyPatch,
    owner: type,
    step: str,
    after: bool,
    then: str,
) -> None:
    with monkeypatch.context() as here:
        here.setattr(owner, step, dying(getattr(owner, step), after))
        with pytest.raises(Killed):
            Driving(drivers.another()).applied(PLAN, SEEN)
    here_by_now = told(drivers.another())
    assert here_by_now == ([] if (step, after) == ("record_losses", False) else BOTH)
    # A run that finds the plan entered has it from the ledger, whatever the log shows by now.
    entered = step not in ("record_losses", "enter") or (step, after) == ("enter", True)
    second = Driving(drivers.another(), () if entered else SEEN)
    for _ in range(2):
        if then == "apply":
            second.applied(PLAN, SEEN)
        else:
            second.run()
        assert told(second.target) == BOTH
    landed = second.target.history.position(PLAN.application).covered
    assert uncovered_parts(PLAN.ranges, landed) == []
    assert coverage_of(PLAN.ranges) == landed


def dying(step: Callable[..., Any], after: bool) -> Callable[..., Any]:
    def killed(*about: Any, **more: Any) -> Any:
        if after:
            step(*about, **more)
        raise Killed

    return killed


def test_a_plan_of_losses_alone_is_reported_and_not_entered(
    drivers: Drivers, lake: LakeInMemory
) -> None:
    empty = Plan("orders", PLAN.application, 1, "kafka", PLAN.isolation, (), (), made_at_ms=1)
    result: RunResult | None = None
    for _ in range(2):
        result = Driving(drivers.another()).applied(empty, SEEN)
    assert result is not None
    assert (result.state, result.held) == ("nothing", (str(HELD),))
    target = drivers.another()
    assert told(target) == BOTH
    assert (target.history.unfinished_plans(), len(lake.tables[drivers.path].versions)) == ([], 1)


@pytest.mark.parametrize("comes_to", ["its entry", "its end"])
def test_two_who_apply_the_same_plan_at_once_land_it_once_and_neither_is_refused(
    drivers: Drivers, monkeypatch: pytest.MonkeyPatch, comes_to: str
) -> None:
    enter, first, second = TargetWriter.enter, drivers.another(), Driving(drivers.another())

    def outrun(writer: TargetWriter, plan: Plan, unfinished: Any) -> bool:
        monkeypatch.setattr(TargetWriter, "enter", enter)
        if comes_to == "its end":
            Driving(first).applied(plan, SEEN)
        else:
            assert first.writer.enter(plan, [])
        return writer.enter(plan, unfinished)

    monkeypatch.setattr(TargetWriter, "enter", outrun)
    result = second.applied(PLAN, SEEN)
    assert result.state == ("landed" if comes_to == "its entry" else "already-landed")
    assert told(second.target) == BOTH
    assert second.target.identity.landed_sequence(PLAN.application) == 1


def test_another_plan_that_was_entered_at_the_same_time_is_in_the_way(
    drivers: Drivers, monkeypatch: pytest.MonkeyPatch
) -> None:
    enter, first = TargetWriter.enter, drivers.another()

    def outrun(writer: TargetWriter, plan: Plan, unfinished: Any) -> bool:
        monkeypatch.setattr(TargetWriter, "enter", enter)
        assert first.writer.enter(plan_of(made_at_ms=9), [])
        return writer.enter(plan, unfinished)

    monkeypatch.setattr(TargetWriter, "enter", outrun)
    with pytest.raises(Conflict, match="another plan was entered"):
        Driving(drivers.another()).applied(PLAN, SEEN)


def test_a_plan_whose_basis_has_changed_tells_nothing(drivers: Drivers) -> None:
    Driving(drivers.another(), ()).run()
    with pytest.raises(Conflict, match="no longer applies"):
        Driving(drivers.another()).applied(plan_of(made_at_ms=9), SEEN)
    assert told(drivers.another()) == []


def prepared(target: LandingTarget, of: Plan) -> OutcomeEvent:
    """What a driver leaves behind that is killed before it commits."""
    assert target.writer.enter(of, target.history.unfinished_plans())
    r = of.ranges[0]
    receipts = {0: Receipt(0, P0, r.from_offset, r.until_offset, Counts(landed=r.width))}
    prepared = target.writer.prepare_outcome(of, prove(of, receipts), (), receipts)
    assert prepared.is_mine
    return prepared.outcome


BESIDE = replace(
    plan_of(first=10, until=50, application="rangeland/orders/backfill/01"), kind=PlanKind.BACKFILL
)
NEXT = plan_of(sequence=2, first=50, until=100, made_at_ms=MADE_AT_MS)


def test_what_is_prepared_is_committed_before_a_plan_that_counts_it_as_landed(
    drivers: Drivers,
) -> None:
    first = drivers.another()
    first.writer.commit_outcome(prepared(first, plan_of(first=0, until=10)))
    first.ledger.refresh()
    prepared(first, BESIDE)
    driving = Driving(drivers.another())
    driving.reading.receipts = {0: Receipt(0, P0, 50, 100, Counts(filtered=50))}
    assert driving.applied(NEXT, ()).state == "landed"
    target = drivers.another()
    assert target.history.unfinished_plans() == []
    landed = [outcome.application for _, outcome in target.history.landings()]
    assert landed == [PLAN.application, BESIDE.application, PLAN.application]


def test_a_plan_that_leaves_out_what_was_given_up_since_is_refused(drivers: Drivers) -> None:
    first = drivers.another()
    first.writer.commit_outcome(prepared(first, plan_of(first=0, until=10)))
    first.ledger.refresh()
    outcome = prepared(first, BESIDE)
    first.writer.commit_outcome(first.writer.give_up(BESIDE, (), outcome.attempt + 1))
    with pytest.raises(Conflict, match=r"it leaves out orders/0 \[10, 50\), which has not landed"):
        Driving(drivers.another()).applied(NEXT, ())
