"""A survey of a real cluster: what it finds, how many requests it makes, and how it fails."""

from __future__ import annotations

import http.server
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from rangeland.cluster_access.broker_check import check_brokers_answer
from rangeland.cluster_settings import ClusterSettings
from rangeland.errors import JobFileError, RangelandError, Unreachable
from rangeland.job.command_line_overrides import load_job
from rangeland.model import Partition, Survey
from rangeland.testing.client_library import consumer, library
from rangeland.testing.kafka import KafkaCluster
from rangeland.testing.ports import free_ports
from rangeland.testing.processes import PATIENCE_S
from rangeland.testing.producer import (
    Record,
    create_topic,
    delete_records,
    delete_topic,
    numbered_records,
    produce,
)
from tests.brokers.reading import log_of, look, settings_of, spied_requests

pytestmark = pytest.mark.brokers


@pytest.fixture(scope="module")
def settings(kafka: KafkaCluster) -> ClusterSettings:
    return settings_of(kafka.bootstrap)


# --- what it finds -----------------------------------------------------------------------


def test_start_end_leader_and_size_are_the_brokers(
    kafka: KafkaCluster, settings: ClusterSettings, topic: str
) -> None:
    create_topic(kafka.bootstrap, topic, partitions=2)
    produce(kafka.bootstrap, topic, numbered_records(10), partition=1)
    delete_records(kafka.bootstrap, topic, {1: 3})
    logs = look(settings, topics=(topic,)).logs
    empty, full = (logs[Partition(topic, number)] for number in (0, 1))
    assert (empty.start_offset, empty.end_offset) == (0, 0)
    assert (full.start_offset, full.end_offset) == (3, 10)
    assert str(full.leader.address) == kafka.bootstrap[0]
    assert full.leader.topic_id
    assert full.leader.topic_id == empty.leader.topic_id
    assert (empty.size_bytes, (full.size_bytes or 0) > 200) == (0, True)


def test_a_time_is_the_first_offset_at_or_after_it(
    kafka: KafkaCluster, settings: ClusterSettings, topic: str
) -> None:
    create_topic(kafka.bootstrap, topic)
    first = int(time.time() * 1000) - 100_000
    records = [Record(b"%d" % i, timestamp_ms=first + 1000 * i) for i in range(10)]
    produce(kafka.bootstrap, topic, records, batch_records=4)
    asked = (0, first, first + 1, first + 5000, first + 9000, first + 9001)
    found = look(settings, topics=(topic,), times_ms=asked).lookups.for_times
    partition = Partition(topic, 0)
    assert [found[partition, time_ms] for time_ms in asked] == [0, 0, 1, 5, 9, None]


def test_offsets_that_a_group_has_committed_are_found(
    kafka: KafkaCluster, settings: ClusterSettings, topic: str
) -> None:
    create_topic(kafka.bootstrap, topic, partitions=2)
    produce(kafka.bootstrap, topic, numbered_records(10), partition=1)
    commit(kafka, f"readers of {topic}", topic, 1, 7)
    group, other = f"readers of {topic}", f"nobody of {topic}"
    found = look(settings, topics=(topic,), groups=(group, other)).lookups.of_groups
    assert found == {
        (Partition(topic, 0), group): None,
        (Partition(topic, 1), group): 7,
        (Partition(topic, 0), other): None,
        (Partition(topic, 1), other): None,
    }


def commit(kafka: KafkaCluster, group: str, topic: str, partition: int, offset: int) -> None:
    reader = consumer(kafka.bootstrap, {"group.id": group})
    place = library().TopicPartition(topic, partition, offset)
    try:
        for left in range(20, -1, -1):  # a fresh coordinator may still be loading
            try:
                reader.commit(offsets=[place], asynchronous=False)
                return
            except library().KafkaException:
                if left == 0:
                    raise
                time.sleep(0.25)
    finally:
        reader.close()


def test_a_pattern_is_anchored_and_never_matches_internal_topics(
    kafka: KafkaCluster, settings: ClusterSettings, topic: str
) -> None:
    for name in (f"{topic}-a", f"{topic}-b", f"x-{topic}-a"):
        create_topic(kafka.bootstrap, name)
    commit(kafka, f"readers of {topic}", f"{topic}-a", 0, 0)  # makes __consumer_offsets
    found = look(settings, topic_pattern=rf"{topic}-.*|__consumer_.*").logs
    assert sorted(partition.topic for partition in found) == [f"{topic}-a", f"{topic}-b"]
    with pytest.raises(JobFileError, match="no topic matches __consumer"):
        look(settings, topic_pattern="__consumer_.*")


