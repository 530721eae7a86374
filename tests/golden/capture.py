"""Asks a running broker every question in every version it takes, and keeps the responses.

    python -m tests.golden.capture                             starts the brokers itself
    python -m tests.golden.capture HOST:PORT BROKER_VERSION    asks one that is running

The broker should be fresh and alone. The log is filled by another client, so that what the
responses must say is known without our own reader: it is written to ``expected.json``. A
response is kept as it came, without the four bytes of length before it.
"""

from __future__ import annotations

import json
import socket
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from rangeland.dialects.kafka import messages as m
from rangeland.dialects.kafka.session import KafkaSession
from rangeland.testing.kafka import KafkaCluster, KafkaZooKeeperCluster
from rangeland.wire.declarations import spec_of
from rangeland.wire.encoding import encode
from rangeland.wire.framing import FrameReader, frame
from tests.golden.capture_groups import ask_as_member, ask_newer_groups
from tests.kafka_produce import ProducePartition, ProduceRequest, ProduceTopic

HOME = Path(__file__).parent / "kafka"
TOPIC, OTHER_TOPIC, GROUP = "golden", "golden-produced", "golden-readers"
FIRST_TIME_MS = 1_700_000_000_000
# The records' times are long ago and the markers' are not: without a long segment time the
# segment would roll between them, and a fetch ends with its segment.
KEPT = {"retention.ms": "-1", "segment.ms": str(2**62)}


