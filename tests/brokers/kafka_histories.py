"""The histories of ``model_histories`` on Kafka: producers with transactions, and people who delete
records and topics."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from rangeland.dialects.protocol_session import BrokerRequest
from rangeland.model import Address
from rangeland.testing.client_library import TIMEOUT_S, admin, library, our_errors, producer
from rangeland.testing.kafka import KafkaCluster, KafkaZooKeeperCluster
from rangeland.testing.processes import PATIENCE_S
from rangeland.testing.producer import (
    create_topic,
    delete_records,
    delete_topic,
    leader_of,
    wait_for_leader,
    wait_for_topic,
)
from rangeland.testing.zookeeper import Visitor
from tests.brokers.model_histories import BrokerHistory, Side, tick
from tests.kafka_produce import ProducePartition, ProduceRequest, ProduceTopic
from tests.simulation.clusters import SimulatedCluster
from tests.simulation.logs import CODECS, Entry, Log, Transaction

Kafka = KafkaCluster | KafkaZooKeeperCluster
PRODUCERS = ("a", "b", "c")
"""Each has one transaction after another."""
UNKNOWN_PRODUCER = 1 << 40
TIMEOUT_MS = 3_000
"""Of a transaction that is left to its timeout."""
LONG_TIMEOUT_MS = 600_000
"""Of the others: a history may take minutes on a slow machine, and ends them itself."""
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
    acks = -1
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
            part = ProducePartition(index=log.number, records=data)
            topic = ProduceTopic(name=self.topic, partition_data=(part,))
            asked = ProduceRequest(acks=self.acks, timeout_ms=10_000, topic_data=(topic,))
            address = self._address_of(log)
            response = self._real.pool.call(address, BrokerRequest(asked))
            (made,) = response.responses[0].partition_responses
            shown = [*self.said, f"{made}, not at {entry.base}"]
            assert (made.error_code, made.base_offset) == (0, entry.base), "\n".join(shown)

    def _address_of(self, log: Log) -> Address:
        found = {p.number: at.address for p, at in self._real.leaders(self.topic).items()}
        address = found[log.number]
        assert address is not None, self.said
        return address

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
        own = {
            "transactional.id": self.name_of_producer(name),
            "transaction.timeout.ms": LONG_TIMEOUT_MS,
            "linger.ms": 0,
        }
        client = producer(self.cluster.bootstrap, {**own, **settings})
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

    def name_of_producer(self, name: str) -> str:
        """Which transactions the coordinator takes for one producer's."""
        return f"{self.topic}-{name}"

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
        self._finish_one(self.random.choice(self._open), abort=self.random.random() < 0.5)

    def _finish_one(self, one: OpenTransaction, *, abort: bool) -> None:
        self._open.remove(one)
        log, entries = one.log, len(one.log.entries)
        log.end_transaction(one.in_model, self.model.world.now_ms, abort)
        self.said.append(f"{one.name} ends, aborted: {abort}: {log.number} ends at {log.end}")
        with our_errors(f"The transaction on {self.topic} was not ended"):
            (one.client.abort_transaction if abort else one.client.commit_transaction)(TIMEOUT_S)
        self.wait_for_end(log)
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

    def _abandon(self) -> None:
        """A producer never ends its transaction, and the coordinator aborts it."""
        if len(self._open) == len(PRODUCERS):
            return
        one = self._begun({"transaction.timeout.ms": TIMEOUT_MS})
        log, entries = one.log, len(one.log.entries)
        log.end_transaction(one.in_model, self.model.world.now_ms, True)
        self.said.append(f"{one.name} is gone: {log.number} ends at {log.end}")
        self.wait_for_end(log)
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
        self._take_epochs()

    def _take_epochs(self) -> None:
        """Where there is a new leader. Old brokers know an epoch once it has a record."""
        for number, epoch in self._epochs().items():
            log = self.logs[number]
            assert epoch >= log.epoch, self.said
            log.epoch = epoch
            if not self.is_old:
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


# --- compaction ---------------------------------------------------------------------------

KEYS = (b"k", b"l", b"m")
NEVER_MS = 1 << 40
SEGMENT_MS = 100


