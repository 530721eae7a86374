"""A log that was upgraded in place: times are found after segments whose format has none.

The broker alone finds nothing there, and reports no problem.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from rangeland.connection.pool import ConnectionPool
from rangeland.dialects.dialect import load_dialect
from rangeland.model import AtTime, Bounds, Earliest, Isolation, Latest, Partition
from rangeland.planning.bound_resolution import RangeRequest, ResolvedRequest, resolve
from rangeland.planning.job_position import JobPosition
from rangeland.planning.policy import Policy
from rangeland.testing.kafka import KafkaZooKeeperCluster
from rangeland.testing.producer import Record, produce
from tests.brokers.reading import log_of, look, settings_of
from tests.brokers.test_matrix import alter

pytestmark = pytest.mark.brokers

TOPIC = "upgraded"
P = Partition(TOPIC, 0)
SEGMENT_BYTES = 20_000


@pytest.fixture(scope="module")
def cluster() -> Iterator[KafkaZooKeeperCluster]:
    with KafkaZooKeeperCluster("0.11.0.3") as running:
        yield running


def now_ms() -> int:
    """With a second of silence around it: times of files are of seconds."""
    time.sleep(1.1)
    found = int(time.time() * 1000)
    time.sleep(1.1)
    return found


def write(cluster: KafkaZooKeeperCluster, records: int, *, timed: bool) -> None:
    stamp = int(time.time() * 1000) if timed else None
    values = [Record(b"x" * 1000, timestamp_ms=stamp) for _ in range(records)]
    produce(cluster.bootstrap, TOPIC, values, batch_records=1, linger_ms=0)


def resolved(cluster: KafkaZooKeeperCluster, time_ms: int) -> ResolvedRequest:
    survey = look(settings_of(cluster.bootstrap), topics=(TOPIC,), times_ms=(time_ms,))
    request = RangeRequest(Bounds(AtTime(time_ms)), Bounds(Latest()), Earliest(), Policy())
    return resolve(request, survey, JobPosition())


def said_by_the_broker(cluster: KafkaZooKeeperCluster, time_ms: int) -> int | None:
    settings = settings_of(cluster.bootstrap)
    leader = log_of(settings, TOPIC).leader
    assert leader.address is not None
    kafka = load_dialect("kafka")
    questions = kafka.offsets_requests({P: leader}, AtTime(time_ms), Isolation.READ_COMMITTED)
    with ConnectionPool(settings) as brokers:
        return kafka.read_offsets(brokers.call_all(leader.address, questions))[P].offset


@pytest.mark.slow
def test_times_are_found_after_segments_that_have_none(cluster: KafkaZooKeeperCluster) -> None:
    old = {"message.format.version": "0.9.0", "segment.bytes": SEGMENT_BYTES}
    cluster.create_topic(TOPIC, config=old)
    write(cluster, 50, timed=False)
    between = now_ms()
    write(cluster, 50, timed=False)
    upgraded = now_ms()
    alter(cluster, TOPIC, {"message.format.version": "0.11.0", "segment.bytes": str(SEGMENT_BYTES)})
    write(cluster, 50, timed=True)
    after = now_ms()

    assert said_by_the_broker(cluster, between) is None, "or the broker needs no doubt"
    found = resolved(cluster, between)
    (r,) = found.ranges
    assert 0 < r.from_offset <= 50, "the beginning of a segment that is older"
    assert r.until_offset == 150
    assert any("at or before the time" in note for note in found.notes)

    for asked, offset in ((upgraded, 100), (after, 150)):
        exact = resolved(cluster, asked)
        assert [(r.from_offset, r.until_offset) for r in exact.ranges] == [(offset, 150)]
        assert not exact.notes
