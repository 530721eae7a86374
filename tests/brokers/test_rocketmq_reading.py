"""Queues of real RocketMQ brokers: what is found, what is read, and what is refused."""

from __future__ import annotations

import socket
import threading
import time
import zlib
from collections.abc import Iterator

import pytest

from rangeland.dialects.rocketmq import messages as m
from rangeland.dialects.rocketmq.topic_types import COMPACTED, FOR_BATCHES, has_attribute
from rangeland.errors import BadRecord, JobFileError, RangeLost, Unreachable
from rangeland.fetch.fetch_size import FetchLimits
from rangeland.loss import Action
from rangeland.model import Counts, Partition, Slice
from rangeland.planning.policy import Policy
from rangeland.testing.processes import PATIENCE_S
from rangeland.testing.rocketmq import RocketmqCluster
from rangeland.testing.rocketmq_clients import RocketmqClient, produce
from tests.brokers.rocketmq import log_of, read, read_topic, run_clients, settings_of
from tests.brokers.surveys import look, slice_of, slices_of
from tests.record_values import values_of

pytestmark = pytest.mark.brokers


@pytest.fixture(scope="module")
def rocketmq() -> Iterator[RocketmqCluster]:
    """Two masters that listen on IPv6 too, where there is one. Do not harm them."""
    with RocketmqCluster(brokers=2, properties={"bindAddress": "::"} if V6 else {}) as cluster:
        yield cluster


def has_ipv6() -> bool:
    with socket.socket(socket.AF_INET6) as probe:
        try:
            probe.bind(("::1", 0))
        except OSError:
            return False
    return True


V6 = socket.has_ipv6 and has_ipv6()
ALL_GROUPS = 201
"""The code of a request for all groups that a broker knows."""


# --- what is found ----------------------------------------------------------------------


def test_queues_of_all_brokers_are_found_where_the_topic_is(
    rocketmq: RocketmqCluster, topic: str
) -> None:
    rocketmq.create_topic(topic, 2)
    only_second = f"{topic}-2"
    rocketmq.create_topic(only_second, 3, ["broker-b"])
    produce(rocketmq.address("broker-b"), topic, values_of("v", 7), 1)
    survey = look(settings_of(rocketmq), topics=(topic, only_second))
    ends = {(p.topic, p.broker, p.number): log.end_offset for p, log in survey.logs.items()}
    assert ends == {
        (topic, "broker-a", 0): 0,
        (topic, "broker-a", 1): 0,
        (topic, "broker-b", 0): 0,
        (topic, "broker-b", 1): 7,
        **{(only_second, "broker-b", n): 0 for n in range(3)},
    }
    assert survey.absent.answered_brokers == {"broker-a", "broker-b"}


def test_a_topic_that_is_not_there_is_refused_and_not_made(
    rocketmq: RocketmqCluster, topic: str
) -> None:
    with pytest.raises(JobFileError, match=topic):
        look(settings_of(rocketmq), topics=(topic,))
    with RocketmqClient(rocketmq.servers[0]) as client:
        assert topic.encode() not in bytes(client.ask(m.all_topics()).body)


def test_a_pattern_finds_users_topics_and_no_others(rocketmq: RocketmqCluster, topic: str) -> None:
    rocketmq.create_topic(topic, 1)
    survey = look(settings_of(rocketmq), topic_pattern=".*")
    found = {p.topic for p in survey.logs}
    assert topic in found
    assert not found & {"testing", "broker-a", "broker-b", "SELF_TEST_TOPIC", "BenchmarkTest"}
    assert not any(name.lower().startswith("rmq_sys_") for name in found)


def test_a_time_is_when_messages_were_stored_not_when_they_were_made(
    rocketmq: RocketmqCluster, topic: str
) -> None:
    rocketmq.create_topic(topic, 1)
    produce(rocketmq.address(), topic, values_of("early", 5), born_ms=1_000)
    time.sleep(0.05)
    between_ms = time.time_ns() // 1_000_000
    time.sleep(0.05)
    produce(rocketmq.address(), topic, values_of("late", 5), born_ms=2_000)
    times = (0, 2_000, between_ms, between_ms + 3_600_000)
    survey = look(settings_of(rocketmq), topics=(topic,), times_ms=times)
    queue = Partition(topic, 0, "broker-a")
    assert survey.logs[queue].end_offset == 10
    queues = {p for p in survey.logs if p.broker == "broker-a"}
    assert queues == {queue}
    assert [survey.lookups.for_times[queue, t] for t in times] == [0, 0, 5, 10]
    assert not survey.lookups.inexact_times


