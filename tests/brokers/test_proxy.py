"""Real brokers of each dialect behind a proxy that cuts, delays, slows down and answers errors."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from rangeland.cluster_settings import ClusterSettings
from rangeland.errors import Unreachable
from rangeland.fetch.fetch_size import FetchLimits
from rangeland.fetch.read_settings import ReadSettings
from rangeland.fetch.receipt_builder import ReceiptBuilder
from rangeland.fetch.slice_reading import read_slices
from rangeland.model import Counts
from rangeland.testing import jafka_clients, rocketmq_clients
from rangeland.testing.jafka import JafkaCluster
from rangeland.testing.kafka import KafkaCluster
from rangeland.testing.processes import PATIENCE_S
from rangeland.testing.producer import Record, create_topic, produce
from rangeland.testing.rocketmq import RocketmqCluster
from rangeland.untrusted import parse_address
from tests.brokers.surveys import look, slices_of
from tests.servers.fault_proxy import CALM, Faults, Proxy

pytestmark = pytest.mark.brokers

EVERYTHING = Faults(
    7, refused=0.1, cut=0.1, delayed=0.1, delay_s=0.05, failed=0.3, bytes_per_second=2_000_000
)
SMALL = FetchLimits(
    no_progress_ms=30_000,
    fetch_bytes=2 << 10,
    smallest_fetch_bytes=1 << 10,
    request_bytes=4 << 10,
)
COUNT = 4_000


def settings_of(dialect: str, servers: list[str], **more: Any) -> ClusterSettings:
    return ClusterSettings(
        dialect,
        tuple(parse_address(server) for server in servers),
        connect_ms=2_000,
        request_ms=3_000,
        survey_ms=20_000,
        no_progress_ms=30_000,
        **more,
    )


def values_of(count: int) -> list[bytes]:
    return [b"value-%06d" % number for number in range(count)]


def read(settings: ClusterSettings, topic: str) -> tuple[list[bytes], Counts]:
    slices = slices_of(look(settings, topics=(topic,)))
    tally, values = ReceiptBuilder(slices), list[bytes]()
    for chunk in read_slices(slices, ReadSettings(settings), SMALL):
        tally.add(chunk)
        if chunk.rows is not None:
            values += chunk.rows.column("value").to_pylist()
    return sorted(values), Counts.sum(receipt.counts for receipt in tally.receipts())


def read_in_trouble(
    proxy: Proxy, settings: ClusterSettings, topic: str, count: int = COUNT
) -> None:
    """Again and again until each trouble has come often: which responses meet it is random."""
    proxy.make(EVERYTHING)
    ends_at = time.monotonic() + PATIENCE_S
    while min(proxy.done[what] for what in ("failed", "cut", "delayed", "slowed")) <= 2:
        assert time.monotonic() < ends_at, proxy.done
        values, counts = read(settings, topic)
        assert values == values_of(count)
        assert counts.landed == count


@pytest.fixture(scope="module")
def kafka_proxy(kafka: KafkaCluster) -> Iterator[Proxy]:
    with Proxy("kafka", kafka.bootstrap) as proxy:
        yield proxy


def test_kafka_is_read_to_the_end_through_trouble(
    kafka: KafkaCluster, kafka_proxy: Proxy, topic: str
) -> None:
    create_topic(kafka.bootstrap, topic, 4)
    records = [Record(value, partition=n % 4) for n, value in enumerate(values_of(COUNT))]
    produce(kafka.bootstrap, topic, records, batch_bytes=2_000)
    read_in_trouble(kafka_proxy, settings_of("kafka", list(kafka_proxy.addresses)), topic)


def test_a_client_never_finds_a_way_around_the_proxy(
    kafka: KafkaCluster, kafka_proxy: Proxy, topic: str
) -> None:
    create_topic(kafka.bootstrap, topic)
    kafka_proxy.make(CALM)
    survey = look(settings_of("kafka", list(kafka_proxy.addresses)), topics=(topic,))
    (log,) = survey.logs.values()
    assert str(log.leader.address) in kafka_proxy.addresses


@pytest.mark.parametrize("code", [-1, 7, 13, 56, 4711])
def test_an_error_that_never_passes_is_reported_as_unreachable(
    kafka: KafkaCluster, kafka_proxy: Proxy, topic: str, code: int
) -> None:
    create_topic(kafka.bootstrap, topic)
    produce(kafka.bootstrap, topic, [Record(b"v")])
    kafka_proxy.make(CALM)
    settings = settings_of("kafka", list(kafka_proxy.addresses))
    slices = slices_of(look(settings, topics=(topic,)))
    kafka_proxy.make(Faults(1, failed=1.0, codes=(code,)))
    impatient = replace(SMALL, no_progress_ms=3_000)
    with pytest.raises(Unreachable, match="got no further than offset 0"):
        list(read_slices(slices, ReadSettings(settings), impatient))
    assert kafka_proxy.done["failed"] > 2


def test_a_listener_that_closes_every_connection_is_unreachable(
    kafka: KafkaCluster, kafka_proxy: Proxy, topic: str
) -> None:
    """Whether it closes before it says anything, or inside its responses."""
    create_topic(kafka.bootstrap, topic)
    settings = replace(settings_of("kafka", list(kafka_proxy.addresses)), survey_ms=1_000)
    for faults in (Faults(1, refused=1.0), Faults(1, cut=1.0)):
        kafka_proxy.make(faults)
        with pytest.raises(Unreachable) as caught:
            look(settings, topics=(topic,))
        assert caught.value.exit_code == 75


def test_jafka_is_read_to_the_end_through_trouble(topic: str) -> None:
    with JafkaCluster() as cluster, Proxy("jafka", [cluster.address()]) as proxy:
        jafka_clients.produce(cluster.address(), topic, values_of(COUNT), batch=50)
        (address,) = proxy.addresses
        named_brokers = (("1", parse_address(address)),)
        read_in_trouble(proxy, settings_of("jafka", [address], named_brokers=named_brokers), topic)


@pytest.mark.slow
def test_rocketmq_is_read_to_the_end_through_trouble(topic: str) -> None:
    with RocketmqCluster() as cluster, Proxy("rocketmq", cluster.servers) as proxy:
        cluster.create_topic(topic, 2)
        address = cluster.address("broker-a")
        count = 1_000  # a pull brings 32 at most, so that each of these is a request in faults
        for queue in range(2):
            rocketmq_clients.produce(address, topic, values_of(count)[queue::2], queue)
        read_in_trouble(proxy, settings_of("rocketmq", list(proxy.addresses)), topic, count)
