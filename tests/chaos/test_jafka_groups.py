"""Drivers of one Jafka job in a real ZooKeeper's group: one is killed, one sleeps through its
session, the ZooKeeper goes down. Each message lands once, and the group ends at the checkpoint."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from rangeland import Job
from rangeland.cluster_access.backend_choice import open_backend
from rangeland.cluster_access.cluster_lookup import look_up_cluster
from rangeland.model import Partition
from rangeland.testing.jafka import JafkaCluster
from rangeland.testing.processes import PATIENCE_S
from tests.chaos.driver import PLANNED, PREPARED, READING
from tests.chaos.drivers import StartDrivers
from tests.record_values import values_of
from tests.servers.zookeeper_server import ZooKeeperServer
from tests.spark.jafka_landings import Written, landed_rows

WHICH = ("1-0", "1-1", "2-0", "2-1")
COUNT, MORE = 4_000, 40
SESSION_MS = 4_000
SEGMENT_BYTES = 16 << 10


@pytest.fixture(scope="module")
def zookeeper() -> Iterator[ZooKeeperServer]:
    with ZooKeeperServer(chroots=("/jafka",)) as server:
        yield server


@pytest.fixture(scope="module")
def jafka(zookeeper: ZooKeeperServer) -> Iterator[JafkaCluster]:
    chroot = f"{zookeeper.address}/jafka"
    with JafkaCluster(brokers=2, zookeeper=chroot, segment_bytes=SEGMENT_BYTES) as cluster:
        yield cluster


@pytest.fixture
def written(jafka: JafkaCluster, topic: str) -> Written:
    made = Written(jafka, topic)
    add(made, "first", COUNT)
    return made


def add(written: Written, name: str, count: int) -> None:
    for which in WHICH:
        written.add(which, values_of(f"{name}-{which}", count), packed=which.endswith("1"))


def write_job(written: Written, folder: Path, **source: Any) -> Path:
    """A job of small slices; brokers by name, so that ZooKeeper is the group's home alone."""
    cluster = written.cluster
    job = {
        "job": "chaos",
        "source": {
            "dialect": "jafka",
            "servers": cluster.servers,
            "zookeeper": cluster.zookeeper,
            "topics": [written.topic],
            "timeouts": {"connect_ms": 3_000},
            **source,
        },
        "slices": {"target_bytes": "16KiB"},
        "group": {"id": f"group-of-{written.topic}", "session_ms": SESSION_MS},
        "sink": {"table": str(folder / "table")},
    }
    path = folder / "job.yaml"
    path.write_text(yaml.safe_dump(job))
    return path


def offsets(job: Path) -> dict[str, int | None]:
    """What the group has, by broker and partition."""
    found = Job.load(job)
    assert found.group is not None
    (topic,) = found.source.topics
    home = open_backend(found, look_up_cluster(found))
    try:
        partitions = [Partition(topic, int(w[2:]), w[0]) for w in WHICH]
        given = home.offsets(found.group.id, partitions)
        return {f"{p.broker}-{p.number}": at for p, at in given.items()}
    finally:
        home.close()


def wait_for_owner(job: Path, driver_count: int) -> None:
    """Until so many drivers, and no more, hold all partitions."""
    found = Job.load(job)
    assert found.group is not None
    deadline = time.monotonic() + PATIENCE_S
    home = open_backend(found, look_up_cluster(found))
    try:
        while True:
            owners = home.view(found.group.id).owners
            if len(owners) == len(WHICH) and len(set(owners.values())) == driver_count:
                return
            assert time.monotonic() < deadline, f"the partitions are held by {owners}"
            time.sleep(0.1)
    finally:
        home.close()


@pytest.mark.slow
def test_what_a_killed_driver_held_is_read_by_the_other(
    start_drivers: StartDrivers, written: Written, folder: Path, spark: Any
) -> None:
    job = write_job(written, folder)
    victim, other = start_drivers(2)
    victim.give(job, **{PLANNED: "pause", READING: "kill"})
    victim.wait_at(PLANNED)
    other.give(job, **{PLANNED: "pause"})
    other.wait_at(PLANNED)
    wait_for_owner(job, 2)
    victim.go(PLANNED)
    victim.wait_until_killed()
    other.go(PLANNED)
    result = other.landed()
    assert (result["state"], result["landed"]) == ("landed", len(WHICH) * COUNT)
    assert landed_rows(folder / "table") == sorted(written.rows)
    assert offsets(job) == written.ends


@pytest.mark.slow
def test_a_driver_that_slept_through_its_session_moves_nothing_back(
    start_drivers: StartDrivers, written: Written, folder: Path, spark: Any
) -> None:
    job = write_job(written, folder)
    sleeper, other = start_drivers(2)
    sleeper.give(job, **{PLANNED: "pause"})
    sleeper.wait_at(PLANNED)
    sleeper.process.pause()
    try:
        time.sleep(SESSION_MS / 1000 + 1)
        other.give(job)
        assert other.landed()["landed"] == len(WHICH) * COUNT
        add(written, "meanwhile", MORE)
        other.give(job)
        assert other.landed()["landed"] == len(WHICH) * MORE
        assert offsets(job) == written.ends
    finally:
        sleeper.process.resume()
    sleeper.go(PLANNED)
    assert sleeper.landed()["sequence"] in (1, 2)
    assert landed_rows(folder / "table") == sorted(written.rows)
    assert offsets(job) == written.ends


@pytest.mark.slow
def test_a_zookeeper_that_is_down_costs_a_warning_and_the_next_run_repairs_it(
    start_drivers: StartDrivers,
    written: Written,
    zookeeper: ZooKeeperServer,
    folder: Path,
    spark: Any,
) -> None:
    job = write_job(written, folder)
    (driver,) = start_drivers(1)
    driver.give(job, **{PREPARED: "pause"})
    driver.wait_at(PREPARED)
    zookeeper.kill()
    try:
        driver.go(PREPARED)
        result = driver.landed()
        assert (result["state"], result["landed"]) == ("landed", len(WHICH) * COUNT)
        assert any("is not mirrored" in warning for warning in result["warnings"])
        # Without its home the job lands all the same, and alone.
        add(written, "without", MORE)
        driver.give(job)
        alone = driver.landed()
        assert alone["landed"] == len(WHICH) * MORE
        assert any("was not joined" in warning for warning in alone["warnings"])
    finally:
        zookeeper.start()
    assert offsets(job) == dict.fromkeys(WHICH)
    driver.give(job)
    assert driver.landed()["state"] == "nothing"
    assert landed_rows(folder / "table") == sorted(written.rows)
    assert offsets(job) == written.ends
