"""Two drivers at once, two real processes: they converge on one landing.

The pair is started once and races many times. Both are paused right before a step that
only one can win, and let go together.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rangeland.testing.kafka import KafkaCluster
from rangeland.testing.producer import create_topic
from tests.chaos.driver import ENTERING, PLANNED, PREPARED, WRITTEN
from tests.chaos.drivers import Driver, StartDrivers
from tests.chaos.invariants import add_records, judge, judge_ledger, landings, write_job

PARTITIONS, COUNT, MORE = 3, 3_000, 50
Pair = tuple[Driver, Driver]


@pytest.fixture(scope="module")
def pair(start_drivers: StartDrivers) -> Pair:
    one, other = start_drivers(2)
    return one, other


@pytest.fixture
def full(kafka: KafkaCluster, topic: str) -> KafkaCluster:
    create_topic(kafka.bootstrap, topic, PARTITIONS)
    add_records(kafka.bootstrap, topic, PARTITIONS, COUNT)
    return kafka


def release(pair: Pair, moment: str) -> None:
    """Both are at the moment; then both go on."""
    for driver in pair:
        driver.wait_at(moment)
    for driver in pair:
        driver.go(moment)


def settle(pair: Pair) -> list[dict[str, Any]]:
    """Both have ended well, and at least one has landed something."""
    results = [driver.landed() for driver in pair]
    states = [result["state"] for result in results]
    assert "landed" in states
    assert set(states) <= {"landed", "already-landed"}
    return results


@pytest.mark.parametrize("attempt", range(2))
@pytest.mark.slow
def test_two_drivers_that_enter_a_plan_at_once_land_each_record_once(
    attempt: int, pair: Pair, full: KafkaCluster, topic: str, folder: Path, spark: Any
) -> None:
    # The table is not there yet: who creates it is part of the race.
    table = folder / "table"
    job = write_job(folder / "job.yaml", full.bootstrap, topic, table)
    for driver in pair:
        driver.give(job, **{ENTERING: "pause"})
    release(pair, ENTERING)
    results = settle(pair)
    assert {result["sequence"] for result in results} == {1}
    assert landings(table) == [("rangeland/chaos", 1)]
    judge(spark, table, dict.fromkeys(range(PARTITIONS), COUNT))
    judge_ledger(spark, table)


@pytest.mark.parametrize("attempt", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_two_drivers_that_read_the_same_plan_prepare_and_commit_it_once(
    attempt: int, pair: Pair, full: KafkaCluster, topic: str, folder: Path, spark: Any
) -> None:
    table = folder / "table"
    job = write_job(folder / "job.yaml", full.bootstrap, topic, table)
    one, other = pair
    one.give(job, **{PLANNED: "pause", WRITTEN: "pause", PREPARED: "pause"})
    one.wait_at(PLANNED)
    other.give(job, **{WRITTEN: "pause", PREPARED: "pause"})
    one.go(PLANNED)
    release(pair, WRITTEN)
    release(pair, PREPARED)
    results = settle(pair)
    assert sorted(result["state"] for result in results) == ["already-landed", "landed"]
    told = [warning for result in results for warning in result["warnings"]]
    assert [w for w in told if "another driver has read the same plan" in w] == told[:1]
    assert landings(table) == [("rangeland/chaos", 1)]
    judge(spark, table, dict.fromkeys(range(PARTITIONS), COUNT))
    judge_ledger(spark, table)


def test_a_driver_that_comes_back_after_later_plans_lands_nothing_twice(
    pair: Pair, full: KafkaCluster, topic: str, folder: Path, spark: Any
) -> None:
    table = folder / "table"
    job = write_job(folder / "job.yaml", full.bootstrap, topic, table)
    sleeper, other = pair
    sleeper.give(job, **{WRITTEN: "pause"})
    sleeper.wait_at(WRITTEN)
    other.give(job)
    assert other.landed()["recovered"] == [1]
    add_records(full.bootstrap, topic, PARTITIONS, MORE, COUNT)
    other.give(job)
    assert other.landed()["sequence"] == 2
    sleeper.go(WRITTEN)
    assert sleeper.landed()["state"] == "already-landed"
    assert landings(table) == [("rangeland/chaos", 1), ("rangeland/chaos", 2)]
    judge(spark, table, dict.fromkeys(range(PARTITIONS), COUNT + MORE))
    judge_ledger(spark, table)


@pytest.mark.parametrize("first", ["run", "backfill", "both"])
@pytest.mark.slow
def test_a_run_and_a_backfill_of_an_overlapping_range_land_each_record_once(
    first: str, pair: Pair, full: KafkaCluster, topic: str, folder: Path, spark: Any
) -> None:
    table = folder / "table"
    job = write_job(folder / "run.yaml", full.bootstrap, topic, table)
    middle = {
        "from": {topic: {p: COUNT // 3 for p in range(PARTITIONS)}},
        "until": {topic: {p: COUNT // 2 for p in range(PARTITIONS)}},
    }
    part = write_job(folder / "backfill.yaml", full.bootstrap, topic, table, range=middle)
    running, filling = pair
    running.give(job, **{ENTERING: "pause"})
    filling.give(part, command="backfill", **{ENTERING: "pause"})
    if first == "both":
        release(pair, ENTERING)
    else:
        leading, trailing = (running, filling) if first == "run" else (filling, running)
        for driver in pair:
            driver.wait_at(ENTERING)
        leading.go(ENTERING)
        leading.landed()
        trailing.go(ENTERING)
    results = [driver.landed() for driver in pair]
    assert "landed" in [result["state"] for result in results]
    running.give(job)
    assert running.landed()["state"] in ("nothing", "already-landed")
    judge(spark, table, dict.fromkeys(range(PARTITIONS), COUNT))
    judge_ledger(spark, table)
