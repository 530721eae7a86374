"""The same reading from seven broker versions, with all codecs that each of them knows.

The writers are librdkafka and the broker's own console producer, so what was written is known;
librdkafka also reads it back for comparison.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import pytest

from rangeland.cluster_settings import ClusterSettings
from rangeland.errors import JobFileError, RangeLost, Unreachable
from rangeland.fetch.fetch_size import FetchLimits
from rangeland.model import AtTime, Bounds, Counts, Earliest, Latest, Partition
from rangeland.planning.bound_resolution import RangeRequest, resolve
from rangeland.planning.job_position import JobPosition
from rangeland.planning.policy import Policy
from rangeland.testing.consumer import Consumed, consume
from rangeland.testing.kafka import KafkaCluster, KafkaZooKeeperCluster
from rangeland.testing.probe import leaders_seen_by
from rangeland.testing.processes import PATIENCE_S
from rangeland.testing.producer import (
    CODECS,
    WHOLE_BATCHES_MS,
    Record,
    create_topic,
    delete_records,
    numbered_records,
    open_transaction,
    produce,
    produce_transaction,
)
from rangeland.testing.zookeeper import Visitor
from rangeland.zookeeper.broker_registry import read_cleanup_policies
from rangeland.zookeeper.zookeeper_access import ZooKeeperAccess
from tests.brokers.reading import (
    UNCOMMITTED,
    log_of,
    look,
    read,
    read_topic,
    settings_of,
    wait_for_end,
)
from tests.brokers.surveys import slice_of
from tests.servers.console_producer import write_lines

pytestmark = pytest.mark.brokers

Cluster = KafkaCluster | KafkaZooKeeperCluster
VERSIONS = ("0.8.2.2", "0.9.0.1", "0.10.2.2", "0.11.0.3", "3.9.1", "4.1.0", "4.4.0")
WITH_TIMES = VERSIONS[2:]
WITH_HEADERS = WITH_TRANSACTIONS = VERSIONS[3:]
WITH_ZSTD = VERSIONS[4:]  # since 2.1
WITH_TWO_FORMATS = VERSIONS[3:4]
# What is read there is of 0.8's kind on 0.9 as well: these take seconds for each.
SEGMENTS_ONLY = COMPACTING = (VERSIONS[0], *VERSIONS[2:4])
BETWEEN = ("0.9.0.1", "0.10.2.2", "3.9.1")
"""What the ordinary run leaves to the slow one: the others are the ends of each kind."""
SETTINGS: Mapping[str, object] = {
    # As on many old clusters: a topic that is asked for by its name comes into being.
    "auto.create.topics.enable": "true",
    "log.cleaner.enable": "true",
}
FIRST_MS = int(time.time() * 1000) - 60_000
OWN_CODECS = {
    "0.8.2.2": ("lz4", "snappy"),  # the lz4 that nobody else writes, and Java's framed snappy
    "0.9.0.1": ("lz4",),
    "0.10.2.2": ("lz4",),
    "0.11.0.3": ("snappy",),
    "3.9.1": ("zstd",),
    "4.1.0": ("snappy",),
    "4.4.0": ("gzip",),
}
"""What the console producers write with."""
COMPACTED = {
    "cleanup.policy": "compact",
    "segment.ms": 100,
    "min.cleanable.dirty.ratio": 0,
    "delete.retention.ms": 0,
}


def of(versions: Sequence[str]) -> list[Any]:
    return [
        pytest.param(version, marks=pytest.mark.slow) if version in BETWEEN else version
        for version in versions
    ]


def started(version: str, **changed: Any) -> Cluster:
    kind = KafkaZooKeeperCluster if version.startswith("0.") else KafkaCluster
    return kind(version, **changed)


@pytest.fixture(scope="module", params=of(VERSIONS))
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    if request.param == "4.1.0":
        yield request.getfixturevalue("kafka")
        return
    with started(request.param, properties=SETTINGS) as running:
        yield running


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """Long: librdkafka reserves too little memory for what the oldest brokers say of a topic
    with a short name."""
    return f"{'t' * 150}-{uuid.uuid4().hex[:8]}"


def make(cluster: Cluster, topic: str, partitions: int = 1, **changed: Any) -> None:
    if isinstance(cluster, KafkaZooKeeperCluster):
        cluster.create_topic(topic, partitions, **changed)
    else:
        create_topic(cluster.bootstrap, topic, partitions, **changed)


def codecs_of(version: str) -> list[str]:
    return [codec for codec in CODECS if codec != "zstd" or version in WITH_ZSTD]


def records_of(version: str, codec: str, partitions: int) -> list[Record]:
    """Nulls, empties, headers and times as far as they can be stored there."""
    heads = (("a", b"1"), ("a", None), ("b", b"")) if version in WITH_HEADERS else ()
    shapes = [Record(b"value" * 20, b"key", heads), Record(None, b"gone"), Record(b"", None)]
    first = FIRST_MS if version in WITH_TIMES else None
    return [
        Record(r.value, r.key, r.headers, first and first + i, i % partitions)
        for i, r in enumerate([*(shapes * 10), *numbered_records(300)])
    ]


def expected(version: str, topic: str, written: list[Record]) -> list[Consumed]:
    rows: list[Consumed] = []
    ends: dict[int, int] = {}
    for record in written:
        place = record.partition or 0
        offset = ends.setdefault(place, 0)
        ends[place] += 1
        stamp = -1 if record.timestamp_ms is None else record.timestamp_ms
        heads = record.headers or None
        rows.append(Consumed(topic, place, offset, record.key, record.value, stamp, heads))
    return sorted(rows, key=lambda row: (row.partition, row.offset))


# --- what all of them can ---------------------------------------------------------------


def test_all_codecs_are_read_as_they_were_written(cluster: Cluster, topic: str) -> None:
    version = cluster.version
    make(cluster, topic, partitions=3)
    written: list[Record] = []
    once = not version.startswith(("0.8.", "0.9.", "0.10."))  # a retry may write twice before
    for codec in codecs_of(version):
        records = records_of(version, codec, 3)
        how: dict[str, Any] = {"codec": codec, "batch_records": 40, "idempotent": once}
        produce(cluster.bootstrap, topic, records, version=version, **how)
        written += records
    found = read_topic(topic, settings_of(cluster.bootstrap))
    assert found.rows == expected(version, topic, written)
    assert found.counts == Counts(landed=len(written))
    assert found.rows == consume(cluster.bootstrap, topic, version=version)
    kinds = set(found.table.column("timestampType").to_pylist())
    assert kinds == ({0} if version in WITH_TIMES else {-1})


def test_what_the_brokers_own_producer_wrote_is_read(cluster: Cluster, topic: str) -> None:
    make(cluster, topic)
    written: list[tuple[str, str]] = []
    for codec in OWN_CODECS[cluster.version]:
        lines = [(f"{codec}-{i}", f"line {i} " * 20) for i in range(300)]
        write_lines(cluster.version, cluster.bootstrap, topic, lines, codec)
        written += lines
    found = read_topic(topic, settings_of(cluster.bootstrap))
    assert [(r.key, r.value) for r in found.rows] == [(k.encode(), v.encode()) for k, v in written]
    assert found.counts == Counts(landed=len(written))
    assert found.rows == consume(cluster.bootstrap, topic, version=cluster.version)


def test_any_part_of_a_packed_log_is_read(cluster: Cluster, topic: str) -> None:
    """Inside what was packed together the broker gives all of it, for any offset."""
    make(cluster, topic)
    version, records = cluster.version, numbered_records(100)
    for codec in ("gzip", "none"):
        produce(
            cluster.bootstrap,
            topic,
            records,
            codec=codec,
            version=version,
            linger_ms=WHOLE_BATCHES_MS,
        )
    settings = settings_of(cluster.bootstrap)
    log = log_of(settings, topic)
    assert (log.start_offset, log.end_offset) == (0, 200)
    cuts = [0, 1, 47, 99, 100, 101, 163, 200]
    slices = [slice_of(log, start, end, index) for index, (start, end) in enumerate(pairwise(cuts))]
    found = read(slices, settings)
    assert [row.offset for row in found.rows] == list(range(200))
    assert [row.value for row in found.rows] == [r.value for r in records] * 2
    assert [r.counts for r in found.receipts] == [
        Counts(landed=end - start) for start, end in pairwise(cuts)
    ]


def test_asking_for_a_topic_does_not_make_it(cluster: Cluster, topic: str) -> None:
    settings = settings_of(cluster.bootstrap)
    make(cluster, topic)
    for _ in range(2):
        with pytest.raises(JobFileError, match=r"there is no topic missing.*nothing is created"):
            look(settings, topics=(f"missing-{topic}",))
    assert leaders_seen_by(cluster.bootstrap[0], f"missing-{topic}") == {}
    assert list(look(settings, topic_pattern="t*-.*").logs)


# --- times ------------------------------------------------------------------------------


@pytest.mark.parametrize("cluster", of(WITH_TIMES), indirect=True)
def test_times_and_group_offsets_are_found(cluster: Cluster, topic: str) -> None:
    make(cluster, topic)
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
    assert found.lookups.for_times == {
        (partition, start + 1): 1,
        (partition, start + 10_000): None,
    }
    assert found.lookups.inexact_times == frozenset()
    assert found.lookups.of_groups == {(partition, "nobody"): None}


@pytest.mark.parametrize("cluster", of(SEGMENTS_ONLY), indirect=True)
def test_times_are_about_right_where_only_segments_have_them(cluster: Cluster, topic: str) -> None:
    """The broker knows no better, or the log's format has no times."""
    old = {"message.format.version": "0.9.0"} if cluster.version != "0.8.2.2" else {}
    make(cluster, topic, config={"segment.bytes": 20_000, **old})
    records = [Record(b"x" * 1000) for _ in range(50)]
    produce(
        cluster.bootstrap, topic, records, version=cluster.version, batch_records=1, linger_ms=0
    )
    time.sleep(1.1)  # times of files are of seconds
    between = int(time.time() * 1000)
    time.sleep(1.1)
    produce(cluster.bootstrap, topic, records, version=cluster.version, batch_records=1)
    before, after = FIRST_MS, between + 3_600_000
    asked = (before, between, after)
    survey = look(settings_of(cluster.bootstrap), topics=(topic,), times_ms=asked)
    partition = Partition(topic, 0)
    found = {t: survey.lookups.for_times[partition, t] for t in asked}
    assert found[before] == 0
    assert found[after] == 100
    assert 0 < (found[between] or 0) <= 50, "the beginning of a segment that is older"
    assert survey.lookups.inexact_times == {(partition, t) for t in asked}
    policy = Policy()
    request = RangeRequest(Bounds(AtTime(between)), Bounds(Latest()), Earliest(), policy)
    resolved = resolve(request, survey, JobPosition())
    assert [(r.from_offset, r.until_offset) for r in resolved.ranges] == [(found[between], 100)]
    assert "at or before the time" in resolved.notes[0]
    assert "only knows when segments of its log were written" in resolved.notes[0]


