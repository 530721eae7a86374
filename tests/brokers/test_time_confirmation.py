"""A broker that says that a log has no record at or after a time, because it looks for it in a
segment all of whose records are deleted."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from rangeland.cluster_settings import ClusterSettings
from rangeland.connection.pool import ConnectionPool
from rangeland.errors import Unreachable
from rangeland.model import AtTime, Isolation, Partition
from rangeland.testing.kafka import KafkaCluster
from rangeland.testing.producer import (
    Record,
    create_topic,
    delete_records,
    produce,
    produce_transaction,
)
from tests.brokers.reading import log_of, look, settings_of

pytestmark = pytest.mark.brokers
SEGMENT_BYTES = 1 << 20
LAZY = {"log.retention.check.interval.ms": 3_600_000, "log.initial.task.delay.ms": 3_600_000}
LARGE = b"v" * (SEGMENT_BYTES * 6 // 10)
"""Two of them are in two segments."""


@pytest.fixture(scope="module")
def lazy() -> Iterator[KafkaCluster]:
    """It removes no segment for an hour."""
    with KafkaCluster(properties=LAZY) as cluster:
        yield cluster


@pytest.fixture
def settings(lazy: KafkaCluster) -> ClusterSettings:
    return settings_of(lazy.bootstrap, survey_ms=3_000)


def make(cluster: KafkaCluster, topic: str, times_ms: list[int]) -> Partition:
    """A segment for each time; the first one's record is deleted."""
    config = {"segment.bytes": SEGMENT_BYTES}
    create_topic(cluster.bootstrap, topic, config=config)
    for time_ms in times_ms:
        produce(cluster.bootstrap, topic, [Record(LARGE, timestamp_ms=time_ms)])
    delete_records(cluster.bootstrap, topic, {0: 1})
    return Partition(topic, 0)


def offset_by_broker(settings: ClusterSettings, topic: str, time_ms: int) -> int | None:
    leaders = {Partition(topic, 0): log_of(settings, topic).leader}
    (leader,) = leaders.values()
    assert leader.address is not None
    with ConnectionPool(settings) as brokers:
        asked = brokers.dialect.offsets_requests(leaders, AtTime(time_ms), Isolation.READ_COMMITTED)
        responses = brokers.call_all(leader.address, asked)
        return brokers.dialect.read_offsets(responses)[Partition(topic, 0)].offset


def test_a_time_before_the_first_record_that_is_left_is_that_record(
    lazy: KafkaCluster, settings: ClusterSettings, topic: str
) -> None:
    now_ms = int(time.time() * 1000)
    partition = make(lazy, topic, [now_ms - 9_000, now_ms - 6_000, now_ms - 3_000])
    asked = (now_ms - 10_000, now_ms - 9_000, now_ms - 5_000, now_ms)
    assert offset_by_broker(settings, topic, asked[0]) is None  # and it has two such records
    found = look(settings, topics=(topic,), times_ms=asked).lookups.for_times
    assert [found[partition, time_ms] for time_ms in asked] == [1, 1, 2, None]


def test_a_time_that_hides_behind_a_deleted_record_is_asked_for_again_later(
    lazy: KafkaCluster, settings: ClusterSettings, topic: str
) -> None:
    now_ms = int(time.time() * 1000)
    make(lazy, topic, [now_ms - 3_000, now_ms - 9_000, now_ms - 2_000])
    assert offset_by_broker(settings, topic, now_ms - 5_000) is None
    with pytest.raises(Unreachable, match="are not available") as caught:
        look(settings, topics=(topic,), times_ms=(now_ms - 5_000,))
    assert (
        "no record at or after that time, although its latest record is at offset 2"
        in caught.value.why
    )


def test_the_newest_time_of_a_deleted_record_does_not_hide_the_others(
    lazy: KafkaCluster, settings: ClusterSettings, topic: str
) -> None:
    now_ms = int(time.time() * 1000)
    partition = make(lazy, topic, [now_ms - 1_000, now_ms - 9_000, now_ms - 5_000])
    assert offset_by_broker(settings, topic, now_ms - 7_000) is None
    with pytest.raises(Unreachable, match="are not available") as caught:
        look(settings, topics=(topic,), times_ms=(now_ms - 7_000,))
    assert "its latest record is at offset 0" in caught.value.why
    later = look(settings, topics=(topic,), times_ms=(now_ms,)).lookups.for_times
    assert later[partition, now_ms] is None


def test_a_log_that_has_only_a_marker_left_is_not_waited_for(
    lazy: KafkaCluster, settings: ClusterSettings, topic: str
) -> None:
    create_topic(lazy.bootstrap, topic)
    produce_transaction(lazy.bootstrap, topic, [Record(b"v", b"k")], commit=True)
    delete_records(lazy.bootstrap, topic, {0: 1})
    now_ms = int(time.time() * 1000)
    before, after = now_ms - 60_000, now_ms + 60_000
    found = look(settings, topics=(topic,), times_ms=(before, after)).lookups.for_times
    partition = Partition(topic, 0)
    assert (found[partition, before], found[partition, after]) == (1, None)
