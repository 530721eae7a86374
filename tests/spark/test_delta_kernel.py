"""Delta Kernel as we use it, checked by Spark reading the same tables."""

from __future__ import annotations

import datetime as dt
import json
import math
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from rangeland.delta.java_bridge.delta_kernel_loader import load_delta_kernel
from rangeland.delta.java_bridge.hadoop_configuration import HadoopConf
from rangeland.delta.parquet_files.data_files import FileWriter, FileWriterSettings
from rangeland.delta.stores.local_table_lock import LOCK_PATH
from rangeland.delta.stores.store_access import StoreSettings
from rangeland.delta.stores.store_kinds import StoreKind
from rangeland.delta.table_metadata import TableLayout
from rangeland.delta.table_schema.schema_compatibility import new_table, row_layout
from rangeland.delta.table_schema.table_constraints import constraints_of
from rangeland.delta.transaction_log.delta_kernel import DeltaKernel
from rangeland.delta.transaction_log.table_commit import (
    CommittedOutcome,
    FilesGone,
    commit_once,
)
from rangeland.delta.transaction_log.table_snapshot import (
    AlreadyCommitted,
    CommitRequest,
    Committed,
    Snapshot,
)
from rangeland.errors import Conflict, TableRefused
from rangeland.jvm.spark_jvm import without_context
from rangeland.landing.target.landing_commits import Restored, landed_at, last_restore
from rangeland.model import DataFile
from rangeland.planning.plan import PlanId
from rangeland.testing.processes import PATIENCE_S
from tests.unit.test_delta_files import ROWS, rows

pytestmark = pytest.mark.spark

Sql = Callable[[str], list[Any]]


def write(table: str, layout: TableLayout, *batches: pa.RecordBatch, **how: Any) -> list[DataFile]:
    writer = FileWriter(FileWriterSettings(StoreSettings(table), layout, **how))
    for batch in batches:
        writer.write(batch)
    return writer.close()


def make(kernel: DeltaKernel, table: str, *partition_by: str) -> tuple[Snapshot, TableLayout]:
    new = new_table(ROWS, partition_by)
    return kernel.create(table, new.schema_json, new.partition_columns), new.layout


def fit(kernel: DeltaKernel, table: str) -> TableLayout:
    """How rows go into a table that is there."""
    snapshot = kernel.load(table)
    assert snapshot is not None
    return row_layout(snapshot.metadata, ROWS).layout


def test_where_there_is_no_table_there_is_none(kernel: DeltaKernel, table: str) -> None:
    assert kernel.load(table) is None
    assert kernel.store(table).kind is StoreKind.LOCAL


def test_delta_kernel_has_the_settings_that_delta_for_spark_has(spark: Any) -> None:
    prefix = "spark.io.delta.storage.S3DynamoDBLogStore.ddb"
    given = {f"{prefix}.region": "eu-central-1", f"{prefix}.tableName": "orders_log"}
    for name, value in given.items():
        spark.conf.set(name, value)
    try:
        spark_has = spark._jsparkSession.sessionState().newHadoopConf()
        kernel_has = DeltaKernel(spark)._conf.java
    finally:
        for name in given:
            spark.conf.unset(name)
    for name, value in given.items():
        assert (spark_has.get(name), kernel_has.get(name)) == (value, value)
    for name in ("spark.master", "fs.defaultFS"):
        assert spark_has.get(name) == kernel_has.get(name)


def test_delta_kernel_has_them_before_there_is_a_session(kernel: DeltaKernel, spark: Any) -> None:
    name = "spark.io.delta.storage.S3DynamoDBLogStore.ddb.region"
    system = spark._jvm.java.lang.System
    system.setProperty(name, "eu-central-1")  # as spark-submit does for --conf
    try:
        jvm = without_context(spark.sparkContext._gateway)
    finally:
        system.clearProperty(name)
    assert HadoopConf(jvm, load_delta_kernel(jvm)).java.get(name) == "eu-central-1"
    assert jvm.hadoop.get(name) is None  # it is shared with others


