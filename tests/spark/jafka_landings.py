"""Jafka's logs and what was written to them, for tests of landings: the judge is the writer.

Nothing of the library says where an entry begins: that follows from the lengths of what was
sent, in its order.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rangeland.job import Job
from rangeland.testing.jafka import JafkaCluster
from rangeland.testing.jafka_clients import message_set, produce
from rangeland.testing.processes import PATIENCE_S
from rangeland.zookeeper.broker_registry import read_registry
from rangeland.zookeeper.zookeeper_access import ZooKeeperAccess
from tests.record_values import values_of
from tests.spark.landings import job_of, stored_rows

Row = tuple[str, int, int, int, bytes]
"""Broker, partition, offset, position in the entry, value."""

BATCH = 20


class Written:
    """One topic, and all rows that a landing of it should have."""

    def __init__(self, cluster: JafkaCluster, topic: str) -> None:
        self.cluster = cluster
        self.topic = topic
        self.rows: list[Row] = []
        self.ends: dict[str, int] = {}

    def add(
        self, which: str, values: Sequence[bytes], *, packed: bool = False, batch: int = BATCH
    ) -> int:
        """Appends to partition ``broker-number``; gives where its log ends then."""
        broker, _, number = which.partition("-")
        at = self.ends.get(which, 0)
        address = self.cluster.address(int(broker))
        end = produce(address, self.topic, values, int(number), packed=packed, batch=batch)
        for start in range(0, len(values), batch if packed else 1):
            inner = values[start : start + (batch if packed else 1)]
            self.rows += [(broker, int(number), at, i, value) for i, value in enumerate(inner)]
            at += len(message_set(inner, packed=packed))
        assert at == end
        self.ends[which] = end
        return end

    def fill(self, count: int = 300) -> None:
        """Plain entries, packed ones, and plain ones again, in two partitions of each broker."""
        for broker in self.cluster.ids:
            for number in (0, 1):
                which = f"{broker}-{number}"
                self.add(which, values_of(f"plain-{which}", count))
                self.add(which, values_of(f"packed-{which}", count // 5), packed=True)
                self.add(which, values_of(f"behind-{which}", 10))

    def of(self, which: str) -> list[Row]:
        return sorted(row for row in self.rows if f"{row[0]}-{row[1]}" == which)

    def offsets(self, which: str) -> list[int]:
        """Where the entries of a partition begin."""
        return sorted({row[2] for row in self.of(which)})

    def wait_for_registration(self, brokers: int = 2) -> None:
        """Brokers tell of a topic a moment after its first write."""
        deadline = time.monotonic() + PATIENCE_S
        assert self.cluster.zookeeper is not None
        while (
            len(read_registry(ZooKeeperAccess(self.cluster.zookeeper)).topics.get(self.topic, {}))
            != brokers
        ):
            assert time.monotonic() < deadline, f"{self.topic} is not registered"
            time.sleep(0.05)


def jafka_job(cluster: JafkaCluster, table: str | Path, topic: str, **sections: Any) -> Job:
    """A job that finds its brokers in ZooKeeper, where there is one."""
    source = {"dialect": "jafka", **sections.pop("source", {})}
    if cluster.zookeeper is None or "servers" in source:
        return job_of(cluster.servers, table, topic, source=source, **sections)
    source = {"zookeeper": cluster.zookeeper, **source}
    return job_of([], table, topic, source=source, **sections)


def landed_rows(table: str | Path) -> list[Row]:
    """The rows of a table, sorted. What Jafka has not is null in all of them."""
    found = stored_rows(table)
    nothing = ("key", "timestamp", "timestampType", "headers")
    assert all(row[name] is None for row in found for name in nothing)
    return sorted(
        (row["broker"], row["partition"], row["offset"], row["position"], bytes(row["value"]))
        for row in found
    )
