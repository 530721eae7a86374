"""Tables with the features that people's tables have: rows land in them, are proved, found, landed
again and replaced, and two readers see the same.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder

import rangeland
from rangeland import run
from rangeland.errors import TableRefused
from rangeland.job import Job
from rangeland.landing.target.target_writer import TargetWriter
from rangeland.model import Partition
from rangeland.planning.plan_kind import PlanKind
from rangeland.progress_events import NoProgress
from rangeland.queries import verify_and_find
from rangeland.testing.consumer import Consumed
from rangeland.testing.kafka import KafkaCluster
from rangeland.testing.producer import Record, create_topic, numbered_records, produce
from tests.spark.landings import dying_before_commit, job_of, judged, rows_of, table_of
from tests.spark.test_delta_kernel import COLUMNS
from tests.spark.typed_landings import OLD, order, orders, orders_topic, produced, typed

pytestmark = [pytest.mark.spark, pytest.mark.brokers]

Sql = Callable[[str], list[Any]]
MAPPED = "'delta.columnMapping.mode' = '{}', 'delta.minReaderVersion' = '2', "
MAPPED += "'delta.minWriterVersion' = '5'"
BY_NAME, BY_ID = MAPPED.format("name"), MAPPED.format("id")


@dataclass(frozen=True)
class Existing:
    """A table that somebody has made. ``after`` are changes of it, ``between`` statements that run
    between two landings, with "{}" for its name; ``leaves``: files that these leave there."""

    properties: str = ""
    extra: str = ""
    clauses: str = ""
    after: tuple[str, ...] = ()
    sink: tuple[str, ...] = ()
    between: tuple[str, ...] = ()
    leaves: str = ""
    is_read_by_delta_rs: bool = True


WIDENED = tuple(
    f"ALTER TABLE {{}} ALTER COLUMN {name} TYPE BIGINT" for name in ("partition", "timestampType")
)
V2_CHECKPOINTS = "'delta.checkpointPolicy' = 'v2', 'delta.checkpointInterval' = '1'"
V2_NAMES = "_delta_log/*.checkpoint.*-*.json"
"""Spark's commits leave these; Kernel's checkpoints have the classic name."""


TABLES = {
    "mapped by name": Existing(BY_NAME),
    "mapped by id": Existing(BY_ID),
    "mapped and partitioned": Existing(
        BY_NAME, ", date DATE", "PARTITIONED BY (date)", sink=("date(timestamp)",)
    ),
    "renamed": Existing(
        "",
        ", note STRING",
        after=(f"SET TBLPROPERTIES ({BY_NAME})", "RENAME COLUMN note TO remark"),
    ),
    "dropped": Existing(BY_NAME, ", note STRING", after=("DROP COLUMN note",)),
    "append only": Existing("'delta.appendOnly' = 'true'"),
    "check constraint": Existing(after=("ADD CONSTRAINT positive CHECK (offset >= 0)",)),
    "row tracking": Existing("'delta.enableRowTracking' = 'true'"),
    "deletion vectors": Existing("'delta.enableDeletionVectors' = 'true'"),
    "in-commit timestamps": Existing("'delta.enableInCommitTimestamps' = 'true'"),
    "widened": Existing(
        "'delta.enableTypeWidening' = 'true'", between=WIDENED, is_read_by_delta_rs=False
    ),
    "partitioned by what is widened": Existing(
        "'delta.enableTypeWidening' = 'true'",
        "",
        "PARTITIONED BY (partition)",
        sink=("partition",),
        between=WIDENED,
        is_read_by_delta_rs=False,
    ),
    "v2 checkpoints": Existing(
        V2_CHECKPOINTS, between=("UPDATE {} SET value = value WHERE offset = 3",), leaves=V2_NAMES
    ),
    "clustered": Existing("", "", "CLUSTER BY (topic, offset)", between=("OPTIMIZE {}",)),
    "variants": Existing("", ", extra VARIANT"),
    "times without a zone": Existing("", ", extra TIMESTAMP_NTZ"),
    "partition columns in files": Existing(
        "'delta.feature.materializePartitionColumns' = 'supported'",
        "",
        "PARTITIONED BY (topic)",
        sink=("topic",),
    ),
    "change data feed": Existing("'delta.enableChangeDataFeed' = 'true'"),
    "Iceberg V2": Existing(f"{BY_NAME}, 'delta.enableIcebergCompatV2' = 'true'"),
    "Iceberg V3": Existing(
        f"{BY_NAME}, 'delta.enableIcebergCompatV3' = 'true', 'delta.enableRowTracking' = 'true'"
    ),
    "UniForm": Existing(
        f"{BY_NAME}, 'delta.enableIcebergCompatV2' = 'true', "
        "'delta.universalFormat.enabledFormats' = 'iceberg'"
    ),
    "Iceberg V2, partitioned": Existing(
        f"{BY_NAME}, 'delta.enableIcebergCompatV2' = 'true'",
        ", date DATE",
        "PARTITIONED BY (date)",
        sink=("date(timestamp)",),
    ),
    "all at once": Existing(
        f"{BY_NAME}, 'delta.enableRowTracking' = 'true', 'delta.enableDeletionVectors' = 'true', "
        f"'delta.enableChangeDataFeed' = 'true', {V2_CHECKPOINTS}, "
        "'delta.enableInCommitTimestamps' = 'true', 'delta.enableTypeWidening' = 'true'",
        "",
        "CLUSTER BY (topic, offset)",
        after=("ADD CONSTRAINT positive CHECK (offset >= 0)",),
        between=(*WIDENED, "OPTIMIZE {}"),
        leaves=V2_NAMES,
        is_read_by_delta_rs=False,
    ),
}
OFTEN = {"mapped and partitioned"}


def create(sql: Sql, table: str, made: Existing) -> None:
    given = f"TBLPROPERTIES ({made.properties})" if made.properties else ""
    columns = f"{COLUMNS}{made.extra}"
    sql(f"CREATE TABLE delta.`{table}` ({columns}) USING delta {made.clauses} {given}")
    for statement in made.after:
        sql(f"ALTER TABLE delta.`{table}` {statement}")


def is_proved(spark: Any, job: Job) -> bool:
    found = verify_and_find.verify(job, spark, NoProgress()).audit
    return not found.holes and not found.duplicates


def offsets_by_delta_rs(table: str) -> list[int]:
    """By delta-rs's own query engine: its reader for Arrow knows fewer features."""
    rows = QueryBuilder().register("t", DeltaTable(table)).execute('SELECT "offset" FROM t')
    return sorted(pa.table(rows).column("offset").to_pylist())


