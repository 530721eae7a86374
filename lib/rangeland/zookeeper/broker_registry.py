"""The brokers and partitions that are registered in ZooKeeper, by Jafka or by Kafka.

Jafka: ``/brokers/ids/<id>`` contains ``creator:host:port:autocreate``, with ``#`` for ``:`` in the
first two; ``/brokers/topics/<topic>/<id>`` contains the number of that broker's partitions. Kafka:
both contain JSON, and a topic's partitions belong to the cluster. Each node shows which of the two
wrote it. Brokers' nodes are ephemeral, so a stopped broker is not registered, and in Jafka neither
are its partitions.

One function reads nodes; pure functions parse their contents.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from typing import NoReturn
from urllib.parse import urlsplit

from rangeland.errors import JobFileError, RemoteProtocolError
from rangeland.model import Address, Partition
from rangeland.untrusted import MAX_PORT, JsonFields, Unreadable, decimal, whole
from rangeland.wording import count_noun
from rangeland.zookeeper.znodes import Znode
from rangeland.zookeeper.zookeeper_access import ZooKeeperAccess
from rangeland.zookeeper.zookeeper_client import ZooKeeper, connect

IDS = "/brokers/ids"
TOPICS = "/brokers/topics"
CONFIGS = "/config/topics"
MAX_PARTITIONS = 65_536
"""The most partitions that a topic may have on all Jafka brokers together. A larger number is
refused."""
ALL_BROKERS = ""
"""Stands for the broker's name if partitions are not numbered per broker."""


@dataclass(frozen=True, slots=True)
class BrokerRegistry:
    """The brokers and topics that are registered now; there may be none. ``topics`` maps a topic to
    its number of partitions by broker, or by `ALL_BROKERS` if they belong to the cluster.
    ``source`` is the name of the ZooKeeper in messages."""

    brokers: dict[str, Address] = field(default_factory=dict)
    topics: dict[str, dict[str, int]] = field(default_factory=dict)
    source: str = ""

    def partitions(self, topic: str) -> tuple[Partition, ...]:
        """The partitions of a topic, sorted; none if it is unknown."""
        counts = self.topics.get(topic, {})
        return tuple(sorted(Partition(topic, n, b) for b, c in counts.items() for n in range(c)))

    @property
    def absent(self) -> frozenset[str]:
        """Brokers that have partitions but are not registered themselves: they have just stopped or
        are just starting."""
        with_partitions = {broker for counts in self.topics.values() for broker in counts}
        return frozenset(with_partitions - self.brokers.keys() - {ALL_BROKERS})

    def __str__(self) -> str:
        """The registry in words, for messages."""
        brokers = ", ".join(f"{name} at {at}" for name, at in sorted(self.brokers.items()))
        absent = ", ".join(sorted(self.absent))
        orphans = f"; partitions of {absent} without the broker" if absent else ""
        topics = count_noun(len(self.topics), "topic")
        return f"{self.source} has brokers {brokers or 'none'}, {topics}{orphans}"


def read_registry(access: ZooKeeperAccess) -> BrokerRegistry:
    """Reads the registry of brokers. Raises Unreachable; JobFileError for an invalid connect
    string, or if no broker has ever registered; RemoteProtocolError for a node that is neither
    Jafka's nor Kafka's."""
    with closing(connect(access)) as client:
        return registry_seen_by(client)


def read_cleanup_policies(access: ZooKeeperAccess, topics: Sequence[str]) -> dict[str, str]:
    """The ``cleanup.policy`` of those Kafka topics that override the brokers' default; the default
    itself is not in ZooKeeper. Raises Unreachable."""
    with closing(connect(access)) as client:
        nodes = client.read_all(f"{CONFIGS}/{topic}" for topic in topics)
    by_topic = {t: nodes[f"{CONFIGS}/{t}"] for t in topics}
    policies = {t: parse_cleanup_policy(t, node.content) for t, node in by_topic.items() if node}
    return {topic: policy for topic, policy in policies.items() if policy}


def registry_seen_by(client: ZooKeeper) -> BrokerRegistry:
    listed = client.children_of((IDS, TOPICS))
    ids, topics = listed[IDS], listed[TOPICS]
    if ids is None:
        raise _no_registry_error(client)
    nodes = client.read_all(f"{IDS}/{name}" for name in ids)
    brokers = {name: nodes[f"{IDS}/{name}"] for name in ids}
    return BrokerRegistry(
        # A broker may have stopped between the two reads.
        {name: parse_broker(name, node.content) for name, node in brokers.items() if node},
        _read_topics(client, topics or []),
        str(client),
    )


def _read_topics(client: ZooKeeper, topics: Sequence[str]) -> dict[str, dict[str, int]]:
    paths = {topic: f"{TOPICS}/{topic}" for topic in topics}
    contents = client.read_all(paths.values())
    empty = [t for t in topics if (node := contents[paths[t]]) is None or not node.content]
    children = client.children_of(paths[t] for t in empty)
    brokers = {t: children[paths[t]] or [] for t in empty}
    nodes = client.read_all(f"{paths[t]}/{broker}" for t in empty for broker in brokers[t])
    counts: dict[str, dict[str, int]] = {}
    for topic, path in paths.items():
        if topic in brokers:
            counts[topic] = _counts(topic, {b: nodes[f"{path}/{b}"] for b in brokers[topic]})
        elif (node := contents[path]) is not None:
            counts[topic] = {ALL_BROKERS: parse_kafka_topic(topic, node.content)}
    # A topic whose brokers have all stopped keeps its node, but has no partitions.
    return {topic: by_broker for topic, by_broker in counts.items() if by_broker}


