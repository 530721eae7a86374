"""The leader of a partition is harmed while that partition is being read.

Three brokers, each partition on all three. Every record was acknowledged by all of them,
so a run must end with each record once whatever becomes of one broker at a time.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rangeland import run as commands
from rangeland.job import Job
from rangeland.model import Partition
from rangeland.planning.plan import Plan
from rangeland.progress_events import NoProgress
from rangeland.testing.kafka import KafkaCluster
from rangeland.testing.producer import create_topic, leader_of, wait_for_leader
from tests.chaos.invariants import add_records, judge, judge_ledger, write_job

TOPIC, PARTITIONS, COUNT = "harmed", 3, 400_000
# Below these a broker in its pause is noticed within seconds, as a test needs it.
TIMEOUTS = {"connect_ms": 1_000, "request_ms": 1_500, "no_progress_ms": 60_000}
LONG_PAUSE_S, SHORT_PAUSE_S = 7, 2.5
"""Longer than the brokers' session, so that leaders move; and shorter, so that they stay."""


class Harming(NoProgress):
    """Calls ``harm(partition)`` once, with a partition that is read in part."""

    def __init__(self, harm: Callable[[Partition], None]) -> None:
        self._harm = harm
        self._widths: dict[Partition, int] = {}
        self.harmed: Partition | None = None

    def planned(self, plan: Plan, recovered: bool) -> None:
        self._widths = {r.partition: r.width for r in plan.ranges}

    def read(self, read_widths: dict[Partition, int]) -> None:
        if self.harmed is not None:
            return
        partly = [p for p, offsets in read_widths.items() if 0 < offsets < self._widths[p]]
        if partly:
            # The one with most to read: no slice of it that is under way is its last.
            self.harmed = max(partly, key=lambda p: self._widths[p] - read_widths[p])
            self._harm(self.harmed)


@pytest.fixture(scope="module")
def filled(kafka3: KafkaCluster) -> KafkaCluster:
    create_topic(kafka3.bootstrap, TOPIC, PARTITIONS, replicas=3)
    add_records(kafka3.bootstrap, TOPIC, PARTITIONS, COUNT)
    return kafka3


@pytest.fixture
def healed(filled: KafkaCluster) -> Iterator[KafkaCluster]:
    """The cluster, whole again after the test."""
    yield filled
    for broker in filled.ids:
        if broker not in filled.running:
            filled.restart(broker)
    for partition in range(PARTITIONS):
        wait_for_leader(filled.bootstrap, TOPIC, partition)


def land_while(
    harm: Callable[[int], None], cluster: KafkaCluster, folder: Path, spark: Any
) -> tuple[int, Partition]:
    """Lands the topic while ``harm(broker)`` is done to a leader; what was harmed."""
    table = folder / "table"
    path = write_job(
        folder / "job.yaml",
        cluster.bootstrap,
        TOPIC,
        table,
        source={"timeouts": TIMEOUTS},
        slices={"target_bytes": "256KiB"},
    )
    found: list[int] = []

    def harm_leader(partition: Partition) -> None:
        found.append(leader_of(cluster.bootstrap, TOPIC, partition.number))
        harm(found[0])

    progress = Harming(harm_leader)
    result = commands.run(Job.load(path), spark, progress)
    assert progress.harmed is not None, "reading was over before a broker could be harmed"
    assert (result.state, result.counts.landed) == ("landed", PARTITIONS * COUNT)
    assert result.counts.total == PARTITIONS * COUNT
    judge(spark, table, dict.fromkeys(range(PARTITIONS), COUNT))
    judge_ledger(spark, table)
    return found[0], progress.harmed


def test_a_run_outlives_the_crash_of_a_leader_it_reads_from(
    healed: KafkaCluster, folder: Path, spark: Any
) -> None:
    killed, partition = land_while(healed.kill, healed, folder, spark)
    assert killed not in healed.running
    assert leader_of(healed.bootstrap, TOPIC, partition.number) not in (-1, killed)


@pytest.mark.slow
def test_a_run_outlives_a_leader_that_hands_over_and_stops(
    healed: KafkaCluster, folder: Path, spark: Any
) -> None:
    stopped, partition = land_while(healed.stop, healed, folder, spark)
    assert stopped not in healed.running
    assert leader_of(healed.bootstrap, TOPIC, partition.number) not in (-1, stopped)


@pytest.mark.slow
def test_a_run_outlives_a_leader_that_crashes_and_comes_back(
    healed: KafkaCluster, folder: Path, spark: Any
) -> None:
    def crash(broker: int) -> None:
        healed.kill(broker)
        healed.restart(broker)

    crashed, _ = land_while(crash, healed, folder, spark)
    assert crashed in healed.running


@pytest.mark.parametrize("pause_s", [SHORT_PAUSE_S, LONG_PAUSE_S])
@pytest.mark.slow
def test_a_run_outlives_a_leader_that_is_silent_for_longer_than_a_request_may_take(
    pause_s: float, healed: KafkaCluster, folder: Path, spark: Any
) -> None:
    timers: list[threading.Timer] = []

    def pause(broker: int) -> None:
        healed.pause(broker)
        timers.append(threading.Timer(pause_s, healed.resume, [broker]))
        timers[0].start()

    try:
        land_while(pause, healed, folder, spark)
    finally:
        for timer in timers:
            timer.join()
