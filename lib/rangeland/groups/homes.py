"""Where a job's consumer groups live: in ZooKeeper, or with the dialect's own brokers."""

from __future__ import annotations

from rangeland.dialects.contract import load_dialect
from rangeland.dialects.groups import Home
from rangeland.fetch.edge import BrokerEdge
from rangeland.fetch.settings import ClusterSettings
from rangeland.job import Job
from rangeland.job.settings import groups_in_zookeeper


def open_home(job: Job, settings: ClusterSettings) -> Home:
    """The home of the groups that this job names. Raises Unreachable where it cannot be
    asked, JobFileError where this dialect's groups need a ZooKeeper that the job has not."""
    if groups_in_zookeeper(job):
        from rangeland.zookeeper.group import ZooKeeperHome

        return ZooKeeperHome(
            job.source.zookeeper or "", job.job, connect_ms=job.source.timeouts.connect_ms
        )
    return load_dialect(settings.dialect).open_home(BrokerEdge(settings))