def test_only_the_partitions_that_are_asked_for_are_looked_at(
    kafka: KafkaCluster, settings: ClusterSettings, topic: str
) -> None:
    create_topic(kafka.bootstrap, topic, partitions=4)
    logs = look(settings, topics=(topic,), partitions={topic: (1, 3)}).logs
    assert [partition.number for partition in logs] == [1, 3]


# --- what it costs -----------------------------------------------------------------------


def test_a_thousand_partitions_cost_the_requests_of_ten(
    kafka: KafkaCluster,
    settings: ClusterSettings,
    topic: str,
    monkeypatch: pytest.MonkeyPatch,
    record_property: Callable[[str, object], None],
) -> None:
    surveys: dict[int, Survey] = {}
    sent: dict[int, list[str]] = {}
    for count in (10, 1000):
        name = f"{topic}-{count}"
        create_topic(kafka.bootstrap, name, partitions=count)
        # The broker may still be making logs.
        look(replace(settings, survey_ms=PATIENCE_S * 1000), topics=(name,), groups=("g",))
        with spied_requests(monkeypatch) as requests:
            started = time.monotonic()
            surveys[count] = look(settings, topics=(name,), times_ms=(0,), groups=("g",))
            seconds = time.monotonic() - started
        sent[count] = [type(request).__name__ for request in requests]
        record_property(f"survey of {count} partitions", f"{seconds:.3f} s")
        print(f"survey of {count} partitions: {seconds:.3f} s, {len(requests)} requests")
        delete_topic(kafka.bootstrap, name)
    assert [len(survey.logs) for survey in surveys.values()] == [10, 1000]
    assert sent[1000] == sent[10]
    groups = ("FindCoordinatorRequest", "OffsetFetchRequest")  # a home asks by itself
    survey_asked = [name for name in sent[10] if name not in groups]
    assert surveys[1000].requests == surveys[10].requests == len(survey_asked)


# --- what it says when it fails -----------------------------------------------------------


def test_an_unknown_topic_is_the_jobs_mistake_and_is_not_created(
    settings: ClusterSettings, topic: str
) -> None:
    for _ in range(2):
        with pytest.raises(JobFileError, match=f"there is no topic {topic}"):
            look(settings, topics=(topic,))


def test_an_unknown_partition_is_named_with_those_that_are_there(
    kafka: KafkaCluster, settings: ClusterSettings, topic: str
) -> None:
    create_topic(kafka.bootstrap, topic, partitions=2)
    with pytest.raises(JobFileError, match=rf"{topic} has no partition 2: it has 0, 1"):
        look(settings, topics=(topic,), partitions={topic: (0, 2)})


def fails_within(seconds: float, settings: ClusterSettings) -> RangelandError:
    started = time.monotonic()
    with pytest.raises(RangelandError) as caught:
        look(settings, topics=("any",))
    assert time.monotonic() - started < seconds
    return caught.value


def test_every_address_that_was_tried_is_named_with_its_reason() -> None:
    servers = [f"127.0.0.1:{port}" for port in free_ports(3)]
    error = fails_within(30, settings_of(servers, survey_ms=1_000))
    assert isinstance(error, Unreachable)
    assert "no broker could be reached, 3 tried" in str(error)
    for server in servers:
        assert f"{server}: [Errno 111] Connection refused" in str(error)
    assert sorted(error.facts["tried"]) == sorted(servers)


