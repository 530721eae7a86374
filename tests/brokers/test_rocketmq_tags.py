"""Messages of some tags only, and what else brokers hold: long names, retries, sizes."""

from __future__ import annotations

import json
import time
import zlib
from collections.abc import Iterator
from typing import Any

import pytest

from rangeland.dialects.rocketmq import messages as m
from rangeland.dialects.rocketmq.requests import offsets_requests, read_offsets
from rangeland.errors import JobFileError
from rangeland.model import AtTime, Counts, Isolation, Partition
from rangeland.testing.processes import PATIENCE_S
from rangeland.testing.rocketmq import RocketmqCluster
from rangeland.testing.rocketmq_clients import RocketmqClient, produce
from tests.brokers.rocketmq import log_of, read, read_topic, run_clients, settings_of
from tests.brokers.surveys import look, slice_of, slices_of
from tests.rocketmq_messages import INNER_BATCH, NEED_UNWRAP, PACKED, ZLIB, inner, properties_of

pytestmark = pytest.mark.brokers

ONE, OTHER = "AaAaAa", "BBBBBB"
"""Two tags of one hash: a broker cannot tell them apart."""


@pytest.fixture(scope="module")
def rocketmq() -> Iterator[RocketmqCluster]:
    """A master that gives and scans as much as it does by default. Do not harm it."""
    with RocketmqCluster() as cluster:
        yield cluster


def offsets_of(rows: list[dict[str, object]]) -> list[object]:
    return [row["offset"] for row in rows]


# --- tags -------------------------------------------------------------------------------


def test_only_messages_of_the_tags_are_read_of_what_upstreams_producer_writes(
    rocketmq: RocketmqCluster, topic: str
) -> None:
    rocketmq.create_topic(topic, 1)
    run_clients("produce", rocketmq.servers[0], topic, f"tags={ONE},B,{OTHER},-,A", "100")
    log = log_of(settings_of(rocketmq), topic)
    wanted = {(ONE,): [0], (OTHER, "A"): [2, 4], ("none",): [], ("B", ONE): [0, 1]}
    for tags, places in wanted.items():
        settings = settings_of(rocketmq)
        there = [n for n in range(100) if n % 5 in places]
        found = read([slice_of(log)], settings, tags=tags)
        assert found.values == [f"value-{n}".encode() for n in there]
        assert offsets_of(found.rows) == there
        assert found.counts == Counts(landed=len(there), filtered=100 - len(there))
        assert found.receipts[0].rowless is not None
        inside = read([slice_of(log, 3, 41)], settings, tags=tags)
        assert offsets_of(inside.rows) == [n for n in there if 3 <= n < 41]
        assert inside.counts.total == 38
    seen = run_clients(
        "consume", rocketmq.servers[0], topic, f"g-{topic}"[-40:], "40", f"{OTHER} || A"
    )
    assert sorted(int(offset) for _, offset, *_ in seen) == [
        n for n in range(100) if n % 5 in (2, 4)
    ]


def test_a_broker_that_lets_tags_of_one_hash_through_is_not_believed(
    rocketmq: RocketmqCluster, topic: str
) -> None:
    rocketmq.create_topic(topic, 1)
    produce(rocketmq.address(), topic, [b"v"] * 3, properties={"TAGS": OTHER})
    with RocketmqClient(rocketmq.address()) as client:
        queue = Partition(topic, 0, "broker-a")
        assert client.ask(m.Pull(queue, 0, tags=(ONE,))).remark == "FOUND"
    settings = settings_of(rocketmq)
    found = read(slices_of(look(settings, topics=(topic,))), settings, tags=(ONE,))
    assert (found.rows, found.counts) == ([], Counts(filtered=3))
    assert found.receipts[0].rowless == ((0, 3),)


def test_tags_that_are_rare_in_a_long_queue_are_found(
    rocketmq: RocketmqCluster, topic: str
) -> None:
    """A response covers at most 800 offsets, and may be empty."""
    rocketmq.create_topic(topic, 1)
    address = rocketmq.address()
    for _ in range(2):
        produce(address, topic, [b"other"] * 3_000, properties={"TAGS": "other"})
        produce(address, topic, [b"rare"] * 2, properties={"TAGS": "rare"})
        produce(address, topic, [b"dense"] * 1_000, properties={"TAGS": "dense"})
    for tag, count in (("rare", 4), ("dense", 2_000), ("other", 6_000)):
        settings = settings_of(rocketmq)
        found = read([slice_of(log_of(settings, topic))], settings, tags=(tag,))
        assert found.values == [tag.encode()] * count
        assert found.counts == Counts(landed=count, filtered=8_004 - count)


