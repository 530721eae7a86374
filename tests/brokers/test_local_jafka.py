"""The Jafka brokers that other tests stand on, and upstream's own tools beside them: what one
side writes the other reads, and positions mean the same to both."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from rangeland.errors import Unreachable, UsageError
from rangeland.testing.jafka import JafkaCluster
from rangeland.testing.jafka_clients import (
    JafkaClient,
    message,
    message_set,
    produce,
)
from rangeland.testing.ports import is_listening
from rangeland.testing.processes import PATIENCE_S
from tests.brokers.jafka import read, settings_of
from tests.brokers.surveys import look, slices_of
from tests.servers.jafka_console import ConsoleConsumer, console_consume, console_produce
from tests.servers.zookeeper_server import ZooKeeperServer

pytestmark = pytest.mark.brokers


@pytest.fixture(scope="module")
def zookeeper() -> Iterator[ZooKeeperServer]:
    with ZooKeeperServer(chroots=("/jafka",)) as server:
        yield server


@pytest.fixture(scope="module")
def registered(zookeeper: ZooKeeperServer) -> Iterator[JafkaCluster]:
    """Two brokers that are in ZooKeeper. Do not harm them."""
    with JafkaCluster(brokers=2, zookeeper=f"{zookeeper.address}/jafka") as cluster:
        yield cluster


def eventually(happened: Callable[[], bool], timeout_s: float = PATIENCE_S) -> bool:
    deadline = time.monotonic() + timeout_s
    while not happened() and time.monotonic() < deadline:
        time.sleep(0.1)
    return happened()


def lines_of(name: str, count: int) -> list[str]:
    return [f"{name}-{number:03d}-ü" for number in range(count)]


# --- upstream's tools -------------------------------------------------------------------


def test_what_upstreams_producer_writes_is_read(registered: JafkaCluster, topic: str) -> None:
    lines = lines_of("line", 40)
    console_produce(f"zookeeper={registered.zookeeper}", topic, lines)
    settings = settings_of(registered)

    def values() -> list[bytes]:
        return read(slices_of(look(settings, topics=(topic,))), settings).values

    assert eventually(lambda: len(values()) == len(lines))
    assert sorted(values()) == sorted(line.encode() for line in lines)


def test_what_is_produced_here_upstreams_consumer_reads(
    registered: JafkaCluster, zookeeper: ZooKeeperServer, topic: str
) -> None:
    plain, packed = lines_of("plain", 20), lines_of("packed", 20)
    written = {(1, 0): plain[:10], (1, 1): plain[10:], (2, 0): packed[:10], (2, 1): packed[10:]}
    for (broker, number), lines in written.items():
        values = [line.encode() for line in lines]
        produce(registered.address(broker), topic, values, number, packed=broker == 2)
        zookeeper.put(f"/jafka/consumers/{topic}/offsets/{topic}/{broker}-{number}", "0")
    found = console_consume(registered.zookeeper or "", topic, topic)
    assert sorted(found) == sorted(plain + packed)
    # It has committed where each log ends.
    stored = zookeeper.dump(f"/jafka/consumers/{topic}/offsets/{topic}")
    ends = {path.rpartition("/")[2]: node.content for path, node in stored.items()}
    for (broker, number), lines in written.items():
        data = message_set([line.encode() for line in lines], packed=broker == 2)
        assert ends[f"{broker}-{number}"] == str(len(data))


def test_upstreams_consumer_goes_on_at_an_entry_that_we_call_one(
    registered: JafkaCluster, zookeeper: ZooKeeperServer, topic: str
) -> None:
    lines = lines_of("line", 20)
    values = [line.encode() for line in lines]
    produce(registered.address(1), topic, values, 0)
    produce(registered.address(2), topic, values, 0, packed=True, batch=5)
    offsets = {
        "1-0": len(message_set(values[:15])),
        "2-0": sum(len(message_set(values[i : i + 5], packed=True)) for i in (0, 5)),
    }
    for name, offset in offsets.items():
        zookeeper.put(f"/jafka/consumers/{topic}/offsets/{topic}/{name}", str(offset))
    found = console_consume(registered.zookeeper or "", topic, topic)
    assert sorted(found) == sorted(lines[15:] + lines[10:])


def test_a_consumer_of_upstream_holds_its_partitions_until_it_is_stopped(
    registered: JafkaCluster, zookeeper: ZooKeeperServer, topic: str
) -> None:
    produce(registered.address(1), topic, [b"before"], 0)
    zookeeper.put(f"/jafka/consumers/{topic}/offsets/{topic}/1-0", "0")
    owner = f"/jafka/consumers/{topic}/owners/{topic}/1-0"
    with ConsoleConsumer(registered.zookeeper or "", topic, topic) as consumer:
        assert eventually(lambda: consumer.lines == ["before"]), consumer.lines
        assert owner in zookeeper.ephemeral_nodes()
        produce(registered.address(1), topic, [b"behind"], 0)
        assert eventually(lambda: consumer.lines == ["before", "behind"]), consumer.lines
        consumer.stop()
        assert eventually(lambda: owner not in zookeeper.ephemeral_nodes())


# --- brokers ----------------------------------------------------------------------------


def test_brokers_and_their_topics_are_in_zookeeper(
    registered: JafkaCluster, zookeeper: ZooKeeperServer, topic: str
) -> None:
    produce(registered.address(2), topic, [b"v"])
    there = f"/jafka/brokers/topics/{topic}/2"
    assert eventually(lambda: there in zookeeper.ephemeral_nodes())
    for broker in registered.ids:
        (entry,) = zookeeper.dump(f"/jafka/brokers/ids/{broker}").values()
        assert f":{registered.address(broker)}:" in entry.content
    assert zookeeper.dump(there)[there].content == "2"


@pytest.mark.slow
def test_a_crashed_broker_is_registered_again(zookeeper: ZooKeeperServer) -> None:
    with JafkaCluster(zookeeper=zookeeper.address) as cluster:
        cluster.kill()
        cluster.restart()
        assert "/brokers/ids/1" in zookeeper.ephemeral_nodes()
        cluster.stop()
        assert eventually(lambda: "/brokers/ids/1" not in zookeeper.ephemeral_nodes(), 3)


@pytest.mark.slow
def test_nothing_is_left_when_a_cluster_is_closed(topic: str) -> None:
    with JafkaCluster() as cluster:
        pid, folder, port = cluster.process().pid, cluster.directory, cluster.ports[1]
        produce(cluster.address(), topic, [b"v"])
        assert folder.is_dir()
    assert not psutil.pid_exists(pid)
    assert not folder.exists()
    assert not is_listening(port)


@pytest.mark.slow
def test_a_given_directory_keeps_the_logs_and_not_the_data(tmp_path: Path) -> None:
    with JafkaCluster(directory=tmp_path / "j"):
        assert (tmp_path / "j" / "data").is_dir()
    assert "Jafka" in (tmp_path / "j" / "logs" / "jafka-1.log").read_text()
    assert not (tmp_path / "j" / "data").exists()


@pytest.mark.slow
def test_a_broker_that_cannot_start_says_what_it_said() -> None:
    cluster = JafkaCluster(properties={"log.file.size": "much"})
    with pytest.raises(Unreachable, match="much"):
        cluster.start()
    assert cluster.running == []


def test_a_cluster_of_none_and_an_unknown_version_are_refused() -> None:
    with pytest.raises(UsageError, match="0 brokers"):
        JafkaCluster(brokers=0)
    with pytest.raises(UsageError, match=r"Use one of: 3\.0\.6"):
        JafkaCluster("1.0")


@pytest.mark.slow
def test_a_paused_broker_answers_nothing_until_it_is_resumed(topic: str) -> None:
    with JafkaCluster() as cluster:
        end = produce(cluster.address(), topic, [b"v"])
        assert end == len(message(b"v"))
        cluster.pause()
        assert cluster.running == [1]
        cluster.resume()
        with JafkaClient(cluster.address()) as client:
            assert client.end_offset(topic) == end


def test_a_write_to_nobody_is_an_error(topic: str) -> None:
    with JafkaCluster() as cluster:
        address = cluster.address()
        cluster.stop()
        with pytest.raises(Unreachable, match=address):
            produce(address, topic, [b"v"])
