"""The simulation's models of brokers against real ones.

``RANGELAND_SEED=7 RANGELAND_RUNS=1 pytest -m slow tests/brokers/test_broker_models.py -k jafka``
repeats one history.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import pytest

from rangeland.cluster_settings import ClusterSettings
from rangeland.connection.pool import ConnectionPool
from rangeland.job.value_parsers import parse_named_broker
from rangeland.testing import jafka_clients, rocketmq_clients
from rangeland.testing.jafka import JafkaCluster
from rangeland.testing.kafka import KafkaCluster, KafkaZooKeeperCluster
from rangeland.testing.rocketmq import RocketmqCluster
from rangeland.untrusted import parse_address
from tests.brokers import jafka as jafka_reading
from tests.brokers import rocketmq as rocketmq_reading
from tests.brokers.kafka_histories import (
    IMPATIENT,
    CompactedKafkaHistory,
    HarmedKafkaHistory,
    Kafka,
    KafkaHistory,
    OldKafkaHistory,
    OldTruncatedKafkaHistory,
    TruncatedKafkaHistory,
)
from tests.brokers.model_histories import BrokerHistory, Side, model_pool, model_world
from tests.brokers.reading import settings_of
from tests.rocketmq_messages import PACKED, ZLIB
from tests.simulation.clusters import SimulatedCluster
from tests.simulation.jafka import ByteLog
from tests.simulation.jafka import JafkaCluster as JafkaModel
from tests.simulation.kafka import Cluster
from tests.simulation.logs import Log
from tests.simulation.rocketmq import RocketmqCluster as RocketmqModel

pytestmark = pytest.mark.brokers
FEW = range(2)
FIRST = int(os.environ.get("RANGELAND_SEED", "0"))
MANY = range(FIRST, FIRST + int(os.environ.get("RANGELAND_RUNS", "60")))
STEPS = 12
MOST_TRUNCATED = 20
"""An election takes ten seconds."""
MODEL = "model"


@contextmanager
def sides(model: SimulatedCluster, real: ClusterSettings) -> Iterator[tuple[Side, Side]]:
    """The real one first."""
    names = model.servers.split(", ")
    own = ClusterSettings(model.dialect, (), client_id=MODEL)
    if model.dialect == "jafka":
        named_brokers = (parse_named_broker(names[0]),)  # the other one has no partitions
        own = replace(own, seeds=tuple(at for _, at in named_brokers), named_brokers=named_brokers)
    else:
        own = replace(own, seeds=tuple(parse_address(name) for name in names))
    has_bytes = model.dialect != "rocketmq"
    with ConnectionPool(real) as pool, model_pool(model, own) as other:
        yield Side(pool, has_bytes=has_bytes), Side(other, has_bytes=has_bytes)


def play(history: BrokerHistory) -> None:
    try:
        history.begin()
        history.play(STEPS)
    finally:
        history.end()


# --- Kafka ------------------------------------------------------------------------------


def play_kafka(
    cluster: Kafka, age: str, history_type: type[KafkaHistory], seeds: Sequence[int]
) -> None:
    for seed in seeds:
        model = Cluster(model_world(seed), age, per_response=1000)
        with sides(model, settings_of(cluster.bootstrap)) as (real, own):
            name = f"{history_type.__name__}-{seed}"
            history = history_type(seed, name, model, real, own)
            history.cluster = cluster
            play(history)


def test_a_few_histories_on_the_model_are_those_of_kafka(kafka: KafkaCluster) -> None:
    play_kafka(kafka, "4", KafkaHistory, FEW)


@pytest.mark.slow
def test_many_histories_on_the_model_are_those_of_kafka() -> None:
    with KafkaCluster(properties=IMPATIENT) as cluster:
        play_kafka(cluster, "4", HarmedKafkaHistory, MANY)


@pytest.mark.slow
def test_many_histories_on_the_model_are_those_of_a_kafka_that_compacts() -> None:
    with KafkaCluster(properties={"log.cleaner.backoff.ms": 50}) as cluster:
        play_kafka(cluster, "4", CompactedKafkaHistory, MANY)


@pytest.mark.slow
def test_some_histories_on_the_model_are_those_of_a_kafka_with_unclean_elections() -> None:
    """Three brokers, since two of which one is down could elect nobody."""
    properties = {"auto.leader.rebalance.enable": "false"}
    with KafkaCluster(brokers=3, heap_mb=192, properties=properties) as cluster:
        play_kafka(cluster, "4", TruncatedKafkaHistory, MANY[:MOST_TRUNCATED])


@pytest.mark.slow
def test_some_histories_on_the_model_are_those_of_an_old_kafka_with_unclean_elections() -> None:
    properties = {"auto.leader.rebalance.enable": "false"}
    with KafkaZooKeeperCluster("0.11.0.3", brokers=2, properties=properties) as cluster:
        play_kafka(cluster, "1.1", OldTruncatedKafkaHistory, MANY[:MOST_TRUNCATED])


@pytest.mark.slow
def test_many_histories_on_the_model_are_those_of_an_old_kafka() -> None:
    properties = {"delete.topic.enable": "true", **IMPATIENT}
    with KafkaZooKeeperCluster("0.11.0.3", properties=properties) as cluster:
        play_kafka(cluster, "1.1", OldKafkaHistory, MANY)


# --- Jafka ------------------------------------------------------------------------------


class JafkaHistory(BrokerHistory):
    """A log comes into being with its first message."""

    steps = (*("append",) * 8, "nothing")
    cluster: JafkaCluster

    def create(self, partitions: int) -> None: ...

    def wait_for(self, partitions: int) -> None: ...

    def _nothing(self) -> None: ...

    def write(self, log: Log, before: int) -> None:
        for entry in log.entries[before:]:
            with jafka_clients.JafkaClient(self.cluster.address(1)) as client:
                data = memoryview(entry.data)
                asked = jafka_clients.ProduceRequest(
                    topic=self.topic, partition=log.number, messages=data
                )
                client.send(asked)
                assert client.end_offset(self.topic, log.number) == entry.until, self.said

    def _place(self, log: Log) -> int:
        """Inside of entries there is nothing to be read."""
        return self.random.choice([log.start, *(entry.base for entry in log.entries)])


@pytest.fixture(scope="module")
def jafka() -> Iterator[JafkaCluster]:
    with JafkaCluster(segment_bytes=ByteLog.segment_bytes) as cluster:
        yield cluster


def play_jafka(cluster: JafkaCluster, kind: str, seeds: Sequence[int]) -> None:
    for seed in seeds:
        model = JafkaModel(model_world(seed), per_response=1000)
        with sides(model, jafka_reading.settings_of(cluster)) as (real, own):
            history = JafkaHistory(seed, f"{kind}-{seed}", model, real, own)
            history.cluster = cluster
            play(history)


def test_a_few_histories_on_the_model_are_those_of_jafka(jafka: JafkaCluster) -> None:
    play_jafka(jafka, "few", FEW)


@pytest.mark.slow
def test_many_histories_on_the_model_are_those_of_jafka(jafka: JafkaCluster) -> None:
    play_jafka(jafka, "many", MANY)


# --- RocketMQ ---------------------------------------------------------------------------


class RocketmqHistory(BrokerHistory):
    steps = (*("append",) * 5, *("others",) * 3, "recreate", "grow")
    has_tags = True
    cluster: RocketmqCluster

    def create(self, partitions: int) -> None:
        self.cluster.create_topic(self.topic, partitions)

    def delete(self) -> None:
        self.cluster.delete_topic(self.topic)

    def grow(self, partitions: int) -> None:
        self.create(partitions)

    def write(self, log: Log, before: int) -> None:
        for entry in log.entries[before:]:
            value = log.written[entry.base][-1]
            packed = zlib.compress(value) in entry.data
            rocketmq_clients.produce(
                self.cluster.address("broker-a"),
                self.topic,
                [zlib.compress(value) if packed else value],
                log.number,
                properties={"TAGS": "b" if entry.is_aborted else "a", "KEYS": "k"},
                sys_flag=PACKED | ZLIB << 8 if packed else 0,
            )
        self.wait_for_end(log)  # a message is in its queue a moment after it is stored

    def _others(self) -> None:
        """Messages with another tag."""
        log = self.random.choice(self.logs)
        before = len(log.entries)
        count, abort = self.random.randint(1, 3), self.random.random() < 0.7
        log.append_transaction(count, self.model.world.now_ms, abort=abort)
        self.said.append(f"others {abort}: {log.number} ends at {log.end}")
        self.write(log, before)


@pytest.fixture(scope="module")
def rocketmq() -> Iterator[RocketmqCluster]:
    with RocketmqCluster(properties={"timerWheelEnable": "true"}) as cluster:
        yield cluster


def play_rocketmq(cluster: RocketmqCluster, seeds: Sequence[int]) -> None:
    for seed in seeds:
        model = RocketmqModel(model_world(seed), per_response=32)
        with sides(model, rocketmq_reading.settings_of(cluster)) as (real, own):
            history = RocketmqHistory(seed, f"many-{seed}", model, real, own)
            history.cluster = cluster
            play(history)


@pytest.mark.slow
def test_many_histories_on_the_model_are_those_of_rocketmq(rocketmq: RocketmqCluster) -> None:
    play_rocketmq(rocketmq, MANY)
