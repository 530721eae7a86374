"""Which client gets which queues: upstream's *allocate averagely*.

Per topic, the sorted queues are cut into as many runs as there are clients; the first few runs
are one longer if the division leaves a remainder. Every client computes the whole assignment
from the same lists, so the order is part of the rule: queues by broker and number, clients by
id, texts as Java compares them.
Upstream: ``AllocateMessageQueueAveragely``, ``MessageQueue.compareTo``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import TypeVar

from rangeland.errors import LocalProtocolError
from rangeland.model import Partition

T = TypeVar("T")


def shares(partitions: Iterable[Partition], clients: Iterable[str]) -> dict[str, set[Partition]]:
    """The queues of each client, which may be none. Every client reads all topics."""
    members = in_order(clients)
    by_topic: dict[str, set[Partition]] = defaultdict(set)
    for partition in partitions:
        by_topic[partition.topic].add(partition)
    assigned: dict[str, set[Partition]] = {client: set() for client in members}
    for queues in by_topic.values():
        ordered = sorted(queues, key=lambda q: (_as_java(q.broker), q.number))
        for client in members:
            assigned[client].update(allocate(ordered, members, client))
    return assigned


def allocate(queues: Sequence[T], clients: Sequence[str], client: str) -> Sequence[T]:
    """One client's run of one topic's queues; empty for an unknown client. Both lists are sorted
    and without duplicates. Raises LocalProtocolError if there are no queues or no clients."""
    if not queues or not clients or not client:
        raise LocalProtocolError(
            "queues cannot be assigned",
            why=f"there are {len(queues)} queues and {len(clients)} clients, and one is {client!r}",
        )
    if client not in clients:
        return ()
    index = clients.index(client)
    each, extra = divmod(len(queues), len(clients))
    # After the longer runs, all extra queues have been given out.
    start, size = (index * (each + 1), each + 1) if index < extra else (index * each + extra, each)
    return queues[start : start + size]


def in_order(clients: Iterable[str]) -> list[str]:
    """Upstream's order. A client with two connections counts once."""
    return sorted(set(clients), key=_as_java)


def _as_java(text: str) -> bytes:
    return text.encode("utf-16-be", "surrogatepass")
