"""Transactions: what was rolled back is not landed, and every offset has its class."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import pytest

from rangeland.cluster_settings import ClusterSettings
from rangeland.model import AtOffset, Bounds, Counts, Earliest, LogState
from rangeland.testing.client_library import producer
from rangeland.testing.consumer import Consumed, consume
from rangeland.testing.kafka import KafkaCluster
from rangeland.testing.producer import (
    CODECS,
    create_topic,
    numbered_records,
    open_transaction,
    produce,
    produce_transaction,
)
from tests.brokers.reading import UNCOMMITTED, log_of, read, read_topic, settings_of, wait_for_end
from tests.brokers.surveys import look, slice_of

pytestmark = pytest.mark.brokers


@pytest.fixture(scope="module")
def committed(kafka: KafkaCluster) -> ClusterSettings:
    return settings_of(kafka.bootstrap)


@pytest.fixture(scope="module")
def uncommitted(kafka: KafkaCluster) -> ClusterSettings:
    return settings_of(kafka.bootstrap, isolation=UNCOMMITTED)


@dataclass(frozen=True)
class Interleaved:
    """Three producers and a plain one, their batches mixed. ``classes`` says of each offset
    what it is: l(anded), a(borted) or c(ontrol)."""

    topic: str
    classes: str
    log: LogState
    judged: list[Consumed]
    judged_uncommitted: list[Consumed]


def transactional(kafka: KafkaCluster, topic: str, name: str) -> Any:
    writer = producer(kafka.bootstrap, {"transactional.id": f"{topic}-{name}", "linger.ms": 0})
    writer.init_transactions(30)
    return writer


def send(writer: Any, topic: str, count: int) -> None:
    for record in numbered_records(count):
        writer.produce(topic, record.value, record.key, 0)
    writer.flush(30)


@pytest.fixture(scope="module")
def interleaved(
    kafka: KafkaCluster, committed: ClusterSettings, uncommitted: ClusterSettings
) -> Interleaved:
    topic = f"interleaved-{id(committed):x}"
    create_topic(kafka.bootstrap, topic)
    a, b = (transactional(kafka, topic, name) for name in "ab")
    ends = iter((10, 13, 17, 18))

    def marked() -> None:
        wait_for_end(uncommitted, topic, next(ends))

    a.begin_transaction()
    send(a, topic, 3)  # 0-2 aborted
    b.begin_transaction()
    send(b, topic, 2)  # 3-4 committed
    produce(kafka.bootstrap, topic, numbered_records(2))  # 5-6 plain
    send(a, topic, 2)  # 7-8 aborted
    b.commit_transaction(30)  # 9
    marked()
    b.begin_transaction()
    send(b, topic, 2)  # 10-11 aborted
    a.abort_transaction(30)  # 12
    marked()
    a.begin_transaction()
    send(a, topic, 3)  # 13-15 committed, by the one that rolled back before
    b.abort_transaction(30)  # 16
    marked()
    a.commit_transaction(30)  # 17
    marked()
    produce(kafka.bootstrap, topic, numbered_records(1))  # 18 plain
    return Interleaved(
        topic,
        "aaallllaacaaclllccl",
        wait_for_end(committed, topic, 19),
        consume(kafka.bootstrap, topic),
        consume(kafka.bootstrap, topic, isolation=UNCOMMITTED.value),
    )


def counts_of(classes: str) -> Counts:
    return Counts(landed=classes.count("l"), aborted=classes.count("a"), control=classes.count("c"))


def test_interleaved_transactions_are_distinguished(
    interleaved: Interleaved, committed: ClusterSettings
) -> None:
    assert interleaved.log.end_offset == len(interleaved.classes)
    found = read_topic(interleaved.topic, committed)
    assert found.rows == interleaved.judged
    assert found.counts == counts_of(interleaved.classes)


def test_every_range_counts_every_offset_once(
    interleaved: Interleaved, committed: ClusterSettings
) -> None:
    """Also ranges that begin inside a transaction, and those that end with a marker."""
    for start, end in itertools.combinations(range(len(interleaved.classes) + 1), 2):
        found = read([slice_of(interleaved.log, start, end)], committed)
        assert found.counts == counts_of(interleaved.classes[start:end]), (start, end)
        expected = [row for row in interleaved.judged if start <= row.offset < end]
        assert found.rows == expected, (start, end)


def test_read_uncommitted_lands_all_records_and_no_marker(
    interleaved: Interleaved, uncommitted: ClusterSettings
) -> None:
    found = read_topic(interleaved.topic, uncommitted)
    assert found.rows == interleaved.judged_uncommitted
    assert found.counts == counts_of(interleaved.classes.replace("a", "l"))


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("commit", [True, False])
def test_a_transaction_is_landed_whole_or_not_at_all(
    kafka: KafkaCluster, committed: ClusterSettings, topic: str, codec: str, commit: bool
) -> None:
    create_topic(kafka.bootstrap, topic)
    produce_transaction(kafka.bootstrap, topic, numbered_records(50), commit=commit, codec=codec)
    wait_for_end(committed, topic, 51)
    found = read_topic(topic, committed)
    assert found.rows == consume(kafka.bootstrap, topic)
    landed, aborted = (50, 0) if commit else (0, 50)
    assert found.counts == Counts(landed=landed, aborted=aborted, control=1)


def test_a_range_of_nothing_but_aborted_records_ends_without_rows(
    kafka: KafkaCluster, committed: ClusterSettings, topic: str
) -> None:
    create_topic(kafka.bootstrap, topic)
    produce_transaction(kafka.bootstrap, topic, numbered_records(20), commit=False)
    log = wait_for_end(committed, topic, 21)
    found = read([slice_of(log, 3, 17)], committed)
    assert (found.rows, found.counts) == ([], Counts(aborted=14))


def test_a_range_of_nothing_but_a_marker_ends(
    kafka: KafkaCluster, committed: ClusterSettings, topic: str
) -> None:
    create_topic(kafka.bootstrap, topic)
    produce_transaction(kafka.bootstrap, topic, numbered_records(4))
    log = wait_for_end(committed, topic, 5)
    assert read([slice_of(log, 4, 5)], committed).counts == Counts(control=1)


def test_latest_is_the_last_stable_offset_or_the_high_watermark(
    kafka: KafkaCluster, committed: ClusterSettings, uncommitted: ClusterSettings, topic: str
) -> None:
    create_topic(kafka.bootstrap, topic)
    produce(kafka.bootstrap, topic, numbered_records(3))
    with open_transaction(kafka.bootstrap, topic, numbered_records(5), commit=True):
        produce(kafka.bootstrap, topic, numbered_records(2))
        stable = log_of(committed, topic)
        assert stable.end_offset == 3
        for offset, uncommitted_until in ((3, {}), (4, {stable.partition: 10})):
            bounds = (Bounds(Earliest()), Bounds(AtOffset(offset)))
            seen = look(committed, topics=(topic,), bounds=bounds)
            assert seen.lookups.uncommitted_ends == uncommitted_until
        assert log_of(uncommitted, topic).end_offset == 10
        assert read([slice_of(stable)], committed).counts == Counts(landed=3)
        assert read_topic(topic, uncommitted).counts == Counts(landed=10)
    wait_for_end(committed, topic, 11)
    found = read_topic(topic, committed)
    assert found.counts == Counts(landed=10, control=1)
    assert found.rows == consume(kafka.bootstrap, topic)
