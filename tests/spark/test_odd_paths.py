"""A table is exactly where its path says, whatever characters the path has."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import rangeland
from rangeland import run
from rangeland.delta.parquet_files.data_files import FileWriter, FileWriterSettings
from rangeland.delta.table_schema.schema_compatibility import new_table
from rangeland.delta.transaction_log.delta_kernel import DeltaKernel
from rangeland.delta.transaction_log.table_snapshot import CommitRequest
from rangeland.model import Partition
from rangeland.planning.plan_kind import PlanKind
from rangeland.progress_events import NoProgress
from rangeland.queries import verify_and_find
from rangeland.testing.kafka import KafkaCluster
from rangeland.testing.producer import create_topic, numbered_records, produce
from tests.spark.landings import between, expected, job_of, offsets_of, table_of

pytestmark = [pytest.mark.spark, pytest.mark.brokers]

NAMES = ["x", "x#y", "x?y", "x%20y", "x%41", "x y", "x+y", "x:y", "x&y=z", "[x]{y}*", "übér-表",
         "x\\y", "x'y`z", "x%", "#"]  # fmt: skip
EVERYTHING = "a#b?c%20d e+f%41-ü&g=h;i,j@k$l!m'n"


def names_in(parent: Path) -> set[str]:
    return set(os.listdir(parent))


@pytest.mark.slow
def test_tables_with_names_alike_stay_apart(
    kernel: DeltaKernel, spark: Any, tmp_path: Path
) -> None:
    rows = pa.record_batch({"name": ["?"], "offset": [0]})
    made = new_table(rows.schema, ())
    for number, name in enumerate(NAMES):
        table = str(tmp_path / name)
        kernel.create(kernel.resolve(table), made.schema_json, ())
        writer = FileWriter(FileWriterSettings(kernel.storage(table), made.layout))
        writer.write(pa.record_batch({"name": [name], "offset": [number]}))
        kernel.commit(kernel.resolve(table), CommitRequest("rangeland/odd", 1, writer.close()))
    for number in range(2, 12):  # until there is a checkpoint of the log
        kernel.commit(
            kernel.resolve(str(tmp_path / "x#y")), CommitRequest("rangeland/odd", number, ())
        )
    assert kernel.wait_for_maintenance() == ()
    assert any(".checkpoint." in name for name in names_in(tmp_path / "x#y" / "_delta_log"))
    assert names_in(tmp_path) == set(NAMES)
    for number, name in enumerate(NAMES):
        assert [tuple(row) for row in table_of(spark, tmp_path / name).collect()] == [
            (name, number)
        ]
        found = kernel.load(f"file:{tmp_path}//{name}/")
        assert found is not None
        assert found.transaction_version("rangeland/odd") == (11 if name == "x#y" else 1)


def test_a_table_with_all_of_them_in_its_name_works_in_every_command(
    kafka: KafkaCluster, spark: Any, topic: str, tmp_path: Path
) -> None:
    create_topic(kafka.bootstrap, topic, partitions=1)
    produce(kafka.bootstrap, topic, numbered_records(20))
    table = tmp_path / EVERYTHING
    first = between(topic, p0=(0, 10))
    result = rangeland.land(job_of(kafka.bootstrap, table, topic, range=first), spark)
    assert (result.state, result.rows) == ("landed", 10)
    assert names_in(tmp_path) == {EVERYTHING}
    assert names_in(table) > {"_delta_log", "_rangeland"}

    job = job_of(kafka.bootstrap, f"file://{tmp_path}/../{tmp_path.name}/{EVERYTHING}/", topic)
    assert run.run(job, spark, NoProgress()).rows == 10
    assert run.run(job, spark, NoProgress()).state == "nothing"
    assert verify_and_find.verify(job, spark, NoProgress()).is_well
    assert verify_and_find.find(job, spark, Partition(topic, 0), 3, NoProgress()).state == "landed"

    spark.sql(f"DELETE FROM delta.`{table}` WHERE offset < 5")
    assert run.backfill(job, spark, NoProgress(), PlanKind.HOLES).rows == 5
    assert run.backfill(
        job_of(kafka.bootstrap, table, topic, range=first), spark, NoProgress(), PlanKind.REPLACE
    ).state == "landed"  # fmt: skip
    assert offsets_of(table_of(spark, table)) == expected(p0=range(20))
    assert names_in(tmp_path) == {EVERYTHING}


def test_partition_values_keep_their_characters(
    kernel: DeltaKernel, spark: Any, tmp_path: Path
) -> None:
    table = str(tmp_path / "by#name")
    rows = pa.record_batch({"name": NAMES, "offset": list(range(len(NAMES)))})
    made = new_table(rows.schema, ("name",))
    kernel.create(kernel.resolve(table), made.schema_json, made.partition_columns)
    writer = FileWriter(FileWriterSettings(kernel.storage(table), made.layout))
    writer.write(rows)
    kernel.commit(kernel.resolve(table), CommitRequest("rangeland/odd", 1, writer.close()))
    found = {row["name"]: row["offset"] for row in table_of(spark, table).collect()}
    assert found == {name: number for number, name in enumerate(NAMES)}
    assert names_in(tmp_path) == {"by#name"}