def test_spark_reads_what_was_appended(kernel: DeltaKernel, table: str, spark: Any) -> None:
    snapshot, layout = make(kernel, table)
    assert snapshot.metadata.version == 0
    for codec in ("zstd", "snappy", "none"):
        files = write(table, layout, rows(0, 500), compression=codec)
        done = kernel.commit(table, CommitRequest(f"rangeland/{codec}", 1, files))
        assert isinstance(done, Committed)
        assert kernel.wait_for_maintenance() == ()
    found = spark.read.format("delta").load(table).where("offset < 3").orderBy("offset").collect()
    assert len(found) == 9
    assert found[0].key is None
    assert found[3].key == bytearray(b"k1")
    # PySpark gives naive local times.
    assert found[3].timestamp.astimezone(dt.UTC) == dt.datetime(2026, 3, 1, 0, 1, tzinfo=dt.UTC)
    assert found[3].timestampType == 0
    assert [tuple(h) for h in found[3].headers] == [("h", bytearray(b"1")), ("h", None)]
    assert found[0].headers is None


def test_a_checksum_of_an_earlier_file_does_not_make_a_commit_unreadable(
    kernel: DeltaKernel, table: str, spark: Any
) -> None:
    """Hadoop keeps one beside each file that it writes, and checks it if there is one."""
    make(kernel, table)
    log = Path(table, "_delta_log")
    (log / f".{1:020}.json.crc").write_bytes(b"crc\0\0\0\2\0\1\2\3\4")
    kernel.commit(table, CommitRequest("rangeland/a", 1))
    assert not kernel.wait_for_maintenance()
    assert not list(log.glob(".*.crc"))
    assert not list(log.glob(".*.tmp"))
    assert len(spark.sql(f"DESCRIBE HISTORY delta.`{table}`").collect()) == 2


def test_the_files_are_listed_as_they_were_appended(kernel: DeltaKernel, table: str) -> None:
    _, layout = make(kernel, table, "hour(timestamp)")
    files = write(table, layout, rows(0, 130))
    kernel.commit(table, CommitRequest("rangeland/a", 1, files))
    snapshot = kernel.load(table)
    assert snapshot is not None
    listed = {f.path: f for f in snapshot.files()}
    assert listed.keys() == {f.path for f in files}
    for f in files:
        assert listed[f.path].stats == f.stats
        assert listed[f.path].partition_values == f.partition_values
        assert listed[f.path].size_bytes == f.size_bytes
    assert list(kernel.create(f"{table}-empty", snapshot.metadata.schema_json).files()) == []


def test_statistics_let_spark_skip_files(kernel: DeltaKernel, table: str, spark: Any) -> None:
    _, layout = make(kernel, table)
    for i in range(4):
        kernel.commit(
            table, CommitRequest("rangeland/a", i, write(table, layout, rows(i * 100, 100)))
        )
    read = spark.read.format("delta").load(table)
    assert len(read.inputFiles()) == 4
    assert len(read.where("offset between 250 and 260").inputFiles()) == 1
    assert len(read.where("timestamp < '2026-03-01 01:00:00'").inputFiles()) == 1
    assert len(read.where("topic = 'other'").inputFiles()) == 0
    assert read.where("offset between 250 and 260").count() == 11
    assert read.agg({"offset": "max"}).collect()[0][0] == 399


@pytest.mark.parametrize("zone", ["UTC", "America/St_Johns"])
@pytest.mark.slow
def test_partitions_by_hour_and_day_are_read_back_in_any_time_zone(
    kernel: DeltaKernel, table: str, spark: Any, zone: str
) -> None:
    _, layout = make(kernel, table, "date(timestamp)", "hour(timestamp)")
    kernel.commit(table, CommitRequest("rangeland/a", 1, write(table, layout, rows(0, 1500))))
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        read = spark.read.format("delta").load(table)
        assert read.count() == 1500
        hours = read.selectExpr("unix_seconds(hour) h", "unix_seconds(timestamp) t", "date")
        assert hours.where("h != t - t % 3600").count() == 0
        assert (
            hours.where("date != date_add(date'1970-01-01', cast(t / 86400 as int))").count() == 0
        )
        assert read.where("date = '2026-03-02'").count() == 60
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")


