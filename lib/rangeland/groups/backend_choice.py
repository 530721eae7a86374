"""Which backend keeps a job's consumer groups: ZooKeeper, or the dialect's own brokers."""

from __future__ import annotations

import importlib
import pkgutil
from typing import cast

from rangeland.connection.cluster_settings import ClusterSettings
from rangeland.connection.group_io import BrokerGroupIO
from rangeland.errors import JobFileError
from rangeland.groups.backend import GroupBackend
from rangeland.job import Job
from rangeland.job.connection_settings import groups_in_zookeeper, zookeeper_access


def open_backend(job: Job, settings: ClusterSettings) -> GroupBackend:
    """The backend of this job's groups. Raises Unreachable where it cannot be
    reached, JobFileError where this dialect's groups need a ZooKeeper and the job names none."""
    if groups_in_zookeeper(job):
        from rangeland.groups.zookeeper.group_backend import ZooKeeperGroups

        return ZooKeeperGroups(
            job.source.zookeeper or "",
            job.job,
            zookeeper_access(job),
            connect_ms=job.source.timeouts.connect_ms,
        )
    return broker_groups(settings)


def broker_groups(settings: ClusterSettings) -> GroupBackend:
    """The backend at the dialect's own brokers. Raises JobFileError where they keep no groups."""
    import rangeland.groups as room

    if settings.dialect not in {found.name for found in pkgutil.iter_modules(room.__path__)}:
        raise JobFileError(
            "brokers of this dialect keep no groups",
            why="their consumers keep them in ZooKeeper",
            do="set source.zookeeper",
        )
    backend = importlib.import_module(f"rangeland.groups.{settings.dialect}.group_backend")
    return cast(GroupBackend, backend.open_backend(BrokerGroupIO(settings)))