class CompactedKafkaHistory(KafkaHistory):
    """Its logs are cleaned, but only when the history says so: until then the cleaner lets
    everything lie. Which records go is Kafka's decision, and the model's logs have from then on
    what is left; that it is the newest of each key is checked."""

    steps = (
        *("append",) * 6,
        *("begin", "extend", "finish"),
        *("compact",) * 2,
        "expire",
    )
    cluster: KafkaCluster

    def __init__(
        self, seed: int, topic: str, model: SimulatedCluster, real: Side, own: Side
    ) -> None:
        super().__init__(seed, topic, model, real, own)
        self._keys: dict[bytes, bytes] = {}
        """By value; records of transactions have the first one."""

    def create(self, partitions: int) -> None:
        config = {
            "cleanup.policy": "compact,delete",
            "retention.ms": -1,
            "segment.ms": SEGMENT_MS,
            "min.cleanable.dirty.ratio": 0,
            "delete.retention.ms": 0,
            "min.compaction.lag.ms": NEVER_MS,
        }
        create_topic(self.cluster.bootstrap, self.topic, partitions, config=config)

    def _append(self) -> None:
        log = self.random.choice(self.logs)
        count, codec = self.random.randint(1, 4), self.random.choice(self.codecs)
        self._append_keys(log, self.random.choices(KEYS, k=count), codec)

    def _append_keys(self, log: Log, keys: Sequence[bytes], codec: str = "none") -> None:
        before = len(log.entries)
        log.append(len(keys), self.model.world.now_ms, codec, keys)
        values = (value for _, value in log.entries[-1].records)
        self._keys |= dict(zip(values, keys, strict=True))
        self.said.append(f"append {codec}, {keys}: {log.number} ends at {log.end}")
        self.write(log, before)

    def _compact(self) -> None:
        """Both logs, but for their newest records, which are in segments of their own."""
        while self._open:
            self._finish()
        time.sleep(2 * SEGMENT_MS / 1000)
        tick(self.model.world)
        for log in self.logs:
            self._append_keys(log, [b"last"])
        before = [len(log.entries) for log in self.logs]
        self._let_clean(0)
        deadline = time.monotonic() + PATIENCE_S
        while not all(self._is_cleaned(log) for log in self.logs):
            assert time.monotonic() < deadline, [*self.said, "not cleaned"]
            time.sleep(0.02)
        self._let_clean(NEVER_MS)
        for log in self.logs:
            self._take_what_is_left(log)
        after = [len(log.entries) for log in self.logs]
        self.said.append(f"compact: {before} -> {after} batches")

    def _is_cleaned(self, log: Log) -> bool:
        active = log.entries[-1].base
        return active <= max(log.start, self._cleaned_to(log.number))

    def compare(self) -> None:
        """Once the cleaner has removed the segments that only have deleted records: they hide
        others from whoever asks for a time."""
        deadline = time.monotonic() + PATIENCE_S
        while any(self._has_dead_segment(log) for log in self.logs):
            assert time.monotonic() < deadline, [*self.said, "segments are still there"]
            time.sleep(0.02)
        for log in self.logs:
            log.segments = self._segments(log)
        super().compare()

    def _has_dead_segment(self, log: Log) -> bool:
        begins = self._segments(log)
        return len(begins) > 1 and begins[1] <= log.start

    def _segments(self, log: Log) -> list[int]:
        folder = self.cluster.data_directory(1) / f"{self.topic}-{log.number}"
        return sorted(int(file.stem) for file in folder.glob("*.log"))

    def _let_clean(self, lag_ms: int) -> None:
        module = library("confluent_kafka.admin")
        operation = module.AlterConfigOpType.SET
        entry = module.ConfigEntry(
            "min.compaction.lag.ms", str(lag_ms), incremental_operation=operation
        )
        resource = module.ConfigResource(
            module.ConfigResource.Type.TOPIC, self.topic, incremental_configs=[entry]
        )
        client = admin(self.cluster.bootstrap)
        done = client.incremental_alter_configs([resource])
        with our_errors(f"{self.topic} could not be configured"):
            done[resource].result(TIMEOUT_S)
        time.sleep(0.2)  # until the broker's log knows it

    def _cleaned_to(self, number: int) -> int:
        """By the file in which the broker writes how far its cleaner is."""
        found = self.cluster.data_directory(1) / "cleaner-offset-checkpoint"
        lines = [line.split() for line in found.read_text().splitlines()] if found.exists() else []
        of_topic = [line for line in lines if line[:2] == [self.topic, str(number)]]
        return int(of_topic[0][2]) if of_topic else -1

    def _take_what_is_left(self, log: Log) -> None:
        by_base = {entry.base: entry for entry in log.entries}
        newest = {self._keys.get(v, KEYS[0]): o for e in log.entries for o, v in e.records}
        left: list[Entry] = []
        data = self._real.stored(self.topic, log.number, log.start)
        while data:
            size = 12 + int.from_bytes(data[8:12], "big")
            entry = _entry_of(data[:size], by_base[int.from_bytes(data[:8], "big")])
            offsets = self._real.offsets_in(entry.data, entry.base)
            rows = tuple(one for one in entry.records if one[0] in offsets)
            left.append(replace(entry, records=rows, is_empty=not offsets and not entry.is_marker))
            # The next segment has a response of its own.
            data = data[size:] or self._real.stored(self.topic, log.number, entry.until)
        shown = {offset for entry in left for offset, _ in entry.records}
        gone = {o for e in log.entries for o, _ in e.records} - shown
        assert not gone & set(newest.values()), [*self.said, f"{gone} are gone"]
        log.because(gone, "compacted")
        log.entries = left


