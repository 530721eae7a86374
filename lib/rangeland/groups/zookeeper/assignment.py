"""Decides which member gets which partitions: range assignment in Jafka's and Kafka 0.8's order.

Partitions of one broker stay together. Members are sorted by the names of their threads,
partitions of a broker as text (``1-10`` before ``1-2``), and partitions of a cluster by number.
Upstream: Jafka ``ZookeeperConsumerConnector.rebalance``, Kafka 0.8 ``RangeAssignor``.
"""

from __future__ import annotations

from collections.abc import Iterable

from rangeland.groups.range_assignment import assign_ranges
from rangeland.groups.zookeeper.znode_layout import THREAD, partition_name
from rangeland.model import Partition


def shares(
    partitions: Iterable[Partition], members: Iterable[str]
) -> dict[str, frozenset[Partition]]:
    """The partitions of each member, which may be none. Every member reads all topics."""
    return assign_ranges(partitions, sorted(set(members), key=lambda m: m + THREAD), rank)


def rank(partition: Partition) -> tuple[str, int]:
    """Sorts one topic's partitions."""
    return partition_name(partition) if partition.broker else "", partition.number
