"""Missing offsets: a gap of a log cleaner is no loss, and a loss is never called a gap."""

from __future__ import annotations

import itertools
import time
from dataclasses import dataclass

import pytest

from rangeland.cluster_settings import ClusterSettings
from rangeland.errors import RangeLost
from rangeland.loss import Action
from rangeland.model import Counts, LogState
from rangeland.planning.policy import Policy
from rangeland.testing.consumer import Consumed, consume
from rangeland.testing.kafka import KafkaCluster
from rangeland.testing.processes import PATIENCE_S
from rangeland.testing.producer import (
    Record,
    create_topic,
    delete_records,
    delete_topic,
    numbered_records,
    produce,
    produce_transaction,
)
from tests.brokers.reading import log_of, look, read, settings_of, wait_for_end
from tests.brokers.surveys import slice_of

pytestmark = pytest.mark.brokers


@pytest.fixture(scope="module")
def settings(kafka: KafkaCluster) -> ClusterSettings:
    return settings_of(kafka.bootstrap)


# --- compaction --------------------------------------------------------------------------

COMPACTED = {
    "cleanup.policy": "compact",
    "segment.ms": 100,
    "min.cleanable.dirty.ratio": 0,
    "min.compaction.lag.ms": 0,
    "max.compaction.lag.ms": 100,
    "delete.retention.ms": 0,
}


def compact(kafka: KafkaCluster, topic: str, records_before: int) -> list[Consumed]:
    """Waits until the log's cleaner has done its work: nothing went for two seconds."""
    deadline = time.monotonic() + PATIENCE_S
    left, changed_at = records_before, time.monotonic()
    while time.monotonic() < deadline:
        found = consume(kafka.bootstrap, topic)
        if len(found) != left:
            left, changed_at = len(found), time.monotonic()
        if left < records_before and time.monotonic() - changed_at > 2:
            return found
        time.sleep(0.2)
    pytest.fail(f"the cleaner left {left} of {records_before} records")


@dataclass(frozen=True)
class Cleaned:
    log: LogState
    judged: list[Consumed]


@pytest.fixture(scope="module")
def cleaned(kafka: KafkaCluster, settings: ClusterSettings) -> Cleaned:
    """Five keys overwritten again and again, in batches of four, lz4 and plain; a rolled
    back transaction among them; at the end a segment that is never cleaned."""
    topic = f"cleaned-{id(settings):x}"
    create_topic(kafka.bootstrap, topic, config=COMPACTED)
    for number in range(5):
        records = [Record(b"v%d-%d" % (number, i), b"key-%d" % (i % 5)) for i in range(12)]
        codec = ("none", "lz4")[number % 2]
        produce(kafka.bootstrap, topic, records, codec=codec, batch_records=4)
        if number == 2:
            produce_transaction(kafka.bootstrap, topic, numbered_records(6), commit=False)
        time.sleep(0.15)  # the next append rolls the segment
    produce(kafka.bootstrap, topic, [Record(b"once", b"single-%d" % i) for i in range(3)])
    time.sleep(0.15)
    produce(kafka.bootstrap, topic, [Record(b"last", b"key-0")])
    judged = compact(kafka, topic, 64)
    log = wait_for_end(settings, topic, 5 * 12 + 7 + 4)
    assert log.start_offset == 0
    return Cleaned(log, judged)


def test_gaps_are_counted_as_compacted_and_nothing_is_lost(
    cleaned: Cleaned, settings: ClusterSettings
) -> None:
    found = read([slice_of(cleaned.log)], settings)
    assert found.rows == cleaned.judged
    counts = found.counts
    assert (counts.landed, counts.lost) == (len(cleaned.judged), 0)
    assert counts.compacted >= 40
    assert counts.total == cleaned.log.end_offset
    assert found.receipts[0].losses == ()


def test_every_range_of_a_cleaned_log_adds_up(cleaned: Cleaned, settings: ClusterSettings) -> None:
    """Also those that begin in a gap, end in one, or are one."""
    empty = 0
    for start, end in itertools.combinations(range(0, cleaned.log.end_offset + 1, 5), 2):
        found = read([slice_of(cleaned.log, start, end)], settings)
        expected = [row for row in cleaned.judged if start <= row.offset < end]
        assert found.rows == expected, (start, end)
        assert (found.counts.total, found.counts.lost) == (end - start, 0)
        empty += not expected
    assert empty > 0, "no range was nothing but a gap"


