"""Real Jafka brokers and upstream's own consumer, as ZooKeeper shows them."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from rangeland.errors import Conflict, JobFileError
from rangeland.groups.backend import HeartbeatStatus, JoinRequest
from rangeland.groups.zookeeper.group_backend import ZooKeeperGroups
from rangeland.model import Address
from rangeland.testing.jafka import JafkaCluster
from rangeland.testing.jafka_clients import produce
from rangeland.testing.processes import PATIENCE_S
from rangeland.zookeeper.broker_registry import BrokerRegistry, read_registry
from rangeland.zookeeper.zookeeper_access import ZooKeeperAccess
from tests.servers.jafka_console import ConsoleConsumer, console_consume
from tests.servers.zookeeper_server import ZooKeeperServer

pytestmark = pytest.mark.brokers

JOB = "hourly"


@pytest.fixture(scope="module")
def server() -> Iterator[ZooKeeperServer]:
    with ZooKeeperServer(chroots=("/jafka",)) as started:
        yield started


@pytest.fixture(scope="module")
def jafka(server: ZooKeeperServer) -> Iterator[JafkaCluster]:
    with JafkaCluster(brokers=2, zookeeper=f"{server.address}/jafka") as started:
        yield started


@pytest.fixture
def zookeeper(jafka: JafkaCluster) -> str:
    assert jafka.zookeeper is not None
    return jafka.zookeeper


@pytest.fixture
def backend(zookeeper: str) -> Iterator[ZooKeeperGroups]:
    opened = ZooKeeperGroups(ZooKeeperAccess(zookeeper), JOB)
    yield opened
    opened.close()


def _addresses(jafka: JafkaCluster) -> dict[str, Address]:
    return {str(broker): Address("127.0.0.1", port) for broker, port in jafka.ports.items()}


def _registry(zookeeper: str, topic: str, brokers: int) -> BrokerRegistry:
    """Once so many brokers have told of the topic; they do so a moment after its first write."""
    deadline = time.monotonic() + PATIENCE_S
    while len((seen := read_registry(ZooKeeperAccess(zookeeper))).topics.get(topic, {})) != brokers:
        assert time.monotonic() < deadline, str(seen)
        time.sleep(0.05)
    return seen


def test_brokers_and_their_partitions_are_read(
    jafka: JafkaCluster, zookeeper: str, topic: str
) -> None:
    for broker in jafka.ids:
        produce(jafka.address(broker), topic, [b"x"])
    seen = _registry(zookeeper, topic, 2)
    assert seen.brokers == _addresses(jafka)
    assert seen.topics[topic] == {"1": 2, "2": 2}
    assert len(seen.partitions(topic)) == 4
    assert not seen.absent


@pytest.mark.slow
def test_a_broker_that_is_stopped_is_not_there(
    jafka: JafkaCluster, zookeeper: str, topic: str
) -> None:
    for broker in jafka.ids:
        produce(jafka.address(broker), topic, [b"x"])
    _registry(zookeeper, topic, 2)
    jafka.stop(2)
    try:
        seen = _registry(zookeeper, topic, 1)
        assert seen.brokers.keys() == {"1"}
        assert seen.topics[topic] == {"1": 2}
    finally:
        jafka.restart(2)
    assert _registry(zookeeper, topic, 2).brokers == _addresses(jafka)


def test_a_forgotten_path_is_found(jafka: JafkaCluster, server: ZooKeeperServer) -> None:
    with pytest.raises(JobFileError, match=f"{server.address}/jafka has brokers"):
        read_registry(ZooKeeperAccess(server.address))


def test_where_upstreams_consumer_stopped_is_read(
    jafka: JafkaCluster, zookeeper: str, backend: ZooKeeperGroups, topic: str
) -> None:
    """And the other way round: it begins and goes on where it is told to."""
    lines = [f"line-{n}".encode() for n in range(20)]
    ends = {b: produce(jafka.address(b), topic, lines, partition=1) for b in jafka.ids}
    partitions = _registry(zookeeper, topic, 2).partitions(topic)
    backend.commit(topic, dict.fromkeys(partitions, 0))
    assert len(console_consume(zookeeper, topic, topic, idle_ms=1500)) == 40
    read = backend.offsets(topic, partitions)
    assert {int(p.broker): o for p, o in read.items() if p.number == 1} == ends
    behind = next(p for p in partitions if (p.broker, p.number) == ("1", 1))
    last = ends[1] - 4 - 6 - len(lines[-1])
    backend.commit(topic, {behind: last})
    assert console_consume(zookeeper, topic, topic, idle_ms=1500) == ["line-19"]


def test_upstreams_consumer_in_the_group_is_named_and_left_alone(
    jafka: JafkaCluster, zookeeper: str, backend: ZooKeeperGroups, topic: str
) -> None:
    for broker in jafka.ids:
        produce(jafka.address(broker), topic, [b"x"])
    partitions = _registry(zookeeper, topic, 2).partitions(topic)
    with ConsoleConsumer(zookeeper, topic, topic) as consumer:
        deadline = time.monotonic() + PATIENCE_S
        while backend.view(topic).owners.keys() != set(partitions):
            assert time.monotonic() < deadline, backend.view(topic)
            time.sleep(0.05)
        (member,) = backend.view(topic).members
        assert not member.is_ours
        with pytest.raises(Conflict, match=member.member_id) as caught:
            backend.join(JoinRequest(topic, JOB, partitions))
        assert len(caught.value.facts["partitions"][member.member_id]) == 4
        with pytest.raises(Conflict, match=member.member_id):
            backend.commit(topic, dict.fromkeys(partitions, 0))
        assert backend.view(topic).members == (member,)
        consumer.stop()
    membership = backend.join(JoinRequest(topic, JOB, partitions))
    assert membership.owned == set(partitions)
    membership.leave()


@pytest.mark.slow
def test_upstreams_consumer_takes_what_a_driver_gives_up(
    jafka: JafkaCluster, zookeeper: str, backend: ZooKeeperGroups, topic: str
) -> None:
    """It reads our registration and waits for our partitions, until we have given way."""
    for broker in jafka.ids:
        produce(jafka.address(broker), topic, [b"x"])
    partitions = _registry(zookeeper, topic, 2).partitions(topic)
    membership = backend.join(JoinRequest(topic, JOB, partitions))
    membership.commit(dict.fromkeys(partitions, 0))
    outcome: list[str] = []

    def give_way() -> None:
        deadline = time.monotonic() + PATIENCE_S
        while membership.beat() is HeartbeatStatus.HOLDS and time.monotonic() < deadline:
            time.sleep(0.05)
        try:
            membership.rejoin()
        except Conflict as conflict:
            outcome.append(conflict.what)

    driver = threading.Thread(target=give_way)
    driver.start()
    with ConsoleConsumer(zookeeper, topic, topic) as consumer:
        driver.join()
        assert outcome == [f"job {JOB} cannot claim its partitions: group {topic} is in use"]
        deadline = time.monotonic() + PATIENCE_S
        while len(consumer.lines) < 2:
            assert time.monotonic() < deadline, backend.view(topic)
            time.sleep(0.05)
        assert backend.view(topic).owners.keys() == set(partitions)
