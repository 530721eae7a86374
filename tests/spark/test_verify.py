"""The table compared with the ledger after changes by others: missing offsets are found exactly
and landed again, and nothing is there twice.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC
from pathlib import Path
from typing import Any

import pytest

import rangeland
from rangeland import run
from rangeland.errors import Conflict, RangeLost, TableRefused, Unreachable, UsageError
from rangeland.job import Job
from rangeland.landing.execution.spark_plan_reader import SparkPlanReader
from rangeland.landing.special_plans import replacement
from rangeland.landing.special_plans.replacement import Replacement
from rangeland.landing.target.landing_target import open_target
from rangeland.landing.target.target_writer import TargetWriter
from rangeland.model import Counts, Partition, Range
from rangeland.planning.plan import PlanId
from rangeland.planning.plan_kind import PlanKind
from rangeland.planning.table_audit import ReplacedRange
from rangeland.progress_events import NoProgress
from rangeland.queries import verify_and_find
from rangeland.spark import replace_where
from rangeland.testing.kafka import KafkaCluster
from rangeland.testing.producer import (
    Record,
    create_topic,
    delete_records,
    delete_topic,
    numbered_records,
    produce,
    produce_transaction,
)
from tests.spark.landings import (
    between,
    dying_before_commit,
    expected,
    job_of,
    judged,
    offsets_in,
    rows_of,
    table_of,
)
from tests.spark.test_landing import wait_for_ends

pytestmark = [pytest.mark.spark, pytest.mark.brokers]

Sql = Callable[[str], list[Any]]


@pytest.fixture
def landed(kafka: KafkaCluster, spark: Any, topic: str, table: str) -> Job:
    """Two partitions of 100 records in two landings: 60, then 40."""
    create_topic(kafka.bootstrap, topic, partitions=2)
    job = job_of(kafka.bootstrap, table, topic)
    for start, count in ((0, 60), (60, 40)):
        for partition in (0, 1):
            produce(kafka.bootstrap, topic, numbered_records(count, start), partition=partition)
        assert rangeland.land(job, spark).counts.landed == 2 * count
    return job


def verified(job: Job, spark: Any) -> dict[str, Any]:
    """What `verify --json` prints, without the time it took."""
    found = verify_and_find.verify(job, spark, NoProgress()).to_json()
    found.pop("seconds")
    return json.loads(json.dumps(found))


def holes_of(found: dict[str, Any]) -> list[tuple[int, int, int]]:
    return [(h["partition"], h["from_offset"], h["until_offset"]) for h in found["holes"]]


# --- verify -------------------------------------------------------------------------------------


def test_a_table_that_nobody_has_touched_is_proved(landed: Job, spark: Any, sql: Sql) -> None:
    found = verified(landed, spark)
    assert (found["ok"], found["holes"], found["duplicates"]) == (True, [], [])
    assert found["landings"] == 2
    assert sum(r["landed"] for r in found["ranges"]) == 200
    sql(f"OPTIMIZE delta.`{landed.sink.table}`")
    sql(f"OPTIMIZE delta.`{landed.sink.table}/_rangeland/ledger`")
    spark.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
    sql(f"VACUUM delta.`{landed.sink.table}` RETAIN 0 HOURS")
    after = verified(landed, spark)
    assert after["ok"]
    assert after["ranges"] == found["ranges"]


@pytest.mark.slow
def test_markers_and_aborted_records_are_no_holes(
    kafka: KafkaCluster, spark: Any, topic: str, table: str, sql: Sql
) -> None:
    create_topic(kafka.bootstrap, topic, partitions=1)
    for number in range(6):
        produce_transaction(
            kafka.bootstrap, topic, numbered_records(5), commit=number % 3 != 1, partition=0
        )
    wait_for_ends(kafka, topic, 36)
    job = job_of(kafka.bootstrap, table, topic)
    assert rangeland.land(job, spark).counts == Counts(landed=20, control=6, aborted=10)
    assert verified(job, spark)["ok"]
    sql(f"DELETE FROM delta.`{table}` WHERE offset BETWEEN 3 AND 14")
    # 5 is a marker, 6 to 10 are aborted, 11 is their marker: only what had rows is missing
    assert holes_of(verified(job, spark)) == [(0, 3, 5), (0, 12, 15)]
    result = rangeland.backfill(job, spark, missing=True)
    assert (result.state, result.counts.landed) == ("landed", 5)
    assert verified(job, spark)["ok"]
    assert rows_of(table_of(spark, table)) == judged(kafka.bootstrap, [topic])


def test_deleted_rows_are_found_to_the_offset_and_landed_again(
    kafka: KafkaCluster, landed: Job, spark: Any, sql: Sql
) -> None:
    table, topic = landed.sink.table, landed.source.topics[0]
    sql(f"DELETE FROM delta.`{table}` WHERE partition = 1 AND offset IN (0, 7, 8, 59, 60, 99)")
    found = verified(landed, spark)
    assert not found["ok"]
    assert holes_of(found) == [(1, 0, 1), (1, 7, 9), (1, 59, 61), (1, 99, 100)]
    assert found["suspect"] == []
    result = rangeland.backfill(landed, spark, missing=True)
    assert (result.state, result.counts.landed) == ("landed", 6)
    assert verified(landed, spark)["ok"]
    assert rows_of(table_of(spark, table)) == judged(kafka.bootstrap, [topic])
    again = rangeland.backfill(landed, spark, missing=True)
    assert (again.state, again.counts.landed) == ("nothing", 0)
    produce(kafka.bootstrap, topic, numbered_records(5), partition=0)
    assert rangeland.land(landed, spark).counts.landed == 5


@pytest.mark.slow
def test_rows_that_others_have_added_are_distinguished(landed: Job, spark: Any, sql: Sql) -> None:
    table = landed.sink.table
    sql(f"INSERT INTO delta.`{table}` SELECT * FROM delta.`{table}` WHERE offset BETWEEN 10 AND 12")
    sql(
        f"INSERT INTO delta.`{table}` SELECT key, value, topic, partition, offset + 1000, "
        f"timestamp, timestampType, headers FROM delta.`{table}` WHERE partition = 0 "
        "AND offset = 99"
    )
    found = verified(landed, spark)
    assert not found["ok"]
    doubled = [(d["partition"], d["from_offset"], d["until_offset"]) for d in found["duplicates"]]
    assert doubled == [(0, 10, 13), (1, 10, 13)]
    strange = [(s["partition"], s["from_offset"], s["until_offset"]) for s in found["strangers"]]
    assert strange == [(0, 1099, 1100)]
    assert found["holes"] == []


@pytest.mark.slow
def test_a_restored_table_is_mended_and_goes_on(
    kafka: KafkaCluster, landed: Job, spark: Any, sql: Sql
) -> None:
    table, topic = landed.sink.table, landed.source.topics[0]
    sql(f"RESTORE TABLE delta.`{table}` TO VERSION AS OF 1")
    produce(kafka.bootstrap, topic, numbered_records(10, 100), partition=0)
    with pytest.raises(Conflict, match="was restored") as refused:
        rangeland.land(landed, spark)
    assert "backfill" in refused.value.do
    assert "--missing" in refused.value.do
    assert holes_of(verified(landed, spark)) == [(0, 60, 100), (1, 60, 100)]
    assert rangeland.backfill(landed, spark, missing=True).counts.landed == 80
    assert verified(landed, spark)["ok"]
    assert rangeland.land(landed, spark).counts.landed == 10
    assert rows_of(table_of(spark, table)) == judged(kafka.bootstrap, [topic])


def restore_to_time_of(version: int, table: str, sql: Sql) -> None:
    history = sql(f"DESCRIBE HISTORY delta.`{table}`")
    (stamp,) = [row.timestamp for row in history if row.version == version]
    sql(f"RESTORE TABLE delta.`{table}` TO TIMESTAMP AS OF '{stamp.isoformat(' ')}'")


@pytest.mark.slow
def test_a_table_restored_to_a_time_is_noticed_too(
    kafka: KafkaCluster, landed: Job, spark: Any, sql: Sql
) -> None:
    table, topic = landed.sink.table, landed.source.topics[0]
    restore_to_time_of(1, table, sql)
    produce(kafka.bootstrap, topic, numbered_records(10, 100), partition=0)
    with pytest.raises(Conflict, match="was restored"):
        rangeland.land(landed, spark)
    assert rangeland.backfill(landed, spark, missing=True).counts.landed == 80
    assert rangeland.land(landed, spark).counts.landed == 10
    assert verified(landed, spark)["ok"]


@pytest.mark.slow
@pytest.mark.parametrize("restored_to", [1, 2])
def test_a_restore_to_a_time_is_noticed_while_a_plan_is_unfinished(
    kafka: KafkaCluster,
    landed: Job,
    spark: Any,
    sql: Sql,
    monkeypatch: pytest.MonkeyPatch,
    restored_to: int,
) -> None:
    """Nothing has landed between that plan and the restore. To the time of version 2, with nothing
    but an OPTIMIZE after it, it takes nothing back, and is in nobody's way."""
    table, topic = landed.sink.table, landed.source.topics[0]
    produce(kafka.bootstrap, topic, numbered_records(10, 100), partition=0)

    def fail(*about: object, **more: object) -> None:
        raise Unreachable("no broker answers")

    with monkeypatch.context() as patched:
        patched.setattr(SparkPlanReader, "read", fail)
        with pytest.raises(Unreachable):
            rangeland.land(landed, spark)
    sql(f"OPTIMIZE delta.`{table}`")
    restore_to_time_of(restored_to, table, sql)
    if restored_to == 1:
        with pytest.raises(Conflict, match="was restored to an earlier time"):
            rangeland.land(landed, spark)
        assert holes_of(verified(landed, spark)) == [(0, 60, 100), (1, 60, 100)]
        assert rangeland.backfill(landed, spark, missing=True).counts.landed == 80
    assert rangeland.land(landed, spark).counts.landed == 10
    assert verified(landed, spark)["ok"]


