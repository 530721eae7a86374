"""Partitions without a broker for a while, held by the policy: the others land, and the held
partitions land later, from where they stopped.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest

import rangeland
from rangeland import run
from rangeland.job import Job
from rangeland.progress_events import NoProgress
from rangeland.queries import verify_and_find
from rangeland.testing.kafka import KafkaCluster
from rangeland.testing.producer import Record, create_topic, produce
from tests.brokers.reading import look, settings_of
from tests.spark.landings import job_of, offsets_in
from tests.spark.test_policies import Doing, losses, plans

pytestmark = [pytest.mark.spark, pytest.mark.brokers]

OLD, NEW = 10, 5


@pytest.fixture(scope="module")
def cluster() -> Iterator[KafkaCluster]:
    with KafkaCluster(brokers=2, heap_mb=160) as started:
        yield started


@dataclass(frozen=True)
class Pair:
    """A topic of one partition on each of two brokers, with old and new records in each, and
    the instant between. ``away``: the number of the partition on the broker that is harmed."""

    cluster: KafkaCluster
    topic: str
    away: int
    here: int
    broker: int
    between: str

    def job(self, table: str, **sections: Any) -> Job:
        servers = self.cluster.bootstrap
        policy = {"unreachable": "hold"}
        return job_of(servers, table, self.topic, policy=policy, **sections)


@pytest.fixture
def pair(cluster: KafkaCluster, topic: str) -> Iterator[Pair]:
    create_topic(cluster.bootstrap, topic, 2)
    fill(cluster, topic, OLD)
    time.sleep(0.05)
    between = datetime.now(UTC).isoformat()
    fill(cluster, topic, NEW)
    logs = look(settings_of(cluster.bootstrap), topics=(topic,)).logs
    leads = {str(log.leader.address): p.number for p, log in logs.items()}
    assert len(leads) == 2
    broker = cluster.ids[1]
    away = leads[cluster.address(broker)]
    yield Pair(cluster, topic, away, 1 - away, broker, between)
    if broker not in cluster.running:
        cluster.restart(broker)


def fill(cluster: KafkaCluster, topic: str, count: int) -> None:
    for number in (0, 1):
        produce(
            cluster.bootstrap,
            topic,
            (Record(b"k", b"%d" % n, partition=number) for n in range(count)),
        )


def landed(spark: Any, table: str, number: int) -> list[int]:
    return sorted(at for p, at in offsets_in(table) if p == number)


@pytest.mark.slow
def test_a_broker_that_dies_while_it_is_read_is_held_and_read_from_there_later(
    pair: Pair, spark: Any, table: str
) -> None:
    job = pair.job(table)
    result = run.run(job, spark, Doing(lambda: pair.cluster.kill(pair.broker)))
    whole = list(range(OLD + NEW))
    assert (result.state, result.counts.landed) == ("landed", len(whole))
    assert landed(spark, table, pair.here) == whole
    (held,) = losses(spark, table)
    assert held[1:] == (pair.away, 0, len(whole), len(whole), "unreachable", "hold")
    again = rangeland.land(job, spark)
    assert (again.state, len(again.held), plans(spark, table)) == ("nothing", 1, 1)
    pair.cluster.restart(pair.broker)
    last = rangeland.land(job, spark)
    assert (last.counts.landed, last.recovered, last.held) == (len(whole), (), ())
    assert landed(spark, table, pair.away) == whole
    assert verify_and_find.verify(job, spark, NoProgress()).is_well


@pytest.mark.slow
def test_a_partition_that_the_first_run_could_not_read_begins_where_that_run_did(
    pair: Pair, spark: Any, table: str
) -> None:
    job = pair.job(table, range={"first_run": pair.between})
    pair.cluster.kill(pair.broker)
    first = rangeland.land(job, spark)
    assert (first.counts.landed, len(first.held)) == (NEW, 1)
    pair.cluster.restart(pair.broker)
    assert rangeland.land(job, spark).counts.landed == NEW
    new = list(range(OLD, OLD + NEW))
    assert landed(spark, table, pair.away) == landed(spark, table, pair.here) == new
