"""What must work on every Spark. ``python -m tests.other_sparks 3.5`` runs these tests on another
one than the installed one, and ``python -m tests.other_sparks 3.5 tests/spark`` the whole suite."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

import rangeland
from rangeland.delta.transaction_log.delta_kernel import DeltaKernel
from rangeland.errors import UsageError
from rangeland.jvm.java import find_java, java_version
from rangeland.model import Partition
from rangeland.progress_events import NoProgress
from rangeland.queries import verify_and_find
from rangeland.spark.supported_versions import SUPPORTED, versions_of
from rangeland.testing.kafka import KafkaCluster
from rangeland.testing.producer import Record, create_topic, produce
from tests.spark.damage import is_proved
from tests.spark.landings import between, job_of, table_of
from tests.spark.typed_landings import OLD, orders, orders_topic, produced, rows_in, typed
from tests.spark_sessions import SPARK_JAVA_HOME


def numbered(kafka: KafkaCluster, topic: str, *numbers: int) -> None:
    values = [Record(b"%d" % n, b"k", partition=p) for n in numbers for p in (0, 1)]
    produce(kafka.bootstrap, topic, values)


def test_a_log_is_landed_once_proved_and_found(
    kafka: KafkaCluster, spark: Any, table: str, topic: str
) -> None:
    create_topic(kafka.bootstrap, topic, partitions=2)
    numbered(kafka, topic, *range(50))
    job = job_of(kafka.bootstrap, table, topic)
    assert rangeland.land(job, spark).landed == 100
    assert rangeland.land(job, spark).state == "nothing"
    numbered(kafka, topic, 50, 51)
    assert rangeland.land(job, spark).landed == 4
    assert is_proved(spark, job)
    found = verify_and_find.find(job, spark, Partition(topic, 1), 50, NoProgress())
    assert (found.state, len(found.files)) == ("landed", 1)
    rows = table_of(spark, table).select("partition", "offset", "value").collect()
    assert sorted((r[0], r[1], int(r[2])) for r in rows) == [
        (p, n, n) for p in (0, 1) for n in range(52)
    ]


def test_backfills_land_what_is_missing_and_replace_what_is_there(
    kafka: KafkaCluster, spark: Any, table: str, topic: str
) -> None:
    create_topic(kafka.bootstrap, topic, partitions=2)
    numbered(kafka, topic, *range(20))
    job = job_of(kafka.bootstrap, table, topic)
    part = job_of(kafka.bootstrap, table, topic, range=between(topic, p0=(5, 10)))
    assert rangeland.backfill(part, spark).landed == 5
    assert rangeland.land(job, spark).landed == 35
    spark.sql(f"DELETE FROM delta.`{table}` WHERE partition = 1 AND offset < 3")
    assert not is_proved(spark, job)
    assert rangeland.backfill(job, spark, missing=True).landed == 3
    assert rangeland.backfill(part, spark, replace=True).landed == 5
    assert is_proved(spark, job)
    assert table_of(spark, table).count() == 40


@pytest.mark.slow
def test_others_change_the_table_meanwhile(
    kafka: KafkaCluster, spark: Any, table: str, topic: str
) -> None:
    create_topic(kafka.bootstrap, topic, partitions=2)
    job = job_of(kafka.bootstrap, table, topic)
    for number in range(12):  # so there is a checkpoint among the commits
        numbered(kafka, topic, number)
        assert rangeland.land(job, spark).landed == 2
    spark.sql(f"OPTIMIZE delta.`{table}`")
    numbered(kafka, topic, 12)
    assert rangeland.land(job, spark).landed == 2
    assert is_proved(spark, job)
    states = spark.read.format("delta").load(f"{table}/_rangeland/ledger")
    assert states.count() == 26  # a plan and an outcome each


@pytest.mark.slow
def test_new_fields_become_columns(kafka: KafkaCluster, spark: Any, table: str, topic: str) -> None:
    orders_topic(kafka, topic, 5)
    flat = {"layout": "flat"}
    rangeland.land(typed(kafka, table, topic, OLD, decode=flat), spark)
    produced(kafka, topic, orders(range(5, 9)))
    result = rangeland.land(typed(kafka, table, topic, decode=flat), spark)
    assert result.added_columns == ("price", "at", "tags", "shop", "sizes")
    assert [row["price"] is None for row in rows_in(table, "_offset")] == [True] * 5 + [False] * 4
    assert table_of(spark, table).where("shop.city = 'Zürich'").count() == 3


def test_old_dates_and_times_are_read_checked_and_replaced(
    kafka: KafkaCluster, spark: Any, table: str, topic: str
) -> None:
    """Dates before 1582 and times before 1900: a Spark before 4.0 reads them only in files of which
    it knows the calendar."""
    create_topic(kafka.bootstrap, topic, partitions=1)
    at = ["0001-01-01T00:00:00Z", "1899-12-31T23:59:59Z", "2026-01-02T03:04:05Z"]
    born = ["0001-01-01", "1582-10-04", "1582-10-15"]
    values = [f'{{"at": "{a}", "born": "{b}"}}'.encode() for a, b in zip(at, born, strict=True)]
    schema, flat = "at TIMESTAMP, born DATE", {"layout": "flat"}
    part = {"range": between(topic, p0=(0, 3))}
    job = typed(kafka, table, topic, schema, decode=flat)

    def stored() -> list[tuple[str, str]]:
        frame = table_of(spark, table).orderBy("_offset")
        found = frame.selectExpr("date_format(at, \"yyyy-MM-dd'T'HH:mm:ssX\")", "string(born)")
        return [tuple(row) for row in found.collect()]

    produced(kafka, topic, values)
    assert rangeland.land(job, spark).landed == 3
    assert stored() == list(zip(at, born, strict=True))
    spark.sql(f"ALTER TABLE delta.`{table}` ADD CONSTRAINT past CHECK (born < '2026-01-01')")
    spark.sql(f"ALTER TABLE delta.`{table}` ADD CONSTRAINT recent CHECK (at < '2027-01-01')")
    produced(kafka, topic, values)
    assert rangeland.land(job, spark).landed == 3
    again = typed(kafka, table, topic, schema, decode=flat, **part)
    assert rangeland.backfill(again, spark, replace=True).landed == 3
    assert stored() == list(zip(at, born, strict=True)) * 2
    assert is_proved(spark, job)


def test_a_plan_is_a_data_frame_and_a_transform_gets_one(
    kafka: KafkaCluster, spark: Any, table: str, topic: str, module: Any
) -> None:
    create_topic(kafka.bootstrap, topic, partitions=2)
    numbered(kafka, topic, *range(10))
    name = module(
        "return df.where('offset >= 4').withColumn('text', F.col('value').cast('string'))"
    )
    job = job_of(kafka.bootstrap, table, topic, sink={"transform": name})
    frame = rangeland.plan(job, spark).read(spark)
    assert frame.count() == 20
    assert frame.selectExpr("sum(CAST(CAST(value AS STRING) AS INT))").first()[0] == 90
    assert rangeland.land(job, spark).rows == 12
    assert table_of(spark, table).selectExpr("min(text)").first()[0] == "4"


def test_the_data_source_is_there_from_spark_4_on(
    kafka: KafkaCluster, spark: Any, topic: str
) -> None:
    if not hasattr(spark, "dataSource"):
        with pytest.raises(UsageError, match=r"needs Spark 4.*plan\(job, spark\)\.read\(spark\)"):
            _ = rangeland.RangelandSource
        return
    create_topic(kafka.bootstrap, topic, partitions=2)
    numbered(kafka, topic, *range(10))
    options = {"servers": ",".join(kafka.bootstrap), "topics": topic}
    assert spark.read.format("rangeland").options(**options).load().count() == 20


def test_spark_runs_on_the_java_that_was_asked_for(spark: Any) -> None:
    home = os.environ.get(SPARK_JAVA_HOME)
    java = str(Path(home, "bin", "java")) if home else find_java()
    running = spark._jvm.System.getProperty("java.specification.version")
    assert int(running) == java_version(java)


def test_delta_kernel_is_the_same_on_each(spark: Any, kernel: DeltaKernel) -> None:
    found = versions_of(spark._jvm)
    assert any(found.spark.startswith(f"{minor}.") for minor in SUPPORTED)
    source = kernel.engine.getClass().getProtectionDomain().getCodeSource().getLocation()
    assert Path(source.getPath()).name == "delta-kernel-defaults-4.4.0.jar"
    loader = spark._jvm.java.lang.Thread.currentThread().getContextClassLoader()
    assert not loader.equals(kernel.engine.getClass().getClassLoader())
