"""RocketMQ's queues in Delta tables: real brokers, each message once."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime
from typing import Any

import pytest

import rangeland
from rangeland.model import Counts
from rangeland.testing.rocketmq import RocketmqCluster
from tests.record_values import values_of
from tests.spark.landings import CONTRACT, table_of
from tests.spark.rocketmq_landings import BORN_MS, Written, landed_rows, rocketmq_job

pytestmark = [pytest.mark.spark, pytest.mark.brokers]

QUEUES = [("broker-a", 0), ("broker-b", 0), ("broker-a", 1), ("broker-b", 1)]


@pytest.fixture
def written(rocketmq: RocketmqCluster, topic: str) -> Written:
    made = Written(rocketmq, topic)
    made.fill("first", 200)
    return made


def test_what_was_produced_is_landed_and_no_more(written: Written, spark: Any, table: str) -> None:
    job = rocketmq_job(written, table)
    first = rangeland.land(job, spark)
    assert landed_rows(table) == sorted(written.rows)
    assert first.counts == Counts(landed=800)
    answer = json.loads(json.dumps(first.to_json()))
    assert [(p["broker"], p["partition"], p["until_offset"]) for p in answer["partitions"]] == [
        (broker, queue, 200) for broker, queue in QUEUES
    ]
    assert rangeland.land(job, spark).state == "nothing"
    written.add("broker-b", 1, values_of("more", 30))
    assert rangeland.land(job, spark).counts == Counts(landed=30)
    assert landed_rows(table) == sorted(written.rows)


def test_rows_have_the_columns_of_the_contract_the_broker_and_when_it_was_made(
    written: Written, spark: Any, table: str
) -> None:
    rangeland.land(rocketmq_job(written, table), spark)
    frame = table_of(spark, table)
    own = ",broker:string,bornTimestamp:timestamp>"
    assert frame.schema.simpleString() == CONTRACT.removesuffix(">") + own
    row = frame.where("broker = 'broker-b' and partition = 0 and offset = 7").collect()[0]
    assert bytes(row.key) == b"key-broker-b"
    headers = {header.key: bytes(header.value) for header in row.headers}
    assert headers["TAGS"] == b"A"
    assert headers["KEYS"] == b"key-broker-b"
    assert row.timestampType == 1
    assert row.bornTimestamp.astimezone(UTC) == datetime.fromtimestamp(BORN_MS / 1000, UTC)


def test_a_dataframe_and_a_landing_have_the_same_rows(
    written: Written, spark: Any, table: str
) -> None:
    job = rocketmq_job(written, table)
    frame = rangeland.plan(job, spark).read(spark)
    found = sorted((r.broker, r.partition, r.offset, bytes(r.value)) for r in frame.collect())
    assert found == sorted(written.rows)


def test_a_range_is_taken_by_offsets_and_by_the_time_of_storing(
    written: Written, spark: Any, table: str
) -> None:
    time.sleep(0.05)
    between = datetime.now(UTC).isoformat()
    time.sleep(0.05)
    written.fill("second", 10)
    late = [row for row in written.rows if row[3].startswith(b"second")]
    job = rocketmq_job(written, table, range={"from": between})
    assert rangeland.land(job, spark).counts == Counts(landed=len(late))
    assert landed_rows(table) == sorted(late)


def test_runs_with_a_limit_land_everything_once(written: Written, spark: Any, table: str) -> None:
    job = rocketmq_job(written, table, limits={"max_records": 300})
    landed = [rangeland.land(job, spark).counts.landed for _ in range(4)]
    assert landed == [300, 300, 200, 0]
    assert landed_rows(table) == sorted(written.rows)
