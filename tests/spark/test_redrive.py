"""What is in quarantine, landed from the log or from the bytes that were kept: with a transform,
in a catalog's table, and by the command line as a person calls it."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest

import rangeland
from rangeland import run
from rangeland.model import Counts
from rangeland.progress_events import NoProgress
from rangeland.spark.catalog_names import LEDGER_SUFFIX, QUARANTINE_SUFFIX
from rangeland.testing.kafka import KafkaCluster
from tests.spark.damage import BATCH, WIDTH, filled, flip, is_proved, losses, mend_quarantine, plans
from tests.spark.landings import expected, job_of, offsets_in, offsets_of, table_of

pytestmark = [pytest.mark.spark, pytest.mark.brokers]

QUARANTINE = {"corrupt": "quarantine"}


@pytest.mark.slow
def test_what_was_quarantined_is_read_again_from_a_log_that_is_whole_again(
    kafka: KafkaCluster, spark: Any, table: str, topic: str
) -> None:
    filled(kafka, topic)
    flip(kafka, topic)
    job = job_of(kafka.bootstrap, table, topic, policy=QUARANTINE)
    version = rangeland.land(job, spark).table_version
    row = (topic, 1, BATCH, 2 * BATCH, BATCH, "corrupt", "quarantine")
    for _ in range(2):  # as long as nothing has changed there, nothing is written
        again = run.redrive(job, spark, NoProgress(), from_log=True)
        assert again.done is not None
        assert (again.done.state, len(again.still_quarantined)) == ("nothing", 1)
        assert (again.done.held, again.done.table_version) == ((), version)
        (said,) = again.done.warnings
        assert said.startswith(f"{topic}/1 [10, 20) is corrupt: ")
        assert said.endswith("its checksum is wrong (codec none); it stays in quarantine")
        assert (losses(spark, table), plans(spark, table)) == ([row], 1)
    flip(kafka, topic)
    again = run.redrive(job, spark, NoProgress(), from_log=True)
    assert again.done is not None
    assert (again.done.counts, again.still_quarantined) == (Counts(landed=BATCH), ())
    assert offsets_in(table) == expected(p0=range(WIDTH), p1=range(WIDTH))
    assert is_proved(spark, job)


def only_odd(rows: Any) -> Any:
    """A transform that leaves out half of the records, and makes a column of its own."""
    odd = rows.where("offset % 2 = 1")
    return odd.selectExpr("topic", "partition", "offset", "length(key) AS width")


def test_what_a_transform_is_not_given_is_in_quarantine_and_goes_through_it_later(
    kafka: KafkaCluster, spark: Any, table: str, topic: str
) -> None:
    filled(kafka, topic)
    for batch in (1, 2):
        flip(kafka, topic, batch)
    sink = {"transform": "tests.spark.test_redrive:only_odd"}
    job = job_of(kafka.bootstrap, table, topic, sink=sink, policy=QUARANTINE)
    result = rangeland.land(job, spark)
    half = (WIDTH + BATCH) // 2
    assert result.counts == Counts(landed=half, filtered=half, quarantined=2 * BATCH)
    odd = expected(p0=range(1, WIDTH, 2), p1=range(1, BATCH, 2))
    assert offsets_in(table) == odd
    assert [row[2:4] for row in losses(spark, table)] == [(BATCH, 2 * BATCH), (2 * BATCH, WIDTH)]
    assert is_proved(spark, job)
    part = Counts(landed=BATCH // 2, filtered=BATCH // 2)

    mend_quarantine(spark, table)
    kept = run.redrive(job, spark, NoProgress())
    assert kept.done is not None
    assert (kept.done.counts, [one.batch.range.from_offset for one in kept.still_quarantined]) == (
        part,
        [2 * BATCH],
    )
    flip(kafka, topic, 2)
    again = run.redrive(job, spark, NoProgress(), from_log=True)
    assert again.done is not None
    assert (again.done.counts, again.still_quarantined) == (part, ())
    frame = table_of(spark, table)
    assert offsets_of(frame) == expected(p0=range(1, WIDTH, 2), p1=range(1, WIDTH, 2))
    assert {row["width"] for row in frame.collect()} == {50}
    assert is_proved(spark, job)


@pytest.fixture
def named(spark: Any) -> Iterator[str]:
    """A name in the session's catalog that no table has."""
    name = f"spark_catalog.default.kept_{uuid.uuid4().hex[:8]}"
    yield name
    for suffix in (QUARANTINE_SUFFIX, LEDGER_SUFFIX, ""):
        spark.sql(f"DROP TABLE IF EXISTS {name}{suffix}")


@pytest.mark.slow
def test_the_quarantine_of_a_catalogs_table_has_a_name_beside_it(
    kafka: KafkaCluster, spark: Any, named: str, topic: str
) -> None:
    filled(kafka, topic)
    job = job_of(kafka.bootstrap, named, topic, policy=QUARANTINE)
    flip(kafka, topic)
    result = rangeland.land(job, spark)
    assert result.counts == Counts(landed=2 * WIDTH - BATCH, quarantined=BATCH)
    (row,) = spark.table(named + QUARANTINE_SUFFIX).collect()
    assert (row["topic"], row["from_offset"], row["until_offset"]) == (topic, BATCH, 2 * BATCH)
    (told,) = spark.table(named + LEDGER_SUFFIX).where("event = 'loss'").collect()
    assert (told["from_offset"], told["action"]) == (BATCH, "quarantine")
    (left,) = run.redrive(job, spark, NoProgress(), dry_run=True).still_quarantined
    assert (left.decodes, left.batch.size_bytes > 0) == (False, True)
    flip(kafka, topic)
    again = run.redrive(job, spark, NoProgress(), from_log=True)
    assert again.done is not None
    assert (again.done.counts, again.still_quarantined) == (Counts(landed=BATCH), ())
    assert offsets_of(spark.table(named)) == expected(p0=range(WIDTH), p1=range(WIDTH))
    assert is_proved(spark, job)
