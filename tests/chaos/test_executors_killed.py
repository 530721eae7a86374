"""Python workers and executors are killed, or stand still, in mid-read: tasks run again.

The broker is stopped at the moment some slices are read, so that every worker that has
work waits for it: whoever is killed then is killed in the middle of a task.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rangeland.testing.kafka import KafkaCluster
from rangeland.testing.processes import remove_directory, temporary_directory
from rangeland.testing.producer import create_topic
from tests.chaos.conftest import Start
from tests.chaos.driver import READING, WRITTEN
from tests.chaos.drivers import ROOT, Driver, kill_all, workers_among
from tests.chaos.invariants import add_records, judge, judge_ledger, write_job
from tests.servers.sparkcluster import SparkCluster

PARTITIONS, COUNT = 4, 150_000
LOST_TASK = r"Lost task .* in stage"
EXECUTORS = {
    "spark.executor.memory": "512m",
    "spark.executor.cores": "1",
    "spark.cores.max": "2",
}
TWINS = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.quantile": "0.3",
    "spark.speculation.minTaskRuntime": "500ms",
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[SparkCluster]:
    folder = temporary_directory("rangeland-spark-")
    with SparkCluster(folder, python_path=[ROOT]) as found:
        yield found
    remove_directory(folder)


@pytest.fixture
def job(broker: KafkaCluster, topic: str, folder: Path) -> Path:
    create_topic(broker.bootstrap, topic, PARTITIONS)
    add_records(broker.bootstrap, topic, PARTITIONS, COUNT)
    return write_job(
        folder / "job.yaml",
        broker.bootstrap,
        topic,
        folder / "table",
        slices={"target_bytes": "512KiB"},
    )


def read_until_stopped(driver: Driver, broker: KafkaCluster, job: Path, **at: str) -> None:
    """The driver is in mid-read, and gets no more bytes until the broker is resumed."""
    driver.wait_until_ready()
    driver.give(job, **{READING: f"stop {broker.process(1).pid}"}, **at)
    driver.wait_at(READING)


def judge_all(spark: Any, folder: Path, result: dict[str, Any]) -> None:
    assert (result["state"], result["landed"]) == ("landed", PARTITIONS * COUNT)
    judge(spark, folder / "table", dict.fromkeys(range(PARTITIONS), COUNT))
    judge_ledger(spark, folder / "table")


@pytest.mark.slow
def test_the_tasks_of_killed_python_workers_are_done_again(
    broker: KafkaCluster, job: Path, folder: Path, start: Start, spark: Any
) -> None:
    driver = start(master="local[2,4]")
    try:
        read_until_stopped(driver, broker, job)
        workers = workers_among(driver.members())
        assert workers
        kill_all(workers)
        driver.process.wait_for_line(LOST_TASK)
    finally:
        broker.resume(1)
    judge_all(spark, folder, driver.landed())


@pytest.mark.slow
def test_the_tasks_of_a_killed_executor_are_done_again(
    broker: KafkaCluster,
    job: Path,
    folder: Path,
    start: Start,
    spark: Any,
    cluster: SparkCluster,
) -> None:
    driver = start(master=cluster.master, settings=EXECUTORS)
    try:
        read_until_stopped(driver, broker, job)
        executors = cluster.executors()
        assert len(executors) == 2
        kill_all(executors)
        driver.process.wait_for_line(LOST_TASK)
    finally:
        broker.resume(1)
    judge_all(spark, folder, driver.landed())


@pytest.mark.slow
def test_the_twin_of_a_task_that_stands_still_lands_nothing_twice(
    broker: KafkaCluster,
    job: Path,
    folder: Path,
    start: Start,
    spark: Any,
    cluster: SparkCluster,
) -> None:
    driver = start(master=cluster.master, settings=EXECUTORS | TWINS)
    stopped = []
    try:
        try:
            read_until_stopped(driver, broker, job, **{WRITTEN: "pause"})
            stopped = workers_among(cluster.members())[:1]
            assert stopped
            stopped[0].suspend()
        finally:
            broker.resume(1)
        # All is read though one worker stands still: its task had a twin on the other host.
        driver.wait_at(WRITTEN)
    finally:
        for worker in stopped:
            if worker.is_running():
                worker.resume()
    # Whatever the first copy still does, its files are not the ones that were handed in.
    driver.go(WRITTEN)
    judge_all(spark, folder, driver.landed())
