"""What clients of a RocketMQ proxy write by gRPC is read from the brokers behind it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rangeland.dialects.rocketmq import messages as m
from rangeland.dialects.rocketmq.compression import GZIP_MAGIC
from rangeland.model import Counts, Partition
from rangeland.testing.rocketmq import RocketmqCluster
from rangeland.testing.rocketmq_clients import RocketmqClient, produce
from tests.brokers.rocketmq import read_topic
from tests.servers.rocketmq_proxy import RocketmqProxy

pytestmark = [pytest.mark.brokers, pytest.mark.slow]


@pytest.fixture(scope="module")
def behind() -> Iterator[tuple[RocketmqCluster, RocketmqProxy]]:
    with RocketmqCluster() as cluster, RocketmqProxy(cluster) as proxy:
        yield cluster, proxy


def test_bodies_that_a_proxys_client_has_compressed_with_gzip_are_unpacked(
    behind: tuple[RocketmqCluster, RocketmqProxy], topic: str
) -> None:
    cluster, proxy = behind
    cluster.create_topic(topic, 1, attributes="+message.type=NORMAL")
    bodies = [f"body-{n} " * 1_000 for n in range(3)]
    proxy.produce(topic, *bodies)
    with RocketmqClient(cluster.address()) as client:
        stored = bytes(client.ask(m.Pull(Partition(topic, 0, "broker-a"), 0)).body)
    assert GZIP_MAGIC in stored, "the proxy stores what its client has compressed"
    produce(cluster.address(), topic, [b"plain"])
    found = read_topic(cluster, topic)
    assert found.values == [*(body.encode() for body in bodies), b"plain"]
    assert found.counts == Counts(landed=4)
