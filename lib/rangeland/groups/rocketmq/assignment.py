"""Decides which client gets which queues: range assignment, upstream's *allocate averagely*.

Queues are sorted by broker and number, clients by id, texts as Java compares them.
Upstream: ``AllocateMessageQueueAveragely``, ``MessageQueue.compareTo``.
"""

from __future__ import annotations

from collections.abc import Iterable

from rangeland.groups.range_assignment import assign_ranges
from rangeland.model import Partition


def shares(
    partitions: Iterable[Partition], clients: Iterable[str]
) -> dict[str, frozenset[Partition]]:
    """The queues of each client, which may be none. Every client reads all topics."""
    return assign_ranges(partitions, in_order(clients), lambda q: (_as_java(q.broker), q.number))


def in_order(clients: Iterable[str]) -> list[str]:
    """Upstream's order. A client with two connections counts once."""
    return sorted(set(clients), key=_as_java)


def _as_java(text: str) -> bytes:
    return text.encode("utf-16-be", "surrogatepass")
