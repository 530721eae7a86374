"""Runs over a network, and with brokers, that fail all the time and never for good.

Each record must be landed once, and the group must stand where the checkpoint is.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from rangeland import run as commands
from rangeland.job import Job
from rangeland.progress_events import NoProgress
from rangeland.queries import job_status
from rangeland.testing.kafka import KafkaCluster
from rangeland.testing.producer import create_topic
from tests.brokers.kfake.cluster import FakeCluster
from tests.chaos.invariants import add_records, judge, judge_ledger, write_job
from tests.servers.fault_proxy import Faults, Proxy

PARTITIONS, COUNT = 4, 20_000
TIMEOUTS = {"connect_ms": 2_000, "request_ms": 5_000, "no_progress_ms": 60_000}


def land_twice(servers: Sequence[str], topic: str, folder: Path, spark: Any) -> Job:
    """In trouble. The second run must find nothing to do."""
    path = write_job(
        folder / "job.yaml",
        servers,
        topic,
        folder / "table",
        source={"timeouts": TIMEOUTS},
        group={"id": f"{topic}-group"},
    )
    job = Job.load(path)
    result = commands.run(job, spark, NoProgress())
    assert (result.state, result.counts.landed) == ("landed", PARTITIONS * COUNT)
    assert result.counts.total == PARTITIONS * COUNT
    assert commands.run(job, spark, NoProgress()).state == "nothing"
    judge(spark, folder / "table", dict.fromkeys(range(PARTITIONS), COUNT))
    judge_ledger(spark, folder / "table")
    return job


@pytest.mark.parametrize("seed", [1])
def test_a_run_outlives_a_network_that_cuts_delays_and_slows_down(
    kafka: KafkaCluster, topic: str, folder: Path, spark: Any, seed: int
) -> None:
    create_topic(kafka.bootstrap, topic, PARTITIONS)
    add_records(kafka.bootstrap, topic, PARTITIONS, COUNT)
    with Proxy("kafka", kafka.bootstrap) as proxy:
        proxy.make(Faults(seed, refused=0.05, cut=0.08, delayed=0.1, failed=0.3))
        job = land_twice(proxy.addresses, topic, folder, spark)
        assert min(proxy.done["cut"], proxy.done["failed"]) > 0, proxy.done
        proxy.make(Faults(0))
        seen = job_status.status(job, spark, NoProgress()).partitions
    assert [(p.checkpoint, p.group_offset) for p in seen] == [(COUNT, COUNT)] * PARTITIONS


def test_a_run_outlives_leaders_that_move_and_fetches_that_fail(
    topic: str, folder: Path, spark: Any
) -> None:
    with FakeCluster() as fake:
        fake.create_topic(topic, PARTITIONS)
        add_records(fake.bootstrap, topic, PARTITIONS, COUNT)
        fake.trouble(seed=1)
        land_twice(fake.bootstrap, topic, folder, spark)
        assert sum(fake.calm()["failed"].values()) > 0
