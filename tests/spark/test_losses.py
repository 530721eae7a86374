"""Whole runs over logs that have lost something, under each policy: what is named is exact, what
is left is landed, and nothing is landed twice. And runs that retention is about to catch."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

import rangeland
from rangeland import run as commands
from rangeland.errors import RangeLost
from rangeland.job import Job
from rangeland.progress_events import NoProgress
from rangeland.testing.kafka import KafkaCluster
from rangeland.testing.producer import (
    Record,
    create_topic,
    delete_records,
    delete_topic,
    numbered_records,
    produce,
)
from tests.spark.landings import expected, job_of, offsets_in

pytestmark = [pytest.mark.spark, pytest.mark.brokers]

HOUR_MS = 3_600_000


def losses(error: RangeLost) -> list[tuple[int, str, int, int]]:
    found = error.facts["losses"]
    return [(x["partition"], x["verdict"], x["from_offset"], x["until_offset"]) for x in found]


def job(kafka: KafkaCluster, table: str, topic: str, **policy: str) -> Job:
    return job_of(kafka.bootstrap, table, topic, policy=policy)


def test_a_head_that_retention_removed_is_expired_in_exact_counts_under_each_policy(
    kafka: KafkaCluster, spark: Any, topic: str, table: str
) -> None:
    create_topic(kafka.bootstrap, topic, partitions=2)
    for partition in (0, 1):
        produce(kafka.bootstrap, topic, numbered_records(10), partition=partition)
    rangeland.land(job(kafka, table, topic), spark)
    for partition in (0, 1):
        produce(kafka.bootstrap, topic, numbered_records(10), partition=partition)
    delete_records(kafka.bootstrap, topic, {0: 15})

    with pytest.raises(RangeLost) as caught:
        rangeland.land(job(kafka, table, topic), spark)
    assert losses(caught.value) == [(0, "expired", 10, 15)]
    assert "asked twice" in str(caught.value)
    assert offsets_in(table) == expected(p0=range(10), p1=range(10))

    held = rangeland.land(job(kafka, table, topic, expired="hold"), spark)
    assert (held.state, held.counts.landed, len(held.held)) == ("landed", 10, 1)
    skipped = rangeland.land(job(kafka, table, topic, expired="skip"), spark)
    assert (skipped.counts.landed, skipped.counts.lost) == (5, 5)
    rows = expected(p0=[*range(10), *range(15, 20)], p1=range(20))
    assert offsets_in(table) == rows
    assert rangeland.land(job(kafka, table, topic), spark).state == "nothing"


@pytest.mark.parametrize(
    "count",
    [pytest.param(4, marks=pytest.mark.slow, id="shorter"), pytest.param(30, id="longer")],
)
def test_a_topic_created_again_is_recreated_whether_it_is_shorter_or_longer_than_the_checkpoint(
    kafka: KafkaCluster, spark: Any, topic: str, table: str, count: int
) -> None:
    create_topic(kafka.bootstrap, topic)
    produce(kafka.bootstrap, topic, numbered_records(10))
    rangeland.land(job(kafka, table, topic), spark)
    delete_topic(kafka.bootstrap, topic)
    create_topic(kafka.bootstrap, topic)
    produce(kafka.bootstrap, topic, numbered_records(count, start=100))

    with pytest.raises(RangeLost) as caught:
        rangeland.land(job(kafka, table, topic), spark)
    assert losses(caught.value) == [(0, "recreated", 10, 10)]
    held = rangeland.land(job(kafka, table, topic, recreated="hold"), spark)
    assert (held.state, len(held.held)) == ("nothing", 1)
    assert offsets_in(table) == expected(p0=range(10))

    skipped = rangeland.land(job(kafka, table, topic, recreated="skip"), spark)
    assert (skipped.state, skipped.counts.landed, skipped.counts.lost) == ("landed", count, 0)
    rows = sorted([*expected(p0=range(10)), *expected(p0=range(count))])
    assert offsets_in(table) == rows
    assert rangeland.land(job(kafka, table, topic), spark).state == "nothing"


# --- what retention is about to take --------------------------------------------------------


def test_what_retention_may_take_before_it_is_read_is_shown_and_read_first(
    kafka: KafkaCluster, spark: Any, topic: str, table: str, tmp_path: Path
) -> None:
    create_topic(kafka.bootstrap, topic, partitions=2, config={"retention.ms": HOUR_MS})
    now_ms = int(time.time() * 1000)
    almost = now_ms - HOUR_MS + 20_000  # 20 seconds before they are too old
    old = [Record(b"old", timestamp_ms=almost)] * 30 + [Record(b"new", timestamp_ms=now_ms)] * 10
    produce(kafka.bootstrap, topic, [Record(b"x" * 1000)] * 5_000, partition=0)
    produce(kafka.bootstrap, topic, old, partition=1, batch_records=10)

    preview = commands.preview(job(kafka, table, topic), spark, NoProgress())
    document = json.loads(json.dumps(preview.to_json()))
    (risk,) = document["at_risk"]
    assert (risk["partition"], risk["from_offset"], risk["until_offset"]) == (1, 0, 30)
    assert f"retention.ms = {HOUR_MS}" in risk["why"]
    assert document["read_speed"] == {"bytes_per_second": 8 << 20, "is_measured": False}
    assert {(s["partition"], s.get("is_urgent", False)) for s in document["slices"]} == {
        (0, False),
        (1, True),
    }

    result = rangeland.land(job(kafka, table, topic), spark)
    assert (result.counts.landed, result.counts.lost) == (5_040, 0)
    assert [
        w
        for w in result.warnings
        if "may expire before they can be read" in w and "they are read first" in w
    ]
    quiet = rangeland.land(job(kafka, table, topic), spark)
    assert (quiet.state, quiet.warnings) == ("nothing", ())
