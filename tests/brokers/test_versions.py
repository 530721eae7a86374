"""The same reading from brokers of several ages, with all codecs that each of them knows."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from rangeland.errors import RangeLost
from rangeland.model import Counts, Partition
from rangeland.testing.consuming import consume
from rangeland.testing.kafka import KafkaCluster, KafkaZooKeeperCluster
from rangeland.testing.producing import (
    Record,
    create_topic,
    delete_records,
    numbered,
    open_transaction,
    produce,
    produce_transaction,
)
from tests.brokers.reading import (
    UNCOMMITTED,
    log_of,
    look,
    read,
    read_topic,
    settings_of,
    slice_of,
    wait_for_end,
)

pytestmark = pytest.mark.brokers

Cluster = KafkaCluster | KafkaZooKeeperCluster
VERSIONS = ("0.11.0.3", "3.9.1", "4.1.0")


@pytest.fixture(scope="module", params=VERSIONS)
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    if request.param == "4.1.0":
        yield request.getfixturevalue("kafka")
        return
    kind = KafkaZooKeeperCluster if request.param.startswith("0.") else KafkaCluster
    with kind(request.param) as started:
        yield started


def test_all_codecs_are_read_as_the_judge_reads_them(cluster: Cluster, topic: str) -> None:
    codecs = ["none", "gzip", "snappy", "lz4"]
    if cluster.version != "0.11.0.3":
        codecs.append("zstd")  # known since 2.1
    create_topic(cluster.bootstrap, topic, partitions=3)
    shapes = [
        Record(b"value" * 20, b"key", (("a", b"1"), ("a", None))),
        Record(None, b"gone"),
        Record(b"", None),
    ]
    for codec in codecs:
        records = [*(shapes * 10), *numbered(30)]
        placed = [Record(r.value, r.key, r.headers, None, i % 3) for i, r in enumerate(records)]
        produce(cluster.bootstrap, topic, placed, codec=codec, batch_records=8)
    found = read_topic(topic, settings_of(cluster.bootstrap))
    assert found.rows == consume(cluster.bootstrap, topic)
    assert found.counts == Counts(landed=60 * len(codecs))


def test_transactions_are_told_apart(cluster: Cluster, topic: str) -> None:
    create_topic(cluster.bootstrap, topic)
    produce_transaction(cluster.bootstrap, topic, numbered(5), codec="lz4")
    produce_transaction(cluster.bootstrap, topic, numbered(3), commit=False)
    settings = settings_of(cluster.bootstrap)
    wait_for_end(settings, topic, 10)
    with open_transaction(cluster.bootstrap, topic, numbered(4), commit=False):
        log = log_of(settings, topic)
        assert log.end_offset == 10
        everything = settings_of(cluster.bootstrap, isolation=UNCOMMITTED)
        assert log_of(everything, topic).end_offset == 14
        found = read([slice_of(log)], settings)
    assert found.counts == Counts(landed=5, aborted=3, control=2)
    assert found.rows == consume(cluster.bootstrap, topic)


def test_expired_offsets_are_lost_by_name(cluster: Cluster, topic: str) -> None:
    create_topic(cluster.bootstrap, topic)
    produce(cluster.bootstrap, topic, numbered(10))
    settings = settings_of(cluster.bootstrap)
    log = log_of(settings, topic)
    delete_records(cluster.bootstrap, topic, {0: 4})
    with pytest.raises(RangeLost, match=rf"{topic}/0 \[0, 4\) expired.*nearest valid offset is 4"):
        read([slice_of(log)], settings)


def test_times_and_group_offsets_are_found(cluster: Cluster, topic: str) -> None:
    create_topic(cluster.bootstrap, topic)
    start = int(time.time() * 1000) - 60_000
    records = [Record(b"%d" % i, timestamp_ms=start + 1000 * i) for i in range(3)]
    produce(cluster.bootstrap, topic, records)
    found = look(
        settings_of(cluster.bootstrap),
        topics=(topic,),
        times_ms=(start + 1, start + 10_000),
        groups=("nobody",),
    )
    partition = Partition(topic, 0)
    assert found.offsets_for_times == {
        (partition, start + 1): 1,
        (partition, start + 10_000): None,
    }
    assert found.group_offsets == {(partition, "nobody"): None}
