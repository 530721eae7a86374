"""Python workers and executors are killed, or stand still, in mid-read: tasks run again.

The broker is stopped at the moment some slices are read, so that every worker that has
work waits for it: whoever is killed then is killed in the middle of a task.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rangeland.testing.kafka import KafkaCluster
from rangeland.testing.producing import create_topic
from tests.chaos.conftest import Start
from tests.chaos.driver import READING, WRITTEN
from tests.chaos.drivers import Driver
from tests.chaos.judging import add_records, judge, judge_ledger, write_job

PARTITIONS, COUNT = 4, 150_000
EXECUTORS = "local-cluster[2,1,1024]"
LOST_TASK = r"Lost task .* in stage"


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


def test_the_task_of_a_killed_python_worker_is_done_again(
    broker: KafkaCluster, job: Path, folder: Path, start: Start, spark: Any
) -> None:
    driver = start(master="local[2,4]")
    try:
        read_until_stopped(driver, broker, job)
        workers = driver.workers()
        assert workers
        for worker in workers:
            worker.kill()
        driver.process.wait_for_line(LOST_TASK)
    finally:
        broker.resume(1)
    judge_all(spark, folder, driver.landed())


def test_the_tasks_of_a_killed_executor_are_done_elsewhere(
    broker: KafkaCluster, job: Path, folder: Path, start: Start, spark: Any
) -> None:
    driver = start(master=EXECUTORS)
    try:
        read_until_stopped(driver, broker, job)
        first, *rest = driver.executors()
        assert rest
        first.kill()
        driver.process.wait_for_line(LOST_TASK)
    finally:
        broker.resume(1)
    judge_all(spark, folder, driver.landed())


def test_the_twin_of_a_task_that_stands_still_lands_nothing_twice(
    broker: KafkaCluster, job: Path, folder: Path, start: Start, spark: Any
) -> None:
    speculation = {
        "spark.speculation": "true",
        "spark.speculation.interval": "100ms",
        "spark.speculation.multiplier": "1.1",
        "spark.speculation.quantile": "0.3",
        "spark.speculation.minTaskRuntime": "500ms",
    }
    driver = start(master=EXECUTORS, settings=speculation)
    stopped = None
    try:
        try:
            read_until_stopped(driver, broker, job, **{WRITTEN: "pause"})
            stopped = driver.workers()[0]
            stopped.suspend()
        finally:
            broker.resume(1)
        # All is read though one worker never came back: its task had a twin.
        driver.wait_at(WRITTEN)
    finally:
        if stopped is not None and stopped.is_running():
            stopped.resume()
    driver.go(WRITTEN)
    judge_all(spark, folder, driver.landed())
