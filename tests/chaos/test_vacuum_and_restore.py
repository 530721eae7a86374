"""VACUUM and RESTORE by others, between the steps of a run and between runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rangeland import run as commands
from rangeland.errors import Conflict
from rangeland.job import Job
from rangeland.progress_events import NoProgress
from rangeland.testing.kafka import KafkaCluster
from rangeland.testing.producer import create_topic
from tests.chaos.conftest import Start
from tests.chaos.driver import PREPARED
from tests.chaos.invariants import add_records, data_files, judge, judge_ledger, landings, write_job

PARTITIONS, COUNT = 2, 5_000
NO_RETENTION = "spark.databricks.delta.retentionDurationCheck.enabled"


def vacuum(spark: Any, table: Path) -> None:
    """Removes every file in the table's folder that the newest version does not hold."""
    spark.conf.set(NO_RETENTION, "false")
    try:
        spark.sql(f"VACUUM delta.`{table}` RETAIN 0 HOURS").collect()
    finally:
        spark.conf.unset(NO_RETENTION)


@pytest.mark.slow
def test_prepared_files_that_a_vacuum_took_are_read_again_and_landed_once(
    kafka: KafkaCluster, topic: str, folder: Path, start: Start, spark: Any
) -> None:
    driver = start()
    create_topic(kafka.bootstrap, topic, PARTITIONS)
    add_records(kafka.bootstrap, topic, PARTITIONS, COUNT)
    table = folder / "table"
    path = write_job(folder / "job.yaml", kafka.bootstrap, topic, table)
    driver.give(path, **{PREPARED: "kill"})
    driver.wait_until_killed()
    assert data_files(table)
    ledger = sorted((table / "_rangeland").rglob("*.parquet"))

    vacuum(spark, table)
    assert not data_files(table)
    assert sorted((table / "_rangeland").rglob("*.parquet")) == ledger

    job = Job.load(path)
    again = commands.run(job, spark, NoProgress())
    assert (again.state, again.recovered) == ("landed", (1,))
    assert [w for w in again.warnings if "prepared files are gone" in w]
    assert commands.run(job, spark, NoProgress()).state == "nothing"

    vacuum(spark, table)
    add_records(kafka.bootstrap, topic, PARTITIONS, COUNT, COUNT)
    assert commands.run(job, spark, NoProgress()).sequence == 2
    judge(spark, table, dict.fromkeys(range(PARTITIONS), 2 * COUNT))
    assert landings(table) == [("rangeland/chaos", 1), ("rangeland/chaos", 2)]


@pytest.mark.slow
def test_a_run_refuses_a_table_that_was_restored_to_before_its_landings(
    kafka: KafkaCluster, topic: str, folder: Path, spark: Any
) -> None:
    create_topic(kafka.bootstrap, topic, PARTITIONS)
    table = folder / "table"
    job = Job.load(write_job(folder / "job.yaml", kafka.bootstrap, topic, table))
    versions = []
    for start in (0, COUNT):
        add_records(kafka.bootstrap, topic, PARTITIONS, COUNT, start)
        versions.append(commands.run(job, spark, NoProgress()).table_version)
    add_records(kafka.bootstrap, topic, PARTITIONS, COUNT, 2 * COUNT)

    spark.sql(f"RESTORE TABLE delta.`{table}` TO VERSION AS OF {versions[0]}").collect()
    for _ in range(2):
        with pytest.raises(Conflict) as refused:
            commands.run(job, spark, NoProgress())
        assert refused.value.exit_code == 73
        assert refused.value.facts["restored_to"] == versions[0]
    judge(spark, table, dict.fromkeys(range(PARTITIONS), COUNT))

    spark.sql(f"RESTORE TABLE delta.`{table}` TO VERSION AS OF {versions[1]}").collect()
    last = commands.run(job, spark, NoProgress())
    assert (last.state, last.sequence) == ("landed", 3)
    assert last.counts.landed == PARTITIONS * COUNT
    judge(spark, table, dict.fromkeys(range(PARTITIONS), 3 * COUNT))
    judge_ledger(spark, table)
