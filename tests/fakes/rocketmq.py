"""Brokers of RocketMQ as far as groups go: who is connected, offsets, locks. No socket, no clock.

Each driver has I/O of its own, since brokers know a member by its connection. The clock
stands still but for pauses; during those others may act (``meanwhile``).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rangeland.dialects.protocol_session import BrokerRequest
from rangeland.dialects.rocketmq import messages as m
from rangeland.errors import Unreachable
from rangeland.groups.rocketmq import group_requests as g
from rangeland.model import Address, Partition

LOCK_MS = 60_000
SEEDS = (Address("names-a", 1), Address("names-b", 2))
MASTERS = {"broker-a": Address("a", 1), "broker-b": Address("b", 1)}
SLAVES = {"broker-a": Address("a-slave", 2)}

Reply = tuple[int, dict[str, str], Any]
Strange = Callable[[m.RemotingRequest], "Reply | Exception | None"]


@dataclass
class Cluster:
    """``queues`` of each broker by topic. ``members`` of a broker's address: connection to
    client id and language. ``may_make_groups`` is autoCreateSubscriptionGroup.
    ``has_acting_masters``: slaves act for masters that are not there. ``read_only``: brokers that
    nobody may write to."""

    queues: dict[str, dict[str, int]] = field(
        default_factory=lambda: {"orders": {"broker-a": 2, "broker-b": 2}}
    )
    members: dict[Address, dict[str, tuple[str, str]]] = field(default_factory=dict)
    topics: dict[str, set[str]] = field(default_factory=dict)
    groups: set[str] = field(default_factory=set)
    offsets: dict[tuple[str, Partition], int] = field(default_factory=dict)
    locks: dict[tuple[str, Partition], tuple[str, int]] = field(default_factory=dict)
    may_make_groups: bool = True
    masters: dict[str, Address] = field(default_factory=lambda: dict(MASTERS))
    has_acting_masters: bool = False
    read_only: set[str] = field(default_factory=set)
    clock_ms: int = 0

    def io(self, name: str) -> FakeGroupIO:
        return FakeGroupIO(self, name)

    def stranger(self, client: str, *brokers: str) -> None:
        """A consumer of upstream's, at these brokers or all."""
        for broker in brokers or self.masters:
            self.members.setdefault(self.masters[broker], {})[client] = (client, "JAVA")
        self.groups.add("g")
        self.topics.setdefault("g", set()).add("orders")

    def drop(self, io: FakeGroupIO) -> None:
        """Its connections break."""
        for listed in self.members.values():
            listed.pop(io.name, None)

    def ids(self, broker: str = "broker-a") -> set[str]:
        return {client for client, _ in self.members.get(self.masters[broker], {}).values()}

    def holders(self) -> dict[Partition, str]:
        live = {k: who for k, (who, at) in self.locks.items() if self.clock_ms - at <= LOCK_MS}
        return {queue: who for (_, queue), who in live.items()}

    # --- responses ----------------------------------------------------------------------

    def answer(self, name: str, address: Address, request: m.RemotingRequest) -> Reply:
        if address in SEEDS:
            is_list = request.code == m.ALL_BROKERS
            return self._brokers() if is_list else self._route(request.fields["topic"])
        if address not in {*self.masters.values(), *SLAVES.values()}:
            raise Unreachable(f"{address} could not be connected to", why="refused")
        said = json.loads(bytes(request.body) or b"{}")
        match request.code:
            case g.HEARTBEAT:
                return self._heartbeat(name, address, said)
            case g.UNREGISTER:
                self._makes(request.fields["consumerGroup"])
                self.members.get(address, {}).pop(name, None)
                return 0, {}, {}
            case g.CONNECTIONS:
                return self._connections(address, request.fields["consumerGroup"])
            case g.LOCK:
                return 0, {}, {"lockOKMQSet": list(self._lock(said))}
            case g.UNLOCK:
                for each in said["mqSet"]:
                    key = said["consumerGroup"], queue_of(each)
                    if self.locks.get(key, ("", 0))[0] == said["clientId"]:
                        del self.locks[key]
                return 0, {}, {}
        return self._offset(address, request)

    def _route(self, topic: str) -> Reply:
        group = topic.removeprefix(g.RETRY_PREFIX)
        queues = self.queues.get(topic, {})
        if group in self.groups and group != topic:
            queues = dict.fromkeys(self.masters, 1)
        if not queues:
            return 17, {}, {}
        brokers = []
        for name in queues:
            at = {"0": str(self.masters[name])} if name in self.masters else {}
            acts = self.has_acting_masters and name not in self.masters
            at |= {"0" if acts else "1": str(SLAVES[name])} if name in SLAVES else {}
            data = {"brokerName": name, "cluster": "c", "brokerAddrs": at}
            brokers.append(data | {"enableActingMaster": self.has_acting_masters})
        listed = [
            {"brokerName": b, "readQueueNums": n, "perm": 6 if self._is_writable(b) else 4}
            for b, n in queues.items()
        ]
        return 0, {}, {"brokerDatas": brokers, "queueDatas": listed}

    def _is_writable(self, broker: str) -> bool:
        return broker in self.masters and broker not in self.read_only

    def _brokers(self) -> Reply:
        names = {*self.masters, *SLAVES}
        by_number = {"0": self.masters, "1": SLAVES}
        return (
            0,
            {},
            {
                "brokerAddrTable": {
                    name: {
                        "brokerAddrs": {
                            n: str(at[name]) for n, at in by_number.items() if name in at
                        }
                    }
                    for name in names
                }
            },
        )

    def _makes(self, group: str) -> bool:
        if self.may_make_groups:
            self.groups.add(group)
        return group in self.groups

    def _heartbeat(self, name: str, address: Address, said: Any) -> Reply:
        (consumer,) = said["consumerDataSet"]
        if self._makes(consumer["groupName"]):
            self.members.setdefault(address, {})[name] = (said["clientID"], "PYTHON")
            topics = {each["topic"] for each in consumer["subscriptionDataSet"]}
            self.topics[consumer["groupName"]] = topics
        return 0, {}, {}

    def _connections(self, address: Address, group: str) -> Reply:
        listed = self.members.get(address, {})
        if not listed:
            return 206, {}, {}
        connections = [
            {"clientId": client, "clientAddr": "10.0.0.7:4711", "language": language}
            for client, language in listed.values()
        ]
        topics = {topic: {} for topic in [*self.topics.get(group, ()), g.RETRY_PREFIX + group]}
        return 0, {}, {"connectionSet": connections, "subscriptionTable": topics}

    def _lock(self, said: Any) -> Iterator[Any]:
        for each in said["mqSet"]:
            key = said["consumerGroup"], queue_of(each)
            who, at = self.locks.get(key, (said["clientId"], self.clock_ms))
            if who == said["clientId"] or self.clock_ms - at > LOCK_MS:
                self.locks[key] = said["clientId"], self.clock_ms
                yield each

    def _offset(self, address: Address, request: m.RemotingRequest) -> Reply:
        group, queue = request.fields["consumerGroup"], request.about
        assert queue is not None
        assert address == self.masters[queue.broker]
        if request.code == g.QUERY_OFFSET:
            assert request.fields["setZeroIfNotFound"] == "false"
            found = self.offsets.get((group, queue))
            return (22, {}, {}) if found is None else (0, {"offset": str(found)}, {})
        assert request.code == g.UPDATE_OFFSET
        if group not in self.groups:
            return 26, {}, {}
        self.offsets[group, queue] = int(request.fields["commitOffset"])
        return 0, {}, {}