@pytest.mark.slow
def test_a_restore_that_took_nothing_back_is_in_nobody_s_way(
    kafka: KafkaCluster, landed: Job, spark: Any, sql: Sql
) -> None:
    table, topic = landed.sink.table, landed.source.topics[0]
    part = job_of(kafka.bootstrap, table, topic, range=between(topic, p0=(0, 60)))
    before = verify_and_find.verify(landed, spark, NoProgress()).table_version
    assert rangeland.backfill(part, spark, replace=True).replaced == ReplacedRange(same=60)
    sql(f"RESTORE TABLE delta.`{table}` TO VERSION AS OF {before}")
    assert rangeland.land(landed, spark).state == "nothing"
    produce(kafka.bootstrap, topic, numbered_records(5), partition=0)
    assert rangeland.land(landed, spark).counts.landed == 5
    assert verified(landed, spark)["ok"]


@pytest.mark.slow
def test_a_column_named_broker_is_not_part_of_an_offset_s_name(
    kafka: KafkaCluster, spark: Any, topic: str, table: str
) -> None:
    create_topic(kafka.bootstrap, topic, partitions=1)
    produce(kafka.bootstrap, topic, numbered_records(10))
    sink = {"transform": "tests.spark.test_verify:with_a_broker"}
    job = job_of(kafka.bootstrap, table, topic, sink=sink)
    rangeland.land(job, spark)
    assert verified(job, spark)["ok"]
    part = job_of(kafka.bootstrap, table, topic, sink=sink, range=between(topic, p0=(0, 10)))
    assert rangeland.backfill(part, spark, replace=True).replaced == ReplacedRange(same=10)


