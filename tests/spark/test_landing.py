"""A landing against real brokers, Spark and Delta: each offset that was asked for is in the
table once, as confluent-kafka reads it."""

from __future__ import annotations

import datetime as dt
import json
import os
import random
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import rangeland
from rangeland import Job, run
from rangeland.errors import Conflict
from rangeland.job.job_text import parse_job_text
from rangeland.landing.drafts.plan_file import read_plan_file, write_plan_file
from rangeland.model import Counts
from rangeland.progress_events import NoProgress
from rangeland.queries import job_status
from rangeland.testing.kafka import KafkaCluster
from rangeland.testing.processes import PATIENCE_S
from rangeland.testing.producer import (
    CODECS,
    Record,
    create_topic,
    numbered_records,
    produce,
    produce_transaction,
)
from tests.brokers.reading import look, settings_of
from tests.spark.landings import (
    CONTRACT,
    between,
    expected,
    job_of,
    judged,
    offsets_in,
    offsets_of,
    rows_of,
    table_of,
)

pytestmark = [pytest.mark.spark, pytest.mark.brokers]


def odd_records(count: int) -> list[Record]:
    draw = random.Random(count)
    bodies: list[tuple[bytes | None, bytes | None]] = [
        (b"", b""),
        (None, None),
        (None, b"tombstone"),
        (draw.randbytes(2000), b"\xff\x00"),
    ]
    headers: list[tuple[tuple[str, bytes | None], ...]] = [
        (),
        (("a", b"1"), ("b", None), ("a", b"2")),
        (("", b""), ("ключ", b"\xff")),
    ]
    return [Record(*bodies[i % 4], headers[i % 3]) for i in range(count)]


def produced(kafka: KafkaCluster, topic: str, **records: int) -> str:
    """A topic with ``p0``, ``p1``, ... numbered records in its partitions."""
    create_topic(kafka.bootstrap, topic, partitions=len(records))
    for name, count in records.items():
        produce(
            kafka.bootstrap, topic, numbered_records(count), partition=int(name.removeprefix("p"))
        )
    return topic


def wait_for_ends(kafka: KafkaCluster, topic: str, total: int) -> None:
    """Until all offsets are readable: the end of a transaction is acknowledged before its
    marker is in the log."""
    deadline = time.monotonic() + PATIENCE_S
    settings = settings_of(kafka.bootstrap)
    while sum(log.end_offset for log in look(settings, topics=(topic,)).logs.values()) < total:
        assert time.monotonic() < deadline, f"{topic} has no {total} readable offsets"
        time.sleep(0.05)


# --- what lands ----------------------------------------------------------------------------


def test_a_direct_landing_is_what_the_judge_reads(
    kafka: KafkaCluster, spark: Any, topic: str, table: str
) -> None:
    topics = [f"{topic}-a", f"{topic}-b"]
    for name in topics:
        create_topic(kafka.bootstrap, name, partitions=3)
        for number, codec in enumerate(CODECS):
            produce(kafka.bootstrap, name, odd_records(40), codec=codec, partition=number % 3)
        produce_transaction(kafka.bootstrap, name, odd_records(9), partition=0)
        produce_transaction(kafka.bootstrap, name, odd_records(5), commit=False, partition=1)
        wait_for_ends(kafka, name, 216)
    result = rangeland.land(job_of(kafka.bootstrap, table, topics), spark)
    landed = table_of(spark, table)
    assert landed.schema.simpleString() == CONTRACT
    assert rows_of(landed) == judged(kafka.bootstrap, topics)
    assert result.state == "landed"
    assert result.counts == Counts(landed=2 * 209, control=4, aborted=10)
    assert result.rows == 2 * 209
    assert landed.where("timestampType <> 0").count() == 0


def test_a_run_without_news_changes_nothing(
    kafka: KafkaCluster, spark: Any, topic: str, table: str
) -> None:
    produced(kafka, topic, p0=10)
    job = job_of(kafka.bootstrap, table, topic)
    first, second = (rangeland.land(job, spark) for _ in range(2))
    assert (first.state, second.state) == ("landed", "nothing")
    assert (second.table_version, second.sequence) == (first.table_version, first.sequence)
    assert offsets_in(table) == expected(p0=range(10))