# --- truncation ---------------------------------------------------------------------------

UNCLEAN = {"unclean.leader.election.enable": "true", "min.insync.replicas": "1"}


class TruncatedKafkaHistory(KafkaHistory):
    """Each log is on two brokers, and unclean elections take its last entries: a follower is
    killed, the leader writes more and is killed, too, and the follower leads. Transactions that
    ended meanwhile are open again, for ever."""

    steps = (*("append",) * 6, *("begin",) * 2, "extend", "finish", *("truncate",) * 2)
    acks = 1
    """The controller takes a while to see that a follower is gone."""

    def __init__(
        self, seed: int, topic: str, model: SimulatedCluster, real: Side, own: Side
    ) -> None:
        super().__init__(seed, topic, model, real, own)
        self._truncations = 0

    def create(self, partitions: int) -> None:
        if isinstance(self.cluster, KafkaZooKeeperCluster):
            self.cluster.create_topic(self.topic, partitions, 2, UNCLEAN)
        else:
            create_topic(self.cluster.bootstrap, self.topic, partitions, 2, config=UNCLEAN)
        self._wait_until_in_sync()

    def name_of_producer(self, name: str) -> str:
        """No producer goes on after a truncation: it would end what is open again."""
        return f"{super().name_of_producer(name)}-{self._truncations}"

    def _finish_one(self, one: OpenTransaction, *, abort: bool) -> None:
        """Until its coordinator knows that the marker is written: otherwise it writes the marker
        once more, to the next leader. Before that it gives nobody else the same identity."""
        super()._finish_one(one, abort=abort)
        own = {"transactional.id": self.name_of_producer(one.name)}
        with our_errors(f"The transaction on {self.topic} is not complete"):
            producer(self.cluster.bootstrap, own).init_transactions(TIMEOUT_S)

    def _truncate(self) -> None:
        log = self.random.choice(self.logs)
        while others := [one for one in self._open if one.log is not log]:
            self._finish_one(others[0], abort=False)
        leader, follower = self._replicas(log)
        self.cluster.kill(follower)
        kept = len(log.entries)
        for _ in range(self.random.randint(1, 3)):
            before = len(log.entries)
            log.append(self.random.randint(1, 4), self.model.world.now_ms)
            self.write(log, before)
        while self._open:
            self._finish()
        self.said.append(f"truncate: {log.number} ends at {log.end}, {leader} leads")
        self.cluster.kill(leader)
        self.cluster.restart(follower)
        for one in self.logs:
            wait_for_leader(self.cluster.bootstrap, self.topic, one.number, other_than=leader)
        self.cluster.restart(leader)
        self._wait_until_in_sync()
        log.truncate(len(log.entries) - kept)
        self._truncations += 1
        self._take_epochs()
        for one in self.logs:
            self.wait_for_end(one)
        self.said.append(f"truncated: {log.number} ends at {log.end}, open: {log.opened}")

    def _mend(self) -> None:
        super()._mend()
        for log in self.logs:
            log.leader = leader_of(self.cluster.bootstrap, self.topic, log.number)

    def write(self, log: Log, before: int) -> None:
        super().write(log, before)
        self.wait_for_end(log)

    def _replicas(self, log: Log) -> tuple[int, int]:
        """The leader's id, and the follower's."""
        leader = leader_of(self.cluster.bootstrap, self.topic, log.number)
        found = {p.number: at for p, at in self._real.leaders(self.topic).items()}[log.number]
        (follower,) = set(found.replica_ids) - {leader}
        return leader, follower

    def _wait_until_in_sync(self) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while True:
            client = admin(self.cluster.bootstrap)
            found = client.list_topics(self.topic, timeout=TIMEOUT_S).topics[self.topic]
            parts = found.partitions.values()
            if parts and all(len(part.isrs) == 2 and part.leader >= 0 for part in parts):
                return
            assert time.monotonic() < deadline, [*self.said, "not in sync"]
            time.sleep(0.1)


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


class OldTruncatedKafkaHistory(TruncatedKafkaHistory):
    is_old = True
    codecs = OldKafkaHistory.codecs

    def _epochs(self) -> dict[int, int]:
        """Responses to requests for metadata do not have them yet."""
        assert isinstance(self.cluster, KafkaZooKeeperCluster)
        place = f"/brokers/topics/{self.topic}/partitions"
        with Visitor(self.cluster.zookeeper) as keeper:
            states = {log.number: keeper.get(f"{place}/{log.number}/state") for log in self.logs}
        return {number: json.loads(data)["leader_epoch"] for number, (data, _) in states.items()}