def is_whole(spark: Any, job: Job, table: str, made: Existing, wanted: list[Consumed]) -> None:
    """All rows are there once, for two readers."""
    assert rows_of(table_of(spark, table)) == wanted
    if made.is_read_by_delta_rs:
        assert offsets_by_delta_rs(table) == [row.offset for row in wanted]
    else:
        with pytest.raises(Exception, match="nsupported"):
            offsets_by_delta_rs(table)
    assert is_proved(spark, job)


@pytest.mark.parametrize(
    "name", [n if n in OFTEN else pytest.param(n, marks=pytest.mark.slow) for n in TABLES]
)
def test_rows_land_in_the_tables_that_people_have(
    kafka: KafkaCluster, spark: Any, sql: Sql, table: str, topic: str, name: str
) -> None:
    made = TABLES[name]
    create(sql, table, made)
    create_topic(kafka.bootstrap, topic)
    job = job_of(kafka.bootstrap, table, topic, sink={"partition_by": list(made.sink)})
    for start, statements in ((0, made.between), (20, ())):
        produce(kafka.bootstrap, topic, numbered_records(20, start), partition=0)
        assert rangeland.land(job, spark).landed == 20
        for statement in statements:
            sql(statement.format(f"delta.`{table}`"))
    wanted = judged(kafka.bootstrap, [topic])
    is_whole(spark, job, table, made, wanted)
    assert not made.leaves or list(Path(table).glob(made.leaves))
    found = verify_and_find.find(job, spark, Partition(topic, 0), 7, NoProgress())
    assert (found.state, len(found.files)) == ("landed", 1)
    if "appendOnly" in made.properties:
        return
    sql(f"DELETE FROM delta.`{table}` WHERE offset IN (3, 4)")
    again = run.backfill(job, spark, NoProgress(), PlanKind.HOLES)
    assert (again.landed, is_proved(spark, job)) == (2, True)
    sql(f"UPDATE delta.`{table}` SET value = NULL WHERE offset = 9")
    whole = job_of(
        kafka.bootstrap,
        table,
        topic,
        sink={"partition_by": list(made.sink)},
        range={"from": "earliest"},
    )
    swapped = run.backfill(whole, spark, NoProgress(), PlanKind.REPLACE)
    assert swapped.replaced is not None
    assert (swapped.replaced.same, swapped.replaced.changed) == (39, 1)
    is_whole(spark, job, table, made, wanted)


