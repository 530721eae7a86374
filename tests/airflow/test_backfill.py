"""Airflow's own backfill: hours landed once by a scheduler, and asked for again."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path

import pytest

from rangeland.testing.kafka import KafkaCluster
from rangeland.testing.producer import Record, create_topic, produce
from tests.airflow.deployment import full_hour, offsets_in, write_job
from tests.airflow.postgres import PostgresServer
from tests.airflow.running_airflow import LiveAirflow

pytestmark = [pytest.mark.slow, pytest.mark.brokers, pytest.mark.spark]

HOURS = 3


def backfill(airflow: LiveAirflow, first: datetime, *flags: str) -> None:
    last = first + timedelta(hours=HOURS - 1)
    span = ("--from-date", first.isoformat(), "--to-date", last.isoformat())
    done = airflow.run("airflow", "backfill", "create", "--dag-id", "land_hourly", *span, *flags)
    assert done.returncode == 0, done.stdout


def is_running(airflow: LiveAirflow) -> bool:
    return bool(airflow.rows("select 1 from backfill where completed_at is null"))


def landed_runs(airflow: LiveAirflow) -> list[tuple[str, int]]:
    """(kind of run, number of landings so far) of each hour that was landed, in its order."""
    return [
        (str(kind), int(cleared) + 1)
        for kind, cleared in airflow.rows(
            "select r.run_type, r.clear_number from dag_run r join task_instance t "
            "on t.dag_id = r.dag_id and t.run_id = r.run_id where t.task_id = 'hours.land' "
            "and t.state = 'success' and r.state = 'success' order by r.logical_date"
        )
    ]


def test_backfilled_hours_are_landed_once_each_and_nothing_again_when_repeated(
    kafka: KafkaCluster, postgres: PostgresServer, topic: str, tmp_path: Path
) -> None:
    first = full_hour(HOURS + 1)  # one hour more is left to the schedule
    start_ms = int(first.timestamp() * 1000)
    create_topic(kafka.bootstrap, topic)
    minutes = [n for hour in range(HOURS + 1) for n in (60 * hour, 60 * hour + 59)]
    stamps = [start_ms + 60_000 * minute for minute in [-1, *minutes, 60 * (HOURS + 1)]]
    produce(kafka.bootstrap, topic, [Record(b"x", timestamp_ms=stamp) for stamp in stamps])
    job = write_job(tmp_path, "hours", kafka.bootstrap, topic)
    settings = {
        "RANGELAND_HOURLY_JOBS": str(job),
        "RANGELAND_HOURLY_START": f"{first:%Y-%m-%dT%H:%M}",
    }
    airflow = LiveAirflow(tmp_path, postgres, **settings)
    done = airflow.run("airflow", "dags", "reserialize")
    assert done.returncode == 0, done.stdout
    backfill(airflow, first)  # before the schedule could be quicker
    once = [("backfill", 1)] * HOURS + [("scheduled", 1)]
    twice = [("backfill", 2)] * HOURS + [("scheduled", 1)]
    with airflow:
        airflow.wait_until(lambda: landed_runs(airflow) == once, "all hours to be landed")
        # Airflow has one backfill of a DAG at a time, and looks now and then whether it is over.
        airflow.wait_until(lambda: not is_running(airflow), "the backfill to be over")
        backfill(airflow, first, "--reprocess-behavior", "completed")
        airflow.wait_until(lambda: landed_runs(airflow) == twice, "the hours to be done again")
        events = airflow.events("rangeland-hours")

    every = [(0, offset) for offset in range(1, 2 * HOURS + 3)]
    assert offsets_in(tmp_path / "lake" / "hours") == every
    landed = [event for event in events if event["state"] == "landed"]
    assert sorted((r["from_offset"], r["until_offset"]) for e in landed for r in e["ranges"]) == [
        (n, n + 2) for n in range(1, 2 * HOURS + 3, 2)
    ]
    again = [event for event in events if event["state"] != "landed"]
    assert [(e["state"], e["landed"]) for e in again] == [("already-landed", 0)] * HOURS
