"""Which member gets which partitions: upstream's range assignment.

Per topic, the sorted partitions are cut into as many runs as there are members that read
it; the first few are one longer. So partitions of one broker stay together. The order is
upstream's, so that its consumers and these drivers agree: members by the names of their
threads; partitions of a broker as text (``1-10`` before ``1-2``), a cluster's by number.
Upstream: Jafka ``ZookeeperConsumerConnector.rebalance``, Kafka 0.8 ``RangeAssignor``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from rangeland.groups.zookeeper.znode_layout import THREAD, partition_name
from rangeland.model import Partition


def assign_ranges(
    members: Iterable[str], partitions: Iterable[Partition]
) -> dict[str, frozenset[Partition]]:
    """The partitions of each member, which may be none. Every member reads all topics."""
    ordered_members = sorted(set(members), key=lambda member: member + THREAD)
    by_topic: dict[str, list[Partition]] = defaultdict(list)
    for partition in set(partitions):
        by_topic[partition.topic].append(partition)
    assigned: dict[str, set[Partition]] = {member: set() for member in ordered_members}
    for of_topic in by_topic.values():
        ordered = in_order(of_topic)
        for index, member in enumerate(ordered_members):
            assigned[member].update(_run(ordered, index, len(ordered_members)))
    return {member: frozenset(owned) for member, owned in assigned.items()}


def in_order(partitions: Iterable[Partition]) -> list[Partition]:
    """Upstream's order of one topic's partitions."""
    return sorted(partitions, key=lambda p: (partition_name(p) if p.broker else "", p.number))


def _run(ordered: Sequence[Partition], index: int, members: int) -> Sequence[Partition]:
    each, extra = divmod(len(ordered), members)
    start = each * index + min(index, extra)
    return ordered[start : start + each + (1 if index < extra else 0)]