def test_odd_partition_values_are_read_back(kernel: DeltaKernel, table: str, spark: Any) -> None:
    schema = pa.schema([pa.field("offset", pa.int64()), pa.field("name", pa.string())])
    new = new_table(schema, ["name"])
    kernel.create(table, new.schema_json, new.partition_columns)
    names = ["a b", "50%", "x=y/z", "ü😀", "q?#[]{}", None, "a:b\"c'", "a\0b", "a%00b"]
    batch = pa.record_batch([pa.array(range(len(names)), pa.int64()), names], schema=schema)
    kernel.commit(table, CommitRequest("rangeland/a", 1, write(table, new.layout, batch)))
    found = spark.read.format("delta").load(table).orderBy("offset").collect()
    assert [row["name"] for row in found] == names


@pytest.mark.parametrize(
    "condition", ["x > 5", "x = double('NaN')", "NOT (x <= 5)", "x != 1", "y NOT IN (1)"]
)
def test_filters_find_a_nan(kernel: DeltaKernel, table: str, spark: Any, condition: str) -> None:
    schema = pa.schema([("offset", pa.int64()), ("x", pa.float64()), ("y", pa.float32())])
    new = new_table(schema, [])
    kernel.create(table, new.schema_json, new.partition_columns)
    batch = pa.record_batch([[1, 2], [1.0, math.nan], [1.0, math.nan]], schema=schema)
    kernel.commit(table, CommitRequest("rangeland/a", 1, write(table, new.layout, batch)))
    found = spark.read.format("delta").load(table).where(condition).collect()
    assert [row.offset for row in found] == [2]


@pytest.mark.parametrize("partition_by", [[], ["topic"], ["date(timestamp)", "partition"]])
def test_a_table_made_for_rows_fits_them(
    kernel: DeltaKernel, table: str, partition_by: list[str]
) -> None:
    new = new_table(ROWS, partition_by)
    made = kernel.create(table, new.schema_json, new.partition_columns)
    assert made.is_own
    seen = kernel.create(table, new.schema_json, new.partition_columns)
    assert not seen.is_own
    for snapshot in (made, seen):
        assert row_layout(snapshot.metadata, ROWS, partition_by).layout == new.layout


def test_a_transaction_is_committed_once(kernel: DeltaKernel, table: str, spark: Any) -> None:
    snapshot, layout = make(kernel, table)
    files = write(table, layout, rows(0, 10))
    assert kernel.commit(snapshot, CommitRequest("rangeland/a", 5, files)) == Committed(1)
    assert kernel.commit(table, CommitRequest("rangeland/a", 5, files)) == AlreadyCommitted(1, 5)
    assert kernel.commit(table, CommitRequest("rangeland/a", 4, files)) == AlreadyCommitted(1, 5)
    # an old snapshot does not know of the commit: Kernel finds it on the way
    assert kernel.commit(snapshot, CommitRequest("rangeland/a", 5, files)) == AlreadyCommitted(1, 5)
    assert kernel.commit(snapshot, CommitRequest("rangeland/b", 1, [])) == Committed(2)
    assert spark.read.format("delta").load(table).count() == 10
    newest = kernel.load(table)
    assert newest is not None
    assert newest.transaction_version("rangeland/a") == 5
    assert newest.transaction_version("rangeland/c") is None


def test_an_expected_version_that_has_passed_is_a_conflict(kernel: DeltaKernel, table: str) -> None:
    snapshot, layout = make(kernel, table)
    kernel.commit(
        snapshot,
        CommitRequest("rangeland/a", 1, write(table, layout, rows(0, 1)), expected_version=0),
    )
    with pytest.raises(Conflict):
        kernel.commit(snapshot, CommitRequest("rangeland/b", 1, [], expected_version=0))
    with pytest.raises(Conflict, match="no longer at version 0"):
        kernel.commit(table, CommitRequest("rangeland/b", 1, [], expected_version=0))


