"""Transactions in whole runs: committed records land, and the ledger counts the rest."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

import rangeland
from rangeland.model import Counts, Isolation
from rangeland.progress_events import NoProgress
from rangeland.queries import job_status, verify_and_find
from rangeland.testing.client_library import producer
from rangeland.testing.consumer import consume
from rangeland.testing.kafka import KafkaCluster
from rangeland.testing.processes import PATIENCE_S
from rangeland.testing.producer import (
    create_topic,
    numbered_records,
    open_transaction,
    produce,
    produce_transaction,
)
from tests.brokers.reading import UNCOMMITTED, look, settings_of, wait_for_end
from tests.spark.landings import between, job_of, offsets_in, rows_of, table_of

pytestmark = [pytest.mark.spark, pytest.mark.brokers]

MIXED, OPEN, ABORTED = range(3)
"""Partitions of the topic, named by what is in them."""


@dataclass(frozen=True)
class Written:
    """Three partitions with parts of three transactions. ``classes`` says of each offset what
    it is: l(anded), a(borted), c(ontrol), o(pen)."""

    topic: str
    classes: dict[int, str]

    def counts(self, isolation: Isolation) -> Counts:
        if isolation is UNCOMMITTED:
            every = "".join(self.classes.values()).replace("a", "l").replace("o", "l")
        else:
            every = "".join(part.split("o")[0] for part in self.classes.values())
        return Counts(landed=every.count("l"), aborted=every.count("a"), control=every.count("c"))


def put(writer: Any, topic: str, counts: dict[int, int]) -> None:
    for partition, count in counts.items():
        for record in numbered_records(count):
            writer.produce(topic, record.value, record.key, partition)
    writer.flush(30)


def wait_for_ends(kafka: KafkaCluster, topic: str, ends: list[int]) -> None:
    """The end of a transaction is acknowledged before its markers are in the logs."""
    settings = settings_of(kafka.bootstrap, isolation=UNCOMMITTED)
    deadline = time.monotonic() + PATIENCE_S
    found: list[int] = []
    while found != ends:
        assert time.monotonic() < deadline, f"{topic} ends at {found}, not at {ends}"
        found = [log.end_offset for _, log in sorted(look(settings, topics=(topic,)).logs.items())]


@pytest.fixture
def written(kafka: KafkaCluster, topic: str) -> Iterator[Written]:
    create_topic(kafka.bootstrap, topic, partitions=3)
    a, b = (
        producer(kafka.bootstrap, {"transactional.id": f"{topic}-{name}", "linger.ms": 0})
        for name in "ab"
    )
    for writer in (a, b):
        writer.init_transactions(30)
        writer.begin_transaction()
    put(a, topic, {MIXED: 4, ABORTED: 2})
    put(b, topic, {MIXED: 3, ABORTED: 5})
    produce(kafka.bootstrap, topic, numbered_records(2), partition=ABORTED)
    put(a, topic, {MIXED: 1, OPEN: 6})
    a.commit_transaction(30)
    wait_for_ends(kafka, topic, [9, 7, 10])
    b.abort_transaction(30)
    wait_for_ends(kafka, topic, [10, 7, 11])
    with open_transaction(kafka.bootstrap, topic, numbered_records(3), partition=OPEN):
        produce(kafka.bootstrap, topic, numbered_records(2), partition=OPEN)
        yield Written(
            topic,
            {MIXED: "llllaaalcc", OPEN: "llllllcoooll", ABORTED: "llaaaaallcc"},
        )


def in_the_ledger(spark: Any, table: str) -> list[Counts]:
    names = ("landed", "control", "aborted", "compacted", "filtered", "quarantined", "lost")
    found = spark.sql(
        f"SELECT sum(r.until_offset - r.from_offset) width, "
        f"{', '.join(f'sum(r.{name}) {name}' for name in names)} "
        f"FROM (SELECT sequence, explode(ranges) r FROM delta.`{table}/_rangeland/ledger` "
        "WHERE event = 'outcome') GROUP BY sequence ORDER BY sequence"
    ).collect()
    counts = [Counts(*(row[name] for name in names)) for row in found]
    assert [c.total for c in counts] == [row["width"] for row in found]
    return counts


@pytest.mark.parametrize(
    "isolation",
    [
        pytest.param(one, marks=[pytest.mark.slow] * (one is Isolation.READ_UNCOMMITTED))
        for one in Isolation
    ],
)
def test_transactions_over_partitions_are_landed_and_counted(
    kafka: KafkaCluster, written: Written, spark: Any, table: str, isolation: Isolation
) -> None:
    job = job_of(kafka.bootstrap, table, written.topic, source={"isolation": isolation.value})
    result = rangeland.land(job, spark)
    assert result.counts == written.counts(isolation)
    assert in_the_ledger(spark, table) == [result.counts]
    judged = consume(kafka.bootstrap, written.topic, isolation=isolation.value)
    assert rows_of(table_of(spark, table)) == judged
    assert not verify_and_find.verify(job, spark, NoProgress()).audit.holes


@pytest.mark.slow
def test_an_open_transaction_is_landed_once_it_is_committed(
    kafka: KafkaCluster, spark: Any, topic: str, table: str
) -> None:
    create_topic(kafka.bootstrap, topic)
    job = job_of(kafka.bootstrap, table, topic)
    produce(kafka.bootstrap, topic, numbered_records(2))
    with open_transaction(kafka.bootstrap, topic, numbered_records(4), commit=True):
        produce(kafka.bootstrap, topic, numbered_records(3))
        assert rangeland.land(job, spark).counts == Counts(landed=2)
        assert rangeland.land(job, spark).state == "nothing"
        (seen,) = job_status.status(job, spark, NoProgress()).to_json()["partitions"]
    wait_for_end(settings_of(kafka.bootstrap), topic, 10)
    assert rangeland.land(job, spark).counts == Counts(landed=7, control=1)
    assert in_the_ledger(spark, table) == [Counts(landed=2), Counts(landed=7, control=1)]
    # While it was open: committed records behind it that nobody may read yet.
    assert (seen["checkpoint"], seen["end"], seen["last_stable_offset"]) == (2, 2, 2)
    assert (seen["high_watermark"], seen["held_back"], seen["lag"]) == (9, 7, 7)
    found = seen["open_transaction"]
    assert found["first_offset"] == 2
    assert found["producer_id"] >= 0
    assert 0 <= found["age_ms"] == seen["lag_ms"] < 600_000
    (after,) = job_status.status(job, spark, NoProgress()).to_json()["partitions"]
    assert (after["held_back"], after["lag"], after["open_transaction"]) == (0, 0, None)
    assert after["end"] == after["high_watermark"] == after["last_stable_offset"] == 10


def test_a_range_without_a_row_moves_the_checkpoint(
    kafka: KafkaCluster, spark: Any, topic: str, table: str
) -> None:
    """One of aborted records only, one that is a marker."""
    create_topic(kafka.bootstrap, topic)
    produce_transaction(kafka.bootstrap, topic, numbered_records(20), commit=False)
    produce_transaction(kafka.bootstrap, topic, numbered_records(5))
    wait_for_end(settings_of(kafka.bootstrap), topic, 27)
    part = job_of(kafka.bootstrap, table, topic, range=between(topic, p0=(0, 17)))
    first = rangeland.land(part, spark)
    assert (first.state, first.counts) == ("landed", Counts(aborted=17))
    more = job_of(kafka.bootstrap, table, topic, range={"until": {topic: {0: 21}}})
    second = rangeland.land(more, spark)
    assert second.counts == Counts(aborted=3, control=1)
    assert [(r.range.from_offset, r.range.until_offset) for r in second.ranges] == [(17, 21)]
    assert offsets_in(table) == []
    rest = rangeland.land(job_of(kafka.bootstrap, table, topic), spark)
    assert rest.counts == Counts(landed=5, control=1)
    assert offsets_in(table) == [(0, o) for o in range(21, 26)]
