"""A range landed by spark-submit on a cluster, as the Airflow variable says, and landed again."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rangeland.testing.kafka import KafkaCluster
from rangeland.testing.processes import PATIENCE_S, remove_directory, temporary_directory
from rangeland.testing.producer import create_topic, numbered_records, produce
from tests.airflow.deployment import LIBRARY, Airflow, offsets_in, write_job
from tests.cluster.spark_submit import JOBS, SMALL
from tests.servers.sparkcluster import SPARK_HOME, SparkCluster

pytestmark = [pytest.mark.slow, pytest.mark.brokers, pytest.mark.spark]


@pytest.fixture
def folder() -> Iterator[Path]:
    path = temporary_directory("rangeland-airflow-")
    yield path
    remove_directory(path)


def submit_command(job: Path, master: str, folder: Path) -> list[str]:
    """What `rangeland submit` prints, up to the script: what the variable is to hold."""
    settings = [word for name, value in SMALL.items() for word in ("--conf", f"{name}={value}")]
    words = ["submit", str(job), "--master", master, "--delta", "jars", "--python", sys.executable]
    words += ["--entry", str(JOBS / "backfill_range.py"), "--out", str(folder / "dist"), "--json"]
    done = subprocess.run(
        [sys.executable, "-m", "rangeland", *words, *settings],
        env=os.environ | {"PYTHONPATH": str(LIBRARY)},
        stdout=subprocess.PIPE,
        check=True,
        text=True,
        timeout=PATIENCE_S,
    )
    program, *flags = json.loads(done.stdout.splitlines()[-1])["command"]
    assert (program, flags[-1]) == ("spark-submit", str(job))
    return [str(SPARK_HOME / "bin" / program), *flags[:-1]]


def test_a_range_is_landed_by_spark_submit_and_run_again_lands_nothing(
    airflow: Airflow, kafka: KafkaCluster, topic: str, folder: Path
) -> None:
    create_topic(kafka.bootstrap, topic)
    produce(kafka.bootstrap, topic, numbered_records(10), partition=0)
    job = write_job(airflow.home, "submitted", kafka.bootstrap, topic)
    given = {"job_file": str(job), "topic": topic, "partition": 0, "dry_run": False}
    conf = {**given, "from_offset": 3, "until_offset": 7}
    with SparkCluster(folder / "cluster", bare=True) as cluster:
        variables = {
            **cluster.submit_environment(folder),
            "AIRFLOW_VAR_RANGELAND_BACKFILL_COMMAND": shlex.join(
                submit_command(job, cluster.master, folder)
            ),
        }
        first = airflow.test_dag("backfill_range", conf=conf, **variables)
        assert airflow.tasks("backfill_range")["land"] == ("success", 1), first
        assert "bin/spark-submit --master spark://" in first
        assert "submitted: landed, 4 records. Table lake/submitted" in first
        table = airflow.home / "lake" / "submitted"
        assert offsets_in(table) == [(0, 3), (0, 4), (0, 5), (0, 6)]
        executors = cluster.launched()
        assert executors > 0  # it was done there, not in the driver

        again = airflow.test_dag("backfill_range", conf=conf, **variables)
        assert "submitted: already-landed, 0 records" in again
        assert offsets_in(table) == [(0, 3), (0, 4), (0, 5), (0, 6)]
        assert cluster.launched() > executors

        missing = {**conf, "job_file": str(job.with_name("nowhere.yaml"))}
        refused = airflow.test_dag("backfill_range", conf=missing, **variables)
        assert airflow.tasks("backfill_range")["land"] == ("failed", 1), refused
        assert "(exit 78)" in refused  # spark-submit hands it on
    landed, nothing = airflow.events("rangeland-submitted")
    assert [(r["from_offset"], r["until_offset"]) for r in landed["ranges"]] == [(3, 7)]
    assert (nothing["state"], nothing["ranges"]) == ("already-landed", [])