def with_a_broker(frame: Any) -> Any:
    return frame.selectExpr("*", "concat('ACME ', offset) AS broker")


@pytest.mark.slow
def test_files_that_are_gone_from_the_store_are_named_and_their_rows_landed_again(
    kafka: KafkaCluster, landed: Job, spark: Any
) -> None:
    table, topic = Path(landed.sink.table), landed.source.topics[0]
    victim = next(iter(sorted(table.glob("*.parquet"))))
    victim.unlink()
    found = verified(landed, spark)
    assert found["missing_files"] == [victim.name]
    lost = sum(until - start for _, start, until in holes_of(found))
    assert lost > 0
    assert rangeland.backfill(landed, spark, missing=True).counts.landed == lost
    after = verified(landed, spark)
    assert (after["ok"], after["missing_files"]) == (True, [])
    assert rows_of(table_of(spark, str(table))) == judged(kafka.bootstrap, [topic])


@pytest.mark.slow
def test_a_hole_that_the_log_no_longer_has_is_lost_and_said(
    kafka: KafkaCluster, landed: Job, spark: Any, sql: Sql
) -> None:
    table, topic = landed.sink.table, landed.source.topics[0]
    sql(f"DELETE FROM delta.`{table}` WHERE partition = 0 AND offset < 30")
    delete_records(kafka.bootstrap, topic, {0: 20})
    with pytest.raises(RangeLost) as lost:
        rangeland.backfill(landed, spark, missing=True)
    assert lost.value.facts["losses"][0]["until_offset"] == 20
    skipping = job_of(kafka.bootstrap, table, topic, policy={"expired": "skip"})
    result = rangeland.backfill(skipping, spark, missing=True)
    assert result.counts == Counts(landed=10, lost=20)
    assert verified(landed, spark)["ok"], "what is lost was dealt with"
    assert offsets_in(table) == expected(p0=range(20, 100), p1=range(100))


