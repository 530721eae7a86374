"""Transforms that fail, with a real broker and a real Spark. The error names the exception, the
line and the records; nothing is landed until the transform is corrected, and then everything.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest

import rangeland
from rangeland import run
from rangeland.errors import JobFileError, TransformFailed
from rangeland.model import Counts
from rangeland.progress_events import NoProgress
from rangeland.testing.kafka import KafkaCluster
from rangeland.testing.producer import create_topic, numbered_records, produce, produce_transaction
from tests.spark.landings import expected, job_of, offsets_in, table_of

pytestmark = [pytest.mark.spark, pytest.mark.brokers]
Module = Callable[[str], str]


def written(kafka: KafkaCluster, topic: str, *counts: int) -> str:
    create_topic(kafka.bootstrap, topic, partitions=len(counts))
    for partition, count in enumerate(counts):
        produce(kafka.bootstrap, topic, numbered_records(count), partition=partition)
    return topic


FAILS_AT_7 = """f = F.udf(lambda p, o: {}['orders'] if (p, o) in [(1, 7), (1, 11)] else o, 'long')
    return df.withColumn('x', f('partition', 'offset'))"""
FAILS_AT_11 = FAILS_AT_7.replace("(1, 7), ", "")
CORRECTED = "return df.withColumn('x', F.col('offset'))"


@pytest.mark.slow
def test_the_author_of_a_transform_is_told_the_exception_the_line_and_the_record(
    kafka: KafkaCluster,
    spark: Any,
    topic: str,
    table: str,
    module: Module,
    capfd: pytest.CaptureFixture[str],
) -> None:
    written(kafka, topic, 20, 20)
    name = module(FAILS_AT_7)
    job = job_of(kafka.bootstrap, table, topic, sink={"transform": name})
    with pytest.raises(TransformFailed) as caught:
        rangeland.land(job, spark)
    error = caught.value
    assert error.exit_code == 65
    assert (error.facts["exception"], error.facts["message"]) == ("KeyError", "'orders'")
    assert (error.facts["topic"], error.facts["partition"]) == (topic, 1)
    assert error.facts["from_offset"] <= 7 < error.facts["until_offset"]
    assert f"{topic}/1" in str(error)
    file = name.partition(":")[0] + ".py"
    assert f"KeyError: 'orders' ({file}:5)" in str(error)
    out, err = capfd.readouterr()
    assert "\tat " not in out + err
    assert table_of(spark, table).count() == 0

    # With a policy, the others land. What is in quarantine waits for a transform that takes it.
    keeping = {"policy": {"undecodable": "quarantine"}, "sink": {"transform": name}}
    job = job_of(kafka.bootstrap, table, topic, **keeping)
    produce(kafka.bootstrap, topic, numbered_records(5), partition=0)
    result = rangeland.land(job, spark)
    assert (result.recovered, result.state) == ((1,), "landed")
    assert result.counts == Counts(landed=43, quarantined=2)
    lost, _ = result.losses
    assert f"fails on offset 7: KeyError: 'orders' ({file}:5)" in lost.loss.evidence
    without = [n for n in range(20) if n not in (7, 11)]
    assert offsets_in(table) == expected(p0=range(25), p1=without)
    assert rangeland.verify(job, spark).is_well
    sys.modules.pop(name.partition(":")[0])
    job = job_of(kafka.bootstrap, table, topic, sink={"transform": module(FAILS_AT_11)})
    with pytest.raises(TransformFailed, match="'orders'"):  # for what is left
        run.redrive(job, spark, NoProgress())
    without = [n for n in range(20) if n != 11]
    assert offsets_in(table) == expected(p0=range(25), p1=without)
    produce(kafka.bootstrap, topic, numbered_records(1), partition=0)
    again = rangeland.land(job, spark)  # the failed redrive is not in its way
    assert (again.state, again.landed) == ("landed", 1)

    sys.modules.pop(name.partition(":")[0])
    job = job_of(kafka.bootstrap, table, topic, sink={"transform": module(CORRECTED)})
    done = run.redrive(job, spark, NoProgress())
    assert done.done is not None
    assert (done.done.landed, done.still_quarantined) == (1, ())
    assert offsets_in(table) == expected(p0=range(26), p1=range(20))
    assert rangeland.verify(job, spark).is_well


@pytest.mark.parametrize(
    ("body", "exception"),
    [
        ("return df.withColumn('x', F.expr('1 / (offset - 3)'))", "DIVIDE_BY_ZERO"),
        (
            "return df.withColumn('x', F.expr(\"cast(cast(value as string) as int)\"))",
            "CAST_INVALID_INPUT",
        ),
        ("return df.limit(3)", "`limit` and `head` have this effect"),
    ],
)
@pytest.mark.slow
def test_what_fails_in_sql_is_the_author_s_as_well(
    kafka: KafkaCluster,
    spark: Any,
    topic: str,
    table: str,
    module: Module,
    body: str,
    exception: str,
) -> None:
    written(kafka, topic, 10, 10)
    job = job_of(kafka.bootstrap, table, topic, sink={"transform": module(body)})
    with pytest.raises(TransformFailed, match=exception) as caught:
        rangeland.land(job, spark)
    assert f"{topic}/" in str(caught.value)
    assert table_of(spark, table).count() == 0


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("return df.select('nope')", "AnalysisException: .*`nope` cannot be resolved"),
        ("return {}['nope']", r"KeyError: 'nope' \(\w+\.py:5\)"),
        ("df.where('true')", "does not return a DataFrame: it returned NoneType"),
        ("return df.select()", "returns rows without columns"),
        ("return df.select(F.expr('make_interval(1)').alias('x'))", "cannot be written"),
    ],
)
def test_a_function_that_makes_no_query_is_a_mistake_in_the_job(
    kafka: KafkaCluster, spark: Any, topic: str, table: str, module: Module, body: str, words: str
) -> None:
    job = job_of(kafka.bootstrap, table, topic, sink={"transform": module(body)})
    with pytest.raises(JobFileError, match=words) as caught:
        rangeland.land(job, spark)
    assert caught.value.exit_code == 78


@pytest.mark.parametrize(
    "body",
    [
        "return df.where('false')",
        "return df.limit(0)",
        "none = df.sparkSession.range(0).withColumnRenamed('id', 'offset')\n"
        "    return df.join(none, 'offset').select(df.columns)",
    ],
)
@pytest.mark.slow
def test_a_query_that_spark_need_not_run_has_filtered_all_records(
    kafka: KafkaCluster, spark: Any, topic: str, table: str, module: Module, body: str
) -> None:
    """Markers are still told from records: the log is read for that."""
    create_topic(kafka.bootstrap, topic)
    produce_transaction(kafka.bootstrap, topic, numbered_records(10))
    produce(kafka.bootstrap, topic, numbered_records(5))
    job = job_of(kafka.bootstrap, table, topic, sink={"transform": module(body)})
    result = rangeland.land(job, spark)
    assert result.counts == Counts(filtered=15, control=1)
    assert (result.rows, rangeland.land(job, spark).state) == (0, "nothing")
    assert rangeland.verify(job, spark).is_well


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("return df.withColumn('topic', F.lit('else'))", "else/0 at offset 0, outside the ranges"),
        (
            "return df.withColumn('offset', F.col('offset') + 100)",
            "at offset 100, outside the ranges",
        ),
        (
            "return df.withColumn('offset', F.explode(F.array('offset', F.lit(10).cast('long'))))",
            r"11 records of \S+/0 \[0, 11\), which has 10",
        ),
    ],
)
@pytest.mark.slow
def test_rows_of_no_record_that_was_read_are_not_landed(
    kafka: KafkaCluster, spark: Any, topic: str, table: str, module: Module, body: str, words: str
) -> None:
    """Offset 10 is a marker. Until the transform keeps the offsets, nothing lands."""
    create_topic(kafka.bootstrap, topic)
    produce_transaction(kafka.bootstrap, topic, numbered_records(10))
    name = module(body)
    job = job_of(kafka.bootstrap, table, topic, sink={"transform": name})
    with pytest.raises(TransformFailed, match=words):
        rangeland.land(job, spark)
    assert table_of(spark, table).count() == 0
    sys.modules.pop(name.partition(":")[0])
    job = job_of(kafka.bootstrap, table, topic, sink={"transform": module("return df")})
    assert rangeland.land(job, spark).counts == Counts(landed=10, control=1)
