"""How a job lists the partitions of a topic that it reads."""

from __future__ import annotations

from collections.abc import Collection

from rangeland.model import Partition


def names_in_topic(partition: Partition) -> tuple[int, str]:
    """How a job may list a partition of a topic: by its number, or as ``broker-number``."""
    return partition.number, f"{partition.broker}-{partition.number}"


def is_read(partition: Partition, listed: Collection[int | str] | None) -> bool:
    """Whether a job reads a partition of a topic of which it lists these; all of them if it lists
    none."""
    return not listed or not set(listed).isdisjoint(names_in_topic(partition))
