"""A job for messages with some tags: all others are counted, proved, and never a hole."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import rangeland
from rangeland import run
from rangeland.errors import Conflict
from rangeland.job import Job
from rangeland.model import Counts
from rangeland.planning.plan import Plan
from rangeland.planning.plan_kind import PlanKind
from rangeland.progress_events import NoProgress
from rangeland.run import preview
from rangeland.testing.rocketmq import RocketmqCluster
from rangeland.testing.rocketmq_clients import produce
from tests.spark.landings import job_of, stored_rows

pytestmark = [pytest.mark.spark, pytest.mark.brokers]


@pytest.fixture(scope="module")
def rocketmq() -> Iterator[RocketmqCluster]:
    """One master. Do not harm it."""
    with RocketmqCluster() as cluster:
        yield cluster


class Dies(NoProgress):
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


def landed(table: str) -> dict[int, str]:
    rows = sorted(
        (row["offset"], row["value"].decode()) for row in stored_rows(table, "offset", "value")
    )
    assert len(dict(rows)) == len(rows)
    return dict(rows)


def test_messages_of_the_tags_land_and_the_others_are_filtered_and_no_holes(
    rocketmq: RocketmqCluster, topic: str, table: str, spark: Any
) -> None:
    rocketmq.create_topic(topic, 1)
    write(rocketmq, topic, "ABCAABC" + "C" * 20)
    job = tagged(rocketmq, topic, table, "A", "B")
    result = rangeland.land(job, spark)
    assert result.counts == Counts(landed=5, filtered=22)
    there = {0: "A", 1: "B", 3: "A", 4: "A", 5: "B"}
    assert landed(table) == there
    assert rangeland.verify(job, spark).is_well

    # A plan that was entered is finished under its own tags, whatever the job says by then.
    write(rocketmq, topic, "CAC")
    with pytest.raises(KeyboardInterrupt):
        rangeland.land(job, spark, Dies())
    write(rocketmq, topic, "BCA")
    changed = tagged(rocketmq, topic, table, "C")
    with pytest.raises(Conflict, match="the tags were A, B and are C now"):
        rangeland.land(changed, spark)
    there |= {28: "A"}
    assert landed(table) == there
    run.adopt(changed, spark, NoProgress())
    assert rangeland.land(changed, spark).counts.landed == 1
    there |= {31: "C"}
    assert landed(table) == there
    assert rangeland.verify(changed, spark).is_well

    # What the table has lost is told from what was left out.
    spark.sql(f"DELETE FROM delta.`{table}` WHERE offset = 4")
    found = rangeland.verify(job, spark)
    assert not found.is_well
    assert [(r["from_offset"], r["until_offset"]) for r in found.to_json()["holes"]] == [(4, 5)]


@pytest.mark.slow
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


@pytest.mark.slow
def test_a_plan_file_is_of_its_tags(
    rocketmq: RocketmqCluster, topic: str, table: str, spark: Any
) -> None:
    rocketmq.create_topic(topic, 1)
    write(rocketmq, topic, "AB")
    plan = rangeland.plan(tagged(rocketmq, topic, table, "A"), spark)
    assert plan.read(spark).count() == 1
    other = rangeland.plan(tagged(rocketmq, topic, table, "B"), spark)
    assert [bytes(row.value) for row in other.read(spark).collect()] == [b"B"]


def test_what_was_landed_by_other_tags_is_a_conflict_and_never_already_landed(
    rocketmq: RocketmqCluster, topic: str, table: str, spark: Any
) -> None:
    rocketmq.create_topic(topic, 1)
    write(rocketmq, topic, "ABAB")
    assert rangeland.land(tagged(rocketmq, topic, table, "A"), spark).counts.landed == 2
    source = {"dialect": "rocketmq", "tags": ["B"]}
    other = job_of(rocketmq.servers, table, topic, source=source, name="others")
    with pytest.raises(Conflict, match="with different options from this job's") as caught:
        rangeland.land(other, spark)
    assert "the tags were A and are B now" in str(caught.value)
    assert "another table" in str(caught.value)
    with pytest.raises(Conflict):
        preview(other, spark, NoProgress())

    # So is a tag that is added later, until somebody accepts what has landed without it.
    added = tagged(rocketmq, topic, table, "A", "B")
    write(rocketmq, topic, "B")
    for attempt in (rangeland.land, rangeland.plan):
        with pytest.raises(Conflict, match=r"the checkpoint .* was reached with different options"):
            attempt(added, spark)
    assert run.adopt(added, spark, NoProgress()).ranges == ()
    landed_now = rangeland.land(added, spark)
    assert (landed_now.counts.landed, landed_now.warnings) == (1, ())
    assert rangeland.land(added, spark).state == "nothing"
    again = job_of(
        rocketmq.servers,
        table,
        topic,
        source={"dialect": "rocketmq", "tags": ["B", "A"]},
        range={"from": "earliest", "until": "latest"},
    )
    with pytest.raises(Conflict, match="the tags were A and are A, B now"):
        run.backfill(again, spark, NoProgress())
    assert landed(table) == {0: "A", 2: "A", 4: "B"}
    assert run.backfill(again, spark, NoProgress(), PlanKind.REPLACE).counts.landed == 5
    assert run.backfill(again, spark, NoProgress()).state == "already-landed"


@pytest.mark.slow
def test_another_cluster_with_the_same_names_is_a_conflict(
    rocketmq: RocketmqCluster, topic: str, table: str, spark: Any
) -> None:
    rocketmq.create_topic(topic, 1)
    write(rocketmq, topic, "AA")
    assert rangeland.land(tagged(rocketmq, topic, table), spark).counts.landed == 2
    with RocketmqCluster() as second:
        second.create_topic(topic, 1)
        write(second, topic, "BBB")
        with pytest.raises(Conflict, match="belongs to another cluster"):
            rangeland.land(tagged(second, topic, table), spark)
        named = {"dialect": "rocketmq"}
        stranger = job_of(second.servers, table, topic, source=named, name="stranger")
        with pytest.raises(Conflict, match="the cluster was at") as caught:
            rangeland.land(stranger, spark)
        # Somebody who knows better can say so.
        name = str(caught.value).rsplit("source.cluster: ", 1)[1].split()[0].rstrip(".`")
        moved = tagged(second, topic, table)
        source = moved.source.model_copy(update={"cluster": name})
        moved = moved.model_copy(update={"source": source})
        assert rangeland.land(moved, spark).counts.landed == 1
    assert landed(table) == {0: "A", 1: "A", 2: "B"}