def test_a_time_of_a_queue_without_messages_is_its_end(
    rocketmq: RocketmqCluster, topic: str
) -> None:
    rocketmq.create_topic(topic, 1, ["broker-a"])
    survey = look(settings_of(rocketmq), topics=(topic,), times_ms=(5, 1 << 45))
    assert set(survey.lookups.for_times.values()) == {0}


@pytest.mark.parametrize(("name", "value"), [COMPACTED, FOR_BATCHES])
def test_whether_a_topic_is_compacted_or_for_batches_never_changes(
    rocketmq: RocketmqCluster, topic: str, name: str, value: str
) -> None:
    """Otherwise messages that had only been deleted could count as compacted."""
    ordinary, special = topic, f"{topic}-special"
    rocketmq.create_topic(ordinary, 1, ["broker-a"])
    rocketmq.create_topic(special, 1, ["broker-a"], attributes=f"+{name}={value}")
    with RocketmqClient(rocketmq.address()) as client:
        for changed, attributes in (
            (ordinary, f"+{name}={value}"),
            (special, f"-{name}"),
            (special, f"+{name}={'DELETE' if name == 'cleanup.policy' else 'SimpleCQ'}"),
        ):
            refused = client.ask(m.create_topic(changed, 1, attributes), check=False)
            assert "unchangeable" in refused.remark
        client.ask(m.create_topic(special, 2))  # the other settings can be changed
        shown = [
            has_attribute(client.ask(m.topic_config(each)), name, value)
            for each in (ordinary, special)
        ]
    assert shown == [False, True]


# --- what is read -----------------------------------------------------------------------


def test_messages_of_all_queues_are_read_in_many_pulls(
    rocketmq: RocketmqCluster, topic: str
) -> None:
    rocketmq.create_topic(topic, 2)
    wanted = []
    for broker in rocketmq.masters:
        for queue in (0, 1):
            values = values_of(f"{broker}-{queue}", 1_500)
            assert produce(rocketmq.address(broker), topic, values, queue) == list(range(1_500))
            wanted += [(broker, queue, offset, value) for offset, value in enumerate(values)]
    found = read_topic(rocketmq, topic)
    rows = [(r["broker"], r["partition"], r["offset"], r["value"]) for r in found.rows]
    assert rows == wanted
    assert found.counts == Counts(landed=6_000)


def test_a_range_is_read_to_the_message(rocketmq: RocketmqCluster, topic: str) -> None:
    rocketmq.create_topic(topic, 1)
    values = values_of("v", 300)
    produce(rocketmq.address(), topic, values)
    settings = settings_of(rocketmq)
    log = log_of(settings, topic)
    for first, end in ((0, 1), (31, 33), (100, 250), (299, 300)):
        assert read([slice_of(log, first, end)], settings).values == values[first:end]


def test_messages_larger_than_a_fetch_are_read(rocketmq: RocketmqCluster, topic: str) -> None:
    rocketmq.create_topic(topic, 1)
    values = [b"a", *(bytes([i]) * 60_000 for i in range(40)), b"c", b"d" * 300_000, *[b"e"] * 90]
    produce(rocketmq.address(), topic, values)
    settings = settings_of(rocketmq)
    patience = FetchLimits(fetch_bytes=512, smallest_fetch_bytes=512, no_progress_ms=4_000)
    log = log_of(settings, topic)
    assert read([slice_of(log)], settings, patience).values == values
    assert read([slice_of(log)], settings).values == values


def test_a_row_has_what_the_message_says(rocketmq: RocketmqCluster, topic: str) -> None:
    rocketmq.create_topic(topic, 1, ["broker-a"])
    before_ms = time.time_ns() // 1_000_000
    named = {"TAGS": "A", "KEYS": "one two", "größe": "ü"}
    produce(rocketmq.address(), topic, [b"v"], properties=named, born_ms=1_234)
    produce(rocketmq.address(), topic, [b"w"], born_ms=5)
    first, second = read_topic(rocketmq, topic).rows
    assert (first["key"], first["value"]) == (b"one two", b"v")
    headers = {h["key"]: h["value"] for h in first["headers"]}
    assert {name: headers[name].decode() for name in named} == named
    assert first["bornTimestamp"].timestamp() == pytest.approx(1.234)
    assert before_ms / 1000 <= first["timestamp"].timestamp() <= time.time() + 1
    assert first["timestampType"] == 1
    assert (second["key"], second["value"]) == (None, b"w")


