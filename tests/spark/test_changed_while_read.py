"""A topic that is created again while it is read: rows of both never end up in one table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

import rangeland
from rangeland.errors import Conflict, RangeLost
from rangeland.fetch.read_settings import ReadSettings
from rangeland.job import Job
from rangeland.landing.execution.slice_tasks import SliceTasks
from rangeland.model import Slice
from rangeland.planning.plan import Plan
from rangeland.planning.slice_receipt import Receipt
from rangeland.testing.kafka import KafkaCluster
from rangeland.testing.producer import create_topic, delete_topic, numbered_records, produce
from tests.spark.landings import job_of, table_of

pytestmark = [pytest.mark.spark, pytest.mark.brokers]


class ByName:
    """Has the first reading of a plan go by topic names, as brokers before 3.1 are read, and
    does something when half of it is read."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, halfway: Callable[[], None]) -> None:
        self._read, self._tasks_of = SliceTasks.read_all, SliceTasks._tasks_of
        self._halfway = halfway
        self._is_first = True
        monkeypatch.setattr(
            SliceTasks, "read_all", lambda f, p, settings, is_new: self.read(f, p, settings, is_new)
        )
        monkeypatch.setattr(SliceTasks, "_tasks_of", lambda f, slices: self.tasks_of(f, slices))

    def tasks_of(self, reading: SliceTasks, slices: Sequence[Slice]) -> list[list[Slice]]:
        tasks = self._tasks_of(reading, slices)
        if not self._is_first:
            return tasks
        return [[replace(slice_, topic_id=None) for slice_ in task] for task in tasks]

    def read(
        self, reading: SliceTasks, plan: Plan, settings: ReadSettings, is_new: bool
    ) -> tuple[dict[int, Receipt], list[Any]]:
        if not self._is_first:
            return self._read(reading, plan, settings, is_new=is_new)
        half = len(plan.slices) // 2
        assert half > 0
        halves = plan.slices[:half], plan.slices[half:]
        first_half, last_half = (replace(plan, slices=slices) for slices in halves)
        first = self._read(reading, first_half, settings, is_new=is_new)
        self._halfway()
        last = self._read(reading, last_half, settings, is_new=is_new)
        self._is_first = False
        assert len(first[0]) + len(last[0]) == len(plan.slices)
        return {**first[0], **last[0]}, [*first[1], *last[1]]


def job(kafka: KafkaCluster, table: str, topic: str, **policy: str) -> Job:
    return job_of(kafka.bootstrap, table, topic, policy=policy)


def recreated(kafka: KafkaCluster, topic: str) -> None:
    delete_topic(kafka.bootstrap, topic)
    for _ in range(100):
        try:
            create_topic(kafka.bootstrap, topic, partitions=2)
            break
        except Conflict:
            continue
    for number in range(2):
        produce(kafka.bootstrap, topic, numbered_records(300, start=5000), partition=number)


def test_rows_of_two_incarnations_are_never_committed_together(
    kafka: KafkaCluster, spark: Any, topic: str, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_topic(kafka.bootstrap, topic, partitions=2)
    for number in range(2):
        produce(kafka.bootstrap, topic, numbered_records(200), partition=number)
    ByName(monkeypatch, lambda: recreated(kafka, topic))
    with pytest.raises(RangeLost, match="recreated"):
        rangeland.land(job(kafka, table, topic), spark)
    assert table_of(spark, table).count() == 0

    result = rangeland.land(job(kafka, table, topic, recreated="skip"), spark)
    assert result.counts.landed == 600
    new = {row.value for row in numbered_records(300, start=5000)}
    assert {bytes(row.value) for row in table_of(spark, table).collect()} == new


@pytest.mark.slow
def test_a_policy_that_skips_is_followed_in_the_same_run(
    kafka: KafkaCluster, spark: Any, topic: str, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_topic(kafka.bootstrap, topic, partitions=2)
    for number in range(2):
        produce(kafka.bootstrap, topic, numbered_records(200), partition=number)
    ByName(monkeypatch, lambda: recreated(kafka, topic))
    skipping = job(kafka, table, topic, recreated="skip")
    result = rangeland.land(skipping, spark)
    assert (result.counts.landed, result.counts.lost) == (0, 400)
    assert any("it is read once more" in text for text in result.warnings)
    assert rangeland.land(skipping, spark).counts.landed == 600
    new = {row.value for row in numbered_records(300, start=5000)}
    assert {bytes(row.value) for row in table_of(spark, table).collect()} == new