def test_without_offsets_in_its_rows_a_table_cannot_be_proved(
    kafka: KafkaCluster, spark: Any, topic: str, table: str
) -> None:
    create_topic(kafka.bootstrap, topic, partitions=1)
    produce(kafka.bootstrap, topic, numbered_records(3))
    job = job_of(
        kafka.bootstrap, table, topic, sink={"transform": "tests.spark.test_verify:values_only"}
    )
    rangeland.land(job, spark)
    with pytest.raises(TableRefused, match="do not say which offset"):
        verified(job, spark)


def values_only(frame: Any) -> Any:
    return frame.select("value")


def with_a_map(frame: Any) -> Any:
    return frame.selectExpr("*", "map('topic', topic) AS labels")


def every_other(frame: Any) -> Any:
    return frame.where("offset % 2 = 0")


@pytest.mark.slow
def test_what_a_transform_has_dropped_is_not_a_hole(
    kafka: KafkaCluster, spark: Any, topic: str, table: str, sql: Sql
) -> None:
    create_topic(kafka.bootstrap, topic, partitions=1)
    produce(kafka.bootstrap, topic, numbered_records(10))
    job = job_of(
        kafka.bootstrap, table, topic, sink={"transform": "tests.spark.test_verify:every_other"}
    )
    assert rangeland.land(job, spark).counts == Counts(landed=5, filtered=5)
    assert verified(job, spark)["ok"]
    sql(f"DELETE FROM delta.`{table}` WHERE offset = 4")
    found = verified(job, spark)
    assert not found["ok"]
    assert found["suspect"] == found["holes"]
    rangeland.backfill(job, spark, missing=True)
    assert verified(job, spark)["ok"]
    assert offsets_in(table) == expected(p0=range(0, 10, 2))


# --- find ---------------------------------------------------------------------------------------


@pytest.mark.slow
def test_an_offset_is_found_with_its_landing_its_leader_and_its_file(
    kafka: KafkaCluster, landed: Job, spark: Any, sql: Sql
) -> None:
    topic, table = landed.source.topics[0], landed.sink.table
    found = verify_and_find.find(landed, spark, Partition(topic, 1), 75, NoProgress()).to_json()
    assert (found["state"], found["sequence"], found["table_version"]) == ("landed", 2, 2)
    assert found["leader"] == kafka.bootstrap[0]
    assert Path(found["file"].removeprefix("file:").replace("%20", " ")).exists()
    history = sql(f"DESCRIBE HISTORY delta.`{table}`")
    (committed_at,) = [row.timestamp for row in history if row.version == 2]
    stamp = committed_at.astimezone(UTC).isoformat()
    assert found["landed_at"].startswith(stamp[:19])
    sql(f"DELETE FROM delta.`{table}` WHERE offset = 75")
    gone = verify_and_find.find(landed, spark, Partition(topic, 1), 75, NoProgress())
    assert (gone.state, gone.sequence, gone.files) == ("missing", 2, ())
    never = verify_and_find.find(landed, spark, Partition(topic, 1), 100, NoProgress())
    assert (never.state, never.sequence) == ("not-landed", None)