def test_the_answer_of_a_run_has_the_keys_of_the_contract(
    kafka: KafkaCluster, spark: Any, topic: str, table: str
) -> None:
    produced(kafka, topic, p0=10, p1=3)
    result = rangeland.land(job_of(kafka.bootstrap, table, topic), spark)
    answer = json.loads(json.dumps(result.to_json()))
    promised = {"job", "sequence", "state", "table_version", "landed", "partitions", "seconds"}
    assert promised <= set(answer)
    assert (answer["job"], answer["sequence"], answer["landed"]) == ("landing", 1, 13)
    assert answer["state"] == "landed"
    none = dict.fromkeys(("control", "aborted", "compacted", "filtered", "quarantined", "lost"), 0)
    assert answer["partitions"] == [
        {
            "topic": topic,
            "partition": number,
            "broker": None,
            "from_offset": 0,
            "until_offset": count,
            "landed": count,
            **none,
        }
        for number, count in ((0, 10), (1, 3))
    ]


# --- transforms -----------------------------------------------------------------------------


@pytest.mark.parametrize("zone", [pytest.param("UTC", marks=pytest.mark.slow), "Asia/Kathmandu"])
def test_what_a_transform_leaves_out_is_counted_as_filtered(
    kafka: KafkaCluster,
    spark: Any,
    topic: str,
    table: str,
    module: Callable[[str], str],
    in_zone: Callable[[str], None],
    zone: str,
) -> None:
    in_zone(zone)
    produced(kafka, topic, p0=20, p1=11)
    transform = module("return df.where('offset % 2 = 0')")
    result = rangeland.land(
        job_of(kafka.bootstrap, table, topic, sink={"transform": transform}), spark
    )
    assert result.counts == Counts(landed=16, filtered=15)
    landed = rows_of(table_of(spark, table))
    assert landed == [row for row in judged(kafka.bootstrap, [topic]) if row.offset % 2 == 0]


@pytest.fixture
def in_zone(spark: Any) -> Iterator[Callable[[str], None]]:
    """Gives the session another time zone for one test."""
    before = spark.conf.get("spark.sql.session.timeZone")
    yield lambda zone: spark.conf.set("spark.sql.session.timeZone", zone)
    spark.conf.set("spark.sql.session.timeZone", before)


def test_a_transform_may_make_other_columns(
    kafka: KafkaCluster, spark: Any, topic: str, table: str, module: Callable[[str], str]
) -> None:
    produced(kafka, topic, p0=12)
    transform = module(
        "return df.select(F.col('value').cast('string').alias('text'), F.length('key').alias('n'))"
    )
    job = job_of(kafka.bootstrap, table, topic, sink={"transform": transform})
    result = rangeland.land(job, spark)
    landed = table_of(spark, table)
    assert landed.schema.simpleString() == "struct<text:string,n:int>"
    assert sorted(row["text"] for row in landed.collect()) == [f"value-{i:08d}" for i in range(12)]
    assert (result.rows, result.counts.landed) == (12, 12)
    assert rangeland.land(job, spark).state == "nothing"


def test_a_transform_may_make_many_rows_of_one(
    kafka: KafkaCluster, spark: Any, topic: str, table: str, module: Callable[[str], str]
) -> None:
    produced(kafka, topic, p0=6)
    transform = module(
        "return df.select('topic', 'partition', 'offset', "
        "F.explode(F.array_repeat(F.lit(1), 3)).alias('one'))"
    )
    job = job_of(kafka.bootstrap, table, topic, sink={"transform": transform})
    result = rangeland.land(job, spark)
    assert offsets_in(table) == sorted(expected(p0=range(6)) * 3)
    assert (result.rows, result.counts) == (18, Counts(landed=6))


# --- tables ---------------------------------------------------------------------------------


