"""The age of a log's next record, by its own timestamp."""

from __future__ import annotations

import time

from rangeland.connection.pool import ConnectionPool
from rangeland.model import Partition
from rangeland.survey.record_times import FirstRecord, first_times
from rangeland.testing.kafka import KafkaCluster
from rangeland.testing.producer import Record, create_topic, produce, produce_transaction
from tests.brokers.reading import look, settings_of

HOUR_MS = 3_600_000
FIRST_MS = int(time.time() * 1000) - 48 * HOUR_MS  # what is older than a week is removed


def test_the_first_record_from_a_position_on_says_how_old_a_log_is(
    kafka: KafkaCluster, topic: str
) -> None:
    create_topic(kafka.bootstrap, topic, partitions=4)
    for partition in (0, 1):
        aged = [Record(b"x" * 100, b"k", timestamp_ms=FIRST_MS + n * HOUR_MS) for n in range(20)]
        produce(kafka.bootstrap, topic, aged, partition=partition)
    produce_transaction(kafka.bootstrap, topic, [Record(b"v", b"k")], commit=False, partition=2)
    settings = settings_of(kafka.bootstrap)
    logs = look(settings, topics=(topic,)).logs
    starts = {0: 0, 1: 7, 2: 0, 3: 0}
    wanted = {
        p: FirstRecord(log.leader, starts[p.number], log.end_offset) for p, log in logs.items()
    }
    with ConnectionPool(settings) as brokers:
        found = first_times(brokers, wanted)
        once = brokers.requests
    assert found == {
        Partition(topic, 0): FIRST_MS,
        Partition(topic, 1): FIRST_MS + 7 * HOUR_MS,
    }  # the others have no record that a reader gets
    assert once <= 2  # one for all, and one more for those without a record


def test_a_batch_larger_than_what_was_asked_for_first_is_asked_for_again(
    kafka: KafkaCluster, topic: str
) -> None:
    create_topic(kafka.bootstrap, topic, partitions=2)
    for partition in (0, 1):
        large = [Record(bytes(700_000), b"k", timestamp_ms=FIRST_MS)]
        produce(kafka.bootstrap, topic, large, partition=partition)
    settings = settings_of(kafka.bootstrap)
    logs = look(settings, topics=(topic,)).logs
    wanted = {p: FirstRecord(log.leader, 0, log.end_offset) for p, log in logs.items()}
    with ConnectionPool(settings) as brokers:
        assert first_times(brokers, wanted) == dict.fromkeys(logs, FIRST_MS)


def test_leaders_that_are_away_cost_nothing_but_their_response(
    kafka: KafkaCluster, topic: str
) -> None:
    create_topic(kafka.bootstrap, topic, partitions=1)
    settings = settings_of(kafka.bootstrap)
    (log,) = look(settings, topics=(topic,)).logs.values()
    gone = Partition("nobody-has-this", 0)
    with ConnectionPool(settings) as brokers:
        assert first_times(brokers, {gone: FirstRecord(log.leader, 0, 9)}) == {}