@pytest.mark.slow
def test_what_two_incarnations_of_a_topic_share_is_left_alone_and_the_rest_is_mended(
    kafka: KafkaCluster, landed: Job, spark: Any, sql: Sql
) -> None:
    table, topic = landed.sink.table, landed.source.topics[0]
    delete_topic(kafka.bootstrap, topic)
    create_topic(kafka.bootstrap, topic, partitions=2)
    produce(kafka.bootstrap, topic, numbered_records(120, 1000), partition=0)
    job = job_of(kafka.bootstrap, table, topic, policy={"recreated": "skip"})
    assert rangeland.land(job, spark).counts.landed == 120
    assert verified(job, spark)["ok"]
    # 3 and 5 are of both lives, of 3 one row is left, and 110 is of the second alone
    one = "offset = 3 AND CAST(value AS STRING) = 'value-00001003'"
    sql(f"DELETE FROM delta.`{table}` WHERE partition = 0 AND (offset IN (5, 110) OR ({one}))")
    result = rangeland.backfill(job, spark, missing=True)
    assert (result.state, result.counts.landed, result.counts.lost) == ("landed", 2, 1)
    (said,) = [warning for warning in result.warnings if "landed from two topics" in warning]
    assert f"{topic}/0 [3, 4)" in said
    assert holes_of(verified(job, spark)) == [(0, 3, 4)]
    rows = [at for at in offsets_in(table) if at in ((0, 3), (0, 5), (0, 110))]
    assert rows == [(0, 3), (0, 5), (0, 110)]
    again = rangeland.backfill(job, spark, missing=True)
    assert (again.state, again.counts.landed) == ("nothing", 0)


# --- replace ------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_range_is_replaced_and_every_difference_is_counted(
    kafka: KafkaCluster, landed: Job, spark: Any, sql: Sql
) -> None:
    table, topic = landed.sink.table, landed.source.topics[0]
    sql(f"UPDATE delta.`{table}` SET value = x'00' WHERE partition = 0 AND offset < 3")
    sql(f"DELETE FROM delta.`{table}` WHERE partition = 0 AND offset IN (10, 11)")
    sql(f"INSERT INTO delta.`{table}` SELECT * FROM delta.`{table}` WHERE offset = 20")
    part = job_of(kafka.bootstrap, table, topic, range=between(topic, p0=(0, 60)))
    result = rangeland.backfill(part, spark, replace=True)
    assert result.state == "landed"
    assert result.replaced == ReplacedRange(same=54, added=2, changed=4, missing=0)
    assert result.counts.landed == 60
    found = verified(landed, spark)
    doubled = [(d["partition"], d["from_offset"]) for d in found["duplicates"]]
    assert (found["holes"], doubled) == ([], [(1, 20)]), "the other partition is as it was"
    rows = [row for row in rows_of(table_of(spark, table)) if row.partition == 0]
    assert rows == [row for row in judged(kafka.bootstrap, [topic]) if row.partition == 0]
    produce(kafka.bootstrap, topic, numbered_records(5), partition=0)
    assert rangeland.land(landed, spark).counts.landed == 5, "the checkpoint stayed where it was"


@pytest.mark.slow
def test_a_row_that_the_log_does_not_give_any_more_is_counted_as_missing(
    kafka: KafkaCluster, landed: Job, spark: Any
) -> None:
    table, topic = landed.sink.table, landed.source.topics[0]
    part = job_of(
        kafka.bootstrap,
        table,
        topic,
        range=between(topic, p0=(0, 60), p1=(0, 60)),
        sink={"transform": "tests.spark.test_verify:every_other"},
    )
    result = rangeland.backfill(part, spark, replace=True)
    assert result.replaced == ReplacedRange(same=60, missing=60)
    assert result.counts == Counts(landed=60, filtered=60)
    assert verified(landed, spark)["ok"]
    late = [*range(60, 100)]
    evens = [*range(0, 60, 2), *late]
    assert offsets_in(table) == expected(p0=evens, p1=evens)


