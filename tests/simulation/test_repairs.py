"""Rows come back that a repair is about to land again, and others that it can no longer land."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from rangeland.delta.stores.table_path import TablePath
from rangeland.landing.special_plans import replacement
from rangeland.results import RunResult
from tests.simulation import sql
from tests.simulation.dialects import TABLE
from tests.simulation.happenings import Scenario
from tests.simulation.history import SKIP_ALL, History
from tests.simulation.replaced import Stage, simulated
from tests.simulation.scenario import long_scenario
from tests.simulation.tally import Counts
from tests.simulation.world import Crash, Fault, Process

KEY = TablePath.parse(TABLE).key


@pytest.fixture
def stage() -> Iterator[Stage]:
    with simulated() as stage:
        yield stage


def started(stage: Stage, age: str) -> History:
    """A table with the rows of one run. They are gone, and so is the beginning of each log."""
    setup = replace(
        long_scenario(0).setup,
        age=age,
        partitions=2,
        max_records=None,
        policy=SKIP_ALL,
        transactions=False,
        compacts=False,
        has_group=False,
        slice_bytes=300,
    )
    history = History(Scenario(0, setup, ()), stage, Counts())
    for seed in (7, 8, 9):
        history.act("produce", seed)
    assert isinstance(carried_out(history, "run"), RunResult)
    return history


def carried_out(history: History, command: str, *faults: Fault) -> Any:
    (found,) = history._carry_out([(Process(command, list(faults)), command)], history._job())
    return found


def offsets(history: History) -> list[tuple[int, int]]:
    return sorted((number, offset) for _, number, offset, _ in history.judge.rows())


def delete_all_rows(history: History) -> int:
    """Returns the last version that has them."""
    version = history.tables.logs[KEY].newest
    history.table_faults._rewrite(list(version.files), [], "DELETE", {"predicate": "[]"})
    assert offsets(history) == []
    return version.number


def expire_first_entries(history: History) -> None:
    for log in history.cluster.topics["orders"].logs:
        log.expire(len(log.entries) // 2)


def unfinished(history: History) -> list[tuple[str, int]]:
    """The plans whose outcome is prepared and not in the table."""
    landed = history.tables.landed(KEY)
    outcomes = history.judge.ledger().outcomes
    return [(name, number) for name, number in outcomes if landed.get(name, 0) < number]


@pytest.mark.parametrize("age", ["4", "1.1"])
def test_a_repair_leaves_rows_alone_that_it_cannot_land(stage: Stage, age: str) -> None:
    were_prepared = []
    for number in range(1, 30):
        history = started(stage, age)
        landed = offsets(history)
        version = delete_all_rows(history)
        expire_first_entries(history)
        found = carried_out(history, "missing", Fault("delta.commit", number, "crash"))
        if isinstance(found, RunResult):
            assert found.counts.lost > 0
            break
        assert isinstance(found, Crash)
        were_prepared += unfinished(history)
        history.tables.restore(KEY, version)
        assert offsets(history) == landed
        assert isinstance(carried_out(history, "run"), RunResult)
        assert offsets(history) == landed
        assert not unfinished(history)
    assert were_prepared


def test_rows_that_come_back_after_the_table_was_searched_are_not_there_twice(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    history = started(stage, "4")
    landed = offsets(history)
    version = delete_all_rows(history)
    searches = []

    def search(*about: Any) -> bool:
        searches.append(sql.has_rows(*about))
        if len(searches) == 1:
            history.tables.restore(KEY, version)
        return searches[-1]

    monkeypatch.setattr(replacement, "has_rows", search)
    assert isinstance(carried_out(history, "missing"), RunResult)
    assert searches == [False, True]
    assert offsets(history) == landed
