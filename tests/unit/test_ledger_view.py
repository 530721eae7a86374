"""What a ledger answers in one version of it, and before there is one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from rangeland.delta.ledger.events import CoveredInterval, OutcomeEvent, PlanEvent
from rangeland.delta.ledger.ledger_view import LedgerView
from rangeland.delta.table_metadata import AddedFile
from rangeland.errors import Bug
from rangeland.model import Counts, Partition, Range
from rangeland.planning.plan import PlanId
from rangeland.planning.slice_receipt import RangeResult
from tests.unit.test_ledger_lost_responses import TableInMemory, ledger_of

P0 = Partition("orders", 0)
PLANS = [("rangeland/a", "a", 1), ("rangeland/a/backfill/1", "a", 1), ("rangeland/b", "b", 1)]
PLANS += [("rangeland/a", "a", 2)]


def planned(number: int) -> PlanEvent:
    ranges = (Range(P0, number * 10, number * 10 + 10, "id"),)
    return PlanEvent(*PLANS[number], f"h{number}", ranges, "{}", 1_000 + number)


def landed(number: int) -> OutcomeEvent:
    ranges = tuple(RangeResult(r, Counts(landed=r.width)) for r in planned(number).ranges)
    return OutcomeEvent(*PLANS[number], f"h{number}", ranges, (), 2_000 + number)


@pytest.fixture
def view(tmp_path: Path) -> LedgerView:
    """Four plans of two jobs, all but the last with an outcome, the first with two attempts."""
    ledger = ledger_of(TableInMemory(), tmp_path).open_or_create()
    for number in range(len(PLANS)):
        assert ledger.enter(planned(number), number)
        if number < 3:
            assert ledger.prepare_outcome(landed(number))
    assert ledger.prepare_outcome(replace(landed(0), attempt=1, written_at_ms=3_000))
    return ledger.view


def numbers(plans: object) -> list[int]:
    assert isinstance(plans, list)
    return [int(plan.plan_hash[1:]) for plan in plans]


def test_plans_are_those_of_an_application_or_a_job_the_newest_first(view: LedgerView) -> None:
    assert numbers(list(view.plans())) == [3, 2, 1, 0]
    assert numbers(list(view.plans(application="rangeland/a"))) == [3, 0]
    assert numbers(list(view.plans(job="a"))) == [3, 1, 0]
    assert (view.last_sequence("rangeland/a"), view.last_sequence("rangeland/c")) == (2, 0)


def test_the_last_attempt_at_an_outcome_counts(view: LedgerView) -> None:
    outcome = view.outcome(PlanId("rangeland/a", 1))
    assert outcome is not None
    assert (outcome.attempt, outcome.written_at_ms) == (1, 3_000)
    assert [o.attempt for _, o in view.prepared_plans()] == [1, 0, 0]
    assert view.without_outcome() == [PlanId("rangeland/a", 2)]


@pytest.mark.parametrize("is_compacted", [False, True])
def test_of_two_plans_of_one_id_the_one_with_the_outcome_is_distinguished(
    tmp_path: Path, is_compacted: bool
) -> None:
    """As where a table had gone back in time, and its ledger had not."""
    ledger = ledger_of(TableInMemory(), tmp_path).open_or_create()
    first = planned(0)
    second = replace(first, plan_hash="another")
    assert ledger.enter(first, 0)
    assert ledger.prepare_outcome(landed(0))
    assert ledger.enter(second, 1)
    files, view = ledger._files, ledger.view
    if is_compacted:
        whole = files.rewrite(sorted({key.path for key in view.keys}))
        added = AddedFile(whole.path, whole.size_bytes, 0, whole.stats, {})
        view = LedgerView(files.keys_of(added), files)
    assert [plan.plan_hash for plan in view.plans()] == ["another", "h0"]
    plan_id = first.plan_id
    assert view.landed_plan(plan_id) == view.plan_of(landed(0)) == [*view.plans()][1]
    newest, *_ = view.plans()
    assert view.plan(plan_id) == newest
    assert view.plan_of(replace(landed(0), plan_hash="of no plan")) is None


def test_a_ledger_that_does_not_exist_yet_has_nothing() -> None:
    empty = LedgerView()
    assert [*empty.plans(), *empty.outcomes("rangeland/a"), *empty.prepared_plans()] == []
    assert empty.plan(PlanId("rangeland/a", 1)) is None
    assert empty.outcome(PlanId("rangeland/a", 1)) is None
    assert (empty.newest(), empty.last_sequence("rangeland/a")) == (None, 0)
    assert (empty.losses(), empty.parts(PlanId("rangeland/a", 1))) == ([], [])
    assert (empty.without_outcome(), empty.possibly_unfinished()) == ([], ())
    assert empty.coverage() == {}


def test_events_without_files_are_a_bug(view: LedgerView) -> None:
    with pytest.raises(Bug):
        LedgerView(view.keys).newest()


def test_coverage_is_that_of_all_outcomes(view: LedgerView) -> None:
    assert view.coverage() == {P0: (CoveredInterval(0, 30, "id"),)}
