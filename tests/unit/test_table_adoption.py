"""An operator's decision that a table is right is in the ledger as a whole, or not at all."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import numpy as np
import pytest

from rangeland.delta.ledger.events import CoveredInterval, OutcomeEvent
from rangeland.delta.transaction_log.table_commit import CommittedOutcome, FilesGone
from rangeland.errors import Bug, Conflict
from rangeland.landing.special_plans import table_adoption
from rangeland.landing.special_plans.table_adoption import adopt_table
from rangeland.landing.target.job_history import EnteredPlan
from rangeland.landing.target.landing_target import LandingTarget
from rangeland.loss import Action, DecidedLoss, LossKind
from rangeland.model import Counts
from rangeland.planning.incarnation import LogMark
from rangeland.planning.plan import Plan, contradiction
from rangeland.planning.proof import prove
from rangeland.planning.slice_receipt import Receipt
from rangeland.progress_events import NoProgress
from rangeland.results import AdoptResult
from tests.unit import test_landing_target
from tests.unit.test_landing_target import (
    APP,
    P0,
    Drivers,
    LakeInMemory,
    columns_are_there,
    context_of,
    finisher_of,
    plan,
    reading_of,
)

drivers, lake = test_landing_target.drivers, test_landing_target.lake
ADOPTION = replace(plan(), slices=())


@pytest.fixture(autouse=True)
def rows_until_100(monkeypatch: pytest.MonkeyPatch, lake: LakeInMemory) -> None:
    """The table has rows of the offsets before 100."""
    columns_are_there(monkeypatch)
    intervals = {P0: (np.array([0]), np.array([100]))}

    def table_frame(spark: object, path: str, columns: object, *, version: int | None) -> None:
        assert version == lake.tables[path].versions[-1].version, "another than was looked at"

    monkeypatch.setattr(table_adoption, "table_frame", table_frame)
    monkeypatch.setattr(table_adoption, "intervals_in", lambda *about, **more: intervals)
    delta = {"wait_for_maintenance": lambda self: ()}
    for name, method in delta.items():
        monkeypatch.setattr(LakeInMemory, name, method, raising=False)


def adopted(target: LandingTarget) -> AdoptResult:
    return adopt_table(context_of(target, NoProgress()))


def unfinished(drivers: Drivers) -> list[EnteredPlan]:
    target = drivers.another()
    target.ledger.refresh()
    return list(target.history.unfinished_plans())


def test_a_plan_and_its_outcome_are_one_commit(lake: LakeInMemory, drivers: Drivers) -> None:
    ledger = lake.tables[f"{drivers.path}/_rangeland/ledger"]
    before = len(ledger.versions)
    result = adopted(drivers.another())
    assert (result.width, result.sequence) == (100, 1)
    assert len(ledger.versions) == before + 1
    target = drivers.another()
    assert target.history.unfinished_plans() == []
    (landing,) = target.history.landings()
    assert [one.counts for one in landing[1].ranges] == [Counts(landed=100)]
    assert adopted(drivers.another()).ranges == ()


def test_a_run_commits_what_a_driver_that_died_had_entered(
    drivers: Drivers, monkeypatch: pytest.MonkeyPatch
) -> None:
    dying = drivers.another()

    def die(*about: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(dying.writer, "commit_outcome", die)
    with pytest.raises(KeyboardInterrupt):
        adopted(dying)
    (left,) = unfinished(drivers)
    done = finisher_of(reading_of(drivers.another())).finish_entered(left)
    assert (done.landed.is_new, done.is_given_up) == (True, False)
    assert unfinished(drivers) == []
    assert drivers.another().history.position(APP).covered.of(P0, None) == [(0, 100)]


def test_an_adoption_that_was_not_committed_does_not_succeed(
    drivers: Drivers, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = drivers.another()
    monkeypatch.setattr(target.writer, "commit_outcome", lambda *about: FilesGone(("a.parquet",)))
    with pytest.raises(Bug, match="was not committed"):
        adopted(target)


def test_an_adoption_that_another_driver_committed_has_the_version_of_that_commit(
    drivers: Drivers, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = drivers.another()
    commit = target.writer.commit_outcome
    versions: list[int | None] = []

    def commit_after_another(outcome: OutcomeEvent) -> Any:
        first = cast(CommittedOutcome, drivers.another().writer.commit_outcome(outcome))
        versions.append(first.version)
        return commit(outcome)

    monkeypatch.setattr(target.writer, "commit_outcome", commit_after_another)
    assert [adopted(target).table_version] == versions == [1]


def test_an_adoption_without_an_outcome_is_set_aside_by_another_one(drivers: Drivers) -> None:
    """As earlier versions could leave one in a ledger."""
    earlier = drivers.another()
    event = earlier.writer._event_of(ADOPTION)
    assert earlier.ledger.require().enter(event, earlier.ledger.entered)
    (left,) = unfinished(drivers)
    with pytest.raises(Conflict) as caught:
        finisher_of(reading_of(drivers.another())).finish_entered(left)
    assert "run `rangeland adopt JOB.yaml` again" in caught.value.do
    assert adopted(drivers.another()).sequence == 2
    assert unfinished(drivers) == []
    target = drivers.another()
    assert target.history.position(APP).covered.of(P0, None) == [(0, 100)]
    assert target.writer.enter(plan(3, 100, 200), [])


def test_a_plan_that_contradicts_itself_is_not_entered(drivers: Drivers) -> None:
    target = drivers.another()
    for wrong in (ADOPTION, replace(plan(), ranges=()), replace(plan(), slices=plan().slices * 2)):
        assert contradiction(wrong)
        with pytest.raises(Bug, match="contradicts itself"):
            target.writer.enter(wrong, [])
    assert unfinished(drivers) == []


# --- a table that was restored from a backup ----------------------------------------------------

OTHER = "rangeland/others"


def prepare(drivers: Drivers, made: Plan) -> OutcomeEvent:
    """As a driver that dies before the table has the outcome, with one row for every offset."""
    target = drivers.another()
    assert target.writer.enter(made, target.history.unfinished_plans())
    (r,) = made.ranges
    receipts = {0: Receipt(0, P0, r.from_offset, r.until_offset, Counts(landed=r.width))}
    return target.writer.prepare_outcome(made, prove(made, receipts), (), receipts).outcome


def land(drivers: Drivers, made: Plan) -> None:
    drivers.another().writer.commit_outcome(prepare(drivers, made))


def restored(lake: LakeInMemory, drivers: Drivers) -> None:
    """The ledger names [0, 200) as landed, and the table has rows until 100."""
    land(drivers, plan())
    land(drivers, plan(1, 0, 10, application=OTHER))
    backup = list(lake.tables[drivers.path].versions)
    land(drivers, plan(2, 100, 200))
    land(drivers, plan(2, 10, 20, application=OTHER))
    lake.tables[drivers.path].versions = backup


def check_goes_on_at_200(drivers: Drivers) -> None:
    """Nothing is skipped: what is missing before it counts as landed, so it is a hole."""
    target = drivers.another()
    position = target.history.position(APP)
    assert position.sequence == 4
    assert position.checkpoint[P0].until_offset == 200
    assert position.covered.of(P0, "id") == [(0, 200)]
    ranges = [r.range for _, found in target.history.landings() for r in found.ranges]
    assert plan(2, 100, 200).ranges[0] in ranges
    assert target.writer.enter(plan(4, 200, 300), target.history.unfinished_plans())


def test_a_table_from_a_backup_is_adopted_without_skipping_offsets(
    lake: LakeInMemory, drivers: Drivers
) -> None:
    restored(lake, drivers)
    (left,) = unfinished(drivers)
    assert left.plan.application == OTHER
    with pytest.raises(
        Conflict, match=r"last plan of rangeland/orders is 1 in the table .*, and 2 in its ledger"
    ):
        drivers.another().history.position(APP)
    assert adopted(drivers.another()).sequence == 3
    check_goes_on_at_200(drivers)


def test_a_second_plan_of_one_number_does_not_move_the_checkpoint_when_the_table_is_adopted(
    lake: LakeInMemory, drivers: Drivers
) -> None:
    """As earlier versions could leave one in a ledger: the outcome is that of the first plan."""
    restored(lake, drivers)
    second = plan(2, 200, 300)
    assert drivers.another().writer.enter(second, [])
    (left,) = (u for u in unfinished(drivers) if u.plan.application == APP)
    with pytest.raises(Conflict, match="belongs to another plan") as caught:
        finisher_of(reading_of(drivers.another())).finish_entered(left)
    assert "rangeland adopt JOB.yaml" in caught.value.do
    assert drivers.another().history.last_known(APP).checkpoint[P0].until_offset == 200
    assert adopted(drivers.another()).sequence == 3
    check_goes_on_at_200(drivers)


def test_an_adoption_keeps_the_plans_of_others_that_are_known_to_be_unfinished(
    lake: LakeInMemory, drivers: Drivers
) -> None:
    """Only those of an application about which table and ledger disagree count as landed."""
    lost = "rangeland/lost"
    for sequence in (1, 2):
        land(drivers, plan(sequence, 0, 10, application=lost))
    prepare(drivers, plan(3, 10, 20, application=lost))
    prepare(drivers, plan(1, 100, 200, application=OTHER))
    table = lake.tables[drivers.path]
    newest = table.versions[-1]
    table.versions[-1] = replace(newest, transactions={**newest.transactions, lost: 1})
    with pytest.raises(
        Conflict, match=r"last plan of rangeland/lost is 1 in the table .*, and 3 in its ledger"
    ):
        unfinished(drivers)
    adopted(drivers.another())
    (left,) = unfinished(drivers)
    assert left.plan.application == OTHER
    assert left.outcome is not None


# --- prepared rows that are gone ----------------------------------------------------------------


def test_an_adoption_ends_a_plan_whose_prepared_files_are_gone(drivers: Drivers) -> None:
    land(drivers, plan())
    prepare(drivers, plan(2, 100, 200))
    land(drivers, plan(1, 300, 310, application=OTHER))
    target = drivers.another()
    (gone,) = (u for u in target.history.unfinished_plans() if u.plan.application == APP)
    others = CoveredInterval(300, 310, "id")
    assert target.ledger.view.newest().covered[P0] == (CoveredInterval(0, 200, "id"),)
    assert target.ledger.view.coverage()[P0] == (CoveredInterval(0, 200, "id"), others)
    assert adopt_table(context_of(target, NoProgress()), [gone]).sequence == 3
    target = drivers.another()
    position = target.history.position(APP)
    assert position.covered.of(P0, "id") == [(0, 100), (300, 310)]
    assert position.checkpoint[P0].until_offset == 100
    assert target.history.unfinished_plans() == []
    with pytest.raises(Conflict, match="was ended after it was prepared"):
        finisher_of(reading_of(target)).finish_entered(gone)


def test_a_job_that_has_landed_nothing_else_goes_on_where_the_plan_began(drivers: Drivers) -> None:
    prepare(drivers, plan(1, 120, 200))
    target = drivers.another()
    adopt_table(context_of(target, NoProgress()), target.history.unfinished_plans())
    position = drivers.another().history.position(APP)
    assert position.covered.of(P0, "id") == [(0, 100)]
    assert position.checkpoint[P0].until_offset == 120


def test_an_adoption_keeps_where_a_first_plan_began_without_having_anything_to_land(
    drivers: Drivers,
) -> None:
    """And which partitions it held: those may begin where that plan would have begun."""
    empty, held = (replace(P0, number=number) for number in (1, 2))
    made = plan(1, 120, 200)
    beginning = LogMark(1_000_000, "id", 3)
    made = replace(made, checkpoint={**made.checkpoint, empty: beginning})
    loss = DecidedLoss(held, 0, 0, LossKind.UNREACHABLE, "no leader", action=Action.HOLD)
    prepare(drivers, made)
    target = drivers.another()
    target.writer.record_losses(1, [loss])
    adopt_table(context_of(target, NoProgress()), target.history.unfinished_plans())
    position = drivers.another().history.position(APP)
    assert position.checkpoint == {P0: LogMark(120, "id"), empty: beginning}
    assert position.held_at_first == {held}


EMPTY = replace(P0, number=1)
BEGINNING = LogMark(1_000_000, "id", 3)


def enter_with_empty_partition(drivers: Drivers, made: Plan) -> None:
    """As a driver that dies before the plan is prepared. Its plan begins a partition that has
    nothing to land."""
    made = replace(made, checkpoint={**made.checkpoint, EMPTY: BEGINNING})
    target = drivers.another()
    assert target.writer.enter(made, target.history.unfinished_plans())


def test_an_adoption_keeps_where_a_first_plan_began_that_is_not_prepared(drivers: Drivers) -> None:
    enter_with_empty_partition(drivers, plan(1, 120, 200))
    adopted(drivers.another())
    assert unfinished(drivers) == []
    position = drivers.another().history.position(APP)
    assert position.covered.of(P0, "id") == [(0, 100)]
    assert position.checkpoint == {P0: LogMark(120, "id"), EMPTY: BEGINNING}


def test_it_does_so_where_table_and_ledger_disagree(lake: LakeInMemory, drivers: Drivers) -> None:
    """The ledger is from a backup, which has no outcome of a plan that the table has."""
    enter_with_empty_partition(drivers, plan(1, 120, 200))
    adopted_table = lake.tables[drivers.path]
    newest = adopted_table.versions[-1]
    adopted_table.versions[-1] = replace(newest, transactions={**newest.transactions, APP: 1})
    adopted(drivers.another())
    checkpoint = drivers.another().history.position(APP).checkpoint
    assert checkpoint == {P0: LogMark(120, "id"), EMPTY: BEGINNING}


def test_rows_that_count_as_landed_stay_before_the_checkpoint_of_an_adoption(
    drivers: Drivers,
) -> None:
    enter_with_empty_partition(drivers, plan(1, 50, 200))
    adopted(drivers.another())
    assert drivers.another().history.position(APP).checkpoint[P0].until_offset == 100


def test_a_checkpoint_outweighs_where_a_later_plan_began_that_is_not_prepared(
    drivers: Drivers,
) -> None:
    """Its range is of offsets that an earlier plan left out."""
    land(drivers, plan(1, 100, 300))
    enter_with_empty_partition(drivers, plan(2, 100, 200))
    adopted(drivers.another())
    position = drivers.another().history.position(APP)
    assert position.checkpoint == {P0: LogMark(300, "id"), EMPTY: BEGINNING}


def test_a_plan_that_another_driver_has_prepared_again_is_not_ended(drivers: Drivers) -> None:
    first = prepare(drivers, plan(1, 100, 200))
    target = drivers.another()
    gone = target.history.unfinished_plans()
    made = plan(1, 100, 200)
    receipts = {0: Receipt(0, P0, 100, 200, Counts(landed=100))}
    drivers.another().writer.prepare_outcome(
        made, prove(made, receipts), (), receipts, earlier_outcome=first
    )
    with pytest.raises(Conflict, match="was not adopted"):
        adopt_table(context_of(target, NoProgress()), gone)
    assert drivers.another().ledger.view.coverage()[P0] == (CoveredInterval(100, 200, "id"),)