@pytest.mark.parametrize("cluster", of(VERSIONS[:1]), indirect=True)
def test_a_message_larger_than_a_fetch_is_read(cluster: Cluster, topic: str) -> None:
    """The oldest brokers cut off what does not fit, where later ones give one whole batch."""
    make(cluster, topic)
    records = [Record(b"%d" % i * size) for i, size in enumerate((10, 300_000, 10, 700_000, 10))]
    produce(cluster.bootstrap, topic, records, version=cluster.version)
    small = FetchLimits(no_progress_ms=10_000, fetch_bytes=64 << 10, request_bytes=64 << 10)
    found = read_topic(topic, settings_of(cluster.bootstrap), small)
    assert [row.value for row in found.rows] == [record.value for record in records]


# --- what is in old logs ----------------------------------------------------------------


@pytest.mark.parametrize("cluster", of(WITH_TWO_FORMATS), indirect=True)
def test_a_log_that_was_upgraded_in_place_is_read(cluster: Cluster, topic: str) -> None:
    """Three formats in one log, packed and plain, each written by a broker set to it."""
    assert isinstance(cluster, KafkaZooKeeperCluster)
    make(cluster, topic)
    written: list[Record] = []
    for step, form in enumerate(("0.8.2", "0.10.2", "0.11.0")):
        alter(cluster, topic, {"message.format.version": form})
        for codec in ("none", "lz4", "snappy", "gzip"):
            stamp = FIRST_MS + 1000 * step if step else None
            records = [Record(b"%d" % i, b"%b" % codec.encode(), (), stamp) for i in range(30)]
            produce(cluster.bootstrap, topic, records, codec=codec, batch_records=10)
            written += records
    found = read_topic(topic, settings_of(cluster.bootstrap))
    assert found.rows == expected(cluster.version, topic, written)
    assert found.rows == consume(cluster.bootstrap, topic)
    kinds = found.table.column("timestampType").to_pylist()
    assert kinds == [-1] * 120 + [0] * 240
    times = found.table.column("timestamp")
    assert times.null_count == 120


