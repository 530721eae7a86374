"""A group's members according to each of its brokers.

Every broker lists the clients that send it heartbeats. The lists agree once all members have
reached all brokers, and only then is the assignment the same for all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from rangeland.dialects.error_meaning import GroupMeaning
from rangeland.dialects.rocketmq.error_codes import SUCCESS
from rangeland.errors import Conflict
from rangeland.groups.rocketmq import group_requests as g
from rangeland.groups.rocketmq.assignment import in_order
from rangeland.groups.rocketmq.client_ids import job_of
from rangeland.groups.rocketmq.masters import MasterBrokers, masters_error
from rangeland.model import Partition

_SHOWN: Final = 8


@dataclass(frozen=True, slots=True)
class RocketmqGroupView:
    """A group according to its brokers. ``seen``: the connections that each broker lists."""

    seen: Mapping[str, g.GroupConnections]

    @property
    def clients(self) -> tuple[g.GroupClient, ...]:
        """Each client once, in upstream's order."""
        by_id = {c.client_id: c for x in self.seen.values() for c in x.clients}
        return tuple(by_id[client] for client in in_order(by_id))

    @property
    def ids(self) -> tuple[str, ...]:
        return tuple(client.client_id for client in self.clients)

    @property
    def topics(self) -> frozenset[str]:
        return frozenset(topic for x in self.seen.values() for topic in x.topics)

    @property
    def is_agreed(self) -> bool:
        """Whether all brokers that list any members list the same ones."""
        lists = {frozenset(c.client_id for c in x.clients) for x in self.seen.values()}
        return len(lists - {frozenset()}) <= 1

    def brokers_without(self, client: str) -> list[str]:
        """The brokers that do not list the client."""
        lists = {broker: {c.client_id for c in x.clients} for broker, x in self.seen.items()}
        return [broker for broker, listed in lists.items() if client not in listed]

    def others(self, job: str) -> list[g.GroupClient]:
        """Members that are not drivers of the job. A group has one set of subscriptions, so the
        topics of each member are not known; the group would assign it queues of all."""
        return [client for client in self.clients if job_of(client.client_id) != job]


def read_group(
    masters: MasterBrokers, group: str, brokers: Mapping[str, str], patience_ms: int
) -> RocketmqGroupView:
    """Reads the members of a group from its brokers. ``brokers``: each with one of its topics.
    Raises Unreachable."""
    connections: dict[str, g.GroupConnections] = {}
    for broker, topic in sorted(brokers.items()):
        response, code = masters.ask(broker, topic, g.connections(group), patience_ms)
        is_there = response.code == SUCCESS
        if not is_there and code.group_meaning is not GroupMeaning.NO_MEMBERS:
            raise masters_error(code, response.remark, group, "its members were asked for")
        connections[broker] = g.read_connections(response) if is_there else g.GroupConnections()
    return RocketmqGroupView(connections)


def brokers_of(partitions: Iterable[Partition]) -> dict[str, str]:
    """The brokers that have these partitions, each with one of its topics."""
    return {partition.broker: partition.topic for partition in partitions}


# --- sentences --------------------------------------------------------------------------


def group_in_use_error(group: str, clients: Sequence[g.GroupClient], what: str) -> Conflict:
    """The error for members that prevented ``what``, a clause."""
    return Conflict(
        f"{what}: group {group} is in use",
        why=f"it has {describe_clients(clients)}",
        do="stop that consumer, or give the job its own group (group.id)",
        group=group,
        members=facts(clients),
    )


def describe_clients(clients: Sequence[g.GroupClient]) -> str:
    """``client 10.0.0.7@88#4711 (host 10.0.0.7, JAVA)``, and so on."""
    more = f" and {len(clients) - _SHOWN} more" if len(clients) > _SHOWN else ""
    return "; ".join(map(_describe, clients[:_SHOWN])) + more


def _describe(client: g.GroupClient) -> str:
    where = ", ".join(filter(None, (client.host and f"host {client.host}", client.language)))
    return f"client {client.client_id}{f' ({where})' if where else ''}"


def facts(clients: Sequence[g.GroupClient]) -> list[dict[str, Any]]:
    return [{"client": c.client_id, "host": c.host, "language": c.language} for c in clients]