def _counts(topic: str, nodes: Mapping[str, Znode | None]) -> dict[str, int]:
    counts = {b: parse_partition_count(topic, b, n.content) for b, n in nodes.items() if n}
    if (total := sum(counts.values())) > MAX_PARTITIONS:
        at_most = f"{MAX_PARTITIONS} at most"
        _reject(f"{TOPICS}/{topic}", f"{total} partitions on {len(counts)} brokers", at_most)
    return counts


# --- contents of nodes ------------------------------------------------------------------


def parse_broker(name: str, content: bytes) -> Address:
    """The address in a broker's node, Jafka's or Kafka's. Raises RemoteProtocolError."""
    path = f"{IDS}/{name}"
    text = _text(path, content)
    return _kafka_broker(path, text) if text.startswith("{") else _jafka_broker(path, text)


def parse_partition_count(topic: str, broker: str, content: bytes) -> int:
    """The number of a topic's partitions on a Jafka broker. Raises RemoteProtocolError."""
    path = f"{TOPICS}/{topic}/{broker}"
    text = _text(path, content)
    with _expecting(f"a number of partitions, {MAX_PARTITIONS} at most", path, text):
        return decimal(text, "its text", 0, MAX_PARTITIONS)


def parse_kafka_topic(topic: str, content: bytes) -> int:
    """The number of partitions of a Kafka topic. Raises RemoteProtocolError."""
    path = f"{TOPICS}/{topic}"
    text = _text(path, content)
    with _expecting("a map of partitions", path, text):
        partitions = _json(path, text).fields("partitions")
    if set(partitions) != {str(n) for n in range(len(partitions))}:
        _reject(path, text, "partitions numbered from 0")
    return len(partitions)


def parse_cleanup_policy(topic: str, content: bytes) -> str:
    """The cleanup policy in a Kafka topic's configuration; empty if it does not override the
    default. Raises RemoteProtocolError."""
    path = f"{CONFIGS}/{topic}"
    text = _text(path, content)
    with _expecting("a topic's configuration", path, text):
        policy = _json(path, text).fields("config").text("cleanup.policy", "")
    return policy.replace(" ", "")


def _jafka_broker(path: str, text: str) -> Address:
    parts = [part.replace("#", ":") for part in text.split(":")]
    # The last part, which says whether topics are created automatically, is missing from the nodes
    # of old brokers.
    expected = "creator:host:port:autocreate"
    if len(parts) not in (3, 4):
        _reject(path, text, expected)
    host = parts[1].removeprefix("[").removesuffix("]")
    with _expecting(expected, path, text):
        return _address(host, decimal(parts[2], "the port", 1, MAX_PORT))


def _kafka_broker(path: str, text: str) -> Address:
    fields = _json(path, text)
    with _expecting("a host and a port", path, text):
        host, port = fields.text("host", ""), fields.number("port", -1, MAX_PORT, default=-1)
        endpoints = fields.values("endpoints", ())
        if (not host or port == -1) and endpoints:
            # Only the plain listener has fields of its own.
            host, port = _endpoint(endpoints[0])
        return _address(host, whole(port, "the port", 1, MAX_PORT))


def _endpoint(text: object) -> tuple[str, int]:
    """The address in ``SSL://host:port``."""
    try:
        first = urlsplit(str(text))
        return first.hostname or "", first.port or 0
    except ValueError as error:
        raise Unreadable(str(error)) from None


def _address(host: str, port: int) -> Address:
    if not host:
        raise Unreadable("the host is missing")
    return Address(host, port)


def _json(path: str, text: str) -> JsonFields:
    with _expecting("a JSON object", path, text):
        return JsonFields.parse(text)


def _text(path: str, content: bytes) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError:
        _reject(path, content.hex(), "text")


@contextmanager
def _expecting(expected: str, path: str, text: str) -> Iterator[None]:
    """Raises RemoteProtocolError if the text does not contain what is read from it."""
    try:
        yield
    except Unreadable:
        _reject(path, text, expected)


def _reject(path: str, text: str, expected: str) -> NoReturn:
    shown = text if len(text) <= 200 else text[:200] + "..."
    raise RemoteProtocolError(
        f"the node {path} in ZooKeeper cannot be read",
        why=f"it holds {shown!r}, not {expected}",
        do="check whether brokers of another kind are registered there; remove the node if "
        "nobody owns it",
        path=path,
        content=shown,
    )


def _no_registry_error(client: ZooKeeper) -> JobFileError:
    """The error if no broker has ever registered. It lists the nodes that do exist, because a
    missing chroot is the usual cause."""
    root = [name for name in client.children("/") or [] if name != "zookeeper"]
    registries = client.children_of(f"/{name}{IDS}" for name in root)
    likely = [path.removesuffix(IDS) for path, ids in registries.items() if ids is not None]
    if likely:
        hint = f"{client.ensemble}{likely[0]} has brokers"
        do = f"write source.zookeeper: {client.ensemble}{likely[0]}"
    else:
        hint = f"there are: {', '.join(root)}" if root else "it is empty"
        do = "correct source.zookeeper, or start the brokers"
    return JobFileError(
        f"no broker has ever registered in {client}",
        why=f"it has no {IDS}; {hint}",
        do=do,
        zookeeper=str(client.ensemble),
    )
