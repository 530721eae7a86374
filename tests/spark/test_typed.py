"""Typed landings with a real broker and a real Spark, read back by an independent Delta reader."""

from __future__ import annotations

import datetime as dt
import io
import json
import re
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pytest

import rangeland
from rangeland import run
from rangeland.errors import TableRefused, UndecodablePayload
from rangeland.model import Counts, Partition
from rangeland.planning.plan_kind import PlanKind
from rangeland.progress_events import NoProgress
from rangeland.queries import verify_and_find
from rangeland.testing.kafka import KafkaCluster
from rangeland.testing.producer import create_topic
from tests.spark.landings import job_of, stored_rows, table_of
from tests.spark.typed_landings import (
    BAD,
    DDL,
    OLD,
    order,
    orders,
    orders_topic,
    produced,
    rows_in,
    typed,
)

pytestmark = [pytest.mark.spark, pytest.mark.brokers]

FLAT = {"layout": "flat"}


def as_stored(number: int) -> dict[str, Any]:
    """An order as an independent reader has it."""
    made = order(number)
    at = dt.datetime(2026, 1, 2, 3, 4, number % 60, 123456, dt.UTC)
    sizes = list(made["sizes"].items())
    return made | {"price": Decimal(made["price"]), "at": at, "sizes": sizes}


def is_proved(spark: Any, job: Any) -> bool:
    found = verify_and_find.verify(job, spark, NoProgress()).audit
    return not found.holes and not found.duplicates


def test_values_are_structs_with_what_the_producer_wrote(
    kafka: KafkaCluster, spark: Any, table: str, topic: str
) -> None:
    orders_topic(kafka, topic, 40)
    produced(kafka, topic, [None])
    job = typed(kafka, table, topic, decode={"key": {"format": "string"}})
    result = rangeland.land(job, spark)
    assert result.counts == Counts(landed=41)
    assert (result.added_columns, result.schemas) == ((), ())
    rows = rows_in(table)
    assert [row["value"] for row in rows] == [*map(as_stored, range(40)), None]
    assert {row["key"] for row in rows} == {"k"}
    assert is_proved(spark, job)
    frame = rangeland.plan(typed(kafka, table, topic, range={"from": "earliest"}), spark)
    assert frame.read(spark).schema["value"] == table_of(spark, table).schema["value"]


def test_fields_are_columns_beside_those_of_the_log(
    kafka: KafkaCluster, spark: Any, table: str, topic: str
) -> None:
    orders_topic(kafka, topic, 30)
    produced(kafka, topic, [None])
    sink = {"partition_by": ["date(_timestamp)"]}
    ddl = DDL.partition(", sizes")[0]  # without a map: Spark cannot compare them
    job = typed(kafka, table, topic, ddl, decode=FLAT, sink=sink)
    assert rangeland.land(job, spark).landed == 31
    rows = rows_in(table, "_offset")
    fields = list(order(0))[:-1]
    assert [{name: row[name] for name in fields} for row in rows] == [
        *({name: as_stored(number)[name] for name in fields} for number in range(30)),
        dict.fromkeys(fields),
    ]
    assert list(rows[0]) == [
        *("_key", "_topic", "_partition", "_offset", "_timestamp", "_timestampType", "_headers"),
        *fields,
        "date",
    ]
    assert is_proved(spark, job)
    found = verify_and_find.find(job, spark, Partition(topic, 0), 7, NoProgress())
    assert (found.state, len(found.files)) == ("landed", 1)
    # What is deleted is seen and landed again; what is replaced is the same.
    spark.sql(f"DELETE FROM delta.`{table}` WHERE _offset IN (3, 4)")
    (hole,) = verify_and_find.verify(job, spark, NoProgress()).audit.holes
    assert (hole.from_offset, hole.until_offset) == (3, 5)
    again = run.backfill(job, spark, NoProgress(), PlanKind.HOLES)
    assert (again.landed, is_proved(spark, job)) == (2, True)
    part = typed(kafka, table, topic, ddl, decode=FLAT, sink=sink, range={"from": "earliest"})
    swapped = run.backfill(part, spark, NoProgress(), PlanKind.REPLACE)
    assert swapped.replaced is not None
    assert (swapped.replaced.same, swapped.replaced.changed) == (31, 0)
    assert rows_in(table, "_offset") == rows


AVRO = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "name", "type": ["null", "string"]},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
    ],
}


def test_avro_without_a_registry_is_what_fastavro_wrote(
    kafka: KafkaCluster, spark: Any, table: str, topic: str, tmp_path: Path
) -> None:
    wanted = [{"id": n, "name": None if n % 2 else f"n{n}", "tags": ["x"] * n} for n in range(20)]
    create_topic(kafka.bootstrap, topic, partitions=1)
    produced(kafka, topic, [*map(avro, wanted), b"\x01"])
    schema = tmp_path / "order.avsc"
    schema.write_text(json.dumps(AVRO))
    decode = {"value": {"format": "avro", "schema": str(schema)}, "layout": "flat"}
    job = job_of(kafka.bootstrap, table, topic, decode=decode, policy={"undecodable": "skip"})
    assert rangeland.land(job, spark).counts == Counts(landed=20, lost=1)
    rows = rows_in(table, "_offset")
    assert [{name: row[name] for name in ("id", "name", "tags")} for row in rows] == wanted
    assert is_proved(spark, job)


