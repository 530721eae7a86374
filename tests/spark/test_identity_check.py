"""A table and a ledger that do not belong together: nothing lands until a person has decided."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import rangeland
from rangeland import run
from rangeland.delta.transaction_log.delta_kernel import DeltaKernel
from rangeland.errors import Conflict
from rangeland.job import Job
from rangeland.landing.target.landing_target import open_target
from rangeland.planning.plan import Plan, PlanId
from rangeland.progress_events import NoProgress
from rangeland.queries import job_check, job_status, verify_and_find
from rangeland.testing.kafka import KafkaCluster
from rangeland.testing.producer import create_topic, numbered_records, produce
from tests.spark.landings import job_of, offsets_of, table_of

pytestmark = [pytest.mark.spark, pytest.mark.brokers]

APPLICATION = "rangeland/landing"
Sql = Callable[[str], list[Any]]


class Lake:
    """A topic with ten records, of which a run has landed six and another one four."""

    def __init__(self, kafka: KafkaCluster, spark: Any, topic: str, folder: Path) -> None:
        self.kafka, self.spark, self.topic = kafka, spark, topic
        create_topic(kafka.bootstrap, topic)
        self.produce(6)
        self.table = str(folder / "orders")
        self.land()
        self.produce(4)
        assert self.land() == ("landed", 2)

    def produce(self, count: int) -> None:
        produce(self.kafka.bootstrap, self.topic, numbered_records(count))

    def job(self, table: str | None = None, **more: Any) -> Job:
        return job_of(self.kafka.bootstrap, table or self.table, self.topic, **more)

    def land(self, table: str | None = None) -> tuple[str, int]:
        result = rangeland.land(self.job(table), self.spark)
        return result.state, result.sequence

    def refused(self, match: str, table: str | None = None) -> None:
        """By a run, by a look at what it would do and by a check, and nothing has changed."""
        where = table or self.table
        before = offsets_of(table_of(self.spark, where))
        with pytest.raises(Conflict, match=match) as caught:
            rangeland.land(self.job(table), self.spark)
        assert "rangeland adopt" in caught.value.do
        with pytest.raises(Conflict, match=match):
            run.preview(self.job(table), self.spark, NoProgress())
        assert offsets_of(table_of(self.spark, where)) == before

    def plan(self, sequence: int) -> Plan:
        ledger = open_target(self.spark, self.job()).ledger
        entered = ledger.view.plan(PlanId(APPLICATION, sequence))
        assert entered is not None
        return Plan.from_json(json.loads(entered.document))

    def adopt(self, table: str | None = None) -> int:
        return run.adopt(self.job(table), self.spark, NoProgress()).width

    def offsets(self, table: str | None = None) -> list[int]:
        return [offset for _, offset in offsets_of(table_of(self.spark, table or self.table))]


@pytest.fixture
def lake(kafka: KafkaCluster, spark: Any, topic: str, tmp_path: Path) -> Lake:
    return Lake(kafka, spark, topic, tmp_path)


@pytest.mark.slow
def test_a_transaction_that_delta_has_dropped_lands_nothing_twice(
    lake: Lake, sql: Sql, kernel: DeltaKernel
) -> None:
    name = "delta.setTransactionRetentionDuration"
    sql(
        f"ALTER TABLE delta.`{lake.table}` SET TBLPROPERTIES "
        f"('{name}' = 'interval 0 seconds', 'delta.checkpointInterval' = '1')"
    )
    checked = job_check.check(lake.job(), lambda: lake.spark, NoProgress())
    assert any(name in x.seen for x in checked.findings)
    assert any(
        name in text for text in job_status.status(lake.job(), lake.spark, NoProgress()).warnings
    )
    sql(f"DELETE FROM delta.`{lake.table}` WHERE offset = 0")  # makes a checkpoint
    snapshot = kernel.load(lake.table)
    assert snapshot is not None
    assert snapshot.transaction_version(APPLICATION) is None, "the transaction is not dropped"
    assert lake.land() == ("nothing", 2)
    again = run.apply(lake.job(), lake.plan(2), (), lake.spark, NoProgress())
    assert again.state == "already-landed"
    lake.produce(3)
    assert lake.land() == ("landed", 3)
    assert lake.offsets() == list(range(1, 13))
    log = Path(lake.table, "_delta_log")
    sql(f"DELETE FROM delta.`{lake.table}` WHERE offset = 1")
    for entry in sorted(log.glob("*.json"))[:-1]:
        entry.unlink()  # as the retention of the log does after a month
    assert lake.land() == ("nothing", 3), "one of its files is in the table"


@pytest.mark.slow
def test_a_table_whose_ledger_is_gone_is_refused_until_its_rows_are_adopted(lake: Lake) -> None:
    shutil.rmtree(Path(lake.table, "_rangeland"))
    lake.refused("has no ledger")
    assert lake.adopt() == 10
    assert lake.land() == ("nothing", 3)
    lake.produce(2)
    assert lake.land() == ("landed", 4)
    assert lake.offsets() == list(range(12))
    assert verify_and_find.verify(lake.job(), lake.spark, NoProgress()).is_well


@pytest.mark.slow
def test_copies_and_clones_without_a_ledger_are_refused(
    lake: Lake, sql: Sql, tmp_path: Path
) -> None:
    clone, copied, rows = (str(tmp_path / name) for name in ("clone", "copied", "rows"))
    sql(f"CREATE TABLE delta.`{clone}` SHALLOW CLONE delta.`{lake.table}`")
    lake.refused("has no ledger", clone)
    shutil.copytree(lake.table, copied, ignore=lambda *_: ["_rangeland"])
    lake.refused("has no ledger", copied)
    sql(f"CREATE TABLE delta.`{rows}` USING delta AS SELECT * FROM delta.`{lake.table}`")
    lake.refused("has rows of", rows)
    assert lake.adopt(rows) == 10
    lake.produce(1)
    assert lake.land(rows) == ("landed", 2)
    assert lake.offsets(rows) == list(range(11))


@pytest.mark.slow
def test_tables_made_in_advance_and_rows_of_other_topics_are_landed_in(
    lake: Lake, sql: Sql, tmp_path: Path
) -> None:
    empty, others = str(tmp_path / "empty"), str(tmp_path / "others")
    sql(f"CREATE TABLE delta.`{empty}` LIKE delta.`{lake.table}`")
    assert lake.land(empty) == ("landed", 1)
    renamed = f"SELECT * EXCEPT (topic), 'other' AS topic FROM delta.`{lake.table}`"
    sql(f"CREATE TABLE delta.`{others}` USING delta AS {renamed}")
    assert lake.land(others) == ("landed", 1)
    assert len(lake.offsets(others)) == 20


@pytest.mark.parametrize("how", ["recreated", pytest.param("replaced", marks=pytest.mark.slow)])
def test_a_table_that_was_created_again_at_the_same_path_is_refused(
    lake: Lake, sql: Sql, how: str
) -> None:
    if how == "recreated":
        kept = f"delta.`{shutil.copytree(lake.table, f'{lake.table}-kept')}`"
        for entry in Path(lake.table).iterdir():
            if entry.name == "_delta_log":
                shutil.rmtree(entry)
            elif entry.is_file():
                entry.unlink()
        with pytest.raises(Conflict, match="is gone, and its ledger is still there"):
            lake.land()
        empty = f"{lake.table}-empty"
        sql(f"CREATE TABLE delta.`{empty}` USING delta AS SELECT * FROM {kept} WHERE false")
        shutil.move(f"{empty}/_delta_log", f"{lake.table}/_delta_log")
        lake.spark._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()
    else:
        everything = f"SELECT * FROM delta.`{lake.table}` WHERE offset < 5"
        sql(f"CREATE OR REPLACE TABLE delta.`{lake.table}` USING delta AS {everything}")
    lake.refused("is not the one that its ledger belongs to")
    found = verify_and_find.verify(lake.job(), lake.spark, NoProgress())
    lost = range(10) if how == "recreated" else range(5, 10)
    assert [o for r in found.audit.holes for o in range(r.from_offset, r.until_offset)] == list(
        lost
    )
    lake.produce(1)
    assert lake.adopt() == 0, "the ledger knows these rows"
    assert lake.land() == ("landed", 4)
    rangeland.backfill(lake.job(), lake.spark, missing=True)
    assert lake.offsets() == list(range(11))


@pytest.mark.slow
def test_rows_that_were_overwritten_are_noticed_and_rows_that_were_deleted_are_not_missed(
    lake: Lake, sql: Sql
) -> None:
    sql(f"DELETE FROM delta.`{lake.table}` WHERE offset < 2")
    sql(f"OPTIMIZE delta.`{lake.table}`")
    lake.produce(1)
    assert lake.land() == ("landed", 3)
    sql(f"INSERT OVERWRITE delta.`{lake.table}` SELECT * FROM delta.`{lake.table}` LIMIT 3")
    lake.refused("were replaced at version")
    (warning,) = job_status.status(lake.job(), lake.spark, NoProgress()).warnings
    assert "removed or replaced rows that were landed" in warning
    lake.adopt()
    lake.produce(1)
    assert lake.land()[0] == "landed"
    assert len(lake.offsets()) == 4


def test_an_outcome_of_another_plan_is_not_taken_for_ones_own(lake: Lake) -> None:
    target = open_target(lake.spark, lake.job())
    other = replace(lake.plan(2), made_at_ms=1)
    with pytest.raises(Conflict, match="belongs to another plan"):
        target.writer.prepare_outcome(other, [], [], {})
