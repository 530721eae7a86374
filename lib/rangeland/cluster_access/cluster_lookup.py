"""Looks up the settings of a job's cluster, in the job file and in the job's ZooKeeper.

If a job names a ZooKeeper instead of brokers, it is asked each time, since the brokers may change.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from rangeland.cluster_settings import ClusterSettings
from rangeland.dialects.dialect import load_dialect
from rangeland.errors import Unreachable
from rangeland.fetch.read_settings import ReadSettings
from rangeland.job import Job
from rangeland.job.connection_settings import (
    cluster_of_brokers,
    schema_registry_settings,
    zookeeper_access,
)
from rangeland.schema_registry.registry_settings import RegistrySettings

if TYPE_CHECKING:
    from rangeland.zookeeper.broker_registry import BrokerRegistry


def look_up_cluster(job: Job) -> ClusterSettings:
    """The settings of the job's cluster. Asks ZooKeeper for brokers if the job names none. Raises
    JobFileError if a reference points to a secret that does not exist, naming the reference, and
    Unreachable if ZooKeeper cannot be asked or knows no broker."""
    source = job.source
    if not source.zookeeper or source.names_brokers:
        return cluster_of_brokers(job, source.named_brokers)
    # ZooKeeper has the brokers' ids, to which partitions and groups refer.
    named_brokers = sorted(look_up_broker_registry(job).brokers.items())
    if not named_brokers:
        raise Unreachable(
            f"no broker is registered in {source.zookeeper}",
            do="start the brokers, or correct source.zookeeper",
        )
    return cluster_of_brokers(job, named_brokers)


def look_up_read_settings(job: Job) -> ReadSettings:
    """The settings for reading the job's logs, with its brokers as they are now. Asks and raises
    the same as ``look_up_cluster``."""
    source = job.source
    return ReadSettings(
        look_up_cluster(job),
        policy=job.policies,
        tags=source.tags,
        registry=registry_settings(job),
        compacted=source.compacted,
    )


def registry_settings(job: Job) -> RegistrySettings | None:
    """The settings for reaching the job's schema registry; None if it has none. Raises JobFileError
    if a reference points to a secret that does not exist."""
    registry = job.decode.registry
    return None if registry is None else schema_registry_settings(job, registry)


def look_up_cleanup(job: Job, settings: ReadSettings, topics: Iterable[str]) -> ReadSettings:
    """These settings, with the cleanup policies of topics from ZooKeeper added if the job names
    one: brokers before 0.11 do not report them. A failure matters only if a log has a gap."""
    source = job.source
    reads_cleanup = "compacted" in load_dialect(source.dialect).capabilities.source_keys
    if not reads_cleanup or not source.zookeeper:
        return settings
    from rangeland.zookeeper.broker_registry import read_cleanup_policies

    try:
        policies = read_cleanup_policies(zookeeper_access(job), sorted(set(topics)))
    except Unreachable:
        return replace(settings, asks_zookeeper=True)
    return replace(settings, asks_zookeeper=True, zookeeper_cleanup=tuple(policies.items()))


def look_up_broker_registry(job: Job) -> BrokerRegistry:
    """The brokers and topics that are currently registered in ZooKeeper."""
    from rangeland.zookeeper.broker_registry import read_registry

    return read_registry(zookeeper_access(job))
