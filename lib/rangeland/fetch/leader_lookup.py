"""The leaders of some partitions, looked up while they are read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rangeland.connection.pool import ConnectionPool
from rangeland.dialects.cluster_values import ClusterView
from rangeland.dialects.error_meaning import ErrorMeaning
from rangeland.model import Address, Leader, Partition
from rangeland.survey.leaders import ask_leaders


@dataclass(frozen=True, slots=True)
class LeaderLookup:
    """``unknown``: partitions that do not exist according to the cluster. ``away``: why the only
    broker that has a partition cannot be asked for it."""

    leaders: Mapping[Partition, Leader]
    unknown: frozenset[Partition]
    away: Mapping[Partition, str]


def look_up_leaders(
    brokers: ConnectionPool,
    partitions: Sequence[Partition],
    replicas: tuple[Address, ...],
    members: Mapping[str, Address],
) -> LeaderLookup:
    """Raises Unreachable if no broker answers."""
    topics = tuple(sorted({p.topic for p in partitions}))
    # Replicas know their cluster, but not where brokers only know their own partitions.
    first = () if brokers.dialect.capabilities.numbered_per_broker else replicas
    view = ask_leaders(brokers, topics, (*first, *brokers.settings.seeds))
    known = [topic.leaders for topic in view.topics.values() if topic.meaning is ErrorMeaning.OK]
    leaders = {p: leader for found in known for p, leader in found.items()}
    away = {p: why for p in partitions if (why := _away(view, p, members))}
    unnamed = [p for p in partitions if p not in leaders and p not in away]
    return LeaderLookup(leaders, frozenset(p for p in unnamed if _is_unknown(view, p)), away)


def _away(view: ClusterView, partition: Partition, members: Mapping[str, Address]) -> str | None:
    """Why the one broker that has a partition cannot be asked for it; None if it can."""
    name = partition.broker
    if name in view.unreachable:
        return f"broker {name}: {view.unreachable[name]}"
    if members and name not in members:
        return f"broker {name}: no broker of that name is registered"
    return None


def _is_unknown(view: ClusterView, partition: Partition) -> bool:
    """Whether the cluster reports that the topic, or the partition in it, does not exist."""
    topic = view.topics.get(partition.topic)
    return topic is None or topic.meaning is ErrorMeaning.OK or topic.is_unknown
