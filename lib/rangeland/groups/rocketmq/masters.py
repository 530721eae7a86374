"""Finds and asks the masters of the brokers that have a group's queues, which store the group.

Name servers list brokers and their addresses. A master that does not answer is looked up again, and
a busy one is asked again, until the caller's patience is over; then it is ``Unreachable``. Slaves
only receive heartbeats: an offset that is written to a slave stays there. That includes a slave
that acts for its master (``routes``): it may lack the group's latest offsets, and the master may
not take over those that are written to it. All I/O goes through the ``GroupIO``.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from rangeland.dialects.error_meaning import ErrorCode, ErrorMeaning
from rangeland.dialects.protocol_session import BrokerRequest
from rangeland.dialects.rocketmq import messages as m
from rangeland.dialects.rocketmq.error_codes import REQUEST_NOT_SUPPORTED, SUCCESS, error_code_of
from rangeland.dialects.rocketmq.routes import MASTER, TopicRoute, read_brokers, read_route
from rangeland.errors import RangelandError, Unreachable
from rangeland.grouping import group_by
from rangeland.groups import backend
from rangeland.groups.backend import GroupIO
from rangeland.model import Address, Partition

PATIENCE_MS: Final = 10_000
"""How long a master may be down or busy before a request fails."""
FIRST_SLAVE: Final = 1
_REMEDIES: Final = {
    "NO_PERMISSION": "grant the user of source.security SUB on the group {group} and the topics",
    "SUBSCRIPTION_GROUP_NOT_EXIST": "create the group {group}, or let the brokers do it"
    " (autoCreateSubscriptionGroup)",
}


class _UnknownToSome(Unreachable):
    """A topic is unknown to the name servers that answer, but some do not answer."""


class MasterBrokers:
    """The known masters of brokers. Not thread-safe."""

    def __init__(self, io: GroupIO) -> None:
        self.io = io
        self._addresses: dict[str, Mapping[int, Address]] = {}

    def ask(
        self, broker: str, topic: str, request: m.RemotingRequest, patience_ms: int = PATIENCE_MS
    ) -> tuple[m.RemotingResponse, ErrorCode]:
        """The response and its code, which is never retriable. ``topic``: any topic that the
        broker has queues of. Raises Unreachable."""
        return backend.ask_until_ready(
            self.io, patience_ms, lambda: self._ask_once(broker, topic, request)
        )

    def _ask_once(
        self, broker: str, topic: str, request: m.RemotingRequest
    ) -> tuple[m.RemotingResponse, ErrorCode]:
        try:
            address = self._master(broker, topic)
            response: m.RemotingResponse = self.io.ask(address, BrokerRequest(request))
        except Unreachable:
            self._addresses.pop(broker, None)
            raise
        code = error_code_of(response.code)
        if not code.meaning.is_retriable:
            return response, code
        if code.meaning is ErrorMeaning.FIND_LEADER:
            self._addresses.pop(broker, None)
        who = f"the master of {broker} at {address}"
        raise backend.not_ready_error(
            who, code, response.remark, broker=broker, address=str(address)
        )

    def ask_each(
        self, requests: Sequence[m.RemotingRequest]
    ) -> list[tuple[m.RemotingResponse, ErrorCode]]:
        """Like ``ask``, for requests about queues, in one round per broker. A request that fails
        there is sent again alone. Raises Unreachable."""
        settled: dict[int, tuple[m.RemotingResponse, ErrorCode]] = {}
        for broker, indexes in indexes_by_broker(requests).items():
            wrapped = [BrokerRequest(requests[index]) for index in indexes]
            try:
                address = self._master(broker, queue_of(requests[indexes[0]]).topic)
                responses: list[m.RemotingResponse] = self.io.ask_all(address, wrapped)
            except Unreachable:
                self._addresses.pop(broker, None)
                continue
            for index, response in zip(indexes, responses, strict=True):
                code = error_code_of(response.code)
                if not code.meaning.is_retriable:
                    settled[index] = response, code
        return [
            settled.get(index)
            or self.ask(queue_of(request).broker, queue_of(request).topic, request)
            for index, request in enumerate(requests)
        ]

    def slaves(self, brokers: Collection[str]) -> list[Address]:
        """The slaves of brokers that were asked before."""
        by_broker = [self._addresses.get(broker, {}) for broker in brokers]
        return [
            addresses[number]
            for addresses in by_broker
            for number in sorted(addresses)
            if number != MASTER
        ]

    def route(self, topic: str) -> TopicRoute | None:
        """The route of a topic; None if it is unknown to all name servers that answer. First waits
        for the others. Raises Unreachable if none answers, or one is not ready."""
        try:
            return backend.ask_until_ready(self.io, PATIENCE_MS, lambda: self._find_route(topic))
        except _UnknownToSome:
            return None

    def _find_route(self, topic: str) -> TopicRoute | None:
        """The route according to the present responses. Raises _UnknownToSome if other name servers
        do not answer at all."""
        failures: dict[str, str] = {}
        codes: set[ErrorCode] = set()
        all_answer = True
        for seed in self.io.seeds:
            try:
                response: m.RemotingResponse = self.io.ask(seed, BrokerRequest(m.route(topic)))
            except Unreachable as error:
                failures[str(seed)] = error.why or error.what
                all_answer = False
                continue
            if response.code == SUCCESS:
                return self._learn(read_route(response.body), seed)
            code = error_code_of(response.code)
            if response.code != REQUEST_NOT_SUPPORTED:  # which a broker answers
                codes.add(code)
            failures[str(seed)] = f"{code.name}: {response.remark}"
        is_unknown = bool(codes) and all(code.is_unknown_topic for code in codes)
        if is_unknown and all_answer:
            return None
        error_class = _UnknownToSome if is_unknown else Unreachable
        raise error_class(
            f"no name server knows a broker that has topic {topic}",
            why="; ".join(f"{seed}: {why}" for seed, why in failures.items()),
            do="try again in a moment",
            topic=topic,
            tried=failures,
        )

    def _learn(self, route: TopicRoute, seed: Address) -> TopicRoute:
        acting = route.acting_brokers(self._registered(seed)) if route.may_be_acting else ()
        for broker, (_, addresses) in route.brokers.items():
            self._addresses[broker] = _as_slaves(addresses) if broker in acting else addresses
        return route

    def _registered(self, seed: Address) -> Mapping[str, Address | None]:
        """The masters that are registered at a name server; none if it does not list them."""
        try:
            response: m.RemotingResponse = self.io.ask(seed, BrokerRequest(m.all_brokers()))
        except Unreachable:
            return {}
        return read_brokers(response.body) if response.code == SUCCESS else {}

    def _master(self, broker: str, topic: str) -> Address:
        if broker not in self._addresses:
            self._find_route(topic)
        addresses = self._addresses.get(broker, {})
        if MASTER not in addresses:
            raise Unreachable(
                f"broker {broker} has no master",
                why="the name servers list none",
                do="start it, or try again in a moment",
                broker=broker,
                topic=topic,
            )
        return addresses[MASTER]


def _as_slaves(addresses: Mapping[int, Address]) -> Mapping[int, Address]:
    """The addresses of a broker for whose master a slave acts. The slave's own number, which the
    route does not show, is the lowest: 1 is either that or free."""
    return {number or FIRST_SLAVE: address for number, address in addresses.items()}


def queue_of(request: m.RemotingRequest | m.Pull) -> Partition:
    assert request.about is not None
    return request.about


def indexes_by_broker(requests: Sequence[m.RemotingRequest]) -> dict[str, list[int]]:
    """The indexes of the requests."""
    return group_by(range(len(requests)), lambda index: queue_of(requests[index]).broker)


# --- errors -----------------------------------------------------------------------------


def masters_error(code: ErrorCode, remark: str, group: str, when: str) -> RangelandError:
    """See ``backend.group_error``."""
    failed = f"the brokers of group {group} have failed"
    return backend.group_error(code, group, when, failed=failed, remedies=_REMEDIES, remark=remark)
