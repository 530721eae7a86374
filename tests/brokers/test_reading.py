"""What is read is what was produced, compared with confluent-kafka's own consumer."""

from __future__ import annotations

import random
import time
import uuid
from dataclasses import dataclass

import pytest

from rangeland.cluster_settings import ClusterSettings
from rangeland.dialects.kafka.messages import FetchRequest
from rangeland.fetch.fetch_size import FetchLimits
from rangeland.model import Counts, LogState
from rangeland.testing.consumer import Consumed, consume
from rangeland.testing.kafka import KafkaCluster
from rangeland.testing.producer import (
    CODECS,
    WHOLE_BATCHES_MS,
    Record,
    create_topic,
    numbered_records,
    produce,
)
from tests.brokers.reading import (
    Read,
    look,
    read,
    read_topic,
    settings_of,
    slices_of,
    spied_requests,
)
from tests.brokers.surveys import slice_of

pytestmark = pytest.mark.brokers

# An hour ago: what is older than a week would be removed by the broker's retention.
TIME_MS = int(time.time() - 3600) * 1000


def odd_records(count: int = 200) -> list[Record]:
    """Nulls, empties, tombstones, repeated and null headers, big and small, mixed."""
    draw = random.Random(count)
    shapes: list[tuple[bytes | None, bytes | None]] = [
        (b"", b""),
        (None, None),
        (None, b"tombstone"),
        (b"no key", None),
        (b"\x00\xff" * 40, b"\x80"),
        (draw.randbytes(3000), b"noise"),
    ]
    headers: list[tuple[tuple[str, bytes | None], ...]] = [
        (),
        (("a", b"1"), ("b", None), ("a", b"2"), ("a", b"1")),
        (("", b""), ("ключ", b"\xff\x00")),
        (("z", None), ("a", None)),
    ]
    return [
        Record(*shapes[i % len(shapes)], headers[i % len(headers)], TIME_MS + i)
        for i in range(count)
    ]


@pytest.fixture(scope="module")
def settings(kafka: KafkaCluster) -> ClusterSettings:
    return settings_of(kafka.bootstrap)


@pytest.mark.parametrize("codec", CODECS)
def test_every_codec_is_read_as_the_judge_reads_it(
    kafka: KafkaCluster, settings: ClusterSettings, topic: str, codec: str
) -> None:
    create_topic(kafka.bootstrap, topic, partitions=2)
    for partition in (0, 1):
        produce(
            kafka.bootstrap,
            topic,
            odd_records(),
            codec=codec,
            partition=partition,
            linger_ms=WHOLE_BATCHES_MS,
        )
    found = read_topic(topic, settings)
    assert found.rows == consume(kafka.bootstrap, topic)
    assert len(found.rows) == 400
    assert found.counts == Counts(landed=400)


def test_header_order_duplicates_and_nulls_are_those_that_were_written(
    kafka: KafkaCluster, settings: ClusterSettings, topic: str
) -> None:
    create_topic(kafka.bootstrap, topic)
    produce(kafka.bootstrap, topic, odd_records(4))
    headers = [row.headers for row in read_topic(topic, settings).rows]
    assert headers == [
        None,
        (("a", b"1"), ("b", None), ("a", b"2"), ("a", b"1")),
        (("", b""), ("ключ", b"\xff\x00")),
        (("z", None), ("a", None)),
    ]


@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_the_brokers_own_time_is_every_records_time(
    kafka: KafkaCluster, settings: ClusterSettings, topic: str, codec: str
) -> None:
    create_topic(kafka.bootstrap, topic, config={"message.timestamp.type": "LogAppendTime"})
    produce(kafka.bootstrap, topic, odd_records(20), codec=codec)
    found = read_topic(topic, settings)
    assert found.rows == consume(kafka.bootstrap, topic)
    assert min(row.timestamp_ms for row in found.rows) > TIME_MS + 1_000_000
    assert set(found.table.column("timestampType").to_pylist()) == {1}


def test_a_producers_time_says_that_it_is_one(
    kafka: KafkaCluster, settings: ClusterSettings, topic: str
) -> None:
    create_topic(kafka.bootstrap, topic)
    produce(kafka.bootstrap, topic, odd_records(5))
    found = read_topic(topic, settings)
    assert [row.timestamp_ms for row in found.rows] == [TIME_MS + i for i in range(5)]
    assert set(found.table.column("timestampType").to_pylist()) == {0}


# --- one topic with all codecs and small batches, cut in many ways ---------------------------


@dataclass(frozen=True)
class Mixed:
    log: LogState
    judged: list[Consumed]