def test_servers_that_have_never_answered_are_given_up_early(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("rangeland.survey.survey_attempt.FIRST_RESPONSE_MS", 1_000)
    servers = [f"127.0.0.1:{port}" for port in free_ports(1)]
    assert isinstance(fails_within(30, settings_of(servers, survey_ms=60_000)), Unreachable)


def test_a_name_that_does_not_resolve_is_said_to_be_one() -> None:
    error = fails_within(20, settings_of(["no-such-host.invalid:9092"], survey_ms=1_000))
    assert isinstance(error, Unreachable)
    assert "no-such-host.invalid:9092: " in str(error)


def test_one_server_that_is_up_is_enough(kafka: KafkaCluster, topic: str) -> None:
    create_topic(kafka.bootstrap, topic)
    (dead,) = free_ports(1)
    settings = settings_of([f"127.0.0.1:{dead}", *kafka.bootstrap])
    assert log_of(settings, topic).end_offset == 0


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("topics: [no-such-topic]", "there is no topic no-such-topic"),
        ("topic_pattern: no-such-.*", "no topic matches no-such-.*"),
    ],
)
def test_a_topic_that_does_not_exist_is_refused_before_spark_if_its_table_is_new(
    kafka: KafkaCluster, tmp_path: Path, source: str, why: str
) -> None:
    """If there is a table, the topic may have been landed and deleted since."""
    path, table = tmp_path / "job.yaml", tmp_path / "table"
    source = f"{{servers: {list(kafka.bootstrap)}, {source}}}"
    path.write_text(f"job: missing\nsource: {source}\nsink: {{table: '{table}'}}\n")
    job, _ = load_job(path)
    with pytest.raises(JobFileError, match=re.escape(why)):
        check_brokers_answer(job)
    table.mkdir()
    check_brokers_answer(job)


@contextmanager
def answering(talk: Callable[[socket.socket], None]) -> Iterator[str]:
    """A server that does ``talk`` with everybody who connects, and no more."""
    ended = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(0.1)

        def serve() -> None:
            while not ended.is_set():
                try:
                    connection, _ = listener.accept()
                except TimeoutError:
                    continue
                with connection:
                    talk(connection)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"127.0.0.1:{listener.getsockname()[1]}"
        finally:
            ended.set()
            thread.join()


def test_a_listener_that_says_nothing_is_given_up_after_the_requests_time() -> None:
    ended = threading.Event()

    def say_nothing(_: socket.socket) -> None:
        ended.wait(10)

    with answering(say_nothing) as server:
        error = fails_within(30, settings_of([server], request_ms=500, survey_ms=1_000))
        ended.set()
    assert isinstance(error, Unreachable)
    assert f"{server}: no complete response in 500 ms" in str(error)


def say(data: bytes) -> Callable[[socket.socket], None]:
    def talk(connection: socket.socket) -> None:
        connection.recv(4096)
        connection.sendall(data)

    return talk


FOREIGN = {
    "TLS": b"\x15\x03\x03\x00\x02\x02\x46",
    "HTTP": b"HTTP/1.1 400 Bad Request\r\n\r\n",
    "SSH": b"SSH-2.0-OpenSSH_9.6\r\n",
}


@pytest.mark.parametrize("spoken", FOREIGN)
def test_a_port_that_is_not_kafka_is_reported_by_what_it_speaks(spoken: str) -> None:
    with answering(say(FOREIGN[spoken])) as server:
        error = fails_within(30, settings_of([server]))
    assert error.exit_code == 78
    assert server in str(error)
    assert re.search(f"speaks? {spoken}", str(error))


class Quiet(http.server.BaseHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        """Nothing on stderr."""


def test_a_web_server_is_not_a_broker() -> None:
    with http.server.HTTPServer(("127.0.0.1", 0), Quiet) as web:
        thread = threading.Thread(target=web.serve_forever, args=(0.05,))
        thread.start()
        server = f"127.0.0.1:{web.server_port}"
        try:
            error = fails_within(20, settings_of([server], request_ms=500, survey_ms=1_000))
        finally:
            web.shutdown()
            thread.join()
    assert server in str(error)


def test_a_server_that_is_not_a_broker_does_not_hide_those_that_are(
    kafka: KafkaCluster, topic: str
) -> None:
    create_topic(kafka.bootstrap, topic)
    with answering(say(FOREIGN["HTTP"])) as server:
        assert log_of(settings_of([server, *kafka.bootstrap]), topic).end_offset == 0


def test_bytes_of_nobodys_protocol_are_no_response() -> None:
    with answering(say(b"\x00\x00\x00\x08\xde\xad\xbe\xef\xde\xad\xbe\xef")) as server:
        error = fails_within(30, settings_of([server]))
    assert error.exit_code == 78
    assert server in str(error)
