"""Who gets which queues: upstream's *allocate averagely*, as arithmetic.

Per topic, the sorted queues are cut into as many runs as there are clients; where that does
not come out even the first few runs are one longer. Everybody computes everybody's share from
the same lists, so the order is part of the rule: queues by broker and number, clients by
their ids, texts as Java compares them.
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
    """All clients, with what is theirs, which may be nothing. Each reads all topics."""
    seats = in_order(clients)
    by_topic: dict[str, set[Partition]] = defaultdict(set)
    for partition in partitions:
        by_topic[partition.topic].add(partition)
    theirs: dict[str, set[Partition]] = {client: set() for client in seats}
    for queues in by_topic.values():
        ordered = sorted(queues, key=lambda q: (_as_java(q.broker), q.number))
        for client in seats:
            theirs[client].update(allocate(ordered, seats, client))
    return theirs


def allocate(queues: Sequence[T], clients: Sequence[str], client: str) -> Sequence[T]:
    """One client's run of one topic's queues; nothing for one that is not in the list. Both
    lists are in order and without repetitions. Raises LocalProtocolError where there is
    nothing to share or nobody to share among."""
    if not queues or not clients or not client:
        raise LocalProtocolError(
            "queues cannot be shared out",
            why=f"there are {len(queues)} queues and {len(clients)} clients, and one is {client!r}",
        )
    if client not in clients:
        return ()
    index = clients.index(client)
    each, extra = divmod(len(queues), len(clients))
    # Behind the longer runs, all the extra ones lie before those that are left.
    start, size = (index * (each + 1), each + 1) if index < extra else (index * each + extra, each)
    return queues[start : start + size]


def in_order(clients: Iterable[str]) -> list[str]:
    """Upstream's order. A client that a broker knows by two connections counts once."""
    return sorted(set(clients), key=_as_java)


def _as_java(text: str) -> bytes:
    return text.encode("utf-16-be", "surrogatepass")
