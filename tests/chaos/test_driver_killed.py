"""A driver is killed between any two steps; the next run lands each record once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rangeland import run as commands
from rangeland.job import Job
from rangeland.progress_events import NoProgress
from rangeland.testing.kafka import KafkaCluster
from rangeland.testing.producing import create_topic
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
