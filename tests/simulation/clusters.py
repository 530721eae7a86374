"""What the models of all dialects' clusters share: topics, brokers that are down, and streams."""

from __future__ import annotations

import random
from collections import deque
from typing import ClassVar

from rangeland.cluster_settings import ClusterSettings
from rangeland.connection.failures import ConnectionClosed, ConnectionLost, ResponseTimedOut
from rangeland.model import Address
from tests.simulation.logs import Log, Topic, Truth
from tests.simulation.world import World

BROKERS = 3


class SimulatedCluster:
    """Servers 1 to 3 and more, and what they serve. ``per_response``: entries in one response of a
    fetch."""

    dialect: ClassVar[str]
    servers: ClassVar[str]
    """As in a job file."""
    log_type: ClassVar[type[Log]] = Log
    refuses: ClassVar[frozenset[str]] = frozenset()
    """Changes that cannot happen to it, or that nothing could show."""
    commands: ClassVar[frozenset[str] | None] = None
    """What a driver may carry out; None: all."""
    offsets_are_bytes = False
    has_topic_ids = False
    has_epochs = False
    """Whether its responses say which leader's records they are."""
    forgets_producers: bool = False
    """Whether a producer is unknown once all of its records are deleted."""
    has_segments = False
    """Whether segments begin after so many entries."""
    cleans_records = False
    """Whether compaction may take some records of an entry and leave others."""
    shows_rewriting = False
    """Whether a log that was truncated and has grown again can be told from an intact one."""

    def __init__(self, world: World, *, per_response: int) -> None:
        self.world = world
        self.per_response = per_response
        self.truth = Truth()
        self.topics: dict[str, Topic] = {}
        self.down: dict[int, int] = {}
        """Until when a server is down."""
        self.stale: dict[int, tuple[int, dict[tuple[str, int], tuple[int, int]]]] = {}
        """Servers that still report earlier leaders, and until when."""
        self.incarnations = 0
        self.per_segment = 0
        """Entries in a segment of a log; 0: all of them."""
        self.shows_aborted = False
        """Whether the job takes records whatever became of their transactions."""

    # --- what happens to it -------------------------------------------------------------

    def create(self, name: str, partitions: int, *, compacts: bool) -> Topic:
        self.incarnations += 1
        topic = Topic(name, str(self.world.new_id()), self.incarnations, [], compacts)
        self.topics[name] = topic
        self.grow(name, partitions)
        return topic

    def grow(self, name: str, partitions: int) -> None:
        """The topic has so many partitions now."""
        topic = self.topics[name]
        for number in range(len(topic.logs), partitions):
            leader = 1 + (number % BROKERS)
            log = self.log_type(name, number, topic.incarnation, leader=leader)
            log.shows_aborted, log.per_segment = self.shows_aborted, self.per_segment
            topic.logs.append(log)
        self.truth.add(topic)

    def recreate(self, name: str) -> Topic:
        old = self.topics[name]
        for log in old.logs:
            log.delete()
        return self.create(name, len(old.logs), compacts=old.compacts)

    def elect(self, log: Log, rng: random.Random, *, clean: bool = True) -> None:
        """Another server leads the log."""

    def lag(self, log: Log, rng: random.Random) -> None:
        """The high watermark of another leader lags for long."""

    def expire(self, log: Log, rng: random.Random) -> None:
        """Retention removes the first entries."""
        log.expire(rng.randint(1, len(log.entries)))

    def is_down(self, node: int) -> bool:
        return self.down.get(node, 0) > self.world.now_ms

    # --- responses ----------------------------------------------------------------------

    def answers(self, node: int, data: bytes) -> list[bytes]:
        """The frames that one server answers to the frames of ``data``."""
        raise NotImplementedError


def frames_in(data: bytes) -> list[bytes]:
    """Each with its length before it."""
    found, at = [], 0
    while at < len(data):
        end = at + 4 + int.from_bytes(data[at : at + 4], "big")
        found.append(data[at:end])
        at = end
    return found


class SimulatedStream:
    """In place of a socket: frames go to a server of the cluster, and its responses come back. The
    number of a server is in its host's name."""

    def __init__(
        self, cluster: SimulatedCluster, address: Address, settings: ClusterSettings
    ) -> None:
        self._cluster = cluster
        self._world = cluster.world
        self._address = address
        self._node = int(address.host[1:])
        self._responses: deque[bytes] = deque()
        self._is_open = True
        found = self._world.point("net.connect")
        if found == "refused" or cluster.is_down(self._node):
            raise ConnectionLost(f"could not connect to {address}", why="refused")

    def start_tls(self) -> None: ...

    def take_large_frames(self) -> None: ...

    def close(self) -> None:
        self._is_open = False

    def send(self, data: bytes) -> None:
        found = self._world.point("net.send")
        if found == "refused" or self._cluster.is_down(self._node) or not self._is_open:
            self._is_open = False
            raise ConnectionClosed(f"could not send to {self._address}", why="reset", closed=True)
        self._responses += self._cluster.answers(self._node, data)

    def receive(self, wait_ms: int, deadline: float | None = None) -> memoryview:
        found = self._world.point("net.receive")
        where = f"could not receive from {self._address}"
        if found == "silence":
            self._is_open = False
            self._world.sleep(wait_ms / 1000)
            raise ResponseTimedOut(where, why=f"no complete response in {wait_ms} ms")
        is_gone = self._cluster.is_down(self._node) or not self._is_open
        if found == "refused" or is_gone or not self._responses:
            self._is_open = False
            raise ConnectionClosed(where, why="the broker closed the connection", closed=True)
        return memoryview(self._responses.popleft())[4:]