@pytest.mark.parametrize("cluster", of(VERSIONS[2:4]), indirect=True)
def test_what_the_broker_stamped_has_the_brokers_time(cluster: Cluster, topic: str) -> None:
    config = {"message.timestamp.type": "LogAppendTime", "message.format.version": "0.10.2"}
    make(cluster, topic, config=config)
    for codec in ("none", "gzip"):
        records = [Record(b"%d" % i, timestamp_ms=FIRST_MS) for i in range(10)]
        produce(cluster.bootstrap, topic, records, codec=codec)
    found = read_topic(topic, settings_of(cluster.bootstrap))
    assert found.rows == consume(cluster.bootstrap, topic)
    assert set(found.table.column("timestampType").to_pylist()) == {1}
    assert min(row.timestamp_ms for row in found.rows) > FIRST_MS


@pytest.mark.parametrize("cluster", of(COMPACTING), indirect=True)
def test_gaps_inside_what_is_packed_are_compacted(cluster: Cluster, topic: str) -> None:
    version = cluster.version
    extra = {"message.format.version": "0.10.2"} if version == "0.11.0.3" else {}
    make(cluster, topic, config=COMPACTED | extra)
    for number, codec in enumerate(("gzip", "none", "snappy", "gzip")):
        records = [Record(b"v%d-%d" % (number, i), b"key-%d" % (i % 5)) for i in range(12)]
        records.insert(3, Record(b"kept", b"single-%d" % number))
        produce(cluster.bootstrap, topic, records, codec=codec, batch_records=7, version=version)
        time.sleep(0.15)  # the next append rolls the segment
    produce(cluster.bootstrap, topic, [Record(b"last", b"key-0")], version=version)
    judged = compacted(cluster, topic, 53)
    settings = settings_of(cluster.bootstrap)
    log = log_of(settings, topic)
    assert (log.start_offset, log.end_offset) == (0, 53)
    told: dict[str, Any] = {}
    if version != "0.11.0.3":
        told = _told_of_compaction(cluster, topic, settings)
    found = read([slice_of(log)], settings, **told)
    assert found.rows == judged
    assert found.counts == Counts(landed=len(judged), compacted=53 - len(judged))
    for start in range(0, 53, 4):
        part = read([slice_of(log, start, 53)], settings, **told)
        assert part.rows == [row for row in judged if row.offset >= start]
        assert part.counts.total == 53 - start


