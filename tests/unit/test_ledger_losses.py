"""Losses in the ledger: with their outcome or beside one, each once; over a Kernel in memory."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from rangeland.delta.ledger.events import CoveredInterval, LossEvent, OutcomeEvent
from rangeland.delta.ledger.ledger_table import MAX_LOST_RACES, Ledger
from rangeland.dialects.rocketmq.requests import CAPABILITIES
from rangeland.errors import BadRecord, Damage, Unreachable
from rangeland.fetch.backoff import RetryState
from rangeland.fetch.fetch_size import FetchSize
from rangeland.fetch.loss_judgement import located_damage_error
from rangeland.fetch.replica_choice import ServingBroker
from rangeland.fetch.slice_failures import unreadable_error
from rangeland.fetch.slice_state import Phase, SliceState
from rangeland.landing.target.loss_records import (
    losses_in,
    losses_of,
    losses_of_given_up,
    regrown_losses,
    seen_losses,
    whole_log_error,
)
from rangeland.loss import Action, DecidedLoss, Loss, LossKind
from rangeland.model import Address, Counts, Isolation, Leader, Partition, Range, Slice
from rangeland.planning.loss_errors import range_lost_error
from rangeland.planning.plan import Plan, PlanId
from rangeland.planning.slice_receipt import RangeResult, Receipt
from tests.unit.test_ledger_lost_responses import P0, TableInMemory, ledger_of, plan

APP = "rangeland/a"


@pytest.fixture
def table() -> TableInMemory:
    return TableInMemory()


@pytest.fixture
def ledger(table: TableInMemory, tmp_path: Path) -> Ledger:
    return ledger_of(table, tmp_path).open_or_create()


def outcome(attempt: int = 0) -> OutcomeEvent:
    ranges = (RangeResult(Range(P0, 0, 10, "id"), Counts(landed=7, lost=3)),)
    return OutcomeEvent(APP, "a", 1, "h1", ranges, (), 1_000, attempt)


def loss(first: int = 2, action: Action = Action.SKIP, attempt: int = 0) -> LossEvent:
    found = DecidedLoss(P0, first, 5, LossKind.CORRUPT, "evidence", action=action, topic_id="id")
    return LossEvent(APP, "a", 1, found, 900, 1_000, "h1", attempt)


def test_losses_are_in_the_commit_of_their_outcome(table: TableInMemory, ledger: Ledger) -> None:
    assert ledger.enter(plan(1, 0, 10), 0)
    before = len(table.versions)
    assert ledger.prepare_outcome(outcome(), [loss(), loss(4, Action.HOLD)])
    assert len(table.versions) == before + 1
    view = ledger.view
    assert view.losses() == view.losses(PlanId(APP, 1)) == [loss(), loss(4, Action.HOLD)]
    assert ledger.view.losses(PlanId(APP, 2)) == []


def test_an_outcome_that_comes_second_brings_no_losses(
    table: TableInMemory, ledger: Ledger, tmp_path: Path
) -> None:
    assert ledger.enter(plan(1, 0, 10), 0)
    other = ledger_of(table, tmp_path)
    assert other.entered() == 1
    assert ledger.prepare_outcome(outcome(), [loss()])
    assert not other.prepare_outcome(outcome(), [loss(3)])
    assert other.view.losses() == [loss()]
    named = {file.path for file in table.versions[-1].added}
    assert {file.name for file in Path(ledger.path).glob("*.parquet")} == named


def test_the_losses_of_the_last_attempt_count(ledger: Ledger) -> None:
    assert ledger.enter(plan(1, 0, 10), 0)
    assert ledger.prepare_outcome(outcome(), [loss()])
    assert ledger.prepare_outcome(outcome(1), [loss(3, attempt=1)])
    assert ledger.view.losses() == [loss(3, attempt=1)]
    assert ledger.prepare_outcome(outcome(2))
    assert ledger.view.losses() == []


def test_what_a_log_ended_before_has_not_landed(ledger: Ledger) -> None:
    assert ledger.enter(plan(1, 0, 10), 0)
    short = Loss(P0, 6, 10, LossKind.TRUNCATED, "the log ends at 6", topic_id="id")
    skipped = short.with_action(Action.SKIP)
    after_the_end = LossEvent(APP, "a", 1, skipped, 900, 1_000, "h1")
    assert ledger.prepare_outcome(outcome(), [loss(), after_the_end])
    assert ledger.view.coverage() == {P0: (CoveredInterval(0, 6, "id"),)}
    assert ledger.enter(plan(2, 6, 8), 1), "the coverage that a plan keeps is the same"
    assert ledger.view.coverage() == {P0: (CoveredInterval(0, 6, "id"),)}


def seen(first: int, until: int, action: Action = Action.FAIL, sequence: int = 1) -> LossEvent:
    evidence = f"the log begins at {until}"
    found = DecidedLoss(P0, first, until, LossKind.EXPIRED, evidence, action=action, topic_id="id")
    (entry,) = seen_losses(APP, "a", sequence, [found], 1_000, 1_000)
    return entry


def test_what_is_seen_again_is_written_once(
    table: TableInMemory, ledger: Ledger, tmp_path: Path
) -> None:
    ledger.record_losses([seen(0, 5)])
    versions = len(table.versions)
    # Retention has gone on, and others have landed: it is the same loss still.
    ledger.record_losses([seen(0, 9, sequence=2)])
    ledger_of(table, tmp_path).record_losses([seen(0, 7)])
    assert (len(table.versions), ledger.view.losses()) == (versions, [seen(0, 5)])
    ledger.record_losses([seen(0, 5), seen(0, 5, Action.HOLD), seen(6, 9)])
    ledger.refresh()
    assert len(ledger.view.losses()) == 3


def test_a_loss_that_reaches_further_than_the_one_in_the_ledger_is_recorded(ledger: Ledger) -> None:
    for until in (3, 5, 4):
        found = Loss(P0, 0, until, LossKind.TRUNCATED, "evidence", topic_id="id")
        ledger.record_losses(
            seen_losses(APP, "a", 1, [found.with_action(Action.SKIP)], 1_000, 1_000)
        )
    ledger.refresh()
    assert sorted(one.loss.until_offset for one in ledger.view.losses()) == [3, 5]


def test_two_that_see_the_same_at_once_write_it_once(
    table: TableInMemory, ledger: Ledger, tmp_path: Path
) -> None:
    other = ledger_of(table, tmp_path)
    assert other.view.losses() == []
    ledger.record_losses([seen(0, 5)])
    other.record_losses([seen(0, 5)])
    assert other.view.losses() == [seen(0, 5)]


def test_two_that_see_some_of_the_same_at_once_write_each_once(
    table: TableInMemory, ledger: Ledger, tmp_path: Path
) -> None:
    other = ledger_of(table, tmp_path)
    assert other.view.losses() == []
    ledger.record_losses([seen(0, 5)])
    other.record_losses([seen(0, 5), seen(6, 9)])
    assert other.view.losses() == [seen(0, 5), seen(6, 9)]
    written = Path(ledger.path).glob("*.parquet")
    assert {file.name for file in written} == {file.path for file in table.versions[-1].added}


def test_what_is_lost_of_a_topics_next_incarnation_is_another_loss(ledger: Ledger) -> None:
    ledger.record_losses([seen(0, 5)])
    again = replace(seen(0, 5), written_at_ms=1_001)
    again = replace(again, loss=replace(again.loss, topic_id="next"))
    ledger.record_losses([again])
    ledger.refresh()
    assert ledger.view.losses() == [seen(0, 5), again]


@pytest.mark.parametrize("broker", ["", "a", "b"])
def test_damage_is_noted_with_the_broker_whose_log_it_is_in(broker: str) -> None:
    where = Partition("orders", 0, broker)
    fault = BadRecord("a bad entry", why="torn", damage=Damage(4, 9), broker="h:10911")
    (found,) = losses_in(located_damage_error(fault, where, "h:10911", CAPABILITIES))
    assert found.partition == where


def test_a_place_that_is_unreadable_is_noted_with_its_broker() -> None:
    where = Partition("orders", 0, "a")
    server = ServingBroker(Leader(Address("h", 10911)))
    reading = SliceState(
        Slice(0, where, 0, 9), 4, server, Phase.READING, FetchSize(1), RetryState(0)
    )
    (found,) = losses_in(unreadable_error(reading, "a disk error"))
    assert found.partition == where


P1 = Partition("orders", 1)
READ = Plan(
    *("a", APP, 1, "kafka", Isolation.READ_COMMITTED),
    (Range(P0, 0, 30, "id"), Range(P1, 0, 9, "id"), Range(P0, 40, 50, "id"), Range(P0, 0, 7, "b")),
    (
        *(Slice(0, P0, 0, 10, 0, "id"), Slice(1, P0, 10, 30, 0, "id"), Slice(2, P1, 0, 9, 0, "id")),
        *(Slice(3, P0, 40, 50, 0, "id"), Slice(4, P0, 0, 7, 0, "b")),
    ),
)


@pytest.mark.parametrize("kind", [LossKind.RECREATED, LossKind.VANISHED])
def test_a_log_that_is_gone_has_lost_all_that_was_to_be_read_of_it(kind: LossKind) -> None:
    error = range_lost_error([Loss(P0, 13, 30, kind, "its topic id was id when planned")])
    whole = whole_log_error(READ, error)
    found = [(x.partition, x.from_offset, x.until_offset) for x in losses_in(whole)]
    assert found == [(P0, 0, 30), (P0, 40, 50)]
    assert f"orders/0 [0, 30) {kind}, and 1 more range" in str(whole)
    assert "40 offsets cannot be read" in str(whole)


def test_an_error_about_a_part_of_a_log_stays_as_it_is() -> None:
    error = range_lost_error([Loss(P0, 13, 15, LossKind.MISSING, "there is a gap")])
    assert whole_log_error(READ, error) is error


def test_each_loss_of_a_plan_is_of_its_own_incarnation_of_the_topic() -> None:
    made = Plan(
        "a",
        f"{APP}/missing/1",
        1,
        "kafka",
        Isolation.READ_COMMITTED,
        (Range(P0, 0, 20, "old"), Range(P0, 0, 30, "new")),
        (Slice(0, P0, 0, 30, topic_id="new"),),
        (Loss(P0, 0, 20, LossKind.RECREATED, "it has another id"),),
    )
    bad = (DecidedLoss(P0, 4, 6, LossKind.CORRUPT, "bad", action=Action.QUARANTINE),)
    receipt = Receipt(0, P0, 0, 30, Counts(landed=28, quarantined=2), losses=bad)
    found = losses_of(made, {0: receipt}, 900)
    assert [(x.loss.action, x.loss.topic_id) for x in found] == [
        ("skip", "old"),
        ("quarantine", "new"),
    ]
    swapped = replace(made, ranges=made.ranges[::-1])
    assert losses_of(swapped, {0: receipt}, 900)[0].loss.topic_id == "old"
    older = replace(made, losses=(), slices=(Slice(0, P0, 0, 20, topic_id="old"),))
    receipt = replace(receipt, until_offset=20)
    assert [x.loss.topic_id for x in losses_of(older, {0: receipt}, 900)] == ["old"]


def test_a_loss_is_of_no_incarnation_where_its_plan_has_several_at_its_offset() -> None:
    ranges = (Range(P0, 0, 20, "old"), Range(P0, 0, 6, "new"))
    made = Plan("a", f"{APP}/redrive/1", 1, "kafka", Isolation.READ_COMMITTED, ranges, ())
    losses = [Loss(P0, first, first + 1, LossKind.UNDECODABLE, "bad") for first in (4, 6, 30)]
    found = losses_of_given_up(made, losses, 900)
    assert [x.loss.topic_id for x in found] == [None, "old", None]
    alone = replace(made, ranges=ranges[:1])
    assert [x.loss.topic_id for x in losses_of_given_up(alone, losses, 900)] == ["old"] * 3
    regrown = {loss.with_action(Action.SKIP): 5 for loss in losses}
    assert [x.loss.topic_id for x in regrown_losses(made, regrown, 900)] == [None, "old", None]


def test_losses_change_nothing_of_plans_and_coverage(ledger: Ledger) -> None:
    ledger.record_losses([seen(0, 5)])
    assert ledger.enter(plan(1, 0, 10), 0)
    assert ledger.prepare_outcome(outcome(), [loss()])
    ((_, found),) = ledger.view.prepared_plans()
    assert found == outcome()
    assert ledger.view.coverage() == {P0: (CoveredInterval(0, 10, "id"),)}
    assert ledger.view.without_outcome() == []
    assert ledger.view.possibly_unfinished() == (PlanId(APP, 1),)


def test_an_outcome_has_a_loss_of_each_kind() -> None:
    other = Partition("orders", 1)
    made = Plan(
        "a",
        APP,
        1,
        "kafka",
        Isolation.READ_COMMITTED,
        (Range(P0, 0, 20, "id"), Range(other, 0, 5)),
        (Slice(0, P0, 3, 20), Slice(1, other, 0, 5)),
        (Loss(P0, 0, 3, LossKind.EXPIRED, "the log begins at 3"),),
        made_at_ms=500,
    )
    receipt = Receipt(
        0,
        P0,
        3,
        12,
        Counts(landed=5, lost=2, quarantined=2),
        losses=(
            Loss(P0, 4, 6, LossKind.CORRUPT, "bad").with_action(Action.SKIP),
            DecidedLoss(P0, 8, 10, LossKind.CORRUPT, "bad too", action=Action.QUARANTINE),
            DecidedLoss(P0, 12, 20, LossKind.TRUNCATED, "the log ends at 12", action=Action.HOLD),
        ),
    )
    receipts = {0: receipt, 1: Receipt(1, other, 0, 5, Counts(landed=5))}
    found = losses_of(made, receipts, 900)
    assert [(x.loss.from_offset, x.loss.width, x.loss.kind, x.loss.action) for x in found] == [
        (0, 3, "expired", "skip"),
        (4, 2, "corrupt", "skip"),
        (8, 2, "corrupt", "quarantine"),
        (12, 8, "truncated", "hold"),
    ]
    assert {x.loss.topic_id for x in found} == {"id"}
    assert [x.seen_at_ms for x in found] == [500, 900, 900, 900]
    assert all(x.plan_hash == made.hash and x.loss.cause for x in found)
    assert losses_of(made, receipts, 900, 3)[0] == replace(found[0], attempt=3)


def test_a_driver_that_others_keep_coming_before_gives_up_for_now(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[object] = []
    monkeypatch.setattr(Ledger, "_append", lambda self, *about: bool(tried.append(about)))
    with pytest.raises(Unreachable, match="could not be recorded"):
        ledger.record_losses([seen(0, 5)])
    assert len(tried) == MAX_LOST_RACES
