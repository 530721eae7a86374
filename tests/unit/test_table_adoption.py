"""An operator's decision that a table is right is in the ledger as a whole, or not at all."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from rangeland.delta.transaction_log.table_commit import FilesGone
from rangeland.errors import Bug, Conflict
from rangeland.landing.special_plans import table_adoption
from rangeland.landing.special_plans.table_adoption import adopt_table
from rangeland.landing.target.job_history import EnteredPlan
from rangeland.landing.target.landing_target import LandingTarget
from rangeland.model import Counts
from rangeland.planning.plan import contradiction
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
    monkeypatch.setattr(table_adoption, "table_frame", lambda *about: None)
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


def test_an_adoption_without_an_outcome_is_set_aside_by_another_one(drivers: Drivers) -> None:
    """As earlier versions could leave one in a ledger."""
    assert drivers.another().writer._enter(ADOPTION, [])
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