def avro(record: dict[str, Any]) -> bytes:
    written = io.BytesIO()
    fastavro.schemaless_writer(written, AVRO, record)
    return written.getvalue()


def test_a_record_that_cannot_be_decoded_ends_the_run_or_is_counted(
    kafka: KafkaCluster, spark: Any, table: str, topic: str
) -> None:
    orders_topic(kafka, topic, 10)
    produced(kafka, topic, BAD)
    produced(kafka, topic, orders([15]))
    with pytest.raises(UndecodablePayload) as caught:
        rangeland.land(typed(kafka, table, topic), spark)
    assert (caught.value.exit_code, caught.value.facts["offset"]) == (65, 10)
    assert f"{topic}/0" in str(caught.value)
    assert stored_rows(table) == []
    # The plan that was entered is finished with another policy.
    job = typed(kafka, table, topic, policy={"undecodable": "skip"})
    result = rangeland.land(job, spark)
    assert result.counts == Counts(landed=11, lost=5)
    assert [str(one.loss.kind) for one in result.losses] == ["undecodable"]
    assert [row["offset"] for row in rows_in(table)] == [*range(10), 15]
    assert is_proved(spark, job)
    ledger = table_of(spark, f"{table}/_rangeland/ledger").where("event = 'loss'")
    found = ledger.where("action = 'skip'").collect()
    assert [(row["from_offset"], row["until_offset"], row["count"]) for row in found] == [
        (10, 15, 5)
    ]
    assert "5 records; the value at offset 10" in found[0]["evidence"]
    assert verify_and_find.find(job, spark, Partition(topic, 0), 12, NoProgress()).state == "lost"


@pytest.mark.parametrize("layout", [pytest.param("nested", marks=pytest.mark.slow), "flat"])
def test_what_is_in_quarantine_lands_once_with_another_schema(
    kafka: KafkaCluster, spark: Any, table: str, topic: str, layout: str
) -> None:
    orders_topic(kafka, topic, 4)
    produced(kafka, topic, [b'{"id": "x4"}', b"{", b'{"id": "x6"}'])
    asked: dict[str, Any] = {"policy": {"undecodable": "quarantine"}, "decode": {"layout": layout}}
    job = typed(kafka, table, topic, **asked)
    assert rangeland.land(job, spark).counts == Counts(landed=4, quarantined=3)
    assert is_proved(spark, job)
    kept = stored_rows(f"{table}/_rangeland/quarantine")
    values = [one["value"] for row in kept for one in row["undecodable"]]
    assert sorted(values) == sorted([b'{"id": "x4"}', b"{", b'{"id": "x6"}'])
    kept_one = verify_and_find.find(job, spark, Partition(topic, 0), 5, NoProgress())
    assert kept_one.state == "quarantined"
    assert kept_one.why.startswith("undecodable, 3 records; the value at offset 4: ")
    nothing = run.redrive(job, spark, NoProgress())
    assert nothing.done is not None
    assert (nothing.done.state, len(nothing.still_quarantined)) == ("nothing", 1)
    other = typed(kafka, table, topic, "id STRING, name STRING", **asked)
    if layout == "flat":
        # A column cannot become text: the table refuses, and the records stay.
        with pytest.raises(TableRefused, match="id"):
            run.redrive(other, spark, NoProgress())
        other = typed(kafka, table, topic, "name STRING", **asked)
    else:
        with pytest.raises(TableRefused):
            run.redrive(other, spark, NoProgress())
        other = typed(kafka, table, topic, "name STRING", **asked)
    for landed in (2, 0):
        done = run.redrive(other, spark, NoProgress()).done
        assert done is not None
        assert done.landed == landed
    offset = "offset" if layout == "nested" else "_offset"
    assert [row[offset] for row in rows_in(table, offset)] == [0, 1, 2, 3, 4, 6]
    assert is_proved(spark, other)