@pytest.mark.skipif(not V6, reason="this machine has no IPv6")
def test_messages_that_came_over_ipv6_are_read(rocketmq: RocketmqCluster, topic: str) -> None:
    rocketmq.create_topic(topic, 1, ["broker-a"])
    addresses = [rocketmq.address(), f"::1:{rocketmq.ports['broker-a']}"]
    for address in (*addresses, *addresses):
        produce(address, topic, [address.encode()], properties={"KEYS": address})
    with RocketmqClient(rocketmq.address()) as client:
        body = bytes(client.ask(m.Pull(Partition(topic, 0), 1, 1)).body)
    assert body[39] & 0x10, "the flag says that the host is one of IPv6"
    found = read_topic(rocketmq, topic)
    assert found.values == [row["key"] for row in found.rows] == [a.encode() for a in addresses] * 2


def test_packed_bodies_are_unpacked(rocketmq: RocketmqCluster, topic: str) -> None:
    rocketmq.create_topic(topic, 1, ["broker-a"])
    body = b"text " * 2000
    for flag in (0x1, 0x1 | 0x300):
        produce(rocketmq.address(), topic, [zlib.compress(body)] * 3, sys_flag=flag)
        produce(rocketmq.address(), topic, [b"plain"])
    found = read_topic(rocketmq, topic)
    assert found.values == [*[body] * 3, b"plain"] * 2


def test_a_body_that_does_not_unpack_is_named_and_can_be_skipped(
    rocketmq: RocketmqCluster, topic: str
) -> None:
    rocketmq.create_topic(topic, 1, ["broker-a"])
    produce(rocketmq.address(), topic, values_of("before", 3))
    produce(rocketmq.address(), topic, [b"not zlib"], sys_flag=1)
    produce(rocketmq.address(), topic, values_of("behind", 3))
    settings = settings_of(rocketmq)
    log = log_of(settings, topic)
    with pytest.raises(BadRecord, match="offset 3") as caught:
        read([slice_of(log)], settings)
    assert caught.value.facts["next_offset"] == 4
    found = read([slice_of(log)], settings_of(rocketmq), policy=Policy(corrupt=Action.SKIP))
    assert found.values == values_of("before", 3) + values_of("behind", 3)
    assert found.counts == Counts(landed=6, lost=1)


def test_reading_makes_no_group(rocketmq: RocketmqCluster, topic: str) -> None:
    rocketmq.create_topic(topic, 1)
    produce(rocketmq.address(), topic, [b"v"])
    read_topic(rocketmq, topic)
    with RocketmqClient(rocketmq.address()) as client:
        kept = bytes(client.ask(m.RemotingRequest(ALL_GROUPS, {})).body).decode()
    assert m.READER_GROUP in kept
    assert "rangeland" not in kept


def test_a_range_that_is_not_written_yet_is_waited_for(
    rocketmq: RocketmqCluster, topic: str
) -> None:
    rocketmq.create_topic(topic, 1)
    produce(rocketmq.address(), topic, values_of("first", 10))
    settings = settings_of(rocketmq)
    log = log_of(settings, topic)
    late = threading.Timer(1, lambda: produce(rocketmq.address(), topic, values_of("second", 10)))
    late.start()
    found = read([slice_of(log, 0, 20)], settings)
    late.join()
    assert found.values == values_of("first", 10) + values_of("second", 10)


# --- what is refused, and what is lost --------------------------------------------------


def test_a_queue_that_is_not_there_is_never_called_empty(
    rocketmq: RocketmqCluster, topic: str
) -> None:
    rocketmq.create_topic(topic, 1)
    produce(rocketmq.address(), topic, [b"v"])
    settings = settings_of(rocketmq, no_progress_ms=500)
    leader = log_of(settings, topic).leader.address
    missing = Slice(0, Partition(topic, 9, "broker-a"), 0, 10, 0, None, leader)
    with pytest.raises((RangeLost, Unreachable), match=f"{topic}/broker-a-9"):
        read([missing], settings)


def test_a_range_beyond_the_end_is_called_truncated(rocketmq: RocketmqCluster, topic: str) -> None:
    rocketmq.create_topic(topic, 1)
    produce(rocketmq.address(), topic, values_of("v", 5))
    settings = settings_of(rocketmq, no_progress_ms=5_000)
    log = log_of(settings, topic)
    with pytest.raises(RangeLost, match="truncated"):
        read([slice_of(log, 8, 12)], settings)