def _told_of_compaction(cluster: Cluster, topic: str, settings: ClusterSettings) -> dict[str, Any]:
    """Brokers before 0.11 do not say how a topic is cleaned: gaps are missing until the job or
    ZooKeeper does. Returns what a task is told of what ZooKeeper says."""
    slice_ = slice_of(log_of(settings, topic))
    with pytest.raises(RangeLost, match=r"missing.*too old to report") as caught:
        read([slice_], settings)
    assert "source.compacted" in caught.value.do
    declared = read([slice_], settings, compacted=(topic,))
    assert declared.counts.compacted == 53 - declared.counts.landed
    assert isinstance(cluster, KafkaZooKeeperCluster)
    found = read_cleanup_policies(ZooKeeperAccess(cluster.zookeeper), [topic, "another"])
    assert found == {topic: "compact"}
    with pytest.raises(Unreachable, match="ZooKeeper could not be asked"):
        read([slice_], settings, asks_zookeeper=True)
    with pytest.raises(RangeLost, match="in ZooKeeper is not set"):
        read([slice_], settings, asks_zookeeper=True, zookeeper_cleanup=())
    return {"asks_zookeeper": True, "zookeeper_cleanup": tuple(found.items())}


def compacted(cluster: Cluster, topic: str, records_before: int) -> list[Consumed]:
    """Waits until the log's cleaner has done its work: nothing went for two seconds."""
    deadline = time.monotonic() + PATIENCE_S
    left, changed_at = records_before, time.monotonic()
    while time.monotonic() < deadline:
        found = consume(cluster.bootstrap, topic, version=cluster.version)
        if len(found) != left:
            left, changed_at = len(found), time.monotonic()
        if left < records_before and time.monotonic() - changed_at > 2:
            return found
        time.sleep(0.2)
    pytest.fail(f"the cleaner left {left} of {records_before} records")


