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
from rangeland.cli import command_line
from rangeland.cluster_access.backend_choice import open_backend
from rangeland.cluster_access.cluster_lookup import look_up_cluster
from rangeland.fleet.fleet_result import FleetResult
from rangeland.job import Job
from rangeland.model import Partition
from rangeland.results import RunResult
from rangeland.testing.kafka import KafkaCluster
from rangeland.testing.processes import Process
from rangeland.testing.producer import create_topic, delete_topic, numbered_records, produce
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
        for o in found.jobs
    ]


def test_each_topic_has_a_table_of_its_own(spark: Any, kafka: KafkaCluster, tmp_path: Path) -> None:
    counts = {"fleet.a": 7, "fleet.b": 30, "fleet.c": 0}
    for topic, count in counts.items():
        create_topic(kafka.bootstrap, topic)
        produce(kafka.bootstrap, topic, numbered_records(count))
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
    backend = open_backend(job, look_up_cluster(job))
    try:
        partitions = [Partition(topic, 0) for topic in ("fleet.a", "fleet.b")]
        assert list(backend.offsets("group-of-all", partitions).values()) == [7, 30]
    finally:
        backend.close()

    # One topic goes on, one comes, and one that has a table goes.
    produce(kafka.bootstrap, "fleet.a", numbered_records(3, 7))
    create_topic(kafka.bootstrap, "fleet.d")
    produce(kafka.bootstrap, "fleet.d", numbered_records(2))
    delete_topic(kafka.bootstrap, "fleet.b")
    found = rangeland.run_jobs([path], spark)
    assert states(found) == [
        ("fleet.a", "landed", 0),
        ("fleet.b", "", 66),
        ("fleet.c", "nothing", 0),
        ("fleet.d", "landed", 0),
    ]
    assert "vanished" in str(found.jobs[1].error)
    assert offsets_in(lake / "fleet.a") == [("fleet.a", 0, offset) for offset in range(10)]
    again = rangeland.run_jobs([path], spark, settings=["policy.vanished=skip"])
    assert [state for _, state, _ in states(again)] == ["nothing"] * 4


def test_a_topic_that_comes_after_the_first_run_is_landed_from_its_beginning(
    spark: Any, kafka: KafkaCluster, tmp_path: Path
) -> None:
    path = write_job(tmp_path, kafka, "later", topic_pattern=r"later\..*")
    create_topic(kafka.bootstrap, "later.a")
    produce(kafka.bootstrap, "later.a", numbered_records(5))

    def run() -> list[tuple[str, str, int]]:
        return states(rangeland.run_jobs([path], spark, settings=["range.first_run=latest"]))

    assert run() == [("later.a", "nothing", 0)]
    produce(kafka.bootstrap, "later.a", numbered_records(2, 5))
    create_topic(kafka.bootstrap, "later.b")
    produce(kafka.bootstrap, "later.b", numbered_records(3))
    assert run() == [("later.a", "landed", 0), ("later.b", "landed", 0)]
    assert offsets_in(tmp_path / "lake" / "later.a") == [("later.a", 0, 5), ("later.a", 0, 6)]
    assert offsets_in(tmp_path / "lake" / "later.b") == [("later.b", 0, n) for n in range(3)]
    assert run() == [("later.a", "nothing", 0), ("later.b", "nothing", 0)]


def test_every_command_takes_a_table_for_each_topic(
    spark: Any, kafka: KafkaCluster, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    topics = ["commands.a", "commands.b"]
    for count, topic in enumerate(topics, 4):
        create_topic(kafka.bootstrap, topic)
        produce(kafka.bootstrap, topic, numbered_records(count))
    path = str(write_job(tmp_path, kafka, "commands", topic_pattern=r"commands\..*"))
    plans = str(tmp_path / "plans")

    def answers(*arguments: str, code: int = 0) -> list[dict[str, Any]]:
        capfd.readouterr()
        assert command_line.main([*arguments, "--json"]) == code
        answer = json.loads(capfd.readouterr().out.splitlines()[-1])
        assert answer["exit"] == code
        assert [Path(one["table"]).name for one in answer["jobs"]] == topics
        found: list[dict[str, Any]] = answer["jobs"]
        return found

    assert all(one["ok"] for one in answers("check", path))
    planned = answers("plan", path, "--out", plans)
    assert [one["records"] for one in planned] == [4, 5]
    assert command_line.main(["plan", path, "--out", plans, "--json"]) == 64  # it is not empty
    assert [one["landed"] for one in answers("apply", plans)] == [4, 5]
    assert [one["state"] for one in answers("apply", plans)] == ["already-landed"] * 2
    assert [one["partitions"][0]["checkpoint"] for one in answers("status", path)] == [4, 5]
    ends = ("--from", "earliest", "--until", "latest")
    assert [one["landed"] for one in answers("backfill", path, *ends, "--replace")] == [4, 5]
    assert [one["exit"] for one in answers("redrive", path, "--dry-run")] == [0, 0]
    assert [one["holes"] for one in answers("verify", path)] == [[], []]
    spark.sql(f"DELETE FROM delta.`{tmp_path}/lake/commands.b` WHERE offset = 2")
    damaged = answers("verify", path, code=66)
    assert [one["exit"] for one in damaged] == [0, 66]
    capfd.readouterr()
    assert command_line.main(["find", path, "commands.b", "0", "1", "--json"]) == 0
    assert json.loads(capfd.readouterr().out.splitlines()[-1])["state"] == "landed"


@pytest.mark.slow
def test_a_catalog_has_a_table_for_each_topic(
    spark: Any, kafka: KafkaCluster, tmp_path: Path
) -> None:
    topics = ["Catalog.A-1", "Catalog.b"]
    for topic in topics:
        create_topic(kafka.bootstrap, topic)
        produce(kafka.bootstrap, topic, numbered_records(3))
    path = write_job(tmp_path, kafka, "catalog", topic_pattern=r"Catalog\..*")
    in_catalog = path.read_text().replace(f"{tmp_path}/lake/{{topic}}", "default.`Fleet_{topic}`")
    path.write_text(in_catalog)
    tables = ["default.`Fleet_catalog_a_1`", "default.`Fleet_catalog_b`"]
    try:
        found = rangeland.run_jobs([path], spark)
        assert [(o.table, o.exit_code) for o in found.jobs] == [(t, 0) for t in tables]
        assert [spark.table(table).count() for table in tables] == [3, 3]
        delete_topic(kafka.bootstrap, topics[0])
        found = rangeland.run_jobs([path], spark)
        assert [(o.table, o.exit_code) for o in found.jobs] == [(tables[0], 66), (tables[1], 0)]
    finally:
        for table in tables:
            spark.sql(f"DROP TABLE IF EXISTS {table[:-1]}__rangeland`")
            spark.sql(f"DROP TABLE IF EXISTS {table}")


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
        produce(kafka.bootstrap, topic, numbered_records(300), partition=0)
        produce(kafka.bootstrap, topic, numbered_records(200), partition=1)
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
