"""A sample of what is in real topics."""

from __future__ import annotations

import json

import pytest

from rangeland.progress_events import NoProgress
from rangeland.queries.payload_sample import sample
from rangeland.testing.kafka import KafkaCluster
from rangeland.testing.producer import Record, create_topic, produce
from tests.spark.landings import job_of

pytestmark = pytest.mark.brokers


def test_the_newest_records_of_each_partition_are_looked_at(
    kafka: KafkaCluster, topic: str
) -> None:
    create_topic(kafka.bootstrap, topic, partitions=3)
    old = [Record(b"old")] * 20
    new = [Record(json.dumps({"id": n, "name": "a"}).encode()) for n in range(10)]
    for partition in (0, 1):
        produce(kafka.bootstrap, topic, [*old, *new], partition=partition)
    job = job_of(kafka.bootstrap, "unused", topic)
    found = sample(job, NoProgress(), 10)
    assert (found.records, found.formats) == (20, {"json": 20})
    assert found.schema == "id BIGINT, name STRING"
    more = sample(job, NoProgress(), 1000)
    assert more.formats == {"json": 20, "text": 40}
