"""All of it together: an hour becomes due, is waited for, and is landed."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest

from rangeland.testing.kafka import KafkaCluster
from rangeland.testing.producer import Record, create_topic, produce
from tests.airflow.deployment import full_hour, offsets_in, write_job
from tests.airflow.postgres import PostgresServer
from tests.airflow.running_airflow import LiveAirflow

pytestmark = [pytest.mark.slow, pytest.mark.brokers, pytest.mark.spark]


def test_an_hour_is_waited_for_across_a_triggerers_death_and_then_landed(
    kafka: KafkaCluster, postgres: PostgresServer, topic: str, tmp_path: Path
) -> None:
    hour = full_hour(1)
    start_ms = int(hour.timestamp() * 1000)
    create_topic(kafka.bootstrap, topic)
    produce(kafka.bootstrap, topic, [Record(b"x", timestamp_ms=start_ms + n) for n in range(3)])
    job = write_job(tmp_path, "live", kafka.bootstrap, topic)
    settings = {
        "RANGELAND_HOURLY_JOBS": str(job),
        "RANGELAND_HOURLY_START": f"{hour:%Y-%m-%dT%H:%M}",
        "RANGELAND_IDLE_AFTER_S": "864000",  # silence is no answer here
        "RANGELAND_POLL_S": "2",
    }

    with LiveAirflow(tmp_path, postgres, **settings) as airflow:

        def state_of(task: str) -> str:
            found = airflow.rows(
                "select state from task_instance where dag_id = 'land_hourly' and task_id = %s "
                "order by run_id limit 1",
                f"live.{task}",
            )
            return str(found[0][0]) if found else ""

        airflow.wait_until(lambda: state_of("wait") == "deferred", "the sensor to defer")
        airflow.wait_until(lambda: "ends at 3" in airflow.logs(), "a look by the triggerer")
        airflow.kill("triggerer")
        airflow.start("triggerer")
        assert state_of("wait") == "deferred"
        produce(kafka.bootstrap, topic, [Record(b"x", timestamp_ms=start_ms + 3_600_000)])
        airflow.wait_until(lambda: state_of("land") == "success", "the hour to be landed")
        assert state_of("wait") == "success"
        (event,) = airflow.events("rangeland-live")
    assert offsets_in(tmp_path / "lake" / "live") == [(0, 0), (0, 1), (0, 2)]
    assert [(r["from_offset"], r["until_offset"]) for r in event["ranges"]] == [(0, 3)]


def test_a_task_that_is_cleared_while_it_lands_ends_its_command_and_lands_once(
    postgres: PostgresServer, topic: str, tmp_path: Path
) -> None:
    hour = full_hour(1)
    start_ms = int(hour.timestamp() * 1000)
    with KafkaCluster() as kafka, ExitStack() as last:
        create_topic(kafka.bootstrap, topic)
        stamps = [start_ms + 60_000 * minute for minute in (1, 2, 3, 60)]
        produce(kafka.bootstrap, topic, [Record(b"x", timestamp_ms=stamp) for stamp in stamps])
        patient = {"request_ms": 100_000, "survey_ms": 100_000}
        job = write_job(tmp_path, "cleared", kafka.bootstrap, topic, **patient)
        settings = {
            "RANGELAND_HOURLY_JOBS": str(job),
            "RANGELAND_HOURLY_START": f"{hour:%Y-%m-%dT%H:%M}",
        }
        airflow = last.enter_context(LiveAirflow(tmp_path, postgres, **settings))
        airflow.wait_until(lambda: "starting Spark" in airflow.logs(), "the landing to begin")
        kafka.pause(1)  # it answers nobody, so the landing cannot get ahead of us
        (first,) = landings_of(job)
        done = airflow.run("airflow", "tasks", "clear", "land_hourly", "-t", "land", "-y")
        assert done.returncode == 0, done.stdout
        airflow.wait_until(lambda: first not in landings_of(job), "the first command to end")
        kafka.resume(1)
        landed = "select 1 from task_instance where task_id = 'cleared.land' and state = 'success'"
        airflow.wait_until(lambda: bool(airflow.rows(landed)), "the hour to be landed")
        assert "Interrupted" in airflow.logs()
    assert offsets_in(tmp_path / "lake" / "cleared") == [(0, 0), (0, 1), (0, 2)]


def landings_of(job: Path) -> list[int]:
    """The ids of the commands that are landing this job now."""
    lines = {p.pid: p.info["cmdline"] or [] for p in psutil.process_iter(["cmdline"])}
    return [pid for pid, line in lines.items() if "backfill" in line and str(job) in line]
