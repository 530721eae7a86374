"""A job for messages of some tags: what it leaves out is counted, proved, and never a hole."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import rangeland
from rangeland.job import Job
from rangeland.model import Counts
from rangeland.planning.plan import Plan
from rangeland.progress import Silent
from rangeland.testing.rocketmq import RocketmqCluster
from rangeland.testing.rocketmq_clients import produce
from tests.spark.landings import job_of, table_of

pytestmark = [pytest.mark.spark, pytest.mark.brokers]


@pytest.fixture(scope="module")
def rocketmq() -> Iterator[RocketmqCluster]:
    """One master. Do not harm it."""
    with RocketmqCluster() as cluster:
        yield cluster


class Dies(Silent):
    """The driver is gone once its plan is entered."""

    def planned(self, plan: Plan, recovered: bool) -> None:
        raise KeyboardInterrupt


def tagged(cluster: RocketmqCluster, topic: str, table: str, *tags: str) -> Job:
    source = {"dialect": "rocketmq", "tags": list(tags)}
    return job_of(cluster.servers, table, topic, source=source)


def write(cluster: RocketmqCluster, topic: str, tags: str) -> None:
    """A message for each letter, which is its tag and its value."""
    for tag in tags:
        produce(cluster.address(), topic, [tag.encode()], properties={"TAGS": tag})


def landed(spark: Any, table: str) -> dict[int, str]:
    rows = table_of(spark, table).select("offset", "value").collect()
    assert len({row.offset for row in rows}) == len(rows)
    return {row.offset: bytes(row.value).decode() for row in sorted(rows)}


def test_messages_of_the_tags_land_and_the_others_are_filtered_and_no_holes(
    rocketmq: RocketmqCluster, topic: str, table: str, spark: Any
) -> None:
    rocketmq.create_topic(topic, 1)
    write(rocketmq, topic, "ABCAABC" + "C" * 20)
    job = tagged(rocketmq, topic, table, "A", "B")
    result = rangeland.land(job, spark)
    assert result.counts == Counts(landed=5, filtered=22)
    there = {0: "A", 1: "B", 3: "A", 4: "A", 5: "B"}
    assert landed(spark, table) == there
    assert rangeland.verify(job, spark).is_well

    # A plan that was entered is finished under its own tags, whatever the job says by then.
    write(rocketmq, topic, "CAC")
    with pytest.raises(KeyboardInterrupt):
        rangeland.land(job, spark, Dies())
    write(rocketmq, topic, "BCA")
    changed = tagged(rocketmq, topic, table, "C")
    finished = rangeland.land(changed, spark)
    there |= {28: "A", 31: "C"}
    assert landed(spark, table) == there
    assert finished.counts.landed >= 1
    assert rangeland.verify(changed, spark).is_well

    # What the table has lost is told from what was left out.
    table_of(spark, table)
    spark.sql(f"DELETE FROM delta.`{table}` WHERE offset = 4")
    found = rangeland.verify(job, spark)
    assert not found.is_well
    assert [(r["from_offset"], r["until_offset"]) for r in found.to_json()["holes"]] == [(4, 5)]


def test_a_frame_of_the_data_source_is_of_its_tags(
    rocketmq: RocketmqCluster, topic: str, spark: Any
) -> None:
    rocketmq.create_topic(topic, 1)
    write(rocketmq, topic, "ABCAC")
    reader = spark.read.format("rangeland").option("dialect", "rocketmq").option("topics", topic)
    reader = reader.option("servers", rocketmq.servers[0])
    for tags, offsets in (("A, B", [0, 1, 3]), ('["C"]', [2, 4]), ("none", [])):
        frame = reader.option("tags", tags).load()
        assert sorted(row.offset for row in frame.collect()) == offsets


def test_a_plan_file_is_of_its_tags(
    rocketmq: RocketmqCluster, topic: str, table: str, spark: Any
) -> None:
    rocketmq.create_topic(topic, 1)
    write(rocketmq, topic, "AB")
    plan = rangeland.plan(tagged(rocketmq, topic, table, "A"), spark)
    assert plan.read(spark).count() == 1
    other = rangeland.plan(tagged(rocketmq, topic, table, "B"), spark)
    assert [bytes(row.value) for row in other.read(spark).collect()] == [b"B"]