@pytest.mark.slow
def test_rows_that_spark_cannot_compare_are_replaced_with_a_warning(
    kafka: KafkaCluster, spark: Any, topic: str, table: str, sql: Sql
) -> None:
    create_topic(kafka.bootstrap, topic, partitions=1)
    produce(kafka.bootstrap, topic, numbered_records(10), partition=0)
    sink = {"transform": "tests.spark.test_verify:with_a_map"}
    job = job_of(kafka.bootstrap, table, topic, sink=sink)
    rangeland.land(job, spark)
    sql(f"UPDATE delta.`{table}` SET labels = map('topic', 'wrong') WHERE offset < 3")
    part = job_of(kafka.bootstrap, table, topic, sink=sink, range=between(topic, p0=(0, 10)))
    result = rangeland.backfill(part, spark, replace=True)
    assert (result.state, result.counts.landed, result.replaced) == ("landed", 10, None)
    assert [w.split(":")[0] for w in result.warnings] == ["could not compare new rows with old"]
    assert {row["labels"]["topic"] for row in table_of(spark, table).collect()} == {topic}
    assert verified(job, spark)["ok"]


@pytest.mark.slow
def test_a_partitioned_table_is_replaced_in_its_partitions(
    kafka: KafkaCluster, spark: Any, topic: str, table: str
) -> None:
    create_topic(kafka.bootstrap, topic, partitions=1)
    now, day = time.time_ns() // 1_000_000, 86_400_000  # older ones the broker would not keep
    records = [Record(b"v", timestamp_ms=now - i * day) for i in range(4)]
    produce(kafka.bootstrap, topic, records, partition=0)
    sink = {"partition_by": ["date(timestamp)", "hour(timestamp)", "topic"]}
    job = job_of(kafka.bootstrap, table, topic, sink=sink)
    rangeland.land(job, spark)
    before = sorted(map(str, table_of(spark, table).collect()))
    part = job_of(kafka.bootstrap, table, topic, sink=sink, range=between(topic, p0=(0, 4)))
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        assert rangeland.backfill(part, spark, replace=True).replaced == ReplacedRange(same=4)
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    assert sorted(map(str, table_of(spark, table).collect())) == before
    assert verified(job, spark)["ok"]