def test_new_fields_become_columns_in_the_commit_of_their_rows(
    kafka: KafkaCluster, spark: Any, table: str, topic: str
) -> None:
    orders_topic(kafka, topic, 5)
    first = rangeland.land(typed(kafka, table, topic, OLD, decode=FLAT), spark)
    produced(kafka, topic, orders(range(5, 9)))
    version = first.table_version
    with pytest.raises(TableRefused, match="price"):
        rangeland.land(typed(kafka, table, topic, decode={**FLAT, "evolution": "fail"}), spark)
    result = rangeland.land(typed(kafka, table, topic, decode=FLAT), spark)
    assert result.added_columns == ("price", "at", "tags", "shop", "sizes")
    assert (result.table_version, result.landed) == ((version or 0) + 1, 4)
    rows = rows_in(table, "_offset")
    assert [row["price"] for row in rows] == [None] * 5 + [Decimal(f"{n}.25") for n in range(5, 9)]
    assert table_of(spark, table).count() == 9
    old = spark.read.format("delta").option("versionAsOf", version).load(table)
    assert "price" not in old.columns
    # A schema that has lost fields leaves the columns there.
    produced(kafka, topic, orders([9]))
    less = rangeland.land(typed(kafka, table, topic, OLD, decode=FLAT), spark)
    assert (less.added_columns, less.landed) == ((), 1)
    assert rows_in(table, "_offset")[-1]["price"] is None
    # What is replaced brings its columns, too, and so does what was missing.
    more = f"{DDL.partition(', sizes')[0]}, extra STRING"
    part = typed(kafka, table, topic, more, decode=FLAT, range={"from": {topic: {0: 9}}})
    swapped = run.backfill(part, spark, NoProgress(), PlanKind.REPLACE)
    assert (swapped.added_columns, swapped.landed) == (("extra",), 1)
    assert swapped.table_version == (less.table_version or 0) + 1
    spark.sql(f"DELETE FROM delta.`{table}` WHERE _offset = 0")
    last = typed(kafka, table, topic, f"{more}, last INT", decode=FLAT)
    again = run.backfill(last, spark, NoProgress(), PlanKind.HOLES)
    assert (again.added_columns, again.landed) == (("last",), 1)
    prices = [row["price"] for row in rows_in(table, "_offset")]
    found = [0, *range(5, 10)]
    assert prices == [Decimal(f"{n}.25") if n in found else None for n in range(10)]
    assert is_proved(spark, last)


@pytest.mark.slow
def test_new_fields_inside_of_a_struct_and_fields_that_are_ignored(
    kafka: KafkaCluster, spark: Any, table: str, topic: str
) -> None:
    orders_topic(kafka, topic, 2)
    rangeland.land(typed(kafka, table, topic, OLD), spark)
    produced(kafka, topic, orders([2]))
    ignoring = typed(kafka, table, topic, decode={"evolution": "ignore"})
    assert rangeland.land(ignoring, spark).added_columns == ()
    assert rows_in(table)[-1]["value"] == {"id": 2, "name": "näme 2"}
    produced(kafka, topic, orders([3]))
    result = rangeland.land(typed(kafka, table, topic), spark)
    assert result.added_columns is not None
    assert result.added_columns[:2] == ("value.price", "value.at")
    assert rows_in(table)[-1]["value"] == as_stored(3)
    produced(kafka, topic, orders([4]))
    with pytest.raises(TableRefused, match=r"column value\.id .* is BIGINT: the rows have STRING"):
        rangeland.land(typed(kafka, table, topic, "id STRING"), spark)
    wide = DDL.replace("STRING, INT", "STRING, BIGINT")
    with pytest.raises(TableRefused, match=r"column value\.sizes\.value .* is INT") as caught:
        rangeland.land(typed(kafka, table, topic, wide), spark)
    (statement,) = re.findall("ALTER TABLE .*'true'\\)", str(caught.value))
    spark.sql(statement)
    widened = rangeland.land(typed(kafka, table, topic, wide), spark)
    assert (widened.added_columns, widened.landed) == ((), 1)
    produced(kafka, topic, orders([5]))
    assert rangeland.land(typed(kafka, table, topic), spark).landed == 1
    wider = wide.replace("(10,2)", "(12,2)")
    part = typed(kafka, table, topic, wider, range={"from": {topic: {0: 4}}})
    assert run.backfill(part, spark, NoProgress(), PlanKind.REPLACE).landed == 2
    made = table_of(spark, table)
    types = dict(made.select("value.price", "value.sizes").dtypes)
    assert types == {"price": "decimal(12,2)", "sizes": "map<string,bigint>"}
    sizes = made.orderBy("offset").select("value.sizes", "value.price").collect()
    expected = [(None, None)] * 3 + [({"s": n, "m": 0}, Decimal(f"{n}.25")) for n in (3, 4, 5)]
    assert [tuple(row) for row in sizes] == expected
    assert is_proved(spark, part)


def test_a_schema_that_was_planned_is_committed_by_whoever_finishes(
    kafka: KafkaCluster, spark: Any, table: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver dies after its outcome is prepared; the next has an older schema."""
    orders_topic(kafka, topic, 3)
    rangeland.land(typed(kafka, table, topic, OLD, decode=FLAT), spark)
    produced(kafka, topic, orders([3]))
    from rangeland.landing.target.target_writer import TargetWriter

    class Killed(Exception):
        pass

    def killed(*_: object) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(TargetWriter, "commit_outcome", killed)
        with pytest.raises(Killed):
            rangeland.land(typed(kafka, table, topic, decode=FLAT), spark)
    assert "price" not in rows_in(table, "_offset")[0]
    result = rangeland.land(typed(kafka, table, topic, OLD, decode=FLAT), spark)
    assert result.recovered
    assert "price" in (result.added_columns or ())
    assert [row["price"] for row in rows_in(table, "_offset")] == [None] * 3 + [Decimal("3.25")]
