"""Routes, as name servers return them: which brokers have queues of a topic, and their addresses.

A route names brokers; each is a master (number 0) and its slaves, which have the same queues. Each
broker numbers its own queues from 0.

Number 0 may be a slave: if a master is down and its slaves may act for it, a name server that
supports that gives its number to one of them, the acting master, and takes the right to write from
the topic there. It may lag, as any slave. A route alone does not tell it from the master of a topic
that nobody may write to; the list of all brokers has their own numbers.

Older servers send invalid JSON: the numbers of brokers, which are keys, are not quoted.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeVar

from rangeland.dialects.rocketmq.system_topics import is_system_topic
from rangeland.errors import RemoteProtocolError
from rangeland.model import Address, Leader, Partition
from rangeland.untrusted import (
    MAX_INT32,
    JsonFields,
    Unreadable,
    decimal,
    parse_address,
    parse_json,
)
from rangeland.wire.primitives import Buffer

T = TypeVar("T")

MASTER: Final = 0
WRITE: Final = 2
"""The bit of a topic's rights that lets clients write to it."""
MAX_QUEUES: Final = 65_536
"""The most queues that one topic may have, over all brokers. RocketMQ sets no limit; a route with
more is refused."""

# The quantifiers are possessive, and an unterminated string matches up to the end, so no character
# is read twice.
_BARE_KEY: Final = re.compile(
    r"""("(?:[^"\\]|\\.)*+"?)|([{,]\s*+)(-?[0-9]++)(?=\s*+:)""", re.DOTALL
)


@dataclass(frozen=True, slots=True)
class TopicRoute:
    """The route of one topic. ``brokers`` by name: the cluster, and the addresses by number.
    ``queues`` by broker: the number of readable queues. ``may_be_acting``: the brokers whose number
    0 may be an acting master. ``static_queues`` by broker, for a static topic: the numbers of the
    queues that it has, which are counted over all brokers."""

    brokers: dict[str, tuple[str, dict[int, Address]]]
    queues: dict[str, int]
    may_be_acting: frozenset[str] = frozenset()
    static_queues: Mapping[str, frozenset[int]] = field(default_factory=dict)

    def leaders(self, topic: str) -> dict[Partition, Leader]:
        """The leader of each queue: a slave if the master is down or may be, none if all are."""
        return {
            Partition(topic, number, broker): self._leader(broker)
            for broker, count in sorted(self.queues.items())
            for number in range(count)
        }

    def _leader(self, broker: str) -> Leader:
        """The broker's address with the lowest number: its master, if that is up."""
        _, addresses = self.brokers.get(broker, ("", {}))
        if not addresses:
            return Leader(None)
        numbers = tuple(sorted(addresses))
        return Leader(
            addresses[numbers[0]],
            replicas=tuple(addresses[number] for number in numbers),
            replica_ids=numbers,
            is_replica=numbers[0] != MASTER or broker in self.may_be_acting,
        )

    def acting_brokers(self, masters: Mapping[str, Address | None]) -> frozenset[str]:
        """The brokers whose number 0 may be an acting master, and is not among the registered
        ``masters``."""
        at = {broker: self.brokers[broker][1].get(MASTER) for broker in self.may_be_acting}
        return frozenset(broker for broker, address in at.items() if address != masters.get(broker))

    @property
    def has_static_numbers(self) -> bool:
        """Whether the topic is static, and some queue does not have the number of its place at its
        broker. Brokers take all numbers for those of the topic."""
        return bool(self.static_queues) and any(
            self.static_queues.get(broker, frozenset()) != frozenset(range(count))
            for broker, count in self.queues.items()
        )

    def is_internal(self, topic: str) -> bool:
        """Whether RocketMQ made the topic for itself. Each broker and each cluster has a topic
        named after it."""
        names = {*self.brokers, *(cluster for cluster, _ in self.brokers.values())}
        return topic in names or is_system_topic(topic)


def read_route(body: Buffer) -> TopicRoute:
    """Reads a route. Raises RemoteProtocolError if it is not one."""
    return _parse_as("a route", body, _route)


def read_topics(body: Buffer) -> list[str]:
    """The names of all topics. Raises RemoteProtocolError."""
    return _parse_as("a list of topics", body, lambda fields: sorted(fields.texts("topicList")))


def read_brokers(body: Buffer) -> dict[str, Address | None]:
    """All brokers that are registered, by name, with the address of the master; None if that is
    not registered. Raises RemoteProtocolError."""
    return _parse_as("a list of brokers", body, _masters)


def confirm_masters(
    leaders: Mapping[Partition, Leader], masters: Mapping[str, Address | None]
) -> dict[Partition, Leader]:
    """The leaders of queues, where those that are registered as masters are no replicas."""
    return {
        queue: replace(leader, is_replica=False)
        if leader.address is not None and leader.address == masters.get(queue.broker)
        else leader
        for queue, leader in leaders.items()
    }


def _route(route: JsonFields) -> TopicRoute:
    """The route in these fields. Raises Unreadable."""
    brokers = {
        entry.text("brokerName"): (
            entry.text("cluster", ""),
            _addresses(entry.fields("brokerAddrs", {})),
        )
        for entry in route.each("brokerDatas", ())
    }
    queue_data = {entry.text("brokerName"): entry for entry in route.each("queueDatas", ())}
    queues = {
        broker: entry.number("readQueueNums", 0, MAX_QUEUES) for broker, entry in queue_data.items()
    }
    if (total := sum(queues.values())) > MAX_QUEUES:
        raise Unreadable(
            f"readQueueNums: {total} queues in all, but at most {MAX_QUEUES} are allowed"
        )
    acting = frozenset(
        broker
        for entry in route.each("brokerDatas", ())
        if entry.flag("enableActingMaster", False)
        and (broker := entry.text("brokerName")) in queue_data
        and not queue_data[broker].number("perm", 0, MAX_INT32, default=WRITE) & WRITE
    )
    return TopicRoute(brokers, queues, acting, _static_queues(route))


def _static_queues(route: JsonFields) -> dict[str, frozenset[int]]:
    mapped = route.fields("topicQueueMappingByBroker", {})
    return {
        broker: frozenset(
            decimal(number, "a queue's number", 0)
            for number in mapped.fields(broker).fields("currIdMap", {})
        )
        for broker in mapped
    }


def _masters(fields: JsonFields) -> dict[str, Address | None]:
    table = fields.fields("brokerAddrTable")
    addresses = {broker: table.fields(broker).fields("brokerAddrs", {}) for broker in table}
    number = str(MASTER)
    return {
        broker: parse_address(servers.text(number)) if number in servers else None
        for broker, servers in addresses.items()
    }


def _addresses(fields: JsonFields) -> dict[int, Address]:
    return {
        decimal(number, "a broker's number", 0): parse_address(fields.text(number))
        for number in fields
    }


def _parse_as(name: str, body: Buffer, read: Callable[[JsonFields], T]) -> T:
    """The result of applying ``read`` to a JSON body. Raises RemoteProtocolError, which says what
    the body should have been."""
    try:
        return read(JsonFields(_parse(body)))
    except Unreadable as error:
        raise RemoteProtocolError(
            f"{name} cannot be read",
            why=str(error),
            do="check that source.servers are name servers",
            size=len(body),
        ) from None


def _parse(body: Buffer) -> Any:
    try:
        return parse_json(body)
    except Unreadable:
        text = bytes(body).decode(errors="replace")
        return parse_json(_BARE_KEY.sub(_quote, text))


def _quote(match: re.Match[str]) -> str:
    whole, before, number = match.groups()
    return whole if whole is not None else f'{before}"{number}"'
