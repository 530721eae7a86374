"""Drivers of one RocketMQ job, each a process with a Spark of its own, share its queues by locks
at real masters; one is killed, and another may take its seat. Each message lands once, and the
group ends at the checkpoint."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rangeland.testing.rocketmq import RocketmqCluster
from tests.chaos.driver import PLANNED, READING
from tests.chaos.drivers import StartDrivers
from tests.chaos.rocketmq_drivers import offsets, wait_for_drivers, write_job
from tests.spark.rocketmq_landings import Written, landed_rows

COUNT = 3_000


@pytest.fixture(scope="module")
def rocketmq() -> Iterator[RocketmqCluster]:
    with RocketmqCluster(brokers=2) as cluster:
        yield cluster


@pytest.fixture
def written(rocketmq: RocketmqCluster, topic: str) -> Written:
    """Three queues of each of two masters."""
    made = Written(rocketmq, topic, 3)
    made.fill("first", COUNT)
    return made


def judge(spark: Any, job: Path, written: Written) -> None:
    assert landed_rows(job.parent / "table") == sorted(written.rows)
    assert offsets(job, written) == written.ends


@pytest.mark.slow
def test_what_a_killed_driver_held_is_read_by_the_other(
    start_drivers: StartDrivers, written: Written, folder: Path, spark: Any
) -> None:
    job = write_job(written, folder)
    victim, other = start_drivers(2)
    victim.give(job, **{PLANNED: "pause", READING: "kill"})
    victim.wait_at(PLANNED)
    other.give(job, **{PLANNED: "pause"})
    other.wait_at(PLANNED)
    assert wait_for_drivers(job, written, 2) == [3, 3]
    victim.go(PLANNED)
    victim.wait_until_killed()
    other.go(PLANNED)
    result = other.landed()
    assert (result["state"], result["landed"]) == ("landed", 6 * COUNT)
    judge(spark, job, written)


@pytest.mark.slow
def test_a_driver_that_dies_is_replaced_and_the_newcomer_gets_a_share(
    start_drivers: StartDrivers, written: Written, folder: Path, spark: Any
) -> None:
    job = write_job(written, folder)
    victim, staying, newcomer = start_drivers(3)
    victim.give(job, **{PLANNED: "pause", READING: "kill"})
    victim.wait_at(PLANNED)
    staying.give(job, **{PLANNED: "pause"})
    staying.wait_at(PLANNED)
    assert wait_for_drivers(job, written, 2) == [3, 3]
    victim.go(PLANNED)
    victim.wait_until_killed()
    newcomer.give(job, **{PLANNED: "pause"})
    newcomer.wait_at(PLANNED)
    assert wait_for_drivers(job, written, 2) == [3, 3]
    staying.go(PLANNED)
    newcomer.go(PLANNED)
    results = [staying.landed(), newcomer.landed()]
    assert {result["landed"] for result in results} == {6 * COUNT}
    assert {result["sequence"] for result in results} == {1}
    assert [warning for result in results for warning in result["warnings"]] == []
    judge(spark, job, written)


@pytest.mark.slow
def test_a_driver_that_slept_through_its_locks_moves_nothing_back(
    start_drivers: StartDrivers, topic: str, folder: Path, spark: Any
) -> None:
    """Brokers drop a member that is silent for two minutes; here after seconds."""
    locks = ("-Drocketmq.broker.rebalance.lockMaxLiveTime=5000",)
    silence = {"channelExpiredTimeout": 6_000}
    with RocketmqCluster(jvm=locks, properties=silence) as cluster:
        written = Written(cluster, topic, 4)
        written.fill("first", COUNT)
        job = write_job(written, folder)
        sleeper, other = start_drivers(2)
        sleeper.give(job, **{PLANNED: "pause"})
        sleeper.wait_at(PLANNED)
        sleeper.process.pause()
        try:
            other.give(job)
            assert other.landed()["landed"] == 4 * COUNT
            written.fill("meanwhile", 40)
            other.give(job)
            assert other.landed()["landed"] == 4 * 40
        finally:
            sleeper.process.resume()
        sleeper.go(PLANNED)
        assert sleeper.landed()["sequence"] in (1, 2)
        judge(spark, job, written)
