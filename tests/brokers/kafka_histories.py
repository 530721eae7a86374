"""The histories of ``model_histories`` on Kafka: producers with transactions, and people who delete
records and topics."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Any

from rangeland.dialects.kafka import messages as m
from rangeland.dialects.protocol_session import Question
from rangeland.testing.client_library import TIMEOUT_S, admin, library, our_errors, producer
from rangeland.testing.kafka import KafkaCluster, KafkaZooKeeperCluster
from rangeland.testing.processes import PATIENCE_S
from rangeland.testing.producer import create_topic, delete_records, delete_topic, wait_for_topic
from rangeland.testing.zookeeper import Visitor
from tests.brokers.model_histories import BrokerHistory, Side
from tests.simulation.clusters import SimulatedCluster
from tests.simulation.logs import CODECS, Entry, Log, Transaction

Kafka = KafkaCluster | KafkaZooKeeperCluster
PRODUCERS = ("a", "b", "c")
"""Each has one transaction after another."""
UNKNOWN_PRODUCER = 1 << 40
TIMEOUT_MS = 3_000
IMPATIENT = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": 500}
"""A coordinator that looks for transactions that took too long twice a second."""


@dataclass(frozen=True)
class OpenTransaction:
    """``producer``: its number, which the broker has given it."""

    name: str
    client: Any
    log: Log
    producer: int

    @property
    def in_model(self) -> Transaction:
        (found,) = (one for one in self.log.opened if one.producer == self.producer)
        return found

    @property
    def is_known(self) -> bool:
        """Whether any of its records is left."""
        return self.in_model.until > self.log.start


class KafkaHistory(BrokerHistory):
    steps = (
        *("append",) * 5,
        *("begin",) * 3,
        *("extend", "finish", "finish"),
        *("expire",) * 2,
        *("recreate", "grow"),
    )
    codecs = CODECS
    is_old = False
    cluster: Kafka

    def __init__(
        self, seed: int, topic: str, model: SimulatedCluster, real: Side, own: Side
    ) -> None:
        super().__init__(seed, topic, model, real, own)
        self._open: list[OpenTransaction] = []

    def end(self) -> None:
        for one in self._open:
            with our_errors(f"The transaction on {self.topic} was not ended"):
                one.client.abort_transaction(TIMEOUT_S)

    def create(self, partitions: int) -> None:
        if isinstance(self.cluster, KafkaZooKeeperCluster):
            self.cluster.create_topic(self.topic, partitions)
        else:
            create_topic(self.cluster.bootstrap, self.topic, partitions)

    def delete(self) -> None:
        while self._open:
            self._finish()
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

    # --- transactions -----------------------------------------------------------------------

    def _begin(self) -> None:
        """A transaction of a producer that has none; if all have one, one ends."""
        if len(self._open) == len(PRODUCERS):
            self._finish()
        else:
            self._open.append(self._begun({}))

    def _begun(self, settings: dict[str, Any]) -> OpenTransaction:
        busy = [one.name for one in self._open]
        name = self.random.choice([name for name in PRODUCERS if name not in busy])
        log = self.random.choice(self.logs)
        settings = {"transactional.id": f"{self.topic}-{name}", "linger.ms": 0, **settings}
        client = producer(self.cluster.bootstrap, settings)
        with our_errors(f"The transaction on {self.topic} did not begin"):
            client.init_transactions(TIMEOUT_S)
            client.begin_transaction()
        before = log.end, len(log.entries)
        count, now_ms = self.random.randint(1, 3), self.model.world.now_ms
        begun = log.begin_transaction(count, now_ms, UNKNOWN_PRODUCER)
        self.said.append(f"{name} begins: {log.number} ends at {log.end}")
        self._send(client, log, *before)
        number = log.entries[-1].producer_id
        log.opened[-1] = replace(begun, producer=number)
        return OpenTransaction(name, client, log, number)

    def _extend(self) -> None:
        """Old brokers forget a producer all of whose records are gone, and then take no more."""
        able = [one for one in self._open if one.is_known or not self.is_old]
        if not able:
            return
        one = self.random.choice(able)
        before = one.log.end, len(one.log.entries)
        count, now_ms = self.random.randint(1, 3), self.model.world.now_ms
        one.log.extend_transaction(one.in_model, count, now_ms)
        self.said.append(f"{one.name} goes on: {one.log.number} ends at {one.log.end}")
        self._send(one.client, one.log, *before)

    def _finish(self) -> None:
        if not self._open:
            return
        one, abort = self.random.choice(self._open), self.random.random() < 0.5
        self._open.remove(one)
        log, entries = one.log, len(one.log.entries)
        log.end_transaction(one.in_model, self.model.world.now_ms, abort)
        self.said.append(f"{one.name} ends, aborted: {abort}: {log.number} ends at {log.end}")
        with our_errors(f"The transaction on {self.topic} was not ended"):
            (one.client.abort_transaction if abort else one.client.commit_transaction)(TIMEOUT_S)
        self._wait_for_end(log)
        self._take_real_bytes(log, entries)

    def _send(self, client: Any, log: Log, first: int, entries: int) -> None:
        for offset in range(first, log.end):
            client.produce(self.topic, log.written[offset][-1], b"k", log.number)
        assert client.flush(TIMEOUT_S) == 0
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

    def _wait_for_end(self, log: Log) -> None:
        """A transaction's end is acknowledged before its marker is there."""
        deadline = time.monotonic() + PATIENCE_S
        while self._real.end_of(self.topic, log.number) < log.end:
            assert time.monotonic() < deadline, [*self.said, "no marker"]
            time.sleep(0.01)

    def _abandon(self) -> None:
        """A producer never ends its transaction, and the coordinator aborts it."""
        if len(self._open) == len(PRODUCERS):
            return
        one = self._begun({"transaction.timeout.ms": TIMEOUT_MS})
        log, entries = one.log, len(one.log.entries)
        log.end_transaction(one.in_model, self.model.world.now_ms, True)
        self.said.append(f"{one.name} is gone: {log.number} ends at {log.end}")
        self._wait_for_end(log)
        self._take_real_bytes(log, entries)

    # --- the broker ---------------------------------------------------------------------------

    def _restart(self) -> None:
        """After a crash, or in order. What a crash takes back is where logs began, which brokers
        write down once a minute."""
        if self.random.random() < 0.5 and not any(log.start for log in self.logs):
            self.said.append("crash")
            self.cluster.kill(1)
        self.said.append("restart")
        self.cluster.restart(1)
        self.wait_for(len(self.logs))
        for number, epoch in self._epochs().items():
            log = self.logs[number]
            assert epoch > log.epoch, self.said
            log.epoch = epoch
            log.begin_epoch(epoch)

    def _epochs(self) -> dict[int, int]:
        """Of the leaders, by partition: how many were elected is not the model's to know."""
        return {p.number: at.epoch or 0 for p, at in self._real.leaders(self.topic).items()}

    # --- deletion ---------------------------------------------------------------------------

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
    number = int.from_bytes(data[43:51], "big")
    return replace(about, base=base, until=until, data=data, records=records, producer_id=number)


class HarmedKafkaHistory(KafkaHistory):
    """Its broker is started again, and its coordinator is impatient."""

    steps = (*KafkaHistory.steps, *("restart", "restart", "abandon"))


class OldKafkaHistory(HarmedKafkaHistory):
    """It cannot be asked for more partitions, and knows no zstd. Its broker is never stopped: when
    it starts with a log that was emptied it has forgotten that log's epochs, and the model has
    not."""

    is_old = True
    steps = tuple(step for step in HarmedKafkaHistory.steps if step not in ("grow", "restart"))
    codecs = tuple(codec for codec in KafkaHistory.codecs if codec != "zstd")

    def delete(self) -> None:
        """Until ZooKeeper has forgotten it, too."""
        super().delete()
        assert isinstance(self.cluster, KafkaZooKeeperCluster)
        places = ("/admin/delete_topics", "/brokers/topics", "/config/topics")
        deadline = time.monotonic() + PATIENCE_S
        with Visitor(self.cluster.zookeeper) as keeper:
            while any(keeper.exists(f"{place}/{self.topic}") for place in places):
                assert time.monotonic() < deadline, [*self.said, "still in ZooKeeper"]
                time.sleep(0.02)