CHECKED = Existing(after=("ADD CONSTRAINT small CHECK (offset < 25)",))


@pytest.mark.slow
def test_a_record_that_violates_a_constraint_is_named_and_nothing_is_committed(
    kafka: KafkaCluster, spark: Any, sql: Sql, table: str, topic: str
) -> None:
    create(sql, table, CHECKED)
    create_topic(kafka.bootstrap, topic, partitions=2)
    job = job_of(kafka.bootstrap, table, topic)
    for partition, count in ((0, 30), (1, 40)):
        produce(kafka.bootstrap, topic, numbered_records(count), partition=partition)
    for _ in range(2):  # the next run reads the plan again, and is refused again
        with pytest.raises(TableRefused) as caught:
            rangeland.land(job, spark)
        assert f"the record of {topic}/0 at offset 25 violates the constraint small" in str(
            caught.value
        )
        assert "CHECK (offset < 25)" in str(caught.value)
        assert caught.value.exit_code == 73
        assert table_of(spark, table).count() == 0
    sql(f"ALTER TABLE delta.`{table}` DROP CONSTRAINT small")
    assert rangeland.land(job, spark).landed == 70
    assert is_proved(spark, job)
    sql(f"ALTER TABLE delta.`{table}` ADD CONSTRAINT known CHECK (offset < 50 OR key IS NULL)")
    produce(kafka.bootstrap, topic, numbered_records(20, 40), partition=1)
    with pytest.raises(TableRefused, match="at offset 50 violates the constraint known"):
        rangeland.land(job, spark)


@pytest.mark.slow
def test_a_constraint_that_fails_on_a_record_is_no_passing_trouble(
    kafka: KafkaCluster, spark: Any, sql: Sql, table: str, topic: str
) -> None:
    create(sql, table, Existing(after=("ADD CONSTRAINT share CHECK (1 / (offset - 5) < 2)",)))
    create_topic(kafka.bootstrap, topic)
    produce(kafka.bootstrap, topic, numbered_records(10), partition=0)
    with pytest.raises(TableRefused, match="DIVIDE_BY_ZERO") as caught:
        rangeland.land(job_of(kafka.bootstrap, table, topic), spark)
    assert "CHECK (1 / ( offset - 5 ) < 2)" in str(caught.value)
    assert table_of(spark, table).count() == 0


@pytest.mark.slow
def test_rows_that_were_prepared_before_a_constraint_are_checked_too(
    kafka: KafkaCluster, spark: Any, sql: Sql, table: str, topic: str, monkeypatch: Any
) -> None:
    create(sql, table, Existing())
    create_topic(kafka.bootstrap, topic)
    job = job_of(kafka.bootstrap, table, topic)
    produce(kafka.bootstrap, topic, numbered_records(30), partition=0)

    with dying_before_commit(monkeypatch, TargetWriter):
        rangeland.land(job, spark)
    sql(f"ALTER TABLE delta.`{table}` ADD CONSTRAINT small CHECK (offset < 25)")
    with pytest.raises(TableRefused, match="at offset 25 violates the constraint small"):
        rangeland.land(job, spark)
    assert table_of(spark, table).count() == 0
    sql(f"ALTER TABLE delta.`{table}` DROP CONSTRAINT small")
    assert rangeland.land(job, spark).landed == 30
    assert is_proved(spark, job)


