"""RocketMQ's queues and what was written to them, for tests of landings: the judge is the
writer."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rangeland.job import Job
from rangeland.model import Partition
from rangeland.testing.rocketmq import RocketmqCluster
from rangeland.testing.rocketmq_clients import produce
from tests.record_values import values_of
from tests.spark.landings import job_of, stored_rows

Row = tuple[str, int, int, bytes]
"""Broker, queue, offset, value."""

BORN_MS = 1_600_000_000_000


class Written:
    """One topic with ``queues`` of each master, and the rows that a landing of it should have."""

    def __init__(self, cluster: RocketmqCluster, topic: str, queues: int = 2) -> None:
        self.cluster, self.topic = cluster, topic
        self.queues = [Partition(topic, n, b) for n in range(queues) for b in cluster.masters]
        self.rows: list[Row] = []
        cluster.create_topic(topic, queues)

    def add(self, broker: str, queue: int, values: Sequence[bytes]) -> None:
        named = {"TAGS": "A", "KEYS": f"key-{broker}"}
        offsets = produce(
            self.cluster.address(broker),
            self.topic,
            values,
            queue,
            properties=named,
            born_ms=BORN_MS,
        )
        self.rows += [(broker, queue, o, v) for o, v in zip(offsets, values, strict=True)]

    def fill(self, name: str, count: int) -> None:
        for queue in self.queues:
            values = values_of(f"{name}-{queue.broker}-{queue.number}", count)
            self.add(queue.broker, queue.number, values)

    @property
    def ends(self) -> dict[Partition, int]:
        """Where each queue ends."""
        return {
            queue: sum((row[0], row[1]) == (queue.broker, queue.number) for row in self.rows)
            for queue in self.queues
        }


def rocketmq_job(written: Written, table: str | Path, **sections: Any) -> Job:
    source = {"dialect": "rocketmq", **sections.pop("source", {})}
    return job_of(written.cluster.servers, table, written.topic, source=source, **sections)


def landed_rows(table: str | Path) -> list[Row]:
    columns = ("broker", "partition", "offset", "value")
    return sorted(tuple(row[name] for name in columns) for row in stored_rows(table, *columns))
