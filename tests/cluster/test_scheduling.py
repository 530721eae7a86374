"""Executors come, go, stand still and die: each record is in the table once.

The broker is paused as soon as the first files are written, so that what is harmed is in
the middle of reading; what is read before and after is Spark's own affair.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from rangeland.testing.kafka import KafkaCluster
from rangeland.testing.processes import PATIENCE_S
from rangeland.testing.producer import create_topic
from tests.chaos.invariants import add_records, landings, write_job
from tests.cluster.conftest import Submit
from tests.cluster.spark_submit import Submitted, each_once, offsets_in, written_files
from tests.servers.process_sessions import workers_among
from tests.servers.sparkcluster import SparkCluster

PARTITIONS, COUNT = 2, 60_000
TWINS = {
    "spark.speculation.interval": "100ms",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.quantile": "0.3",
    "spark.speculation.minTaskRuntime": "500ms",
}
COMING_AND_GOING = {
    "spark.dynamicAllocation.minExecutors": "0",
    "spark.dynamicAllocation.initialExecutors": "0",
    "spark.dynamicAllocation.maxExecutors": "2",
    "spark.dynamicAllocation.executorIdleTimeout": "2s",
}


@pytest.fixture
def job(broker: KafkaCluster, topic: str, folder: Path, table: Path) -> Path:
    create_topic(broker.bootstrap, topic, PARTITIONS)
    add_records(broker.bootstrap, topic, PARTITIONS, COUNT)
    return write_job(
        folder / "job.yaml", broker.bootstrap, topic, table, slices={"target_bytes": "32KiB"}
    )


def harm_in_mid_read(
    run: Submitted, broker: KafkaCluster, table: Path, harm: Callable[[], None]
) -> None:
    """Waits until some files are written, then does harm while no more bytes arrive."""
    run.process.wait_until(lambda: bool(written_files(table)), "its first file", PATIENCE_S)
    broker.pause(1)
    try:
        harm()
    finally:
        broker.resume(1)


def judge(table: Path, run: Submitted) -> None:
    result = run.landed()
    assert (result["state"], result["landed"]) == ("landed", PARTITIONS * COUNT)
    assert offsets_in(table) == each_once(PARTITIONS, COUNT)
    assert landings(table) == [("rangeland/chaos", 1)]


@pytest.mark.slow
def test_a_killed_executor_costs_nothing_but_time(
    submit: Submit, cluster: SparkCluster, broker: KafkaCluster, job: Path, table: Path
) -> None:
    run = submit(job)

    def kill_one() -> None:
        executors = cluster.executors()
        assert len(executors) == 2
        executors[0].kill()
        run.process.wait_for_line("Lost executor", 120)

    harm_in_mid_read(run, broker, table, kill_one)
    judge(table, run)


@pytest.mark.slow
def test_with_speculation_a_twin_lands_nothing_twice(
    submit: Submit, cluster: SparkCluster, broker: KafkaCluster, job: Path, table: Path
) -> None:
    run = submit(job, "--speculation", settings=TWINS)
    stopped = []

    def stop_one() -> None:
        stopped.extend(workers_among(cluster.members())[:1])
        stopped[0].suspend()

    try:
        harm_in_mid_read(run, broker, table, stop_one)
        # It ends though a worker stands still: that worker's task had a twin.
        judge(table, run)
    finally:
        for worker in stopped:
            if worker.is_running():
                worker.kill()


@pytest.mark.slow
def test_with_dynamic_allocation_executors_come_with_the_work(
    submit: Submit, cluster: SparkCluster, job: Path, table: Path
) -> None:
    before = cluster.launched()
    run = submit(job, "--dynamic-allocation", settings=COMING_AND_GOING)
    judge(table, run)
    assert cluster.launched() > before