@pytest.mark.slow
def test_rows_that_were_prepared_before_their_column_was_dropped_and_added_are_read_again(
    kafka: KafkaCluster, spark: Any, sql: Sql, table: str, topic: str, monkeypatch: Any
) -> None:
    create(sql, table, Existing(BY_NAME))
    create_topic(kafka.bootstrap, topic)
    job = job_of(kafka.bootstrap, table, topic)
    produce(kafka.bootstrap, topic, numbered_records(30), partition=0)

    with dying_before_commit(monkeypatch, TargetWriter):
        rangeland.land(job, spark)
    sql(f"ALTER TABLE delta.`{table}` DROP COLUMN value")
    sql(f"ALTER TABLE delta.`{table}` ADD COLUMN value BINARY")
    result = rangeland.land(job, spark)
    assert result.landed == 30
    assert any("read from the log again" in text for text in result.warnings)
    assert rows_of(table_of(spark, table)) == judged(kafka.bootstrap, [topic])
    assert is_proved(spark, job)


@pytest.mark.slow
def test_a_record_without_what_must_not_be_null_is_named(
    kafka: KafkaCluster, spark: Any, sql: Sql, table: str, topic: str
) -> None:
    columns = COLUMNS.replace("key BINARY", "key BINARY NOT NULL")
    sql(f"CREATE TABLE delta.`{table}` ({columns}) USING delta")
    create_topic(kafka.bootstrap, topic)
    produce(kafka.bootstrap, topic, [Record(b"v", b"k")] * 7, partition=0)
    job = job_of(kafka.bootstrap, table, topic)
    assert rangeland.land(job, spark).landed == 7
    produce(kafka.bootstrap, topic, [Record(b"v", b"k"), Record(b"v")], partition=0)
    with pytest.raises(TableRefused, match=f"the first is the record of {topic}/0 at offset 8"):
        rangeland.land(job, spark)


@pytest.mark.slow
def test_a_generated_column_is_compared_with_its_expression(
    kafka: KafkaCluster, spark: Any, table: str, topic: str
) -> None:
    from delta.tables import DeltaTable as SparkTable

    maker = SparkTable.create(spark).location(table)
    maker = maker.addColumns(spark.createDataFrame([], COLUMNS).schema)
    maker = maker.addColumn("date", "DATE", generatedAlwaysAs="CAST(timestamp AS DATE)")
    maker.partitionedBy("date").execute()
    create_topic(kafka.bootstrap, topic)
    produce(kafka.bootstrap, topic, numbered_records(10), partition=0)
    plain = job_of(kafka.bootstrap, table, topic)
    with pytest.raises(TableRefused, match="generatedColumns"):
        rangeland.land(plain, spark)
    job = job_of(kafka.bootstrap, table, topic, sink={"partition_by": ["date(timestamp)"]})
    assert rangeland.land(job, spark).landed == 10
    assert table_of(spark, table).where("date = CAST(timestamp AS DATE)").count() == 10
    assert is_proved(spark, job)