# --- retention ---------------------------------------------------------------------------


def expired(kafka: KafkaCluster, topic: str, settings: ClusterSettings) -> LogState:
    """Ten records in batches of two, of which the first four are deleted, and what the log
    looked like before."""
    create_topic(kafka.bootstrap, topic)
    produce(kafka.bootstrap, topic, numbered_records(10), batch_records=2)
    before = log_of(settings, topic)
    delete_records(kafka.bootstrap, topic, {0: 5})
    return before


def test_offsets_that_expired_before_they_were_read_are_lost_by_name(
    kafka: KafkaCluster, settings: ClusterSettings, topic: str
) -> None:
    log = expired(kafka, topic, settings)
    with pytest.raises(RangeLost) as caught:
        read([slice_of(log, 2)], settings)
    error = caught.value
    assert error.exit_code == 66
    assert f"{topic}/0 [2, 5) expired" in str(error)
    assert "nearest valid offset is 5" in str(error)
    assert "policy: {expired: skip}" in error.do
    (loss,) = error.facts["losses"]
    assert (loss["partition"], loss["from_offset"], loss["until_offset"]) == (0, 2, 5)


def test_what_a_policy_skips_is_counted_as_lost(
    kafka: KafkaCluster, settings: ClusterSettings, topic: str
) -> None:
    log = expired(kafka, topic, settings)
    skipping = Policy(expired=Action.SKIP)
    found = read([slice_of(log, 1)], settings_of(kafka.bootstrap), policy=skipping)
    assert found.counts == Counts(landed=5, lost=4)
    assert found.rows == consume(kafka.bootstrap, topic)
    (loss,) = found.receipts[0].losses
    assert (loss.from_offset, loss.until_offset, loss.kind) == (1, 5, "expired")
    assert "nearest valid offset is 5" in loss.evidence


def test_a_slice_that_is_lost_whole_leaves_the_others_alone(
    kafka: KafkaCluster, settings: ClusterSettings, topic: str
) -> None:
    log = expired(kafka, topic, settings)
    skipping = Policy(expired=Action.SKIP)
    found = read(
        [slice_of(log, 0, 3), slice_of(log, 5, 10, index=1)],
        settings_of(kafka.bootstrap),
        policy=skipping,
    )
    assert [receipt.counts for receipt in found.receipts] == [Counts(lost=3), Counts(landed=5)]


def test_what_is_left_of_a_log_is_read_without_a_word(
    kafka: KafkaCluster, settings: ClusterSettings, topic: str
) -> None:
    expired(kafka, topic, settings)
    log = log_of(settings, topic)
    assert (log.start_offset, log.end_offset) == (5, 10)
    assert read([slice_of(log)], settings).counts == Counts(landed=5)


# --- a topic of the same name --------------------------------------------------------------


def recreated(kafka: KafkaCluster, topic: str, settings: ClusterSettings) -> LogState:
    """The state of the log of the topic's first life."""
    create_topic(kafka.bootstrap, topic)
    produce(kafka.bootstrap, topic, numbered_records(10))
    before = log_of(settings, topic)
    delete_topic(kafka.bootstrap, topic)
    create_topic(kafka.bootstrap, topic)
    produce(kafka.bootstrap, topic, numbered_records(20, start=100))
    return before


def test_a_recreated_topic_does_not_pass_for_the_planned_one(
    kafka: KafkaCluster, settings: ClusterSettings, topic: str
) -> None:
    log = recreated(kafka, topic, settings)
    with pytest.raises(RangeLost) as caught:
        read([slice_of(log, 4)], settings)
    (loss,) = caught.value.facts["losses"]
    assert (loss["verdict"], loss["from_offset"], loss["until_offset"]) == ("recreated", 4, 10)
    now = look(settings, topics=(topic,)).logs[log.partition].leader.topic_id
    assert log.leader.topic_id != now
    assert str(log.leader.topic_id) in str(caught.value)
    assert str(now) in str(caught.value)


def test_a_recreated_topic_that_is_skipped_gives_no_row_of_its_new_incarnation(
    kafka: KafkaCluster, settings: ClusterSettings, topic: str
) -> None:
    log = recreated(kafka, topic, settings)
    skipping = Policy(recreated=Action.SKIP)
    found = read([slice_of(log)], settings_of(kafka.bootstrap), policy=skipping)
    assert (found.rows, found.counts) == ([], Counts(lost=10))