# --- names, retries and sizes -----------------------------------------------------------


@pytest.mark.slow
def test_what_a_consumer_gave_back_is_read_from_the_retries_of_its_group(
    rocketmq: RocketmqCluster, topic: str
) -> None:
    rocketmq.create_topic(topic, 1)
    run_clients("produce", rocketmq.servers[0], topic, "tags=A", "1")
    group = f"g-{topic[-10:]}"
    run_clients("fail", rocketmq.servers[0], topic, group)
    retries = f"%RETRY%{group}"
    found = read_topic(rocketmq, retries)
    (row,) = found.rows
    assert (row["topic"], row["value"]) == (retries, b"value-0")
    headers = {h["key"]: h["value"] for h in row["headers"]}
    assert (headers["TAGS"], headers["RETRY_TOPIC"]) == (b"A", topic.encode())


@pytest.mark.slow
def test_batches_that_a_broker_keeps_as_one_message_are_read_as_upstreams_consumer_does(
    rocketmq: RocketmqCluster, topic: str
) -> None:
    """Which takes an attribute of the topic; of all others batches come as ordinary messages."""
    rocketmq.create_topic(topic, 1, attributes="+queue.type=BatchCQ")
    settings = settings_of(rocketmq)
    empty = log_of(settings, topic)
    assert (empty.start_offset, empty.end_offset) == (0, 0)

    run_clients("produce", rocketmq.servers[0], topic, "batches", "50")
    # No producer of upstream's packs a batch; brokers take one that is, and its readers unpack it.
    waits = properties_of(("WAIT", "true"))  # which those put on what they take apart
    packed = zlib.compress(b"".join(inner(b"packed-%d" % n, waits) for n in range(3)))
    batched, unpacked = INNER_BATCH | NEED_UNWRAP, PACKED | ZLIB << 8
    with RocketmqClient(rocketmq.address()) as client:
        named = {"INNER_NUM": "3", "UNIQ_KEY": "u"}
        sent = m.send(Partition(topic, 0), packed, named, 1_700_000_000_000, batched | unpacked)
        client.ask(sent)
        queue, deadline = Partition(topic, 0, "broker-a"), time.monotonic() + PATIENCE_S
        while client.ask(m.max_offset(queue)).fields["offset"] != "53":
            assert time.monotonic() < deadline
    log = log_of(settings, topic)
    found = read([slice_of(log)], settings)
    assert found.counts == Counts(landed=53)
    assert offsets_of(found.rows) == list(range(53))
    assert found.values[-3:] == [b"packed-0", b"packed-1", b"packed-2"]
    seen = run_clients("consume", rocketmq.servers[0], topic, f"g-{topic}"[-40:], "53")
    theirs = {int(offset): (body.encode(), named) for _, offset, body, named in seen}
    assert {row["offset"]: (row["value"], named_of(row, 0, 53)) for row in found.rows} == theirs

    for first, until in ((0, 1), (7, 8), (12, 41), (40, 52)):
        inside = read([slice_of(log, first, until)], settings)
        assert inside.rows == found.rows[first:until]
        assert inside.counts == Counts(landed=until - first)
    stored_ms = [round(row["timestamp"].timestamp() * 1000) for row in found.rows]
    leaders = {queue: log.leader}
    times = (stored_ms[0], stored_ms[-1], stored_ms[-1] + 1, stored_ms[-1] + 60_000)
    for time_ms in times:
        (question,) = offsets_requests(leaders, AtTime(time_ms), Isolation.READ_COMMITTED)
        with RocketmqClient(rocketmq.address()) as client:
            response = client.ask(question.message)
        at = read_offsets([response])[queue].offset
        assert at == sum(ms < time_ms for ms in stored_ms)
    with RocketmqClient(rocketmq.address()) as client:
        told = client.ask(m.search_offset(queue, times[-1])).fields["offset"]
        assert told == "50", "the broker itself names the last batch"
    # Of tags inside batches brokers know nothing, and give upstream's readers none.
    by_tags = read([slice_of(log)], settings, tags=("odd",))
    odd = [row for row in found.rows if {"key": "TAGS", "value": b"odd"} in row["headers"]]
    assert by_tags.rows == odd
    assert by_tags.counts == Counts(landed=len(odd), filtered=53 - len(odd))
    assert len(odd) > 10