@pytest.mark.slow
@pytest.mark.parametrize(
    "properties",
    [BY_NAME, BY_ID, f"{BY_NAME}, 'delta.enableIcebergCompatV2' = 'true'"],
    ids=["by name", "by id", "Iceberg V2"],
)
def test_columns_are_added_to_a_table_with_column_mapping(
    kafka: KafkaCluster, spark: Any, sql: Sql, table: str, topic: str, properties: str
) -> None:
    value = "STRUCT<id: BIGINT, name: STRING>"
    columns = COLUMNS.replace("value BINARY", f"value {value}")
    sql(f"CREATE TABLE delta.`{table}` ({columns}) USING delta TBLPROPERTIES ({properties})")
    orders_topic(kafka, topic, 20)
    job = typed(kafka, table, topic, OLD)
    assert rangeland.land(job, spark).landed == 20
    produced(kafka, topic, orders(range(20, 40)))
    more = f"{OLD}, tags ARRAY<STRING>, shop STRUCT<city: STRING, open: BOOLEAN>"
    job = typed(kafka, table, topic, more)
    result = rangeland.land(job, spark)
    assert (result.landed, result.added_columns) == (20, ("value.tags", "value.shop"))
    rows = table_of(spark, table).orderBy("offset").collect()
    wanted = [order(n) for n in range(40)]
    assert [row["value"]["name"] for row in rows] == [one["name"] for one in wanted]
    assert [row["value"]["tags"] for row in rows[20:]] == [one["tags"] for one in wanted[20:]]
    assert [row["value"]["shop"] and row["value"]["shop"]["city"] for row in rows[20:]] == [
        one["shop"] and one["shop"]["city"] for one in wanted[20:]
    ]
    assert {row["value"]["tags"] for row in rows[:20]} == {None}
    assert offsets_by_delta_rs(table) == list(range(40))
    # Spark goes on where this stopped, and a column that is dropped stays dropped.
    sql(f"ALTER TABLE delta.`{table}` ADD COLUMNS (mine STRING)")
    sql(f"ALTER TABLE delta.`{table}` DROP COLUMN value.tags")
    sql(f"ALTER TABLE delta.`{table}` RENAME COLUMN value.name TO called")
    produced(kafka, topic, orders(range(40, 50)))
    result = rangeland.land(job, spark)
    assert result.added_columns == ("value.name", "value.tags")
    rows = table_of(spark, table).orderBy("offset").collect()
    assert {row["value"]["tags"] for row in rows[:40]} == {None}
    assert [row["value"]["tags"] for row in rows[40:]] == [order(n)["tags"] for n in range(40, 50)]
    assert [row["value"]["called"] for row in rows[:40]] == [one["name"] for one in wanted]
    ids = [f.metadata for f in spark.read.format("delta").load(table).schema]
    assert not any(ids)  # Spark hides them
    part = typed(kafka, table, topic, more, range={"from": "earliest"})
    swapped = run.backfill(part, spark, NoProgress(), PlanKind.REPLACE)
    assert swapped.replaced is not None
    assert swapped.replaced.changed == 40
    assert is_proved(spark, job)


@pytest.mark.slow
def test_new_rows_have_row_ids_and_commit_versions(
    kafka: KafkaCluster, spark: Any, sql: Sql, table: str, topic: str
) -> None:
    create(sql, table, TABLES["row tracking"])
    create_topic(kafka.bootstrap, topic)
    job = job_of(kafka.bootstrap, table, topic)
    for start in (0, 10):
        produce(kafka.bootstrap, topic, numbered_records(10, start), partition=0)
        rangeland.land(job, spark)
    rows = table_of(spark, table).selectExpr(
        "offset", "_metadata.row_id AS id", "_metadata.row_commit_version AS version"
    )
    found = sorted((row.offset, row.id, row.version) for row in rows.collect())
    assert [one[1] for one in found] == list(range(20))
    assert found[0][2] < found[10][2]


@pytest.mark.slow
def test_files_that_are_gone_land_again_in_a_table_with_a_change_data_feed(
    kafka: KafkaCluster, spark: Any, sql: Sql, table: str, topic: str
) -> None:
    create(sql, table, TABLES["change data feed"])
    create_topic(kafka.bootstrap, topic)
    job = job_of(kafka.bootstrap, table, topic)
    for start in (0, 10):
        produce(kafka.bootstrap, topic, numbered_records(10, start), partition=0)
        rangeland.land(job, spark)
    file = next(p for p in Path(table).glob("*.parquet"))
    file.unlink()
    assert run.backfill(job, spark, NoProgress(), PlanKind.HOLES).landed == 10
    assert is_proved(spark, job)
    assert offsets_by_delta_rs(table) == list(range(20))
