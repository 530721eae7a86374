"""The Kafka brokers that all other tests use: they serve, fail over and stop."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from rangeland.errors import Conflict, Unreachable, UsageError
from rangeland.testing import __main__ as testing
from rangeland.testing.consumer import consume, offsets
from rangeland.testing.kafka import KafkaCluster, KafkaZooKeeperCluster
from rangeland.testing.probe import brokers_seen_by
from rangeland.testing.processes import PATIENCE_S
from rangeland.testing.producer import (
    CODECS,
    WHOLE_BATCHES_MS,
    Record,
    create_topic,
    delete_records,
    delete_topic,
    fill,
    leader_of,
    numbered_records,
    open_transaction,
    produce,
    produce_transaction,
    wait_for_leader,
)

pytestmark = pytest.mark.brokers


def eventually(happened: Callable[[], bool], timeout_s: float = PATIENCE_S) -> bool:
    deadline = time.monotonic() + timeout_s
    while not happened() and time.monotonic() < deadline:
        time.sleep(0.1)
    return happened()


def gone(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:  # it may vanish between any two looks
        return True


@pytest.mark.slow
def test_a_cluster_id_that_begins_with_a_dash_is_not_a_flag(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    identity = uuid.UUID(bytes=b"\xfb" + 15 * b"\x07")  # 62 << 2 | 3: base64 begins with "-"
    monkeypatch.setattr("rangeland.testing.kafka.uuid.uuid4", lambda: identity)
    monkeypatch.setattr("rangeland.testing.kafka._formatted", {})
    with KafkaCluster() as cluster:
        properties = next(cluster.directory.rglob("meta.properties")).read_text()
    assert "cluster.id=-" in properties


# --- one broker -------------------------------------------------------------------------


def test_a_broker_serves_what_was_produced(kafka: KafkaCluster, topic: str) -> None:
    headers = (("a", b"1"), ("a", None), ("b", b""))
    records = [
        Record(b"value", b"key", headers, timestamp_ms=1_700_000_000_123),
        Record(None, b""),
        Record(b"", None),
    ]
    create_topic(kafka.bootstrap, topic)
    assert produce(kafka.bootstrap, topic, records, partition=0) == 3
    first, second, third = consume(kafka.bootstrap, topic)
    assert (first.offset, first.key, first.value) == (0, b"key", b"value")
    assert (first.timestamp_ms, first.headers) == (1_700_000_000_123, headers)
    assert (second.key, second.value, second.headers) == (b"", None, None)
    assert (third.key, third.value) == (None, b"")


def test_the_lines_of_a_file_become_records(
    kafka: KafkaCluster, topic: str, tmp_path: Path
) -> None:
    lines = tmp_path / "values.jsonl"
    lines.write_bytes(b'{"id": 1}\n\n\xff\n')
    create_topic(kafka.bootstrap, topic)
    given = testing._parser().parse_args(["produce", kafka.bootstrap[0], topic, str(lines)])
    testing.COMMANDS[given.command](given)
    assert [record.value for record in consume(kafka.bootstrap, topic)] == [
        b'{"id": 1}',
        b"",
        b"\xff",
    ]


@pytest.mark.parametrize("codec", CODECS)
def test_each_codec_is_served(kafka: KafkaCluster, topic: str, codec: str) -> None:
    create_topic(kafka.bootstrap, topic)
    produce(kafka.bootstrap, topic, numbered_records(500), codec=codec, linger_ms=WHOLE_BATCHES_MS)
    read = consume(kafka.bootstrap, topic)
    assert [record.value for record in read] == [record.value for record in numbered_records(500)]


def test_records_go_to_the_partition_they_name(kafka: KafkaCluster, topic: str) -> None:
    create_topic(kafka.bootstrap, topic, partitions=3)
    produce(kafka.bootstrap, topic, [Record(b"a", partition=2), Record(b"b")], partition=1)
    assert offsets(kafka.bootstrap, topic) == {0: (0, 0), 1: (0, 1), 2: (0, 1)}


def test_deleted_records_move_the_log_start(kafka: KafkaCluster, topic: str) -> None:
    create_topic(kafka.bootstrap, topic)
    produce(kafka.bootstrap, topic, numbered_records(10))
    delete_records(kafka.bootstrap, topic, {0: 4})
    assert offsets(kafka.bootstrap, topic) == {0: (4, 10)}


def test_a_topic_can_be_deleted_and_made_again(kafka: KafkaCluster, topic: str) -> None:
    for _ in range(2):
        create_topic(kafka.bootstrap, topic)
        produce(kafka.bootstrap, topic, numbered_records(3))
        assert offsets(kafka.bootstrap, topic) == {0: (0, 3)}
        delete_topic(kafka.bootstrap, topic)


def test_a_topic_that_exists_is_a_conflict(kafka: KafkaCluster, topic: str) -> None:
    create_topic(kafka.bootstrap, topic)
    with pytest.raises(Conflict, match=topic):
        create_topic(kafka.bootstrap, topic)


def test_producing_to_no_topic_is_an_error_of_ours(kafka: KafkaCluster, topic: str) -> None:
    with pytest.raises((Unreachable, UsageError), match=topic):
        produce(kafka.bootstrap, topic, numbered_records(1))


@pytest.mark.slow
def test_an_aborted_transaction_is_in_the_log_and_is_not_read(
    kafka: KafkaCluster, topic: str
) -> None:
    create_topic(kafka.bootstrap, topic)
    produce_transaction(kafka.bootstrap, topic, numbered_records(5), commit=True)
    produce_transaction(kafka.bootstrap, topic, numbered_records(3, start=5), commit=False)
    assert [record.offset for record in consume(kafka.bootstrap, topic)] == [0, 1, 2, 3, 4]
    everything = consume(kafka.bootstrap, topic, isolation="read_uncommitted")
    assert [record.offset for record in everything] == [0, 1, 2, 3, 4, 6, 7, 8]
    assert offsets(kafka.bootstrap, topic) == {0: (0, 10)}, "two markers are in the log"


def test_an_open_transaction_holds_readers_back(kafka: KafkaCluster, topic: str) -> None:
    create_topic(kafka.bootstrap, topic)
    with open_transaction(kafka.bootstrap, topic, numbered_records(2), commit=True):
        produce(kafka.bootstrap, topic, numbered_records(1))
        assert consume(kafka.bootstrap, topic) == []
    assert len(consume(kafka.bootstrap, topic)) == 3


def test_fill_writes_all_records_evenly_and_alike(kafka: KafkaCluster, topic: str) -> None:
    sizes = [fill(kafka.bootstrap, f"{topic}-{i}", 10_000, partitions=4) for i in range(2)]
    assert offsets(kafka.bootstrap, f"{topic}-0") == dict.fromkeys(range(4), (0, 2_500))
    first, second = (consume(kafka.bootstrap, f"{topic}-{i}") for i in range(2))
    assert [record.value for record in first] == [record.value for record in second]
    assert sum(len(record.key or b"") + len(record.value or b"") for record in first) == sizes[0]
    assert {len(record.key or b"") for record in first} == {8}
    assert 170 < sizes[0] / 10_000 - 8 < 180


# --- three brokers ----------------------------------------------------------------------


@pytest.mark.slow
def test_the_partitions_of_a_killed_broker_move(kafka3: KafkaCluster, topic: str) -> None:
    create_topic(kafka3.bootstrap, topic, partitions=1, replicas=3)
    produce(kafka3.bootstrap, topic, numbered_records(10))
    old = leader_of(kafka3.bootstrap, topic)
    kafka3.kill(old)
    try:
        assert old not in kafka3.running
        new = wait_for_leader(kafka3.bootstrap, topic, other_than=old)
        assert new in kafka3.running
        assert eventually(lambda: len(consume(kafka3.bootstrap, topic)) == 10)
    finally:
        kafka3.restart(old)
    assert sorted(brokers_seen_by(kafka3.address(old))) == [1, 2, 3]


@pytest.mark.slow
def test_a_stopped_broker_hands_over_before_it_ends(kafka3: KafkaCluster, topic: str) -> None:
    create_topic(kafka3.bootstrap, topic, partitions=1, replicas=3)
    old = leader_of(kafka3.bootstrap, topic)
    kafka3.stop(old)
    try:
        assert wait_for_leader(kafka3.bootstrap, topic, other_than=old) != old
    finally:
        kafka3.restart(old)


@pytest.mark.slow
def test_a_paused_broker_answers_nothing_until_it_is_resumed(kafka3: KafkaCluster) -> None:
    kafka3.pause(2)
    try:
        assert brokers_seen_by(kafka3.address(2), timeout_s=0.5) == {}
        assert 2 in kafka3.running
    finally:
        kafka3.resume(2)
    assert eventually(lambda: sorted(brokers_seen_by(kafka3.address(2))) == [1, 2, 3])


# --- life and death ---------------------------------------------------------------------


def test_nothing_is_left_when_a_cluster_is_closed() -> None:
    with KafkaCluster() as cluster:
        pid, folder, port = cluster.process(1).pid, cluster.directory, cluster.ports[1]
        assert folder.is_dir()
    assert gone(pid)
    assert not folder.exists()
    assert brokers_seen_by(f"127.0.0.1:{port}") == {}


@pytest.mark.slow
def test_a_given_directory_keeps_the_logs_and_not_the_data(tmp_path: Path) -> None:
    with KafkaCluster(directory=tmp_path / "k"):
        assert (tmp_path / "k" / "data").is_dir()
    assert "started" in (tmp_path / "k" / "logs" / "kafka-1.log").read_text()
    assert not (tmp_path / "k" / "data").exists()


def test_a_broker_that_cannot_start_says_what_it_said() -> None:
    cluster = KafkaCluster(properties={"num.io.threads": "many"})
    with pytest.raises(Unreachable, match=r"Invalid value many for configuration num\.io"):
        cluster.start()
    assert cluster.running == []


@pytest.mark.slow
def test_a_killed_parent_leaves_no_broker() -> None:
    text = (
        "import time\nfrom rangeland.testing.kafka import KafkaCluster\n"
        "cluster = KafkaCluster().start()\n"
        "print(cluster.process(1).pid, cluster.directory, flush=True)\ntime.sleep(300)"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-c", text]
    parent = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    with parent:
        assert parent.stdout is not None
        pid, folder = parent.stdout.readline().split()
        assert not gone(int(pid))
        parent.kill()
    assert eventually(lambda: gone(int(pid)))
    assert eventually(lambda: not Path(folder).exists())


@pytest.mark.slow
def test_the_command_line_fills_a_topic_and_ends_when_asked(topic: str) -> None:
    command = [sys.executable, "-m", "rangeland.testing", "kafka"]
    command += ["--topic", topic, "--records", "100", "--partitions", "2"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        servers = process.stdout.readline().strip()
        assert offsets(servers, topic) == {0: (0, 50), 1: (0, 50)}
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=PATIENCE_S) == 0
    assert brokers_seen_by(servers) == {}


# --- older brokers ----------------------------------------------------------------------


@pytest.mark.slow
def test_the_command_line_fills_a_topic_of_a_broker_that_no_client_can_make_one_on(
    topic: str,
) -> None:
    command = [sys.executable, "-m", "rangeland.testing", "kafka", "--version", "0.8.2.2"]
    command += ["--topic", topic, "--records", "100", "--partitions", "2"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        servers = process.stdout.readline().strip()
        try:
            found = consume(servers, topic, version="0.8.2.2")
        finally:
            process.send_signal(signal.SIGINT)
        assert process.wait(timeout=PATIENCE_S) == 0
    assert sorted((r.partition, r.offset) for r in found) == [
        (partition, offset) for partition in (0, 1) for offset in range(50)
    ]


@pytest.mark.slow
@pytest.mark.parametrize("kind", [KafkaCluster, KafkaZooKeeperCluster])
def test_older_brokers_serve_and_come_back(
    kind: type[KafkaCluster] | type[KafkaZooKeeperCluster], topic: str
) -> None:
    with kind(kind.versions[-1]) as cluster:
        create_topic(cluster.bootstrap, topic)
        produce(cluster.bootstrap, topic, numbered_records(10), codec="lz4")
        cluster.kill(1)
        cluster.restart(1)
        wait_for_leader(cluster.bootstrap, topic)
        assert [record.offset for record in consume(cluster.bootstrap, topic)] == list(range(10))
