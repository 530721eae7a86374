"""Drivers that share a real group: two processes split a plan, one is killed, the group's
home goes down. Each record lands once, and the group ends at the checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rangeland import Job
from rangeland.cluster_access.backend_choice import open_backend
from rangeland.cluster_access.cluster_lookup import look_up_cluster
from rangeland.job_group.mirror_command import push
from rangeland.model import Partition
from rangeland.progress_events import NoProgress
from rangeland.queries.job_status import status
from rangeland.testing.kafka import KafkaCluster
from rangeland.testing.producer import create_topic
from tests.chaos.driver import PLANNED, PREPARED, READING
from tests.chaos.drivers import StartDrivers
from tests.chaos.invariants import add_records, judge, judge_ledger, write_job

PARTITIONS, COUNT, MORE = 4, 3_000, 50
SESSION_MS = 6_000  # the least that brokers take
Ends = dict[int, int]


def a_job(kafka: KafkaCluster, topic: str, folder: Path, count: int = COUNT) -> Path:
    create_topic(kafka.bootstrap, topic, PARTITIONS)
    add_records(kafka.bootstrap, topic, PARTITIONS, count)
    group = {"id": f"group-of-{topic}", "session_ms": SESSION_MS}
    return write_job(folder / "job.yaml", kafka.bootstrap, topic, folder / "table", group=group)


def offsets(job: Path) -> dict[int, int | None]:
    """What the group has committed, by partition."""
    found = Job.load(job)
    assert found.group is not None
    (topic,) = found.source.topics
    home = open_backend(found, look_up_cluster(found))
    try:
        partitions = [Partition(topic, n) for n in range(PARTITIONS)]
        return {p.number: at for p, at in home.offsets(found.group.id, partitions).items()}
    finally:
        home.close()


def parts(spark: Any, table: Path) -> list[Any]:
    """Who has handed in which partitions."""
    ledger = spark.read.format("delta").load(f"{table}/_rangeland/ledger")
    found: list[Any] = ledger.where("event = 'part'").select("document", "ranges").collect()
    return found


def judge_all(spark: Any, job: Path, ends: Ends) -> None:
    table = job.parent / "table"
    judge(spark, table, ends)
    judge_ledger(spark, table)
    assert offsets(job) == ends


@pytest.mark.slow
def test_two_drivers_split_the_partitions_of_a_plan(
    start_drivers: StartDrivers,
    kafka: KafkaCluster,
    topic: str,
    folder: Path,
    spark: Any,
) -> None:
    job = a_job(kafka, topic, folder)
    one, other = start_drivers(2)
    one.give(job, **{PLANNED: "pause"})
    one.wait_at(PLANNED)
    other.give(job, **{PLANNED: "pause"})
    other.wait_at(PLANNED)
    owners = {
        p.partition.number: p.owner for p in status(Job.load(job), spark, NoProgress()).partitions
    }
    one.go(PLANNED)
    other.go(PLANNED)
    results = [one.landed(), other.landed()]
    assert [result["state"] for result in results] == ["landed", "landed"]
    assert {result["landed"] for result in results} == {PARTITIONS * COUNT}
    assert {result["sequence"] for result in results} == {1}
    assert [warning for result in results for warning in result["warnings"]] == []
    assert len(set(owners.values())) == 2
    (part,) = parts(spark, folder / "table")
    read = {r["partition"] for r in part["ranges"]}
    (reader,) = {owners[number] for number in read}
    assert read == {number for number, owner in owners.items() if owner == reader}
    assert str(reader) in part["document"]
    judge_all(spark, job, dict.fromkeys(range(PARTITIONS), COUNT))


@pytest.mark.slow
def test_what_a_killed_driver_held_is_read_by_the_other(
    start_drivers: StartDrivers,
    kafka: KafkaCluster,
    topic: str,
    folder: Path,
    spark: Any,
) -> None:
    job = a_job(kafka, topic, folder)
    victim, other = start_drivers(2)
    victim.give(job, **{PLANNED: "pause", READING: "kill"})
    victim.wait_at(PLANNED)
    other.give(job, **{PLANNED: "pause"})
    other.wait_at(PLANNED)
    victim.go(PLANNED)
    victim.wait_until_killed()
    other.go(PLANNED)
    result = other.landed()
    assert (result["state"], result["landed"]) == ("landed", PARTITIONS * COUNT)
    judge_all(spark, job, dict.fromkeys(range(PARTITIONS), COUNT))


@pytest.mark.slow
def test_a_group_backend_that_is_down_costs_a_warning_and_the_next_run_repairs_it(
    start_drivers: StartDrivers, topic: str, folder: Path, spark: Any
) -> None:
    with KafkaCluster() as broker:
        job = a_job(broker, topic, folder, MORE)
        ends: Ends = dict.fromkeys(range(PARTITIONS), MORE)
        (driver,) = start_drivers(1)
        driver.give(job, **{PREPARED: "pause"})
        driver.wait_at(PREPARED)
        broker.kill(1)
        driver.go(PREPARED)
        result = driver.landed()
        assert (result["state"], result["landed"]) == ("landed", PARTITIONS * MORE)
        assert any("is not mirrored" in warning for warning in result["warnings"])
        broker.restart(1)
        assert offsets(job) == dict.fromkeys(range(PARTITIONS))
        driver.give(job)
        again = driver.landed()
        assert (again["state"], again["warnings"]) == ("nothing", [])
        judge_all(spark, job, ends)
        assert push(Job.load(job), spark, NoProgress()).state == "unchanged"
