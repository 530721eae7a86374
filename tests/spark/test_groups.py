"""A job with a group in a real Kafka: partitions are claimed, offsets mirrored, members shown."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from confluent_kafka import Consumer, Message

from rangeland.cluster_access.backend_choice import open_backend
from rangeland.cluster_access.cluster_lookup import look_up_cluster
from rangeland.errors import Conflict, Unreachable
from rangeland.groups.backend import GroupBackend
from rangeland.job import Job
from rangeland.job_group.mirror_command import push
from rangeland.model import Partition
from rangeland.progress_events import NoProgress
from rangeland.queries import job_status
from rangeland.run import run
from rangeland.testing.kafka import KafkaCluster
from rangeland.testing.processes import PATIENCE_S
from rangeland.testing.producer import create_topic, numbered_records, produce
from tests.spark.landings import job_of

pytestmark = [pytest.mark.spark, pytest.mark.brokers]

COUNT, MORE = 30, 5


@pytest.fixture
def job(kafka: KafkaCluster, topic: str, table: str) -> Job:
    create_topic(kafka.bootstrap, topic, partitions=2)
    for number in range(2):
        produce(kafka.bootstrap, topic, numbered_records(COUNT), partition=number)
    group = {"id": f"group-of-{topic}", "session_ms": 6_000}
    return job_of(kafka.bootstrap, table, topic, group=group)


@contextmanager
def home_of(job: Job) -> Iterator[GroupBackend]:
    home = open_backend(job, look_up_cluster(job))
    try:
        yield home
    finally:
        home.close()


@contextmanager
def live_consumer(kafka: KafkaCluster, job: Job) -> Iterator[tuple[Consumer, list[Message]]]:
    """Somebody else, who reads with the group of the job; and what came to it at once."""
    assert job.group is not None
    consumer = Consumer(
        {
            "bootstrap.servers": ",".join(kafka.bootstrap),
            "group.id": job.group.id,
            "client.id": "billing",
            "session.timeout.ms": 6_000,
            "enable.auto.commit": False,
        }
    )
    try:
        consumer.subscribe(list(job.source.topics))
        early: list[Message] = []
        deadline = time.monotonic() + PATIENCE_S
        while not consumer.assignment():
            assert time.monotonic() < deadline, "the consumer was given nothing"
            if (message := consumer.poll(0.1)) is not None:
                early.append(message)
        yield consumer, early
    finally:
        consumer.close()


def taken(consumer: Consumer, early: list[Message], count: int) -> list[tuple[int, int]]:
    """Partition and offset of the next records; one more would be an error."""
    found = [(message.partition(), message.offset()) for message in early]
    deadline = time.monotonic() + PATIENCE_S
    while len(found) < count:
        assert time.monotonic() < deadline, f"only {found} came"
        message = consumer.poll(0.5)
        if message is not None:
            assert message.error() is None
            found.append((message.partition(), message.offset()))
    assert consumer.poll(0.5) is None
    return found


def group_id(job: Job) -> str:
    assert job.group is not None
    return job.group.id


def test_a_landing_is_mirrored_and_shown(kafka: KafkaCluster, job: Job, spark: Any) -> None:
    (topic,) = job.source.topics
    assert run(job, spark, NoProgress()).warnings == ()
    before_ms = int(time.time() * 1000)
    produce(kafka.bootstrap, topic, numbered_records(MORE), partition=1)
    shown = job_status.status(job, spark, NoProgress()).to_json()
    assert [p["group_offset"] for p in shown["partitions"]] == [COUNT, COUNT]
    assert [(p["checkpoint"], p["end"], p["lag"]) for p in shown["partitions"]] == [
        (COUNT, COUNT, 0),
        (COUNT, COUNT + MORE, MORE),
    ]
    landed, behind = shown["partitions"]
    assert landed["lag_ms"] is None
    assert 0 <= behind["lag_ms"] <= int(time.time() * 1000) - before_ms + 1_000
    assert (shown["group"]["id"], shown["group"]["state"]) == (group_id(job), "empty")
    assert "coordinator" in shown["group"]["home"]


def test_a_consumer_goes_on_exactly_where_a_run_stopped_and_a_run_where_it_did(
    kafka: KafkaCluster, job: Job, table: str, spark: Any
) -> None:
    (topic,) = job.source.topics
    run(job, spark, NoProgress())
    produce(kafka.bootstrap, topic, numbered_records(MORE, COUNT), partition=1)
    with live_consumer(kafka, job) as (consumer, early):
        assert taken(consumer, early, MORE) == [(1, COUNT + n) for n in range(MORE)]
        consumer.commit(asynchronous=False)
    produce(kafka.bootstrap, topic, numbered_records(2, COUNT + MORE), partition=1)
    takes_over = {"from": f"group:{group_id(job)}"}
    taker = job_of(kafka.bootstrap, f"{table}-taken", topic, name="taker", range=takes_over)
    result = run(taker, spark, NoProgress())
    begins = {r.range.partition.number: r.range.from_offset for r in result.ranges}
    assert (result.to_json()["landed"], begins) == (2, {1: COUNT + MORE})


def test_the_checkpoint_is_pushed_once_and_read_back(job: Job, spark: Any) -> None:
    assert push(job, spark, NoProgress()).state == "nothing-landed"
    run(job, spark, NoProgress())
    assert push(job, spark, NoProgress()).state == "unchanged"
    (topic,) = job.source.topics
    with home_of(job) as home:
        home.commit(group_id(job), {Partition(topic, 0): 3})
    result = push(job, spark, NoProgress())
    assert result.state == "mirrored"
    first, second = result.partitions
    assert (first.checkpoint, first.before, first.after) == (COUNT, 3, COUNT)
    assert (second.before, second.after, second.lag) == (COUNT, COUNT, 0)


def test_a_live_consumer_is_never_worked_against(kafka: KafkaCluster, job: Job, spark: Any) -> None:
    with live_consumer(kafka, job):
        with pytest.raises(Conflict, match="billing"):
            run(job, spark, NoProgress())
        shown = job_status.status(job, spark, NoProgress()).to_json()
        assert shown["sequence"] == 0
        (member,) = shown["group"]["members"]
        assert (member["client"], member["is_ours"]) == ("billing", False)
        assert {p["owner"] for p in shown["partitions"]} == {member["member"]}
        with pytest.raises(Conflict, match="billing"):
            push(job, spark, NoProgress())
    assert run(job, spark, NoProgress()).state == "landed"
    with home_of(job) as home:
        partitions = [Partition(job.source.topics[0], n) for n in range(2)]
        assert home.offsets(group_id(job), partitions) == dict.fromkeys(partitions, COUNT)


def test_status_without_the_group_backend_shows_the_rest(
    job: Job, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(job, spark, NoProgress())

    def away(*_: object) -> GroupBackend:
        raise Unreachable("the coordinator is away")

    monkeypatch.setattr(job_status, "open_backend", away)
    shown = job_status.status(job, spark, NoProgress()).to_json()
    assert [p["checkpoint"] for p in shown["partitions"]] == [COUNT, COUNT]
    assert [p["group_offset"] for p in shown["partitions"]] == [None, None]
    assert "is away" in shown["group"]["why"]
