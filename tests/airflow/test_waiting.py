"""The sensor's trigger, run for real with a real broker: what it waits for, and what it does
not.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from rangeland.testing.kafka import KafkaCluster
from rangeland.testing.processes import Process
from rangeland.testing.producer import Record, create_topic, numbered_records, produce
from tests.airflow.deployment import PROGRAM, Airflow, full_hour, write_job

pytestmark = [pytest.mark.slow, pytest.mark.brokers]

WATCH = Path(__file__).with_name("trigger_process.py")


class Watch(Process):
    """One trigger at work."""

    def __init__(self, airflow: Airflow, job: Path, until: str, *options: str) -> None:
        look = [*shlex.split(PROGRAM), "reached", str(job), "--until", until, *options, "--json"]
        super().__init__(
            "trigger",
            [str(airflow.programs / "python"), str(WATCH), "0.5", str(airflow.home), *look],
            log=airflow.home / f"{job.stem}.log",
            environment=airflow.environment,
            directory=airflow.home,
        )

    def event(self) -> dict[str, str]:
        line = self.wait_for_line(r"^event ")
        assert self.wait_for_end() == 0
        found: dict[str, str] = json.loads(line.removeprefix("event "))
        return found


def offsets(topic: str, *ends: int) -> str:
    return json.dumps({topic: {str(number): end for number, end in enumerate(ends)}})


def test_it_fires_when_every_partition_has_a_record_so_late(
    airflow: Airflow, kafka: KafkaCluster, topic: str
) -> None:
    moment = full_hour(30)  # no older than the broker keeps records
    moment_ms = int(moment.timestamp() * 1000)
    create_topic(kafka.bootstrap, topic, partitions=2)
    produce(kafka.bootstrap, topic, [Record(b"x", timestamp_ms=moment_ms)], partition=0)
    produce(kafka.bootstrap, topic, [Record(b"x", timestamp_ms=moment_ms - 1)], partition=1)
    job = write_job(airflow.home, "by-time", kafka.bootstrap, topic)
    with Watch(airflow, job, moment.isoformat()) as watch:
        watch.wait_for_line(rf" 1 of 2 partitions not there yet: {topic}/1 ends at 1")
        produce(kafka.bootstrap, topic, [Record(b"x", timestamp_ms=moment_ms)], partition=1)
        assert watch.event() == {"state": "reached", "text": "reached in 2 partitions"}


def test_a_silent_partition_is_idle_after_its_margin_only(
    airflow: Airflow, kafka: KafkaCluster, topic: str
) -> None:
    create_topic(kafka.bootstrap, topic)
    job = write_job(airflow.home, "idle", kafka.bootstrap, topic)
    moment = datetime.now(UTC)
    with Watch(airflow, job, moment.isoformat(), "--idle-after", "86400") as watch:
        watch.wait_for_line(r" 1 of 1 partitions not there yet")
    with Watch(airflow, job, moment.isoformat(), "--idle-after", "15") as watch:
        assert watch.event()["text"] == "reached in 1 partitions, 1 of them idle"
    assert datetime.now(UTC) - moment > timedelta(seconds=15)


def test_a_broker_that_is_down_is_waited_for_and_said(airflow: Airflow, topic: str) -> None:
    with KafkaCluster() as kafka:
        create_topic(kafka.bootstrap, topic)
        job = write_job(airflow.home, "broker-down", kafka.bootstrap, topic)
        with Watch(airflow, job, offsets(topic, 4)) as watch:
            watch.wait_for_line(r"ends at 0")
            kafka.stop(1)
            watch.wait_for_line(r"Unreachable \(exit 75\)")
            kafka.restart(1)
            produce(kafka.bootstrap, topic, numbered_records(4), partition=0)
            assert watch.event()["state"] == "reached"


@pytest.mark.parametrize("until", ["2026-01-31", "latest"])
def test_what_will_never_come_fails_at_once(
    airflow: Airflow, kafka: KafkaCluster, topic: str, until: str
) -> None:
    job = write_job(airflow.home, f"never-{until}", kafka.bootstrap, topic)
    with Watch(airflow, job, until) as watch:
        event = watch.event()
    assert event["state"] == "failed"
    said = "nothing to wait for" if until == "latest" else f"There is no topic {topic}"
    assert said in event["text"]


def test_a_command_that_is_not_there_fails_at_once(airflow: Airflow, tmp_path: Path) -> None:
    command: Sequence[str] = ["python", str(WATCH), "1", str(tmp_path), "no-such-rangeland"]
    printed = airflow.run(*command).stdout
    assert '"state": "failed", "text": "no-such-rangeland could not be started' in printed
