"""The simulation's models of brokers against real ones.

``RANGELAND_SEED=7 RANGELAND_RUNS=1 pytest -m slow tests/brokers/test_broker_models.py -k jafka``
repeats one history.
"""

from __future__ import annotations

import os
import time
import zlib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace

import pytest

from rangeland.connection.cluster_settings import ClusterSettings
from rangeland.connection.pool import ConnectionPool
from rangeland.dialects.kafka import messages as m
from rangeland.dialects.protocol_session import Question
from rangeland.job.value_parsers import parse_member
from rangeland.testing import jafka_clients, rocketmq_clients
from rangeland.testing.client_library import admin, library, our_errors
from rangeland.testing.jafka import JafkaCluster
from rangeland.testing.kafka import KafkaCluster, KafkaZooKeeperCluster
from rangeland.testing.processes import PATIENCE_S
from rangeland.testing.producer import (
    Record,
    create_topic,
    delete_records,
    delete_topic,
    open_transaction,
    wait_for_topic,
)
from rangeland.testing.rocketmq import RocketmqCluster
from rangeland.testing.zookeeper import visit
from rangeland.untrusted import parse_address
from tests.brokers import jafka as jafka_reading
from tests.brokers import rocketmq as rocketmq_reading
from tests.brokers.model_histories import BrokerHistory, Side, model_pool, model_world
from tests.brokers.reading import settings_of
from tests.rocketmq_messages import PACKED, ZLIB
from tests.simulation.clusters import SimulatedCluster
from tests.simulation.jafka import ByteLog
from tests.simulation.jafka import JafkaCluster as JafkaModel
from tests.simulation.kafka import Cluster
from tests.simulation.logs import CODECS, Entry, Log
from tests.simulation.rocketmq import RocketmqCluster as RocketmqModel

pytestmark = pytest.mark.brokers
FEW = range(2)
FIRST = int(os.environ.get("RANGELAND_SEED", "0"))
MANY = range(FIRST, FIRST + int(os.environ.get("RANGELAND_RUNS", "60")))
STEPS = 12
MODEL = "model"
Kafka = KafkaCluster | KafkaZooKeeperCluster


@contextmanager
def sides(model: SimulatedCluster, real: ClusterSettings) -> Iterator[tuple[Side, Side]]:
    """The real one first."""
    names = model.servers.split(", ")
    own = ClusterSettings(model.dialect, (), client_id=MODEL)
    if model.dialect == "jafka":
        members = (parse_member(names[0]),)  # the other one has no partitions
        own = replace(own, seeds=tuple(at for _, at in members), members=members)
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