def test_a_replacement_that_meets_an_optimize_is_tried_again(
    kafka: KafkaCluster,
    landed: Job,
    spark: Any,
    sql: Sql,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table, topic = landed.sink.table, landed.source.topics[0]
    writes, optimized = tmp_path / "writes", tmp_path / "optimized"
    attempts: list[PlanId] = []

    def wait_for_optimize(batches: Iterator[Any]) -> Iterator[Any]:
        writes.touch()
        while not optimized.exists():
            time.sleep(0.05)
        yield from batches

    def replace_slowly(new: Any, path: str, where: str, plan_id: PlanId, **more: Any) -> Any:
        attempts.append(plan_id)
        if len(attempts) == 1:
            new = new.coalesce(1).mapInArrow(wait_for_optimize, new.schema)
        return replace_where.replace_rows(new, path, where, plan_id, **more)

    def optimize() -> None:
        for _ in range(1_800):
            if writes.exists():
                break
            time.sleep(0.1)
        sql(f"OPTIMIZE delta.`{table}`")
        optimized.touch()

    monkeypatch.setattr(replacement, "replace_rows", replace_slowly)
    part = job_of(kafka.bootstrap, table, topic, range=between(topic, p0=(0, 60)))
    with ThreadPoolExecutor(1) as another_writer:
        optimizing = another_writer.submit(optimize)
        done = rangeland.backfill(part, spark, replace=True)
        optimizing.result()
    assert len(attempts) == 2
    assert done.replaced == ReplacedRange(same=60)
    assert verified(landed, spark)["ok"]


def test_a_replacement_that_another_driver_has_just_made_is_not_reported_as_this_ones(
    kafka: KafkaCluster, landed: Job, spark: Any, sql: Sql, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, topic = landed.sink.table, landed.source.topics[0]

    def replace_after_another(new: Any, path: str, *about: Any, **more: Any) -> Any:
        assert replace_where.replace_rows(new, path, *about, **more) is None
        return replace_where.replace_rows(new, path, *about, **more)

    monkeypatch.setattr(replacement, "replace_rows", replace_after_another)
    part = job_of(kafka.bootstrap, table, topic, range=between(topic, p0=(0, 60)))
    done = rangeland.backfill(part, spark, replace=True)
    assert (done.state, done.counts.landed, done.replaced) == ("already-landed", 0, None)
    last = sql(f"DESCRIBE HISTORY delta.`{table}` LIMIT 1")[0]
    assert (done.table_version, last.operation) == (last.version, "WRITE")
    assert verified(landed, spark)["ok"]


def test_a_replacement_keeps_the_text_that_a_session_gives_to_its_commits(
    kafka: KafkaCluster, landed: Job, spark: Any, sql: Sql
) -> None:
    table, topic = landed.sink.table, landed.source.topics[0]
    part = job_of(kafka.bootstrap, table, topic, range=between(topic, p0=(0, 60)))
    spark.conf.set(replace_where.USER_METADATA, "of this team")
    try:
        done = rangeland.backfill(part, spark, replace=True)
    finally:
        spark.conf.unset(replace_where.USER_METADATA)
    assert (done.state, done.replaced) == ("landed", ReplacedRange(same=60))
    last = sql(f"DESCRIBE HISTORY delta.`{table}` LIMIT 1")[0]
    assert last.userMetadata.startswith("of this team rangeland ")


@pytest.mark.slow
def test_a_range_that_cuts_a_slice_is_refused_and_nothing_is_changed(
    kafka: KafkaCluster, landed: Job, spark: Any
) -> None:
    table, topic = landed.sink.table, landed.source.topics[0]
    version = verify_and_find.verify(landed, spark, NoProgress()).table_version
    part = job_of(kafka.bootstrap, table, topic, range=between(topic, p0=(10, 60)))
    with pytest.raises(UsageError, match="cuts the slice") as refused:
        rangeland.backfill(part, spark, replace=True)
    assert "Begin at 0 or 60" in str(refused.value)
    found = verify_and_find.verify(landed, spark, NoProgress())
    assert (found.table_version, found.is_well) == (version, True)


@pytest.mark.parametrize(
    "obstacle",
    [
        "append only",
        *(
            pytest.param(name, marks=pytest.mark.slow)
            for name in ("no offsets", "expired", "another life")
        ),
    ],
)
def test_what_cannot_be_replaced_is_refused_before_anything_is_entered(
    kafka: KafkaCluster, landed: Job, spark: Any, sql: Sql, obstacle: str
) -> None:
    table, topic = landed.sink.table, landed.source.topics[0]
    more: dict[str, Any] = {}
    refusal: type[Exception] = TableRefused
    if obstacle == "append only":
        sql(f"ALTER TABLE delta.`{table}` SET TBLPROPERTIES ('delta.appendOnly' = 'true')")
    elif obstacle == "no offsets":
        table = f"{table}-values"
        more = {"sink": {"transform": "tests.spark.test_verify:values_only"}}
        rangeland.land(job_of(kafka.bootstrap, table, topic, **more), spark)
    elif obstacle == "expired":
        delete_records(kafka.bootstrap, topic, {0: 20})
        more, refusal = {"policy": {"expired": "skip"}}, RangeLost
    else:
        delete_topic(kafka.bootstrap, topic)
        create_topic(kafka.bootstrap, topic, partitions=2)
        produce(kafka.bootstrap, topic, numbered_records(60), partition=0)
        more, refusal = {"policy": {"recreated": "skip"}}, UsageError
        rangeland.land(job_of(kafka.bootstrap, table, topic, **more), spark)
    job = job_of(kafka.bootstrap, table, topic, **more)
    version = open_target(spark, job).table.version
    part = job_of(kafka.bootstrap, table, topic, range=between(topic, p0=(0, 60)), **more)
    with pytest.raises(refusal):
        rangeland.backfill(part, spark, replace=True)
    seen = open_target(spark, job)
    assert (seen.table.version, seen.history.unfinished_plans()) == (version, [])
    assert rangeland.land(job, spark).state == "nothing"


@pytest.mark.slow
def test_rows_that_came_back_before_the_mending_was_done_are_not_there_twice(
    kafka: KafkaCluster, landed: Job, spark: Any, sql: Sql, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, topic = landed.sink.table, landed.source.topics[0]
    whole = verify_and_find.verify(landed, spark, NoProgress()).table_version
    sql(f"DELETE FROM delta.`{table}` WHERE offset < 5")

    with dying_before_commit(monkeypatch, TargetWriter):
        rangeland.backfill(landed, spark, missing=True)
    sql(f"RESTORE TABLE delta.`{table}` TO VERSION AS OF {whole}")
    rangeland.land(landed, spark)
    assert verified(landed, spark)["ok"]
    assert rows_of(table_of(spark, table)) == judged(kafka.bootstrap, [topic])


@pytest.mark.slow
def test_rows_that_came_back_and_cannot_be_landed_again_are_not_removed(
    kafka: KafkaCluster, landed: Job, spark: Any, sql: Sql, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, topic = landed.sink.table, landed.source.topics[0]
    version = open_target(spark, landed).table.version
    rows = rows_of(table_of(spark, table))
    sql(f"DELETE FROM delta.`{table}` WHERE partition = 0 OR offset < 5")
    delete_records(kafka.bootstrap, topic, {0: 60})
    job = job_of(kafka.bootstrap, table, topic, policy={"expired": "skip"})

    with dying_before_commit(monkeypatch, TargetWriter):
        rangeland.backfill(job, spark, missing=True)
    sql(f"RESTORE TABLE delta.`{table}` TO VERSION AS OF {version}")
    assert rows_of(table_of(spark, table)) == rows
    result = rangeland.land(job, spark)
    assert (result.counts.landed, result.counts.lost) == (45, 60)
    assert rows_of(table_of(spark, table)) == rows


@pytest.mark.parametrize("step", ["missing", "replace"])
@pytest.mark.slow
def test_what_died_before_its_commit_is_finished_by_the_next_run(
    kafka: KafkaCluster,
    landed: Job,
    spark: Any,
    sql: Sql,
    monkeypatch: pytest.MonkeyPatch,
    step: str,
) -> None:
    table, topic = landed.sink.table, landed.source.topics[0]
    sql(f"DELETE FROM delta.`{table}` WHERE partition = 0 AND offset < 5")
    part = job_of(kafka.bootstrap, table, topic, range=between(topic, p0=(0, 60)))

    commits: type = {"missing": TargetWriter, "replace": Replacement}[step]
    asked = landed if step == "missing" else part
    with dying_before_commit(monkeypatch, commits):
        rangeland.backfill(asked, spark, **{step: True})
    assert not verified(landed, spark)["ok"]
    produce(kafka.bootstrap, topic, numbered_records(5), partition=1)
    assert rangeland.land(landed, spark).counts.landed == 5 + {"missing": 5, "replace": 60}[step]
    assert verified(landed, spark)["ok"]
    assert rows_of(table_of(spark, table)) == judged(kafka.bootstrap, [topic])


def test_a_preview_of_what_is_missing_writes_nothing(landed: Job, spark: Any, sql: Sql) -> None:
    sql(f"DELETE FROM delta.`{landed.sink.table}` WHERE partition = 0 AND offset < 5")
    topic = landed.source.topics[0]
    seen = run.preview(landed, spark, NoProgress(), PlanKind.HOLES)
    (hole,) = seen.draft.plan.ranges
    assert (hole.partition, hole.from_offset, hole.until_offset) == (Partition(topic, 0), 0, 5)
    assert isinstance(hole, Range)
    assert holes_of(verified(landed, spark)) == [(0, 0, 5)]
