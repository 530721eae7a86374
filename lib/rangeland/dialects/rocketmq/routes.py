"""Routes, from a name server: which brokers have queues of a topic, and their addresses.

A route names brokers; each is a master (number 0) and its slaves, which have the same queues. Each
broker numbers its own queues from 0.

Older servers send invalid JSON: the numbers of brokers, which are keys, are not quoted.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from rangeland.dialects.rocketmq.system_topics import is_system_topic
from rangeland.errors import RemoteProtocolError
from rangeland.model import Address, Leader, Partition
from rangeland.untrusted import JsonFields, Unreadable, decimal, parse_address, parse_json
from rangeland.wire.primitives import Buffer

T = TypeVar("T")

MASTER: Final = 0
MAX_QUEUES: Final = 65_536
"""The most queues of one topic, over all brokers. RocketMQ sets no limit; a route with more is
refused."""

# Possessive, and an unterminated string matches up to the end: no character is read twice.
_BARE_KEY: Final = re.compile(
    r"""("(?:[^"\\]|\\.)*+"?)|([{,]\s*+)(-?[0-9]++)(?=\s*+:)""", re.DOTALL
)


@dataclass(frozen=True, slots=True)
class TopicRoute:
    """The route of one topic. ``brokers`` by name: the cluster, and the addresses by number.
    ``queues`` by broker: the number of readable queues."""

    brokers: dict[str, tuple[str, dict[int, Address]]]
    queues: dict[str, int]

    def leaders(self, topic: str) -> dict[Partition, Leader]:
        """The leader of each queue: a slave if the master is down, none if all are."""
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
            is_replica=numbers[0] != MASTER,
        )

    def is_internal(self, topic: str) -> bool:
        """Whether RocketMQ made the topic for itself. Each broker and cluster has one that is named
        after it."""
        names = {*self.brokers, *(cluster for cluster, _ in self.brokers.values())}
        return topic in names or is_system_topic(topic)


def read_route(body: Buffer) -> TopicRoute:
    """Reads a route. Raises RemoteProtocolError if it is not one."""
    return _parse_as("a route", body, _route)


def read_topics(body: Buffer) -> list[str]:
    """The names of all topics. Raises RemoteProtocolError."""
    return _parse_as("a list of topics", body, lambda fields: sorted(fields.texts("topicList")))


def read_brokers(body: Buffer) -> frozenset[str]:
    """The names of all brokers that are registered. Raises RemoteProtocolError."""
    return _parse_as(
        "a list of brokers", body, lambda fields: frozenset(fields.fields("brokerAddrTable"))
    )


def _route(route: JsonFields) -> TopicRoute:
    """The route in these fields. Raises Unreadable."""
    brokers = {
        entry.text("brokerName"): (
            entry.text("cluster", ""),
            _addresses(entry.fields("brokerAddrs", {})),
        )
        for entry in route.each("brokerDatas", ())
    }
    queues = {
        entry.text("brokerName"): entry.number("readQueueNums", 0, MAX_QUEUES)
        for entry in route.each("queueDatas", ())
    }
    if (total := sum(queues.values())) > MAX_QUEUES:
        raise Unreadable(f"readQueueNums: {total} queues in all, not {MAX_QUEUES} at most")
    return TopicRoute(brokers, queues)


def _addresses(fields: JsonFields) -> dict[int, Address]:
    return {
        decimal(number, "a broker's number", 0): parse_address(fields.text(number))
        for number in fields
    }


def _parse_as(name: str, body: Buffer, read: Callable[[JsonFields], T]) -> T:
    """What ``read`` finds in a JSON body. Raises RemoteProtocolError, which names it."""
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