class KafkaHistory(BrokerHistory):
    steps = (
        *("append",) * 5,
        *("transaction",) * 3,
        *("expire",) * 2,
        *("recreate", "grow"),
    )
    codecs = tuple(codec for codec in CODECS if codec != "lz4")
    """Brokers take only lz4 of independent blocks, which our encoder does not write."""
    cluster: Kafka

    def __init__(
        self, seed: int, topic: str, model: SimulatedCluster, real: Side, own: Side
    ) -> None:
        super().__init__(seed, topic, model, real, own)
        self._open = ExitStack()
        self._in_transaction: tuple[Log, bool] | None = None

    def end(self) -> None:
        self._open.close()

    def create(self, partitions: int) -> None:
        if isinstance(self.cluster, KafkaZooKeeperCluster):
            self.cluster.create_topic(self.topic, partitions)
        else:
            create_topic(self.cluster.bootstrap, self.topic, partitions)

    def delete(self) -> None:
        self._end_transaction()
        delete_topic(self.cluster.bootstrap, self.topic)
        self._real.wait_until_gone()

    def grow(self, partitions: int) -> None:
        wanted = library("confluent_kafka.admin").NewPartitions(self.topic, partitions)
        client = admin(self.cluster.bootstrap)
        for done in client.create_partitions([wanted]).values():
            with our_errors(f"{self.topic} got no partition"):
                done.result()
        wait_for_topic(self.cluster.bootstrap, self.topic, partitions)

    def write(self, log: Log, before: int) -> None:
        """The model's own batches. A client does not know where they will be."""
        for entry in log.entries[before:]:
            data = memoryview(bytes(8) + entry.data[8:])
            part = m.ProducePartition(index=log.number, records=data)
            topic = m.ProduceTopic(name=self.topic, partition_data=(part,))
            asked = m.ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=(topic,))
            (address,) = self._real.pool.settings.seeds
            response = self._real.pool.call(address, Question(asked))
            (made,) = response.responses[0].partition_responses
            assert (made.error_code, made.base_offset) == (0, entry.base), "\n".join(self.said)

    def _transaction(self) -> None:
        """Begins one, and ends the one before."""
        if self._in_transaction is not None:
            self._end_transaction()
            return
        log, abort = self.random.choice(self.logs), self.random.random() < 0.5
        before, entries = log.end, len(log.entries)
        log.begin_transaction(self.random.randint(1, 3), self.model.world.now_ms)
        self.said.append(f"transaction: {log.number} ends at {log.end}")
        values = [log.written[offset][-1] for offset in range(before, log.end)]
        records = [Record(value, b"k", partition=log.number) for value in values]
        opened = open_transaction(self.cluster.bootstrap, self.topic, records, commit=not abort)
        self._open.enter_context(opened)
        self._in_transaction = log, abort
        self._take_real_bytes(log, entries)

    def _end_transaction(self) -> None:
        if self._in_transaction is None:
            return
        log, abort = self._in_transaction
        self._in_transaction = None
        entries = len(log.entries)
        log.end_transaction(self.model.world.now_ms, abort=abort)
        self.said.append(f"transaction ended, aborted: {abort}: {log.number} ends at {log.end}")
        self._open.close()
        self._wait_for_end(log)
        self._take_real_bytes(log, entries)

    def _take_real_bytes(self, log: Log, before: int) -> None:
        """The model gets the batches that the client has made, with its producer's id."""
        assert [entry.until for entry in log.entries[before:]] == [log.end]
        entry = log.entries.pop()
        data = self._real.stored(self.topic, log.number, entry.base)
        while data:
            size = 12 + int.from_bytes(data[8:12], "big")
            log.entries.append(_entry_of(data[:size], entry))
            data = data[size:]
        assert log.entries[-1].until == log.end, self.said
        if log.opened is not None:
            log.opened = (log.entries[-1].producer_id, *log.opened[1:])

    def _wait_for_end(self, log: Log) -> None:
        """A transaction's end is acknowledged before its marker is there."""
        deadline = time.monotonic() + PATIENCE_S
        while self._real.end_of(self.topic, log.number) < log.end:
            assert time.monotonic() < deadline, [*self.said, "no marker"]
            time.sleep(0.01)

    def _expire(self) -> None:
        """Not only whole batches."""
        log = self.random.choice(self.logs)
        if log.start < log.end:
            log.expire_before(self.random.randint(log.start + 1, log.end))
            self.said.append(f"expire: {log.number} begins at {log.start}")
            delete_records(self.cluster.bootstrap, self.topic, {log.number: log.start})


def _entry_of(data: bytes, about: Entry) -> Entry:
    base = int.from_bytes(data[:8], "big")
    until = base + int.from_bytes(data[23:27], "big") + 1
    records = tuple(one for one in about.records if base <= one[0] < until)
    producer = int.from_bytes(data[43:51], "big")
    return replace(about, base=base, until=until, data=data, records=records, producer_id=producer)


class OldKafkaHistory(KafkaHistory):
    """It cannot be asked for more partitions, and knows no zstd."""

    steps = tuple(step for step in KafkaHistory.steps if step != "grow")
    codecs = tuple(codec for codec in KafkaHistory.codecs if codec != "zstd")

    def delete(self) -> None:
        """Until ZooKeeper has forgotten it, too."""
        super().delete()
        assert isinstance(self.cluster, KafkaZooKeeperCluster)
        places = ("/admin/delete_topics", "/brokers/topics", "/config/topics")
        deadline = time.monotonic() + PATIENCE_S
        with visit(self.cluster.zookeeper) as keeper:
            while any(keeper.exists(f"{place}/{self.topic}") for place in places):
                assert time.monotonic() < deadline, [*self.said, "still in ZooKeeper"]
                time.sleep(0.02)


def play_kafka(cluster: Kafka, age: str, kind: str, seeds: Sequence[int]) -> None:
    is_old = isinstance(cluster, KafkaZooKeeperCluster)
    for seed in seeds:
        model = Cluster(model_world(seed), age, per_response=1000)
        with sides(model, settings_of(cluster.bootstrap)) as (real, own):
            history_type = OldKafkaHistory if is_old else KafkaHistory
            history = history_type(seed, f"{kind}-{seed}", model, real, own)
            history.cluster = cluster
            play(history)


def test_a_few_histories_on_the_model_are_those_of_kafka(kafka: KafkaCluster) -> None:
    play_kafka(kafka, "4", "few", FEW)


@pytest.mark.slow
def test_many_histories_on_the_model_are_those_of_kafka(kafka: KafkaCluster) -> None:
    play_kafka(kafka, "4", "many", MANY)


@pytest.mark.slow
def test_many_histories_on_the_model_are_those_of_an_old_kafka() -> None:
    with KafkaZooKeeperCluster("0.11.0.3", properties={"delete.topic.enable": "true"}) as cluster:
        play_kafka(cluster, "1.1", "many", MANY)


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