def named_of(row: dict[str, Any], begins: int, ends: int) -> str:
    """A row's headers as upstream's consumer prints properties, with those that it adds."""
    pairs = {h["key"]: h["value"].decode() for h in row["headers"] or ()}
    pairs |= {"MIN_OFFSET": str(begins), "MAX_OFFSET": str(ends)}
    return "{" + ", ".join(f"{key}={pairs[key]}" for key in sorted(pairs)) + "}"


@pytest.mark.slow
def test_a_topic_with_a_long_name_is_read_in_a_format_of_its_own(topic: str) -> None:
    """Behind 127 letters a name's length takes two bytes. Brokers make such topics for what is
    given back, and let nobody else name one; so this one's group is put where they keep them."""
    group = (topic + "x" * 200)[:140]
    name = f"%RETRY%{group}"
    with RocketmqCluster() as cluster:
        cluster.stop()
        kept = cluster.store() / "config" / "subscriptionGroup.json"
        groups = json.loads(kept.read_text())
        like = groups["subscriptionGroupTable"][m.READER_GROUP]
        groups["subscriptionGroupTable"][group] = like | {"groupName": group}
        kept.write_text(json.dumps(groups))
        cluster.restart()
        cluster.create_topic(name, 1)
        produce(cluster.address(), name, [b"a", b"b"], properties={"KEYS": "k"})
        with RocketmqClient(cluster.address()) as client:
            body = bytes(client.ask(m.Pull(Partition(name, 0), 0)).body)
        assert body[4:8].hex() == "daa320ab"
        rows = [(row["topic"], row["key"], row["value"]) for row in read_topic(cluster, name).rows]
        assert rows == [(name, b"k", b"a"), (name, b"k", b"b")]


def test_topics_of_brokers_for_themselves_match_no_pattern(
    rocketmq: RocketmqCluster, topic: str
) -> None:
    rocketmq.create_topic(f"%RETRY%{topic}"[:60], 1)
    for pattern in ("%RETRY%.*", "SCHEDULE.*"):
        with pytest.raises(JobFileError, match="no topic matches"):
            look(settings_of(rocketmq), topic_pattern=pattern)


def test_queues_are_as_large_as_their_messages_not_as_those_of_other_topics(
    rocketmq: RocketmqCluster, topic: str
) -> None:
    sizes = {f"{topic}-{size}": size for size in (100, 20_000)}
    for name, size in sizes.items():
        rocketmq.create_topic(name, 1)
        produce(rocketmq.address(), name, [bytes(size)] * 100)
    rocketmq.create_topic(topic, 1)
    survey = look(settings_of(rocketmq), topics=(topic, *sizes))
    found = {p.topic: log.size_bytes for p, log in survey.logs.items()}
    assert found[topic] is None
    for name in sizes:
        (receipt,) = read_topic(rocketmq, name).receipts
        assert found[name] == pytest.approx(receipt.bytes_read, rel=0.01)


@pytest.mark.slow
def test_a_delayed_message_is_in_its_topic_only_when_it_is_due(
    rocketmq: RocketmqCluster, topic: str
) -> None:
    """Until then it is in one of the broker's own, where its tag is no tag."""
    rocketmq.create_topic(topic, 1)
    produce(rocketmq.address(), topic, [b"late"], properties={"DELAY": "1", "TAGS": "A"})
    settings = settings_of(rocketmq)
    assert log_of(settings, topic).end_offset == 0
    deadline = time.monotonic() + PATIENCE_S
    while log_of(settings, topic).end_offset < 1 and time.monotonic() < deadline:
        time.sleep(0.1)
    assert read([slice_of(log_of(settings, topic))], settings, tags=("A",)).values == [b"late"]