def test_a_schema_changed_meanwhile_is_a_conflict(
    kernel: DeltaKernel, table: str, sql: Sql
) -> None:
    snapshot, layout = make(kernel, table)
    files = write(table, layout, rows(0, 1))
    sql(f"ALTER TABLE delta.`{table}` ADD COLUMNS (more STRING)")
    with pytest.raises(Conflict, match="schema or protocol"):
        kernel.commit(snapshot, CommitRequest("rangeland/a", 1, files))


def test_upkeep_makes_checkpoints_and_checksums(kernel: DeltaKernel, table: str) -> None:
    _, layout = make(kernel, table)
    files = write(table, layout, rows(0, 1))
    for i in range(11):
        done = kernel.commit(table, CommitRequest("rangeland/a", i, files))
        assert done == Committed(i + 1)
    assert kernel.wait_for_maintenance() == ()
    log = Path(table) / "_delta_log"
    assert (log / f"{10:020d}.checkpoint.parquet").exists()
    assert json.loads((log / "_last_checkpoint").read_text())["version"] == 10
    assert (log / f"{11:020d}.crc").exists()
    again = kernel.load(table)
    assert again is not None
    assert again.transaction_version("rangeland/a") == 10
    assert len(list(again.files())) == 1


def test_commits_name_their_writer(kernel: DeltaKernel, table: str, sql: Sql) -> None:
    snapshot, layout = make(kernel, table)
    kernel.commit(snapshot, CommitRequest("rangeland/a", 1, write(table, layout, rows(0, 1))))
    newest = sql(f"DESCRIBE HISTORY delta.`{table}`")[0]
    assert newest.operation == "WRITE"
    assert newest.engineInfo.endswith("/rangeland")


def test_the_lock_file_survives_vacuum(
    kernel: DeltaKernel, table: str, sql: Sql, spark: Any
) -> None:
    make(kernel, table)
    spark.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
    sql(f"VACUUM delta.`{table}` RETAIN 0 HOURS")
    assert (Path(table) / LOCK_PATH).exists()


# --- features of existing tables --------------------------------------------------------

COLUMNS = (
    "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP, "
    "timestampType INT, headers ARRAY<STRUCT<key: STRING, value: BINARY>>"
)
HONOURED = {
    "plain": ("", ""),
    "append only": ("", "'delta.appendOnly' = 'true'"),
    "deletion vectors": ("", "'delta.enableDeletionVectors' = 'true'"),
    "change data feed": ("", "'delta.enableChangeDataFeed' = 'true'"),
    "row tracking": ("", "'delta.enableRowTracking' = 'true'"),
    "in-commit timestamps": ("", "'delta.enableInCommitTimestamps' = 'true'"),
    "type widening": ("", "'delta.enableTypeWidening' = 'true'"),
    "v2 checkpoints": ("", "'delta.checkpointPolicy' = 'v2'"),
    "extra columns": (", v VARIANT, n TIMESTAMP_NTZ, s STRING", ""),
}
OFTEN = {"plain", "deletion vectors", "v2 checkpoints"}
"""Those that most tables have that have any; the others take their turn with the slow tests."""
REFUSED = {
    "generatedColumns": (", d DATE GENERATED ALWAYS AS (CAST(timestamp AS DATE))", ""),
    "identityColumns": (", i BIGINT GENERATED ALWAYS AS IDENTITY", ""),
    "allowColumnDefaults": (
        ", c STRING DEFAULT 'x'",
        "'delta.feature.allowColumnDefaults' = 'supported'",
    ),
}


def create(sql: Sql, table: str, extra: str, properties: str, more: str = "") -> None:
    given = f"TBLPROPERTIES ({properties})" if properties else ""
    sql(f"CREATE TABLE delta.`{table}` ({COLUMNS}{extra}) USING delta {more} {given}")