def test_rows_are_partitioned_by_columns_and_by_parts_of_their_time(
    kafka: KafkaCluster, spark: Any, topic: str, table: str
) -> None:
    create_topic(kafka.bootstrap, topic)
    midnight = int(time.time()) // 86_400 * 86_400_000
    times = [midnight - 1, midnight, midnight + 1, midnight - 86_400_000, midnight - 90_000_000]
    records = [Record(b"%d" % i, timestamp_ms=time_ms) for i, time_ms in enumerate(times)]
    produce(kafka.bootstrap, topic, records)
    sink = {"partition_by": ["topic", "date(timestamp)", "hour(timestamp)"]}
    rangeland.land(job_of(kafka.bootstrap, table, topic, sink=sink), spark)
    landed = table_of(spark, table)
    (detail,) = spark.sql(f"DESCRIBE DETAIL delta.`{table}`").collect()
    assert detail["partitionColumns"] == ["topic", "date", "hour"]
    assert rows_of(landed.drop("date", "hour")) == judged(kafka.bootstrap, [topic])
    for row in landed.collect():
        moment = dt.datetime.fromtimestamp(times[row["offset"]] // 1000, dt.UTC)
        hour = moment.replace(minute=0, second=0)
        assert (row["topic"], row["date"]) == (topic, moment.date())
        assert row["hour"].astimezone(dt.UTC) == hour
    assert (
        landed.where(
            f"date = date'{dt.datetime.fromtimestamp(midnight / 1000, dt.UTC):%F}'"
        ).count()
        == 2
    )


@pytest.mark.slow
def test_a_time_that_no_calendar_has_lands_without_an_hour(
    kafka: KafkaCluster, spark: Any, topic: str, table: str
) -> None:
    """A producer that sends microseconds as milliseconds must not block the job for good."""
    create_topic(kafka.bootstrap, topic, config={"message.timestamp.after.max.ms": 2**63 - 1})
    now_ms = int(time.time()) * 1000
    times = [now_ms, now_ms * 1000, 2**63 - 1, now_ms]
    produce(
        kafka.bootstrap, topic, [Record(b"%d" % n, timestamp_ms=t) for n, t in enumerate(times)]
    )
    sink = {"partition_by": ["hour(timestamp)"]}
    job = job_of(kafka.bootstrap, table, topic, sink=sink)
    result = rangeland.land(job, spark)
    assert (result.counts.landed, result.state) == (4, "landed")
    assert any("2 records have no timestamp" in warning for warning in result.warnings)
    landed = table_of(spark, table)
    hours = landed.selectExpr("offset", "hour IS NULL AS is_null").collect()
    assert {row["offset"]: row["is_null"] for row in hours} == dict(enumerate([0, 1, 1, 0]))
    assert landed.where("timestamp IS NULL").selectExpr("offset").collect() == [(2,)]
    assert rangeland.land(job, spark).state == "nothing"
    assert not rangeland.verify(job, spark).audit.holes


@pytest.mark.slow
def test_columns_that_a_table_has_more_are_null(
    kafka: KafkaCluster, spark: Any, topic: str, table: str
) -> None:
    produced(kafka, topic, p0=4)
    fields = CONTRACT.removeprefix("struct<").removesuffix(">")
    fields = fields.replace("headers:", "headers ").replace("array<struct<", "ARRAY<STRUCT<")
    columns = "note STRING, " + ", ".join(
        part.replace(":", " ", 1) for part in fields.split(",", 7)
    ).replace("key:string,value:binary", "key: STRING, value: BINARY")
    spark.sql(f"CREATE TABLE delta.`{table}` ({columns}, amount DECIMAL(9,2)) USING delta")
    spark.sql(f"INSERT INTO delta.`{table}` (note, amount) VALUES ('by hand', 1.5)")
    rangeland.land(job_of(kafka.bootstrap, table, topic), spark)
    landed = table_of(spark, table)
    by_hand = landed.where("note is not null").collect()
    assert [(row["note"], row["offset"]) for row in by_hand] == [("by hand", None)]
    ours = landed.where("note is null and amount is null")
    assert rows_of(ours) == judged(kafka.bootstrap, [topic])


def test_a_catalog_table_has_its_ledger_beside_it(
    kafka: KafkaCluster, spark: Any, topic: str
) -> None:
    produced(kafka, topic, p0=5)
    name = f"default.landed_{uuid.uuid4().hex}"
    job = job_of(kafka.bootstrap, name, topic)
    try:
        assert rangeland.land(job, spark).state == "landed"
        produce(kafka.bootstrap, topic, numbered_records(2), partition=0)
        assert rangeland.land(job, spark).sequence == 2
        assert rows_of(spark.table(name)) == judged(kafka.bootstrap, [topic])
        ledger = spark.table(f"{name}__rangeland")
        assert ledger.where("application = 'rangeland/landing'").count() > 0
    finally:
        spark.sql(f"DROP TABLE IF EXISTS {name}__rangeland")
        spark.sql(f"DROP TABLE IF EXISTS {name}")


# --- limits ---------------------------------------------------------------------------------


def test_limited_runs_land_everything_once_and_share_fairly(
    kafka: KafkaCluster, spark: Any, topic: str, table: str
) -> None:
    produced(kafka, topic, p0=5, p1=40, p2=80)
    job = job_of(kafka.bootstrap, table, topic, limits={"max_records": 60})
    first = rangeland.land(job, spark)
    shares = {o.range.partition.number: o.range.width for o in first.ranges}
    assert first.counts.landed == 60
    assert set(shares) == {0, 1, 2}, "a small partition is not starved"
    assert 0 < shares[1] < 40
    assert 0 < shares[2] < 80
    checkpoints = {
        p.partition.number: p.checkpoint
        for p in job_status.status(job, spark, NoProgress()).partitions
    }
    assert checkpoints == shares
    states = [rangeland.land(job, spark).state for _ in range(3)]
    assert states == ["landed", "landed", "nothing"]
    everything = expected(p0=range(5), p1=range(40), p2=range(80))
    assert offsets_in(table) == everything
    assert [p.lag for p in job_status.status(job, spark, NoProgress()).partitions] == [0, 0, 0]


def test_a_first_run_at_the_end_lands_what_comes_after_it(
    kafka: KafkaCluster, spark: Any, topic: str, table: str
) -> None:
    produced(kafka, topic, p0=30, p1=7)
    job = job_of(kafka.bootstrap, table, topic, range={"first_run": "latest"})
    first = rangeland.land(job, spark)
    assert (first.state, first.counts.landed) == ("nothing", 0)
    seen = job_status.status(job, spark, NoProgress()).partitions
    assert [(p.checkpoint, p.lag) for p in seen] == [(30, 0), (7, 0)]
    assert rangeland.land(job, spark).sequence == first.sequence, "it begins once"
    produce(kafka.bootstrap, topic, numbered_records(5), partition=1)
    assert rangeland.land(job, spark).counts.landed == 5
    assert offsets_in(table) == expected(p1=range(7, 12))
    assert rangeland.verify(job, spark).is_well


# --- backfills ------------------------------------------------------------------------------


def test_each_offset_is_landed_once_by_whichever_way_it_came(
    kafka: KafkaCluster, spark: Any, topic: str, table: str
) -> None:
    produced(kafka, topic, p0=30, p1=30)

    def job(**asked: Any) -> Job:
        return job_of(kafka.bootstrap, table, topic, **asked)

    middle = job(range=between(topic, p0=(5, 10), p1=(0, 4)))
    once = rangeland.backfill(middle, spark)
    assert (once.state, once.counts.landed) == ("landed", 9)
    assert rangeland.backfill(middle, spark).state == "already-landed"

    run = rangeland.land(job(), spark)
    assert (run.state, run.counts.landed, run.sequence) == ("landed", 51, 1)
    whole = expected(p0=range(30), p1=range(30))
    assert offsets_in(table) == whole

    over = rangeland.backfill(job(range=between(topic, p0=(0, 30))), spark)
    assert (over.state, over.counts.landed) == ("already-landed", 0)
    produce(kafka.bootstrap, topic, numbered_records(4), partition=0)
    beyond = rangeland.backfill(job(range=between(topic, p0=(28, 33))), spark)
    assert (beyond.state, beyond.counts.landed) == ("landed", 3)
    assert rangeland.land(job(), spark).counts.landed == 1
    whole = expected(p0=range(34), p1=range(30))
    assert offsets_in(table) == whole
    assert rows_of(table_of(spark, table)) == judged(kafka.bootstrap, [topic])


def test_a_backfill_leaves_the_checkpoint_where_it_is(
    kafka: KafkaCluster, spark: Any, topic: str, table: str
) -> None:
    produced(kafka, topic, p0=10)
    begun = job_of(kafka.bootstrap, table, topic, limits={"max_records": 3})
    rangeland.land(begun, spark)
    rangeland.backfill(
        job_of(kafka.bootstrap, table, topic, range=between(topic, p0=(6, 8))), spark
    )
    (status,) = job_status.status(begun, spark, NoProgress()).partitions
    assert (status.checkpoint, status.lag) == (3, 7)


def test_a_backfill_by_time_lands_the_hours_that_were_asked_for(
    kafka: KafkaCluster, spark: Any, topic: str, table: str
) -> None:
    create_topic(kafka.bootstrap, topic)
    first = int(time.time()) * 1000 - 7_200_000
    records = [Record(b"%d" % i, timestamp_ms=first + i * 60_000) for i in range(100)]
    produce(kafka.bootstrap, topic, records)

    def at(minute: int) -> str:
        return dt.datetime.fromtimestamp(first / 1000 + minute * 60, dt.UTC).isoformat()

    job = job_of(kafka.bootstrap, table, topic, range={"from": at(20), "until": at(50)})
    assert rangeland.backfill(job, spark).counts.landed == 30
    assert offsets_in(table) == expected(p0=range(20, 50))
    wider = job_of(kafka.bootstrap, table, topic, range={"from": at(10), "until": at(60)})
    assert rangeland.backfill(wider, spark).counts.landed == 20
    assert offsets_in(table) == expected(p0=range(10, 60))


# --- plans ----------------------------------------------------------------------------------


def test_a_plan_is_applied_as_it_was_reviewed(
    kafka: KafkaCluster, spark: Any, topic: str, table: str
) -> None:
    produced(kafka, topic, p0=10)
    job = job_of(kafka.bootstrap, table, topic)
    plan = rangeland.plan(job, spark)
    produce(kafka.bootstrap, topic, numbered_records(5), partition=0)
    assert offsets_of(plan.read(spark)) == expected(p0=range(10))
    result = plan.apply(spark)
    assert (result.state, result.counts.landed) == ("landed", 10)
    assert offsets_in(table) == expected(p0=range(10))
    assert offsets_of(plan.read(spark)) == expected(p0=range(10))
    again = plan.apply(spark).to_json()
    assert (again["state"], again["table_version"]) == ("already-landed", result.table_version)
    brought = [again[key] for key in ("landed", "rows", "files", "bytes_written", "partitions")]
    assert brought == [0, 0, 0, 0, []], "the first call has brought them"
    (before,) = again["already_landed"]
    assert (before["topic"], before["from_offset"], before["until_offset"]) == (topic, 0, 10)


def test_a_plan_file_names_the_table_that_was_meant_where_it_was_made(
    kafka: KafkaCluster, spark: Any, topic: str, tmp_path: Path
) -> None:
    produced(kafka, topic, p0=10)
    text = parse_job_text(
        json.dumps(
            {
                "job": "landing",
                "source": {"servers": list(kafka.bootstrap), "topics": [topic]},
                "sink": {"table": os.path.relpath(tmp_path / "lake")},
            }
        ),
        "orders.yaml",
    )
    write_plan_file(tmp_path / "plan", run.preview(Job.of(text), spark, NoProgress()), text)
    reviewed = read_plan_file(tmp_path / "plan")
    job = reviewed.in_place(reviewed.job)
    assert job.sink.table.startswith("file:/")
    result = run.apply(job, reviewed.plan, reviewed.unplanned_losses, spark, NoProgress())
    assert result.counts.landed == 10
    assert offsets_in(tmp_path / "lake") == expected(p0=range(10))


def test_a_plan_whose_basis_has_changed_is_refused(
    kafka: KafkaCluster, spark: Any, topic: str, table: str
) -> None:
    produced(kafka, topic, p0=10)
    job = job_of(kafka.bootstrap, table, topic)
    stale = rangeland.plan(job, spark)
    rangeland.land(job, spark)
    with pytest.raises(Conflict, match="no longer applies") as caught:
        stale.apply(spark)
    assert caught.value.exit_code == 73
    assert offsets_in(table) == expected(p0=range(10))


def test_planning_writes_nothing(kafka: KafkaCluster, spark: Any, topic: str, table: str) -> None:
    produced(kafka, topic, p0=10)
    answer = rangeland.plan(job_of(kafka.bootstrap, table, topic), spark).to_json()
    assert not Path(table).exists()
    assert answer["hash"]
    (found,) = answer["ranges"]
    assert (found["topic"], found["from_offset"], found["until_offset"]) == (topic, 0, 10)
    assert sum(s["until_offset"] - s["from_offset"] for s in answer["slices"]) == 10


# --- frames ---------------------------------------------------------------------------------


@pytest.mark.slow
def test_two_actions_on_one_frame_read_the_same_offsets(
    kafka: KafkaCluster, spark: Any, topic: str
) -> None:
    produced(kafka, topic, p0=20, p1=5)
    reader = spark.read.format("rangeland").option("topics", topic)
    frame = reader.option("servers", kafka.bootstrap[0]).load()
    assert frame.schema.simpleString() == CONTRACT
    with_schema = reader.option("servers", kafka.bootstrap[0]).schema(frame.schema).load()
    before = rows_of(frame)
    assert rows_of(with_schema) == before
    produce(kafka.bootstrap, topic, numbered_records(7), partition=1)
    assert rows_of(frame) == before
    assert rows_of(with_schema) == before
    assert frame.count() == 25
    assert offsets_of(frame) == expected(p0=range(20), p1=range(5))
    again = reader.option("servers", kafka.bootstrap[0]).load()
    assert rows_of(again) == judged(kafka.bootstrap, [topic])


@pytest.mark.slow
def test_a_frame_is_bounded_by_its_options(kafka: KafkaCluster, spark: Any, topic: str) -> None:
    produced(kafka, topic, p0=20, p1=5)
    frame = (
        spark.read.format("rangeland")
        .options(servers=kafka.bootstrap[0], topicPattern=topic[:-1] + ".", minPartitions="2")
        .option("from", json.dumps({topic: {"0": 3}}))
        .option("until", json.dumps({topic: {"0": 9}}))
        .load()
    )
    assert offsets_of(frame) == expected(p0=range(3, 9))
