"""A topic that was landed and has vanished is a loss, and its policy decides; one that never
existed is a mistake in the job file.
"""

from __future__ import annotations

import time
from typing import Any

import pytest

import rangeland
from rangeland.errors import JobFileError, RangeLost
from rangeland.job import Job
from rangeland.progress_events import NoProgress
from rangeland.queries import job_check, job_status
from rangeland.testing.kafka import KafkaCluster
from rangeland.testing.producer import create_topic, delete_topic, numbered_records, produce
from tests.spark.landings import job_of, offsets_in, table_of

pytestmark = [pytest.mark.spark, pytest.mark.brokers]


def job(kafka: KafkaCluster, table: str, topics: list[str], **more: Any) -> Job:
    return job_of(kafka.bootstrap, table, topics, **more)


def test_a_landed_topic_that_is_gone_is_judged_by_its_policy(
    kafka: KafkaCluster, spark: Any, topic: str, table: str
) -> None:
    topics = [f"{topic}-a", f"{topic}-b"]
    for name in topics:
        create_topic(kafka.bootstrap, name)
        produce(kafka.bootstrap, name, numbered_records(10))
    rangeland.land(job(kafka, table, topics), spark)
    delete_topic(kafka.bootstrap, topics[1])
    produce(kafka.bootstrap, topics[0], numbered_records(5))

    with pytest.raises(RangeLost, match="vanished: the cluster no longer names this topic") as lost:
        rangeland.land(job(kafka, table, topics), spark)
    (loss,) = lost.value.facts["losses"]
    assert (loss["topic"], loss["until_offset"], loss["verdict"]) == (topics[1], 10, "vanished")
    checked = job_check.check(job(kafka, table, topics), lambda: spark, NoProgress())
    assert (checked.exit_code, checked.error) == (66, "RangeLost")
    assert len(table_of(spark, table).collect()) == 20, "nothing was landed"

    never = [*topics, f"{topic}-typo"]
    for policy in ({}, {"vanished": "skip"}):
        with pytest.raises(JobFileError, match=f"there is no topic {topic}-typo"):
            rangeland.land(job(kafka, table, never, policy=policy), spark)

    skipping = job(kafka, table, topics, policy={"vanished": "skip"})
    skipped = rangeland.land(skipping, spark)
    assert (skipped.state, skipped.counts.landed) == ("landed", 5)
    assert any("skipped, as policy.vanished is skip" in w for w in skipped.warnings)
    assert rangeland.land(skipping, spark).state == "nothing"
    holding = rangeland.land(job(kafka, table, topics, policy={"vanished": "hold"}), spark)
    assert (holding.state, len(holding.held)) == ("nothing", 1)
    seen = job_status.status(skipping, spark, NoProgress())
    assert [p.partition.topic for p in seen.partitions] == [topics[0]]

    spark.sql(f"DELETE FROM delta.`{table}` WHERE topic = '{topics[1]}' AND offset = 3")
    with pytest.raises(RangeLost, match=r"\[3, 4\) vanished"):
        rangeland.backfill(job(kafka, table, topics), spark, missing=True)
    delete_topic(kafka.bootstrap, topics[0])
    assert rangeland.land(skipping, spark).state == "nothing", "also where none is left"
    assert len(offsets_in(table)) == 24


def test_a_reviewed_plan_of_a_topic_that_is_gone_is_refused_at_once(
    kafka: KafkaCluster, spark: Any, topic: str, table: str
) -> None:
    create_topic(kafka.bootstrap, topic)
    produce(kafka.bootstrap, topic, numbered_records(10))
    patient = {"timeouts": {"no_progress_ms": 120_000}}
    reviewed = rangeland.plan(job(kafka, table, [topic], source=patient), spark)
    delete_topic(kafka.bootstrap, topic)
    started = time.monotonic()
    with pytest.raises(RangeLost, match=r"\[0, 10\) vanished") as lost:
        reviewed.apply(spark)
    assert time.monotonic() - started < 60
    assert lost.value.exit_code == 66
    # No plan was entered that would be in the way of the topic that is made next.
    create_topic(kafka.bootstrap, topic)
    produce(kafka.bootstrap, topic, numbered_records(3))
    with pytest.raises(RangeLost, match="recreated"):
        reviewed.apply(spark)
    assert rangeland.land(job(kafka, table, [topic]), spark).counts.landed == 3