def alter(cluster: KafkaZooKeeperCluster, topic: str, config: Mapping[str, str]) -> None:
    """Sets a topic's configuration as the broker's own tool does, and waits until the broker
    has taken it in."""
    log = cluster.directory / "logs" / "kafka-1.log"
    telling = f"Processing override for entityPath: topics/{topic}"
    before = log.read_text().count(telling)
    with Visitor(cluster.zookeeper) as keeper:
        content = json.dumps({"version": 1, "config": config})
        keeper.set(f"/config/topics/{topic}", content.encode())
        notice = json.dumps({"version": 2, "entity_path": f"topics/{topic}"})
        keeper.create("/config/changes/config_change_", notice.encode(), sequence=True)
    deadline = time.monotonic() + PATIENCE_S
    while log.read_text().count(telling) == before:
        assert time.monotonic() < deadline, log.read_text()[-3000:]
        time.sleep(0.05)


# --- what the newer ones can ------------------------------------------------------------


@pytest.mark.parametrize("cluster", of(WITH_TRANSACTIONS), indirect=True)
def test_transactions_are_distinguished(cluster: Cluster, topic: str) -> None:
    make(cluster, topic)
    produce_transaction(cluster.bootstrap, topic, numbered_records(5), codec="lz4")
    produce_transaction(cluster.bootstrap, topic, numbered_records(3), commit=False)
    settings = settings_of(cluster.bootstrap)
    wait_for_end(settings, topic, 10)
    with open_transaction(cluster.bootstrap, topic, numbered_records(4), commit=False):
        log = log_of(settings, topic)
        assert log.end_offset == 10
        everything = settings_of(cluster.bootstrap, isolation=UNCOMMITTED)
        assert log_of(everything, topic).end_offset == 14
        found = read([slice_of(log)], settings)
    assert found.counts == Counts(landed=5, aborted=3, control=2)
    assert found.rows == consume(cluster.bootstrap, topic)


@pytest.mark.parametrize("cluster", of(WITH_TRANSACTIONS), indirect=True)
def test_expired_offsets_are_lost_by_name(cluster: Cluster, topic: str) -> None:
    make(cluster, topic)
    produce(cluster.bootstrap, topic, numbered_records(10))
    settings = settings_of(cluster.bootstrap)
    log = log_of(settings, topic)
    delete_records(cluster.bootstrap, topic, {0: 4})
    with pytest.raises(RangeLost, match=rf"{topic}/0 \[0, 4\) expired.*nearest valid offset is 4"):
        read([slice_of(log)], settings)
