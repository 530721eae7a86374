"""Many topics into many tables in one run, with a real Kafka and Spark."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from deltalake import DeltaTable

import rangeland
from rangeland.fleet.fleet_result import FleetResult
from rangeland.groups.backend_choice import open_backend
from rangeland.job import Job
from rangeland.job.source_settings import cluster_settings
from rangeland.model import Partition
from rangeland.results import RunResult
from rangeland.testing.kafka import KafkaCluster
from rangeland.testing.processes import Process
from rangeland.testing.producing import create_topic, delete_topic, numbered, produce
from tests.spark.landings import QUICK

pytestmark = [pytest.mark.spark, pytest.mark.brokers]
LIBRARY = Path(rangeland.__file__).parents[1]


@pytest.fixture(scope="module")
def kafka() -> Iterator[KafkaCluster]:
    with KafkaCluster() as started:
        yield started


def write_job(folder: Path, kafka: KafkaCluster, name: str, **source: Any) -> Path:
    job = {
        "job": name,
        "source": {"servers": list(kafka.bootstrap), "timeouts": QUICK, **source},
        "sink": {"table": f"{folder}/lake/{{topic}}"},
        "group": {"id": f"group-of-{name}"},
    }
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump(job))
    return path


def offsets_in(table: Path) -> list[tuple[str, int, int]]:
    columns = ["topic", "partition", "offset"]
    rows = DeltaTable(str(table)).to_pyarrow_table(columns=columns).to_pylist()
    return sorted((row["topic"], row["partition"], row["offset"]) for row in rows)


def states(found: FleetResult[RunResult]) -> list[tuple[str, str, int]]:
    return [
        (Path(o.table or o.job).name, o.result.state if o.result else "", o.exit_code)
        for o in found.outcomes
    ]


def test_each_topic_has_a_table_of_its_own(spark: Any, kafka: KafkaCluster, tmp_path: Path) -> None:
    counts = {"fleet.a": 7, "fleet.b": 30, "fleet.c": 0}
    for topic, count in counts.items():
        create_topic(kafka.bootstrap, topic)
        produce(kafka.bootstrap, topic, numbered(count))
    path = write_job(tmp_path, kafka, "all", topic_pattern=r"fleet\..*")
    other = write_job(tmp_path, kafka, "none", topics=["fleet-none"])
    lake = tmp_path / "lake"

    found = rangeland.run_jobs([path, other], spark)
    assert states(found) == [
        ("fleet.a", "landed", 0),
        ("fleet.b", "landed", 0),
        ("fleet.c", "nothing", 0),
        ("fleet-none", "", 78),
    ]
    assert found.exit_code == 78
    for topic in ("fleet.a", "fleet.b"):
        assert offsets_in(lake / topic) == [(topic, 0, offset) for offset in range(counts[topic])]
    job = Job.load(path)
    backend = open_backend(job, cluster_settings(job))
    try:
        partitions = [Partition(topic, 0) for topic in ("fleet.a", "fleet.b")]
        assert list(backend.offsets("group-of-all", partitions).values()) == [7, 30]
    finally:
        backend.close()

    # One topic goes on, one comes, and one that has a table goes.
    produce(kafka.bootstrap, "fleet.a", numbered(3, 7))
    create_topic(kafka.bootstrap, "fleet.d")
    produce(kafka.bootstrap, "fleet.d", numbered(2))
    delete_topic(kafka.bootstrap, "fleet.b")
    found = rangeland.run_jobs([path], spark)
    assert states(found) == [
        ("fleet.a", "landed", 0),
        ("fleet.b", "", 66),
        ("fleet.c", "nothing", 0),
        ("fleet.d", "landed", 0),
    ]
    assert "vanished" in str(found.outcomes[1].error)
    assert offsets_in(lake / "fleet.a") == [("fleet.a", 0, offset) for offset in range(10)]
    again = rangeland.run_jobs([path], spark, settings=["policy.vanished=skip"])
    assert [state for _, state, _ in states(again)] == ["nothing"] * 4


def run_process(arguments: Sequence[str], folder: Path) -> Process:
    command = [sys.executable, "-m", "rangeland", *arguments]
    environment = {"PYTHONPATH": str(LIBRARY), "RANGELAND_MASTER": "local[2]"}
    return Process(
        f"rangeland {arguments[0]}", command, log=folder / "run.log", environment=environment
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("line", "prefix"), [("^landing 6", "a"), ("^1 of 6", "b"), ("^3 of 6", "c")]
)
def test_a_driver_killed_anywhere_leaves_tables_that_the_next_run_finishes(
    spark: Any, kafka: KafkaCluster, tmp_path: Path, line: str, prefix: str
) -> None:
    topics = [f"killed-{prefix}.{n}" for n in range(6)]
    for topic in topics:
        create_topic(kafka.bootstrap, topic, partitions=2)
        produce(kafka.bootstrap, topic, numbered(300), partition=0)
        produce(kafka.bootstrap, topic, numbered(200), partition=1)
    path = write_job(tmp_path, kafka, "killed", topic_pattern=rf"killed-{prefix}\..*")
    first = run_process(["run", str(path), "--parallel", "2"], tmp_path)
    first.wait_for_line(line)
    first.kill()
    assert first.exit_code == -signal.SIGKILL
    second = run_process(["run", str(path), "--json"], tmp_path)
    assert second.wait_for_end() == 0, second.log_tail(40)
    answer = json.loads(second.log_tail(1))
    assert [Path(one["table"]).name for one in answer["jobs"]] == topics
    everything = [(p, offset) for p, count in ((0, 300), (1, 200)) for offset in range(count)]
    for topic in topics:
        found = offsets_in(tmp_path / "lake" / topic)
        assert found == [(topic, *place) for place in everything]
    third = run_process(["verify", str(path), "--json"], tmp_path)
    assert third.wait_for_end() == 0, third.log_tail(40)
