"""RocketMQ's brokers that go and come back, and queues that lose a part: waited for, held back,
or lost by a policy and counted, and never passed over."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import rangeland
from rangeland.errors import JobFileError, RangeLost, Unreachable
from rangeland.job import Job
from rangeland.model import Counts
from rangeland.planning import lagging_ends
from rangeland.progress_events import NoProgress
from rangeland.queries import job_status, verify_and_find
from rangeland.testing.rocketmq import RocketmqCluster
from tests.brokers.rocketmq import log_of, settings_of
from tests.record_values import values_of
from tests.spark import landings
from tests.spark.rocketmq_landings import Written, landed_rows, rocketmq_job

pytestmark = [pytest.mark.spark, pytest.mark.brokers]

SOON = {"connect_ms": 1_000, "request_ms": 3_000, "survey_ms": 2_000, "no_progress_ms": 4_000}


@pytest.fixture(scope="module")
def cluster() -> Iterator[RocketmqCluster]:
    """Two masters whose topics can be deleted."""
    with RocketmqCluster(brokers=2, properties={"timerWheelEnable": "true"}) as started:
        yield started


@pytest.fixture
def rocketmq(cluster: RocketmqCluster) -> Iterator[RocketmqCluster]:
    """To be harmed; it is healed after."""
    yield cluster
    for name in cluster.names:
        if name not in cluster.running:
            cluster.restart(name)


def job_of(written: Written, table: str, **sections: Any) -> Job:
    """A job that gives up soon."""
    return rocketmq_job(written, table, source={"timeouts": SOON}, **sections)


def expire(written: Written, queue: int) -> int:
    """Takes the oldest file of broker-a's messages away, as it does itself after some days;
    where the queue begins then."""
    cluster = written.cluster
    cluster.stop()
    min((cluster.store() / "commitlog").iterdir()).unlink()
    cluster.restart()
    return log_of(settings_of(cluster), written.topic, queue).start_offset


@pytest.mark.slow
def test_messages_that_have_expired_are_refused_held_back_or_lost_and_counted(
    rocketmq: RocketmqCluster, topic: str, spark: Any, table: str
) -> None:
    written = Written(rocketmq, topic, 1)
    written.fill("first", 10)
    rangeland.land(job_of(written, table), spark)
    written.add("broker-a", 0, [bytes([n]) * 100_000 for n in range(100)])
    written.add("broker-b", 0, values_of("more", 5))
    begins = expire(written, 0)
    assert 10 < begins < 110
    shown = job_status.status(job_of(written, table), spark, NoProgress())
    assert {str(p.partition): (p.start, p.checkpoint) for p in shown.partitions} == {
        f"{topic}/broker-a-0": (begins, 10),
        f"{topic}/broker-b-0": (0, 10),
    }
    with pytest.raises(RangeLost, match="expired") as lost:
        rangeland.land(job_of(written, table), spark)
    assert lost.value.exit_code == 66
    (loss,) = lost.value.facts["losses"]
    assert (loss["broker"], loss["partition"]) == ("broker-a", 0)
    assert (loss["from_offset"], loss["until_offset"]) == (10, begins)
    left = [r for r in written.rows if r[0] == "broker-b" or r[2] < 10 or r[2] >= begins]

    holding = rangeland.land(job_of(written, table, policy={"expired": "hold"}), spark)
    assert (holding.counts, len(holding.held)) == (Counts(landed=5), 1)
    assert f"{topic}/broker-a-0" in holding.held[0]

    skipping = job_of(written, table, policy={"expired": "skip"})
    skipped = rangeland.land(skipping, spark)
    assert skipped.counts == Counts(landed=110 - begins, lost=begins - 10)
    assert landed_rows(table) == sorted(left)
    assert verify_and_find.verify(skipping, spark, NoProgress()).is_well
    assert rangeland.land(job_of(written, table), spark).state == "nothing"


def test_a_landed_topic_that_is_deleted_has_vanished_and_one_created_again_is_not_a_continuation(
    rocketmq: RocketmqCluster,
    topic: str,
    spark: Any,
    table: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lagging_ends, "LAGGING_S", 0)
    written = Written(rocketmq, topic, 1)
    written.fill("first", 10)
    job = job_of(written, table)
    rangeland.land(job, spark)
    rocketmq.delete_topic(topic)
    with pytest.raises(RangeLost, match="vanished") as lost:
        rangeland.land(job, spark)
    assert {loss["verdict"] for loss in lost.value.facts["losses"]} == {"vanished"}
    assert rangeland.land(job_of(written, table, policy={"vanished": "skip"}), spark).warnings
    # Brokers give topics no ids: one that was created again shows by its shorter queues.
    again = Written(rocketmq, topic, 1)
    again.fill("again", 3)
    with pytest.raises(RangeLost, match="the log ends at 3"):
        rangeland.land(job, spark)
    assert landed_rows(table) == sorted(written.rows)


@pytest.mark.slow
def test_a_topic_that_never_was_is_a_mistake_in_the_job_file(
    rocketmq: RocketmqCluster, topic: str, spark: Any, table: str
) -> None:
    source = {"dialect": "rocketmq", "timeouts": SOON}
    job = landings.job_of(rocketmq.servers, table, f"{topic}-typo", source=source)
    with pytest.raises(JobFileError, match=f"there is no topic {topic}-typo"):
        rangeland.land(job, spark)


@pytest.mark.slow
def test_a_landed_broker_that_the_name_servers_forgot_is_away_and_not_gone(
    rocketmq: RocketmqCluster, topic: str, spark: Any, table: str
) -> None:
    written = Written(rocketmq, topic, 1)
    written.fill("first", 10)
    rangeland.land(job_of(written, table), spark)
    written.fill("more", 5)
    rocketmq.kill("broker-b")
    with pytest.raises(Unreachable, match="broker-b") as refused:
        rangeland.land(job_of(written, table), spark)
    assert refused.value.exit_code == 75
    lenient = dict.fromkeys(("expired", "recreated", "truncated", "vanished"), "skip")
    holding = job_of(written, table, policy={**lenient, "unreachable": "hold"})
    held = rangeland.land(holding, spark)
    assert (held.counts, len(held.held)) == (Counts(landed=5), 1)
    assert f"{topic}/broker-b-0" in held.held[0]
    rocketmq.restart("broker-b")
    assert rangeland.land(holding, spark).counts == Counts(landed=5)
    assert landed_rows(table) == sorted(written.rows)
