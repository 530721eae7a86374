"""What chaos tests of RocketMQ share: job files, what a group has, who holds its queues."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from rangeland import Job
from rangeland.cluster_access.backend_choice import open_backend
from rangeland.cluster_access.cluster_lookup import look_up_cluster
from rangeland.dialects.rocketmq.messages import max_offset
from rangeland.groups.backend import GroupBackend
from rangeland.model import Partition
from rangeland.testing.processes import PATIENCE_S
from rangeland.testing.rocketmq_clients import RocketmqClient
from tests.spark.rocketmq_landings import Written

SESSION_MS, REBALANCE_MS = 6_000, 30_000


def write_job(written: Written, folder: Path, **source: Any) -> Path:
    """A job of small slices, in a group."""
    job = {
        "job": "chaos",
        "source": {
            "dialect": "rocketmq",
            "servers": written.cluster.servers,
            "topics": [written.topic],
            "timeouts": {"connect_ms": 3_000},
            **source,
        },
        "slices": {"target_bytes": "64KiB"},
        "group": {
            "id": f"group-of-{written.topic}",
            "session_ms": SESSION_MS,
            "rebalance_ms": REBALANCE_MS,
        },
        "sink": {"table": str(folder / "table")},
    }
    path = folder / "job.yaml"
    path.write_text(yaml.safe_dump(job))
    return path


@contextmanager
def group_of(job: Path) -> Iterator[tuple[GroupBackend, str]]:
    found = Job.load(job)
    assert found.group is not None
    home = open_backend(found, look_up_cluster(found))
    try:
        yield home, found.group.id
    finally:
        home.close()


def offsets(job: Path, written: Written) -> dict[Partition, int | None]:
    with group_of(job) as (home, group):
        return dict(home.offsets(group, written.queues))


def wait_for_drivers(job: Path, written: Written, count: int) -> list[int]:
    """Until so many drivers, and no more, hold all queues; how many each holds."""
    deadline = time.monotonic() + PATIENCE_S
    with group_of(job) as (home, group):
        home.offsets(group, written.queues)  # a home looks where it was asked about
        while True:
            view = home.view(group)
            if (
                len(view.members) == count
                and view.state == "stable"
                and set(view.owners) == set(written.queues)
            ):
                return sorted(len(member.partitions) for member in view.members)
            assert time.monotonic() < deadline, f"the queues are held by {view}"
            time.sleep(0.1)


def wait_for_slaves(written: Written) -> None:
    """Until they have all that was written: they are seconds behind."""
    deadline = time.monotonic() + PATIENCE_S
    for queue, end in written.ends.items():
        with RocketmqClient(written.cluster.address(f"{queue.broker}-slave")) as client:
            while int(client.ask(max_offset(queue)).fields["offset"]) < end:
                assert time.monotonic() < deadline, f"the slave does not get all of {queue}"
                time.sleep(0.1)
