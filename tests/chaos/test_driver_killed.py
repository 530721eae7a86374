"""A driver is killed between any two steps; the next run lands each record once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rangeland import run as commands
from rangeland.job import Job
from rangeland.progress_events import NoProgress
from rangeland.testing.kafka import KafkaCluster
from rangeland.testing.producer import Record, create_topic, produce
from tests.chaos.conftest import Start
from tests.chaos.driver import COMMITTED, PLANNED, PREPARED, READING, WRITTEN
from tests.chaos.invariants import add_records, data_files, judge, judge_ledger, landings, write_job

PARTITIONS, COUNT, MORE = 4, 40_000, 500

# What a run after the kill does with the plan: whether it reads it, and whether it lands it.
KILLS = [
    pytest.param(PLANNED, "landed", marks=pytest.mark.slow),
    pytest.param(READING, "landed", marks=pytest.mark.slow),
    pytest.param(WRITTEN, "landed", marks=pytest.mark.slow),
    (PREPARED, "landed"),
    pytest.param(COMMITTED, "nothing", marks=pytest.mark.slow),
]


@pytest.mark.parametrize(("moment", "then"), KILLS)
def test_a_killed_driver_s_plan_is_landed_once_by_the_next_run(
    moment: str, then: str, kafka: KafkaCluster, topic: str, folder: Path, start: Start, spark: Any
) -> None:
    driver = start()
    create_topic(kafka.bootstrap, topic, PARTITIONS)
    add_records(kafka.bootstrap, topic, PARTITIONS, COUNT)
    table = folder / "table"
    path = write_job(folder / "job.yaml", kafka.bootstrap, topic, table)
    driver.give(path, **{moment: "kill"})
    driver.wait_until_killed()

    written = data_files(table)
    assert len(landings(table)) == (1 if moment == COMMITTED else 0)
    assert bool(written) == (moment != PLANNED)

    job = Job.load(path)
    again = commands.run(job, spark, NoProgress())
    assert again.state == then
    assert again.recovered == (() if moment == COMMITTED else (1,))
    assert again.sequence == 1
    if moment == PREPARED:
        # Nothing was read again: the files that the dead driver wrote are the table's.
        assert sorted(data_files(table)) == sorted(written)

    assert commands.run(job, spark, NoProgress()).state == "nothing"
    add_records(kafka.bootstrap, topic, PARTITIONS, MORE, COUNT)
    more = commands.run(job, spark, NoProgress())
    assert (more.state, more.sequence, more.counts.landed) == ("landed", 2, PARTITIONS * MORE)
    judge(spark, table, dict.fromkeys(range(PARTITIONS), COUNT + MORE))
    judge_ledger(spark, table)


@pytest.mark.slow
@pytest.mark.parametrize("moment", [WRITTEN, PREPARED, COMMITTED])
def test_a_killed_driver_s_new_column_comes_with_its_rows_or_not_at_all(
    moment: str, kafka: KafkaCluster, topic: str, folder: Path, start: Start, spark: Any
) -> None:
    """A kill at every step is played on the models: ``simulation/test_new_columns``."""
    driver = start()
    create_topic(kafka.bootstrap, topic, 1)
    table = folder / "table"

    def landing(name: str, schema: str) -> Path:
        decode = {"value": {"format": "json", "schema": schema}, "layout": "flat"}
        return write_job(folder / name, kafka.bootstrap, topic, table, decode=decode)

    def seen() -> tuple[bool, int]:
        """Whether a reader finds the new column, and how many rows."""
        frame = spark.read.format("delta").load(str(table))
        return "price" in frame.columns, frame.count()

    old, new = landing("old.yaml", "id BIGINT"), landing("new.yaml", "id BIGINT, price BIGINT")
    records = [Record(b'{"id": %d, "price": 7}' % n, b"k") for n in range(10)]
    produce(kafka.bootstrap, topic, records[:4], partition=0)
    assert commands.run(Job.load(old), spark, NoProgress()).counts.landed == 4
    produce(kafka.bootstrap, topic, records[4:], partition=0)
    driver.give(new, **{moment: "kill"})
    driver.wait_until_killed()
    assert seen() == ((True, 10) if moment == COMMITTED else (False, 4))
    then = commands.run(Job.load(old if moment == PREPARED else new), spark, NoProgress())
    assert then.state == ("nothing" if moment == COMMITTED else "landed")
    assert seen() == (True, 10)
    frame = spark.read.format("delta").load(str(table))
    rows = sorted(tuple(row) for row in frame.select("_offset", "id", "price").collect())
    assert rows == [(n, n, None if n < 4 else 7) for n in range(10)]
    judge_ledger(spark, table)