def test_a_search_of_somebody_elses_port_is_the_jobs_mistake(rocketmq: RocketmqCluster) -> None:
    settings = settings_of(rocketmq, seeds=(), survey_ms=500)
    with pytest.raises((JobFileError, Unreachable)):
        look(settings, topics=("t",))


# --- upstream's own clients -------------------------------------------------------------


def test_what_upstreams_producer_writes_is_read(rocketmq: RocketmqCluster, topic: str) -> None:
    rocketmq.create_topic(topic, 2, ["broker-a"])
    sent = run_clients("produce", rocketmq.servers[0], topic, "plain", "12")
    found = read_topic(rocketmq, topic)
    placed = {(int(queue), int(offset)): n for n, (queue, offset) in enumerate(sent)}
    assert len(found.rows) == 12
    for row in found.rows:
        n = placed[row["partition"], row["offset"]]
        headers = {h["key"]: h["value"].decode() for h in row["headers"]}
        assert row["value"] == f"plain-{n}".encode()
        assert row["key"] == (None if n % 3 == 1 else f"key-{n} other".encode())
        tag = None if n % 3 == 2 else ("even", "odd")[n % 2]
        assert headers.get("TAGS") == tag
        assert headers["größe"] == f"ü{n}"
        assert "UNIQ_KEY" in headers


@pytest.mark.parametrize(
    "codec", ["ZLIB", *(pytest.param(name, marks=pytest.mark.slow) for name in ("LZ4", "ZSTD"))]
)
def test_what_upstreams_producer_packs_is_unpacked(
    rocketmq: RocketmqCluster, topic: str, codec: str
) -> None:
    rocketmq.create_topic(topic, 1, ["broker-b"])
    option = f"-Drocketmq.message.compressType={codec}"
    run_clients("produce", rocketmq.servers[0], topic, "large", "3", options=[option])
    found = read_topic(rocketmq, topic)
    assert found.values == [f"large-{n}".encode() + b"x" * 6000 for n in range(3)]
    assert all(r.bytes_read < 3000 for r in found.receipts)


def test_a_batch_of_upstreams_producer_is_ordinary_messages(
    rocketmq: RocketmqCluster, topic: str
) -> None:
    rocketmq.create_topic(topic, 1, ["broker-a"])
    run_clients("produce", rocketmq.servers[0], topic, "batch", "6")
    found = read_topic(rocketmq, topic)
    assert found.values == [f"batch-{n}".encode() for n in range(6)]
    last = [{h["key"]: h["value"].decode() for h in row["headers"]} for row in found.rows]
    assert [each["größe"] for each in last] == [f"ü{n}" for n in range(6)]


def test_only_committed_messages_of_transactions_are_read(
    rocketmq: RocketmqCluster, topic: str
) -> None:
    rocketmq.create_topic(topic, 1, ["broker-a"])
    run_clients("produce", rocketmq.servers[0], topic, "transaction", "9")
    found = read_topic(rocketmq, topic)
    # Ends of transactions are sent without waiting for responses: in any order.
    assert sorted(found.values) == [f"transaction-{n}".encode() for n in range(3)]
    assert found.counts == Counts(landed=3)


@pytest.mark.slow
def test_a_delayed_message_is_read_once_it_is_due(rocketmq: RocketmqCluster, topic: str) -> None:
    rocketmq.create_topic(topic, 1, ["broker-a"])
    run_clients("produce", rocketmq.servers[0], topic, "delayed", "2")
    settings = settings_of(rocketmq)
    deadline = time.monotonic() + PATIENCE_S
    while log_of(settings, topic).end_offset < 2 and time.monotonic() < deadline:
        time.sleep(0.1)
    found = read(slices_of(look(settings, topics=(topic,))), settings)
    assert sorted(found.values) == [b"delayed-0", b"delayed-1"]
    (header,) = {h["value"] for h in found.rows[0]["headers"] if h["key"] == "REAL_TOPIC"} or {b""}
    assert header in (b"", topic.encode())


def test_what_is_produced_here_upstreams_consumer_reads(
    rocketmq: RocketmqCluster, topic: str
) -> None:
    rocketmq.create_topic(topic, 1, ["broker-a"])
    produce(rocketmq.address(), topic, values_of("v", 40), properties={"TAGS": "A", "KEYS": "k"})
    read_here = read_topic(rocketmq, topic)
    seen = run_clients("consume", rocketmq.servers[0], topic, topic[-20:], "40")
    assert sorted((int(o), v.encode()) for _, o, v, _ in seen) == [
        (row["offset"], row["value"]) for row in read_here.rows
    ]