@pytest.mark.parametrize(
    "name",
    [n if n in OFTEN else pytest.param(n, marks=pytest.mark.slow) for n in HONOURED],
)
@pytest.mark.slow
def test_tables_with_harmless_features_take_rows(
    kernel: DeltaKernel, table: str, sql: Sql, name: str
) -> None:
    create(sql, table, *HONOURED[name])
    snapshot = kernel.load(table)
    assert snapshot is not None
    layout = row_layout(snapshot.metadata, ROWS).layout
    for i in range(12):  # past a checkpoint
        files = write(table, layout, rows(i * 10, 10))
        named = {"rangeland.ledger": "id"} if i == 0 else {}
        done = kernel.commit(table, CommitRequest("rangeland/a", i, files, properties=named))
        assert done == Committed(i + 1)
    (count,) = sql(f"SELECT count(*) AS n, max(offset) AS last FROM delta.`{table}`")
    assert (count.n, count.last) == (120, 119)
    if name != "append only":
        sql(f"DELETE FROM delta.`{table}` WHERE offset % 2 = 0")
        assert sql(f"SELECT count(*) AS n FROM delta.`{table}`")[0].n == 60


@pytest.mark.slow
def test_clustered_tables_take_rows(kernel: DeltaKernel, table: str, sql: Sql) -> None:
    create(sql, table, "", "", "CLUSTER BY (topic, offset)")
    snapshot = kernel.load(table)
    assert snapshot is not None
    files = write(table, row_layout(snapshot.metadata, ROWS).layout, rows(0, 100))
    kernel.commit(snapshot, CommitRequest("rangeland/a", 1, files))
    sql(f"OPTIMIZE delta.`{table}`")
    assert sql(f"SELECT count(*) AS n FROM delta.`{table}`")[0].n == 100


@pytest.mark.parametrize("name", REFUSED)
def test_tables_with_features_that_cannot_be_honoured_are_refused(
    kernel: DeltaKernel, table: str, sql: Sql, name: str
) -> None:
    create(sql, table, *REFUSED[name])
    snapshot = kernel.load(table)
    assert snapshot is not None
    with pytest.raises(TableRefused, match=name) as caught:
        row_layout(snapshot.metadata, ROWS)
    assert caught.value.do


OTHERS = {
    "catalogManaged": ("inCommitTimestamp", "vacuumProtocolCheck"),
    "coordinatedCommits-preview": ("inCommitTimestamp",),
    "icebergCompatV1": ("columnMapping",),
    "icebergWriterCompatV1": ("columnMapping", "icebergCompatV2"),
    "ofAnotherTime": (),
}
"""What Spark gives no table in a folder, with what it depends on."""


