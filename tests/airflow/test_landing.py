"""Real Airflow, real Kafka, real Spark: an hour, a range, and what they do when run again."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from rangeland.testing.kafka import KafkaCluster
from rangeland.testing.processes import PATIENCE_S, Process
from rangeland.testing.producer import (
    Record,
    create_topic,
    delete_records,
    numbered_records,
    produce,
)
from tests.airflow.deployment import Airflow, full_hour, offsets_in, write_job

pytestmark = [pytest.mark.slow, pytest.mark.brokers, pytest.mark.spark]


def at(hour: datetime, *minutes: float) -> list[Record]:
    start_ms = int(hour.timestamp() * 1000)
    return [Record(b"x", timestamp_ms=start_ms + round(m * 60_000)) for m in minutes]


def form(job: Path, topic: str | None, **given: Any) -> dict[str, Any]:
    place = {} if topic is None else {"topic": topic, "partition": 0}
    return {"job_file": str(job), "dry_run": False, **place, **given}


def test_an_hour_is_landed_once_however_often_it_is_run(
    airflow: Airflow, kafka: KafkaCluster, topic: str
) -> None:
    hour, after = full_hour(30), full_hour(29)  # a run by hand takes the interval before its date
    create_topic(kafka.bootstrap, topic, partitions=2)
    produce(kafka.bootstrap, topic, at(hour, -1, -0.001, 0, 20, 59.99, 60, 61), partition=0)
    produce(kafka.bootstrap, topic, at(hour, 1, 2), partition=1)  # and silent since
    job = write_job(airflow.home, "once", kafka.bootstrap, topic)
    table, jobs = airflow.home / "lake" / "once", {"RANGELAND_HOURLY_JOBS": str(job)}

    printed = airflow.test_dag("land_hourly", after, **jobs)
    assert airflow.tasks("land_hourly") == {
        "once.wait": ("success", 1),
        "once.land": ("success", 1),
    }, printed
    the_hour = [(0, 2), (0, 3), (0, 4), (1, 0), (1, 1)]
    assert offsets_in(table) == the_hour
    assert "reached in 2 partitions, 1 of them idle" in printed
    assert "once: landed, 5 records. Table lake/once" in printed
    assert "reading plan 1: 5 offsets of 2 partitions" in printed  # what the command told

    printed = airflow.test_dag("land_hourly", after, **jobs)  # cleared, and run again
    assert "once: already-landed, 0 records" in printed
    assert offsets_in(table) == the_hour

    produce(kafka.bootstrap, topic, at(hour, 58), partition=1)  # late, of the same hour
    printed = airflow.test_dag("land_hourly", after, **jobs)
    assert "once: landed, 1 records" in printed
    assert offsets_in(table) == [*the_hour, (1, 2)]

    first, again, late = airflow.events("rangeland-once")
    assert (first["state"], first["table"], first["sequence"]) == ("landed", "lake/once", 1)
    assert isinstance(first["version"], int)
    assert [(r["partition"], r["from_offset"], r["until_offset"], r["landed"])
            for r in first["ranges"]] == [(0, 2, 5, 3), (1, 0, 2, 2)]  # fmt: skip
    assert (again["state"], again["ranges"]) == ("already-landed", [])
    assert [r["until_offset"] for r in again["already_landed"]] == [5, 2]
    assert [(r["from_offset"], r["until_offset"]) for r in late["ranges"]] == [(2, 3)]


def test_a_range_by_offsets_is_shown_then_landed(
    airflow: Airflow, kafka: KafkaCluster, topic: str
) -> None:
    create_topic(kafka.bootstrap, topic)
    produce(kafka.bootstrap, topic, numbered_records(10), partition=0)
    job = write_job(airflow.home, "range", kafka.bootstrap, topic)
    table = airflow.home / "lake" / "range"
    asked = form(job, topic, from_offset=3, until_offset=7)

    printed = airflow.test_dag("backfill_range", conf={**asked, "dry_run": True})
    assert "a dry run, nothing is landed" in printed
    assert "4 offsets would be landed" in printed
    assert not table.exists()
    assert airflow.events("rangeland-range") == []

    printed = airflow.test_dag("backfill_range", conf=asked)
    assert offsets_in(table) == [(0, 3), (0, 4), (0, 5), (0, 6)], printed
    (event,) = airflow.events("rangeland-range")
    assert event["ranges"] == [
        {
            "topic": topic,
            "partition": 0,
            "broker": None,
            "from_offset": 3,
            "until_offset": 7,
            "landed": 4,
        }
    ]
    (result,) = airflow.rows(
        "select value::text from xcom where dag_id = 'backfill_range' and task_id = 'land' "
        "and key = 'return_value' order by timestamp desc limit 1"
    )[0]
    assert json.loads(result)["landed"] == 4


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"from_offset": 0, "until_offset": 5}, "Offsets need a topic and a partition"),
        ({"from_offset": -1, "until_offset": 5}, "-1 is less than the minimum of 0"),
    ],
)
def test_wrong_parameters_fail_clearly_and_start_nothing(
    airflow: Airflow, given: dict[str, Any], said: str
) -> None:
    job = write_job(airflow.home, "wrong", ["127.0.0.1:1"], "any")
    printed = airflow.test_dag("backfill_range", conf=form(job, None, **given))
    assert said in printed
    assert "$ /usr/bin/env" not in printed  # no command line was even made
    assert not (airflow.home / "lake" / "wrong").exists()


def test_a_lost_range_is_not_tried_again(airflow: Airflow, kafka: KafkaCluster, topic: str) -> None:
    create_topic(kafka.bootstrap, topic)
    produce(kafka.bootstrap, topic, numbered_records(10), partition=0)
    delete_records(kafka.bootstrap, topic, {0: 5})
    job = write_job(airflow.home, "lost", kafka.bootstrap, topic)
    printed = airflow.test_dag(
        "backfill_range", conf=form(job, topic, from_offset=2, until_offset=8)
    )
    assert airflow.tasks("backfill_range")["land"] == ("failed", 1), printed
    assert "RangeLost (exit 66)" in printed
    assert "the log begins at 5" in printed


def test_a_broker_that_is_down_is_tried_again_until_it_is_back(
    airflow: Airflow, topic: str, tmp_path: Path
) -> None:
    with KafkaCluster() as kafka:
        create_topic(kafka.bootstrap, topic)
        produce(kafka.bootstrap, topic, numbered_records(4), partition=0)
        job = write_job(airflow.home, "down", kafka.bootstrap, topic)
        kafka.stop(1)
        asked = json.dumps(form(job, topic, from_offset=0, until_offset=4))
        command = ["airflow", "dags", "test", "backfill_range", "--conf", asked]
        run = Process(
            "airflow",
            [str(airflow.programs / command[0]), *command[1:]],
            log=tmp_path / "log",
            environment=airflow.environment,
            directory=airflow.home,
        )
        with run:
            run.wait_for_line(r"Unreachable \(exit 75\)", PATIENCE_S)
            kafka.restart(1)
            assert run.wait_for_end(240) == 0, run.log_tail(60)
    state, tries = airflow.tasks("backfill_range")["land"]
    assert (state, tries >= 2) == ("success", True)
    assert offsets_in(airflow.home / "lake" / "down") == [(0, n) for n in range(4)]
