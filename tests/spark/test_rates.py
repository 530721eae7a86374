"""A run's byte rate is shared by tasks that read one broker at the same time."""

from __future__ import annotations

from typing import Any

import pytest

import rangeland
from rangeland.landing.execution import slice_tasks
from rangeland.planning.slice_receipt import TaskResult
from rangeland.spark.spark_jobs import TasksToRun
from rangeland.testing.kafka import KafkaCluster
from rangeland.testing.producer import Record, create_topic, produce
from tests.spark.landings import job_of

pytestmark = [pytest.mark.spark, pytest.mark.brokers]


@pytest.mark.slow
def test_the_tasks_of_a_run_share_the_rate_of_a_broker(
    kafka: KafkaCluster, spark: Any, topic: str, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_topic(kafka.bootstrap, topic, partitions=2)
    for partition in (0, 1):
        records = [Record(b"x" * 1000)] * 1_500
        produce(kafka.bootstrap, topic, records, partition=partition, batch_records=50)
    given: list[dict[str, int]] = []
    run_tasks = slice_tasks.run_tasks

    def spy(tasks: TasksToRun) -> list[TaskResult]:
        given.append({str(address): rate for address, rate in tasks.settings.rates})
        at_once = min(len(tasks.slices), int(spark.sparkContext.defaultParallelism))
        assert given[-1] == {kafka.bootstrap[0]: 1_000_000 // at_once}
        return run_tasks(tasks)

    monkeypatch.setattr(slice_tasks, "run_tasks", spy)
    limits = {"broker_bytes_per_second": 1_000_000}
    result = rangeland.land(job_of(kafka.bootstrap, table, topic, limits=limits), spark)
    assert (result.counts.landed, len(given)) == (3_000, 1)
    # Three seconds' worth, less the last response of each task.
    assert result.seconds > 1.5
