"""Chooses the backend that keeps a job's consumer groups, ZooKeeper or the dialect's own brokers,
and gives the latter its connections and its clock."""

from __future__ import annotations

import importlib
import pkgutil
import time
from collections.abc import Sequence
from typing import Any, cast

from rangeland.clock import monotonic_ms
from rangeland.cluster_settings import ClusterSettings
from rangeland.connection.pool import ConnectionPool
from rangeland.dialects.protocol_session import BrokerRequest
from rangeland.errors import JobFileError
from rangeland.groups.backend import GroupBackend
from rangeland.job import Job
from rangeland.job.connection_settings import groups_in_zookeeper, zookeeper_access
from rangeland.model import Address


def open_backend(job: Job, settings: ClusterSettings) -> GroupBackend:
    """The backend of this job's groups. Raises Unreachable if it cannot be reached, and
    JobFileError if groups of this dialect need a ZooKeeper and the job names none."""
    if groups_in_zookeeper(job):
        from rangeland.groups.zookeeper.group_backend import ZooKeeperGroups

        return ZooKeeperGroups(zookeeper_access(job), job.name)
    return broker_groups(settings, job.name)


def broker_groups(settings: ClusterSettings, job: str) -> GroupBackend:
    """The backend at the dialect's own brokers, for this job. Raises JobFileError if they keep no
    groups."""
    import rangeland.groups as package

    if settings.dialect not in {module.name for module in pkgutil.iter_modules(package.__path__)}:
        raise JobFileError(
            "brokers of this dialect keep no groups",
            why="their consumers keep them in ZooKeeper",
            do="set source.zookeeper",
        )
    backend = importlib.import_module(f"rangeland.groups.{settings.dialect}.group_backend")
    return cast(GroupBackend, backend.open_backend(BrokerGroupIO(settings), job))


class BrokerGroupIO:
    """A ``GroupIO`` with connections of its own, so that a member's heartbeats continue while
    another thread reads. Not thread-safe; close it when done."""

    def __init__(self, settings: ClusterSettings) -> None:
        self._brokers = ConnectionPool(settings)

    @property
    def seeds(self) -> tuple[Address, ...]:
        return self._brokers.settings.seeds

    def ask(self, address: Address, request: BrokerRequest) -> Any:
        return self._brokers.call(address, request)

    def ask_all(self, address: Address, requests: Sequence[BrokerRequest]) -> list[Any]:
        return self._brokers.call_all(address, requests)

    def pause(self, pause_ms: int) -> None:
        time.sleep(pause_ms / 1000)

    def now_ms(self) -> int:
        return monotonic_ms()

    def close(self) -> None:
        self._brokers.close()
