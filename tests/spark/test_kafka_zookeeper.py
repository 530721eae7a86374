"""A Kafka that is found in its ZooKeeper, and a group of its old consumers taken over."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from rangeland.cluster_access.backend_choice import open_backend
from rangeland.cluster_access.cluster_lookup import look_up_cluster
from rangeland.model import Partition
from rangeland.progress_events import NoProgress
from rangeland.run import run
from rangeland.testing.kafka import KafkaZooKeeperCluster
from rangeland.testing.producer import create_topic, numbered_records, produce
from tests.spark.landings import expected, job_of, offsets_in

pytestmark = [pytest.mark.spark, pytest.mark.brokers]

COUNT, SEEN = 40, 15


@pytest.fixture(scope="module")
def old_kafka() -> Iterator[KafkaZooKeeperCluster]:
    with KafkaZooKeeperCluster() as started:
        yield started


@pytest.mark.slow
def test_a_run_goes_on_where_the_old_group_stopped_and_leaves_it_at_the_checkpoint(
    old_kafka: KafkaZooKeeperCluster, topic: str, table: str, spark: Any
) -> None:
    create_topic(old_kafka.bootstrap, topic, partitions=2)
    for number in range(2):
        produce(old_kafka.bootstrap, topic, numbered_records(COUNT), partition=number)
    group = f"group-of-{topic}"
    job = job_of(
        [],
        table,
        topic,
        source={"zookeeper": old_kafka.zookeeper},
        range={"from": "checkpoint", "first_run": f"group:{group}"},
        group={"id": group},
    )
    partitions = [Partition(topic, n) for n in range(2)]
    home = open_backend(job, look_up_cluster(job))
    try:
        home.commit(group, dict.fromkeys(partitions, SEEN))
        result = run(job, spark, NoProgress())
        assert (result.state, result.warnings) == ("landed", ())
        each = range(SEEN, COUNT)
        assert offsets_in(table) == expected(p0=each, p1=each)
        assert home.offsets(group, partitions) == dict.fromkeys(partitions, COUNT)
    finally:
        home.close()