@dataclass
class Capture:
    """One connection to the broker, and the files made of its responses."""

    host: str
    port: int
    home: Path
    session: KafkaSession = field(default_factory=lambda: KafkaSession("golden"))
    files: list[tuple[str, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.socket = socket.create_connection((self.host, self.port), timeout=30)
        self.frames = FrameReader(max_frame_bytes=64 << 20)

    def receive(self) -> memoryview:
        while True:
            count = self.socket.recv_into(self.frames.buffer())
            if count == 0:
                raise SystemExit("the broker closed the connection")
            if (whole := self.frames.advance(count)) is not None:
                return whole

    def negotiate(self) -> None:
        question: bytes | None = self.session.open()
        while question is not None:
            self.socket.sendall(question)
            question = self.session.take_negotiation(self.receive())

    def versions(self, request: type[Any]) -> range:
        """Those that both sides have."""
        low, high = spec_of(request).versions
        theirs = self.session.versions.get(spec_of(request).key, (0, -1))
        return range(max(low, theirs[0]), min(high, theirs[1]) + 1)

    def ask(self, request: Any, version: int, case: str, asked: str) -> Any:
        correlation_id, data = self.session.encode(request, max_version=version)
        self.socket.sendall(data)
        response = self.receive()
        self.keep(request, version, case, asked, bytes(response))
        found, value = self.session.decode(response)
        assert found == correlation_id
        return value

    def keep(self, request: Any, version: int, case: str, asked: str, response: bytes) -> None:
        name = f"{spec_of(type(request)).name}.v{version}.{case}.bin"
        (self.home / name).write_bytes(response)
        self.files.append((name, asked))

    def close(self) -> None:
        self.socket.close()


# --- what the log holds ------------------------------------------------------------------


def fill(server: str) -> dict[str, Any]:
    """Makes the topics, writes and commits with another client. Gives what is expected."""
    admin = AdminClient({"bootstrap.servers": server})
    topics = [NewTopic(TOPIC, 2, 1, config=KEPT), NewTopic(OTHER_TOPIC, 1, 1, config=KEPT)]
    for made in admin.create_topics(topics).values():
        made.result(30)
    writer = Producer({"bootstrap.servers": server, "linger.ms": 50})
    for index in range(3):
        send(writer, index)
    writer.flush(30)
    transactional = transactional_writer(server)
    transactional.begin_transaction()
    for index in (3, 4):
        send(transactional, index)
    transactional.flush(30)
    transactional.abort_transaction(30)
    transactional.begin_transaction()
    send(transactional, 6)
    transactional.commit_transaction(30)
    commit(server)
    return {
        "topic": TOPIC,
        "partitions": [0, 1],
        "group": GROUP,
        "group_offset": 2,
        # The client that commits counts its closing zero as a part of the note.
        "group_note": "noted\0",
        "until_offset": 8,
        "aborted_first_offset": 3,
        "offset_at_second_time": 1,
        "second_time_ms": FIRST_TIME_MS + 1,
        "batch_offsets": [0, 3, 5, 6, 7],
    }


def send(writer: Producer, index: int) -> None:
    """No headers: Kafka 0.11 answers old versions of Fetch with error -1 where there are any."""
    key, value = f"key-{index}".encode(), f"value-{index}".encode()
    writer.produce(TOPIC, value, key, 0, timestamp=FIRST_TIME_MS + index)


def transactional_writer(server: str) -> Producer:
    writer = Producer({"bootstrap.servers": server, "transactional.id": "golden-writer"})
    writer.init_transactions(60)
    return writer


def commit(server: str) -> None:
    consumer = Consumer({"bootstrap.servers": server, "group.id": GROUP})
    offset = TopicPartition(TOPIC, 0, 2, metadata="noted")
    # A fresh coordinator may still be loading.
    for left in range(20, -1, -1):
        try:
            consumer.commit(offsets=[offset], asynchronous=False)
            break
        except KafkaException:
            if left == 0:
                raise
            time.sleep(0.5)
    consumer.close()


# --- the questions -----------------------------------------------------------------------


def ask_versions(capture: Capture) -> None:
    request = m.ApiVersionsRequest(client_software_name="golden", client_software_version="1")
    for version in capture.versions(m.ApiVersionsRequest):
        capture.ask(request, version, "plain", "which versions are taken")
    newest = spec_of(m.ApiVersionsRequest).versions[1]
    header = m.RequestHeader(api_key=18, api_version=99, correlation_id=7, client_id="golden")
    capture.socket.sendall(frame(encode(header, 2), encode(request, newest)))
    capture.keep(request, 0, "too-new", "the same in version 99", bytes(capture.receive()))


def ask_metadata(capture: Capture) -> str | None:
    topic_id = None
    for version in capture.versions(m.MetadataRequest):
        names = (TOPIC, "no-such-topic")
        topics = tuple(m.MetadataRequestTopic(name=name) for name in names)
        response = capture.ask(
            m.MetadataRequest(topics=topics), version, "by-name", f"{TOPIC} and no-such-topic"
        )
        topic_id = response.topics[0].topic_id or topic_id
        if version >= 1:
            capture.ask(m.MetadataRequest(topics=None), version, "all", "all topics")
        if version >= 12:
            ids = (m.MetadataRequestTopic(topic_id=topic_id),)
            capture.ask(m.MetadataRequest(topics=ids), version, "by-id", f"{TOPIC} by its id")
    return topic_id


def ask_offsets(capture: Capture) -> None:
    times = {
        "latest": m.LATEST_TIMESTAMP,
        "earliest": m.EARLIEST_TIMESTAMP,
        "time": FIRST_TIME_MS + 1,
    }
    for version in capture.versions(m.ListOffsetsRequest):
        for case, time_ms in times.items():
            parts = tuple(
                m.ListOffsetsPartition(partition_index=index, timestamp=time_ms, max_num_offsets=1)
                for index in (0, 1, 9)
            )
            topic = m.ListOffsetsTopic(name=TOPIC, partitions=parts)
            request = m.ListOffsetsRequest(topics=(topic,))
            capture.ask(request, version, case, f"{case} of partitions 0, 1, 9")


def ask_records(capture: Capture, topic_id: str | None) -> bytes:
    batch = b""
    for version in capture.versions(m.FetchRequest):
        for case, offset in (("data", 0), ("out-of-range", 1000)):
            parts = tuple(
                m.FetchPartition(partition=index, fetch_offset=start, partition_max_bytes=1 << 20)
                for index, start in ((0, offset), (1, 0))
            )
            request = m.FetchRequest(
                max_wait_ms=100,
                min_bytes=1,
                isolation_level=1 if version >= 4 else 0,
                topics=(m.FetchTopic(topic=TOPIC, topic_id=topic_id, partitions=parts),),
            )
            asked = f"partition 0 from {offset}, partition 1 from 0"
            response = capture.ask(request, version, case, asked)
            if case == "data" and version >= 4:
                records = response.responses[0].partitions[0].records
                batch = bytes(records[: 12 + int.from_bytes(records[8:12], "big")])
    return batch


def ask_group(capture: Capture) -> None:
    for version in capture.versions(m.FindCoordinatorRequest):
        finding = m.FindCoordinatorRequest(key=GROUP)
        capture.ask(finding, version, "group", f"the coordinator of {GROUP}")
    topics = (m.OffsetFetchTopic(name=TOPIC, partition_indexes=(0, 1)),)
    for version in capture.versions(m.OffsetFetchRequest):
        fetching = m.OffsetFetchRequest(group_id=GROUP, topics=topics)
        # Version 0 asks ZooKeeper, where this group has nothing.
        capture.ask(fetching, version, "group", f"{GROUP} on partitions 0 and 1")


def ask_the_rest(capture: Capture, batch: bytes) -> None:
    for version in capture.versions(m.DescribeLogDirsRequest):
        topic = m.DescribableLogDirTopic(topic=TOPIC, partitions=(0, 1))
        capture.ask(m.DescribeLogDirsRequest(topics=(topic,)), version, "golden", TOPIC)
    for version in capture.versions(ProduceRequest):
        part = ProducePartition(index=0, records=memoryview(batch))
        produced = ProduceTopic(name=OTHER_TOPIC, partition_data=(part,))
        request = ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=(produced,))
        capture.ask(request, version, "one-batch", f"a batch of three to {OTHER_TOPIC}")
    for version in capture.versions(m.SaslHandshakeRequest):
        asked = "PLAIN on a listener without SASL"
        capture.ask(m.SaslHandshakeRequest(mechanism="PLAIN"), version, "not-enabled", asked)


def ask_all(capture: Capture) -> None:
    capture.negotiate()
    ask_versions(capture)
    topic_id = ask_metadata(capture)
    ask_offsets(capture)
    batch = ask_records(capture, topic_id)
    ask_group(capture)
    ask_as_member(capture, TOPIC)
    ask_newer_groups(capture, TOPIC)
    ask_the_rest(capture, batch)


def write_readme(home: Path, version: str, files: list[tuple[str, str]]) -> None:
    lines = [
        f"# Responses of a Kafka {version} broker",
        "",
        "Taken off a socket by `python -m tests.golden.capture`, without the length before the",
        "frame; header included. `expected.json` says what the log held, and was not read back",
        "from these responses.",
        "",
        "| file | bytes | asked |",
        "|---|---|---|",
    ]
    lines += [f"| {name} | {(home / name).stat().st_size} | {asked} |" for name, asked in files]
    (home / "README.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


def capture_from(server: str, version: str) -> None:
    home = HOME / version
    home.mkdir(parents=True, exist_ok=True)
    for old in home.glob("*.bin"):
        old.unlink()
    host, _, port = server.rpartition(":")
    expected = {"broker": version, "host": host, "port": int(port), **fill(server)}
    capture = Capture(host, int(port), home)
    try:
        ask_all(capture)
    finally:
        capture.close()
    (home / "expected.json").write_text(json.dumps(expected, indent=2) + "\n", encoding="utf-8")
    write_readme(home, version, capture.files)
    print(f"{len(capture.files)} responses of Kafka {version}")


def main(arguments: list[str]) -> None:
    if arguments:
        server, version = arguments
        capture_from(server, version)
        return
    for cluster in (KafkaCluster(), KafkaZooKeeperCluster()):
        with cluster:
            capture_from(cluster.bootstrap[0], cluster.version)


if __name__ == "__main__":
    main(sys.argv[1:])