@pytest.mark.parametrize("is_for_readers", [False, True], ids=["writers", "readers too"])
@pytest.mark.parametrize("name", OTHERS)
def test_features_of_tables_that_others_make_are_refused_by_name(
    kernel: DeltaKernel, table: str, name: str, is_for_readers: bool
) -> None:
    make(kernel, table)
    kernel.wait_for_maintenance()  # which writes a checksum with the protocol
    log = Path(table, "_delta_log")
    first = log / f"{0:020}.json"
    listed = sorted({name, *OTHERS[name]})
    protocol = {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": listed}
    if is_for_readers:
        protocol |= {"minReaderVersion": 3, "readerFeatures": [name]}
    actions = [json.loads(line) for line in first.read_text().splitlines()]
    changed = [{"protocol": protocol} if "protocol" in one else one for one in actions]
    first.write_text("".join(f"{json.dumps(one)}\n" for one in changed))
    for checksum in log.glob("*.crc"):
        checksum.unlink()
    with pytest.raises(TableRefused, match=name):
        fit(kernel, table)


def test_rows_that_were_not_checked_do_not_get_into_a_table_with_constraints(
    kernel: DeltaKernel, table: str, sql: Sql
) -> None:
    create(sql, table, "", "")
    sql(f"ALTER TABLE delta.`{table}` ADD CONSTRAINT positive CHECK (offset > 0)")
    snapshot = kernel.load(table)
    assert snapshot is not None
    constraints = constraints_of(snapshot.metadata)
    assert [one.name for one in constraints] == ["positive"]
    with pytest.raises(TableRefused, match="could not commit to"):
        kernel.commit(snapshot, CommitRequest("rangeland/a", 1, []))
    done = kernel.commit(snapshot, CommitRequest("rangeland/a", 1, [], checked=constraints))
    assert done == Committed(2)
    assert kernel.commit(snapshot, CommitRequest("rangeland/a", 1, [], checked=constraints)) == (
        AlreadyCommitted(2, 1)
    )
    # Another constraint came after the check.
    sql(f"ALTER TABLE delta.`{table}` ADD CONSTRAINT small CHECK (offset < 9)")
    with pytest.raises(Conflict):
        kernel.commit(snapshot, CommitRequest("rangeland/b", 1, [], checked=constraints))
    with pytest.raises(TableRefused, match="could not commit to"):
        kernel.commit(table, CommitRequest("rangeland/b", 1, [], checked=constraints))


def test_not_null_columns_are_no_invariants(kernel: DeltaKernel, table: str, sql: Sql) -> None:
    sql(
        f"CREATE TABLE delta.`{table}` ({COLUMNS.replace('BIGINT', 'BIGINT NOT NULL')}) USING delta"
    )
    snapshot = kernel.load(table)
    assert snapshot is not None
    layout = row_layout(snapshot.metadata, ROWS).layout
    assert layout.required == {"offset"}
    kernel.commit(snapshot, CommitRequest("rangeland/a", 1, write(table, layout, rows(0, 5))))
    assert sql(f"SELECT count(*) AS n FROM delta.`{table}`")[0].n == 5


# --- landing ----------------------------------------------------------------------------


def test_landing_is_idempotent_and_finds_its_version(kernel: DeltaKernel, table: str) -> None:
    snapshot, layout = make(kernel, table)
    files = write(table, layout, rows(0, 10))
    assert commit_once(kernel, table, CommitRequest("rangeland/a", 1, files)) == CommittedOutcome(
        1, is_new=True
    )
    kernel.commit(table, CommitRequest("rangeland/b", 9, []))
    assert commit_once(kernel, table, CommitRequest("rangeland/a", 1, files)) == CommittedOutcome(
        None, is_new=False
    )
    assert commit_once(
        kernel, snapshot, CommitRequest("rangeland/a", 1, files)
    ) == CommittedOutcome(None, is_new=False)
    assert landed_at(kernel, table, PlanId("rangeland/a", 1)) == 1
    assert landed_at(kernel, table, PlanId("rangeland/b", 9)) == 2
    assert landed_at(kernel, table, PlanId("rangeland/b", 9), since=40) is None


def test_files_that_are_gone_are_named_and_nothing_is_committed(
    kernel: DeltaKernel, table: str
) -> None:
    _, layout = make(kernel, table, "hour(timestamp)")
    files = write(table, layout, rows(0, 120))
    (Path(table) / files[0].path).unlink()
    assert commit_once(kernel, table, CommitRequest("rangeland/a", 1, files)) == FilesGone(
        (files[0].path,)
    )
    newest = kernel.load(table)
    assert newest is not None
    assert newest.metadata.version == 0


def restore_after(kernel: DeltaKernel, table: str, since: int) -> Restored | None:
    return last_restore(kernel, table, kernel.commits(table, since + 1))


@pytest.mark.slow
def test_a_restore_that_took_landings_away_is_noticed(
    kernel: DeltaKernel, table: str, sql: Sql
) -> None:
    _, layout = make(kernel, table)
    for i in range(1, 4):
        commit_once(
            kernel, table, CommitRequest("rangeland/a", i, write(table, layout, rows(i * 10, 10)))
        )
    assert restore_after(kernel, table, 0) is None
    sql(f"OPTIMIZE delta.`{table}`")
    assert restore_after(kernel, table, 0) is None
    sql(f"RESTORE TABLE delta.`{table}` TO VERSION AS OF 1")
    found = restore_after(kernel, table, 2)
    assert isinstance(found, Restored)
    assert found.restored_to == 1
    assert found.lost == (PlanId("rangeland/a", 2), PlanId("rangeland/a", 3))
    assert restore_after(kernel, table, found.version) is None


VERIFIED = """
import sys
from pathlib import Path
sys.path[:0] = [{lib!r}, {root!r}]
from tests.spark.test_delta_kernel import make, rows, write
from tests.spark_sessions import open_session
from rangeland.delta.transaction_log.delta_kernel import DeltaKernel
from rangeland.delta.transaction_log.table_snapshot import CommitRequest

verifies = {{"spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"}}
session = open_session(Path({scratch!r}), "local[1]", verifies)
kernel = DeltaKernel(session)
assert kernel.load({table!r}) is None
snapshot, layout = make(kernel, {table!r})
kernel.commit({table!r}, CommitRequest("rangeland/a", 1, write({table!r}, layout, rows(0, 9))))
assert kernel.wait_for_maintenance() == ()
assert len(list(kernel.load({table!r}).files())) == 1
assert len(kernel.commits({table!r})) == 2
session.stop()
"""


def test_java_accepts_the_classes_that_are_compiled_at_a_start(table: str, tmp_path: Path) -> None:
    """Our own JVM does not verify classes, to start sooner; those of spark-submit do."""
    root = Path(__file__).parents[2]
    where = {"lib": str(root / "lib"), "root": str(root), "scratch": str(tmp_path), "table": table}
    done = subprocess.run(
        [sys.executable, "-c", VERIFIED.format(**where)],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]


RACER = """
import json, os, sys, time
from pathlib import Path
sys.path[:0] = [{lib!r}, {root!r}]
from tests.spark_sessions import open_session
from rangeland.delta.transaction_log.delta_kernel import DeltaKernel
from rangeland.delta.transaction_log.table_snapshot import CommitRequest, Committed
from rangeland.model import DataFile
from rangeland.testing.processes import PATIENCE_S

me = sys.argv[1]
session = open_session(Path({scratch!r}, f"spark-{{me}}"), "local[1]")
kernel, won = DeltaKernel(session), []
for i in range({rounds}):
    Path({scratch!r}, f"{{me}}-{{i}}").touch()
    other = Path({scratch!r}, f"{{1 - int(me)}}-{{i}}")
    deadline = time.monotonic() + PATIENCE_S
    while not other.exists() and time.monotonic() < deadline:
        time.sleep(0.002)
    file = DataFile(f"f-{{me}}-{{i}}.parquet", 10, 1, '{{"numRecords":1}}', 1)
    done = kernel.commit({table!r}, CommitRequest("rangeland/a", i, [file]))
    won.append(isinstance(done, Committed))
print("WON" + json.dumps(won))
session.stop()
"""


NO_LINKS = """
#include <errno.h>
int link(const char *from, const char *to) { errno = EPERM; return -1; }
"""
"""As a file system without hard links answers."""


@pytest.mark.slow
@pytest.mark.parametrize("has_links", [True, False])
def test_two_processes_that_race_have_one_winner_each_time(
    kernel: DeltaKernel, table: str, tmp_path: Path, spark: Any, has_links: bool
) -> None:
    environment = dict(os.environ)
    if not has_links:
        source, library = tmp_path / "no_links.c", tmp_path / "no_links.so"
        source.write_text(NO_LINKS)
        subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True)
        environment["LD_PRELOAD"] = str(library)
    rounds = 30
    make(kernel, table)
    root = Path(__file__).parents[2]
    code = RACER.format(
        lib=str(root / "lib"), root=str(root), scratch=str(tmp_path), rounds=rounds, table=table
    )
    racers = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(i)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )
        for i in (0, 1)
    ]
    said = [racer.communicate(timeout=PATIENCE_S) for racer in racers]
    for out, err in said:
        assert "WON" in out, err[-2000:]
    results = [json.loads(out.split("WON", 1)[1].splitlines()[0]) for out, _ in said]
    assert [sum(pair) for pair in zip(*results, strict=True)] == [1] * rounds
    newest = kernel.load(table)
    assert newest is not None
    assert newest.metadata.version == rounds
    assert len(list(newest.files())) == rounds
    assert len(spark.sql(f"DESCRIBE HISTORY delta.`{table}`").collect()) == rounds + 1
