"""How far real logs have come: records, silence, and transactions that are still open."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime
from typing import Any

import pytest

from rangeland.job import Job
from rangeland.progress_events import NoProgress
from rangeland.queries.reached_check import query_reach
from rangeland.testing.kafka import KafkaCluster
from rangeland.testing.processes import PATIENCE_S
from rangeland.testing.producer import Record, create_topic, open_transaction, produce

pytestmark = pytest.mark.brokers

NOW_MS = int(time.time() * 1000)
T = NOW_MS - 100_000


def job_until(kafka: KafkaCluster, topic: str, until: Any, **source: Any) -> Job:
    document = {
        "job": "waiting",
        "source": {"servers": kafka.bootstrap, "topics": [topic], **source},
        "range": {"from": "earliest", "until": until},
        "sink": {"table": "lake/waiting"},
    }
    return Job.parse(json.dumps(document))


def states(job: Job, idle_after_ms: int | None = None) -> list[str]:
    return [p.state for p in query_reach(job, NoProgress(), idle_after_ms).partitions]


def at_t() -> str:
    return datetime.fromtimestamp(T / 1000, UTC).isoformat()


def test_a_time_is_reached_partition_by_partition(kafka: KafkaCluster, topic: str) -> None:
    create_topic(kafka.bootstrap, topic, partitions=3)
    produce(kafka.bootstrap, topic, [Record(b"x", timestamp_ms=T)], partition=0)
    produce(kafka.bootstrap, topic, [Record(b"x", timestamp_ms=T - 1)], partition=1)
    job = job_until(kafka, topic, at_t())
    assert states(job) == ["reached", "waiting", "waiting"]
    assert states(job, 10**9) == ["reached", "waiting", "waiting"]
    assert states(job, 1000) == ["reached", "idle", "idle"]


def test_an_offset_is_reached_where_the_log_ends(kafka: KafkaCluster, topic: str) -> None:
    create_topic(kafka.bootstrap, topic)
    produce(kafka.bootstrap, topic, [Record(b"x")] * 3, partition=0)
    assert states(job_until(kafka, topic, {topic: {"0": 3}})) == ["reached"]
    assert states(job_until(kafka, topic, {topic: {"0": 4}})) == ["waiting"]


def test_what_an_open_transaction_holds_is_waited_for(kafka: KafkaCluster, topic: str) -> None:
    create_topic(kafka.bootstrap, topic)
    job = job_until(kafka, topic, at_t())
    everything = job_until(kafka, topic, at_t(), isolation="read_uncommitted")
    records = [Record(b"x", timestamp_ms=T - 1), Record(b"x", timestamp_ms=T)]
    with open_transaction(kafka.bootstrap, topic, records, partition=0, commit=True):
        # Its first record may still become one of the range: silence would be a wrong response.
        assert states(job, 1000) == ["waiting"]
        assert states(everything) == ["reached"]
    deadline = time.monotonic() + PATIENCE_S
    while states(job) != ["reached"]:  # the marker is written after the commit has returned
        assert time.monotonic() < deadline
        time.sleep(0.1)