def queue_of(said: Any) -> Partition:
    return Partition(said["topic"], said["queueId"], said["brokerName"])


@dataclass
class FakeGroupIO:
    """``asked`` is what went out, and where. ``strange`` may answer in the cluster's place."""

    cluster: Cluster
    name: str
    seeds: tuple[Address, ...] = SEEDS
    asked: list[tuple[Address, m.RemotingRequest]] = field(default_factory=list)
    strange: Strange = lambda request: None
    meanwhile: Callable[[], None] = lambda: None
    is_closed: bool = False
    rounds: int = 0

    def ask(self, address: Address, question: BrokerRequest) -> Any:
        request = question.message
        self.asked.append((address, request))
        reply = self.strange(request)
        if isinstance(reply, Exception):
            raise reply
        code, fields, body = reply or self.cluster.answer(self.name, address, request)
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        return m.RemotingResponse(request, code, "", fields, data)

    def ask_all(self, address: Address, questions: Sequence[BrokerRequest]) -> list[Any]:
        self.rounds += 1
        before = dict(self.cluster.offsets)
        responses = [self.ask(address, question) for question in questions]
        self._lose_firsts(before, [question.message for question in questions])
        return responses

    def _lose_firsts(
        self, before: Mapping[Any, int], requests: Sequence[m.RemotingRequest]
    ) -> None:
        """As brokers do: of offsets that come at once and are a group's first of a topic there,
        one is kept."""
        firsts: dict[Any, Any] = {}
        for request in requests:
            if request.code == g.UPDATE_OFFSET and request.about is not None:
                queue, group = request.about, request.fields["consumerGroup"]
                place = (group, queue.topic, queue.broker)
                if not any((grp, q.topic, q.broker) == place for grp, q in before):
                    lost = firsts.setdefault(place, (group, queue))
                    firsts[place] = (group, queue)
                    if lost != (group, queue):
                        self.cluster.offsets.pop(lost, None)

    def pause(self, pause_ms: int) -> None:
        self.cluster.clock_ms += pause_ms
        self.meanwhile()

    def now_ms(self) -> int:
        return self.cluster.clock_ms

    def close(self) -> None:
        self.is_closed = True

    def codes(self) -> list[int]:
        return [request.code for _, request in self.asked]
