"""A real Kafka of the time when it lived in ZooKeeper, and its consumer of that time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rangeland.errors import Conflict
from rangeland.groups.backend import JoinRequest
from rangeland.groups.zookeeper.group_backend import ZooKeeperGroups
from rangeland.jvm.jars import class_path
from rangeland.jvm.java import SMALL_JVM, find_java
from rangeland.model import Address, Partition
from rangeland.testing.broker_jars import BROKER_JARS
from rangeland.testing.kafka import KafkaZooKeeperCluster
from rangeland.testing.processes import PATIENCE_S, Process
from rangeland.testing.producer import create_topic, numbered_records, produce
from rangeland.zookeeper.broker_registry import read_registry
from rangeland.zookeeper.zookeeper_access import ZooKeeperAccess

pytestmark = pytest.mark.brokers


@pytest.fixture(scope="module")
def old_kafka() -> Iterator[KafkaZooKeeperCluster]:
    with KafkaZooKeeperCluster() as started:
        yield started


def _old_consumer(cluster: KafkaZooKeeperCluster, topic: str, folder: Path) -> Process:
    """Commits to ZooKeeper, many times a second."""
    properties = {
        "group.id": topic,
        "auto.offset.reset": "smallest",
        "auto.commit.interval.ms": 100,
        "zookeeper.session.timeout.ms": 4000,
    }
    command = [find_java(), "-Xmx64m", *SMALL_JVM, "-cp", class_path(BROKER_JARS["kafka-0.11.0.3"])]
    command += ["kafka.tools.ConsoleConsumer", "--zookeeper", cluster.zookeeper, "--topic", topic]
    for name, value in properties.items():
        command += ["--consumer-property", f"{name}={value}"]
    return Process("old consumer", command, log=folder / "consumer.log", directory=folder)


def _wait_until(happened: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.slow
def test_an_old_consumer_and_a_driver_respect_each_other(
    old_kafka: KafkaZooKeeperCluster, topic: str, tmp_path: Path
) -> None:
    create_topic(old_kafka.bootstrap, topic, partitions=3)
    for number in range(3):
        produce(old_kafka.bootstrap, topic, numbered_records(10 + number), partition=number)
    seen = read_registry(ZooKeeperAccess(old_kafka.zookeeper))
    assert seen.brokers == {"1": Address("127.0.0.1", old_kafka.ports[1])}
    partitions = seen.partitions(topic)
    assert partitions == tuple(Partition(topic, n) for n in range(3))
    ends = {p: 10 + p.number for p in partitions}

    backend = ZooKeeperGroups(ZooKeeperAccess(old_kafka.zookeeper), "hourly")
    joining = JoinRequest(topic, "hourly", partitions)
    with _old_consumer(old_kafka, topic, tmp_path) as consumer:
        _wait_until(lambda: backend.view(topic).owners.keys() == set(partitions))
        _wait_until(lambda: backend.offsets(topic, partitions) == ends)
        (member,) = backend.view(topic).members
        with pytest.raises(Conflict, match=member.member_id):
            backend.join(joining)
        consumer.stop()
    membership = backend.join(joining)
    membership.commit(dict.fromkeys(partitions, 5))
    assert backend.offsets(topic, partitions) == dict.fromkeys(partitions, 5)
    membership.leave()
    backend.close()