@pytest.fixture(scope="module")
def mixed(kafka: KafkaCluster, settings: ClusterSettings) -> Mixed:
    """250 records in batches of 7 at most, 50 per codec."""
    name = f"reading-mixed-codecs-{uuid.uuid4().hex[:8]}"
    create_topic(kafka.bootstrap, name)
    for codec in CODECS:
        produce(
            kafka.bootstrap,
            name,
            odd_records(50),
            codec=codec,
            batch_records=7,
            linger_ms=WHOLE_BATCHES_MS,
        )
    (log,) = look(settings, topics=(name,)).logs.values()
    return Mixed(log, consume(kafka.bootstrap, name))


def test_any_range_is_exactly_its_offsets(mixed: Mixed, settings: ClusterSettings) -> None:
    """Ranges that begin and end at, before and inside batches, of one offset and of many."""
    borders = sorted({0, 1, 6, 7, 8, 13, 48, 49, 50, 51, 99, 100, 101, 150, 201, 248, 249, 250})
    assert mixed.log.end_offset == 250
    for start in borders:
        for end in (b for b in borders if b > start):
            found = read([slice_of(mixed.log, start, end)], settings)
            assert found.rows == mixed.judged[start:end], (start, end)
            assert found.counts == Counts(landed=end - start)


def test_a_range_without_offsets_asks_nothing(
    mixed: Mixed, settings: ClusterSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    with spied_requests(monkeypatch) as sent:
        found = read([slice_of(mixed.log, 17, 17)], settings)
    assert (found.rows, found.counts, sent) == ([], Counts(), [])


def test_sixteen_slices_of_a_partition_are_the_whole(
    mixed: Mixed, settings: ClusterSettings
) -> None:
    borders = [250 * i // 16 for i in range(17)]
    slices = [slice_of(mixed.log, borders[i], borders[i + 1], i) for i in range(16)]
    together = read(slices, settings)
    assert together.rows == mixed.judged
    assert [r.counts.landed for r in together.receipts] == [p.width for p in slices]
    alone = [row for slice_ in slices for row in read([slice_], settings).rows]
    assert alone == mixed.judged


def test_fetches_smaller_than_a_batch_still_end(mixed: Mixed, settings: ClusterSettings) -> None:
    tiny = FetchLimits(fetch_bytes=16, smallest_fetch_bytes=16, request_bytes=16, backoff_ms=1)
    assert read([slice_of(mixed.log)], settings, tiny).rows == mixed.judged


# --- sizes and requests ----------------------------------------------------------------------


def read_big(kafka: KafkaCluster, settings: ClusterSettings, topic: str, codec: str) -> Read:
    """Three partitions of a 2 MiB record between small ones, in fetches of 1 KiB."""
    create_topic(kafka.bootstrap, topic, partitions=3, config={"max.message.bytes": 4 << 20})
    big = Record(random.Random(7).randbytes(2 << 20), b"big")
    for partition in range(3):
        records = [*numbered_records(3), big, *numbered_records(3, start=3)]
        produce(kafka.bootstrap, topic, records, codec=codec, partition=partition, batch_records=1)
    tiny = FetchLimits(fetch_bytes=1 << 10, smallest_fetch_bytes=1 << 10, backoff_ms=1)
    slices = [
        slice_of(log, index=i)
        for i, log in enumerate(look(settings, topics=(topic,)).logs.values())
    ]
    return read(slices, settings, tiny)


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_a_record_larger_than_a_fetch_is_read_and_never_taken_for_compacted(
    kafka: KafkaCluster, settings: ClusterSettings, topic: str, codec: str
) -> None:
    found = read_big(kafka, settings, topic, codec)
    assert found.counts == Counts(landed=21)
    assert found.rows == consume(kafka.bootstrap, topic)
    assert sorted({len(row.value or b"") for row in found.rows}) == [14, 2 << 20]


def test_small_slices_of_one_leader_share_one_request(
    kafka: KafkaCluster, settings: ClusterSettings, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_topic(kafka.bootstrap, topic, partitions=40)
    records = [Record(b"%d" % i, partition=i % 40) for i in range(400)]
    produce(kafka.bootstrap, topic, records, linger_ms=WHOLE_BATCHES_MS)
    slices = slices_of(look(settings, topics=(topic,)))
    with spied_requests(monkeypatch) as sent:
        found = read(slices, settings)
    assert found.rows == consume(kafka.bootstrap, topic)
    assert len(slices) == 40
    assert [type(request) for request in sent] == [FetchRequest]
