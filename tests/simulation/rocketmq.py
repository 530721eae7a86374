"""A model of RocketMQ: two name servers, and a broker that has a master and a slave.

Server 1 is the master, 2 the slave, 3 and 4 are the name servers. Responses have the codes and
remarks of a real broker (``PullMessageProcessor`` and ``DefaultMessageStore`` upstream).
"""

from __future__ import annotations

import json
import random
import struct
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from rangeland.dialects.rocketmq import messages as m
from rangeland.dialects.rocketmq.frames import RESPONSE, Frame, read_frame, write_frame
from tests.rocketmq_messages import PACKED, ZLIB, properties_of, stored
from tests.simulation.clusters import SimulatedCluster, frames_in
from tests.simulation.logs import Entry, Log, Topic
from tests.simulation.world import EPOCH_MS

BROKER = "ra"
MASTER, SLAVE = 1, 2
NAME_SERVERS = (3, 4)
PORTS = {MASTER: 10911, SLAVE: 10911, 3: 9876, 4: 9876}
EXAMINED = 4
"""How many times the messages of a response are examined by a pull with tags."""
SUCCESS, BUSY, UNSUPPORTED, NO_TOPIC, INVALID = 0, 2, 3, 17, 29
NOT_FOUND, RETRY, MOVED = 19, 20, 21
CODES = {
    "FOUND": SUCCESS,
    "OFFSET_OVERFLOW_ONE": NOT_FOUND,
    "OFFSET_OVERFLOW_BADLY": MOVED,
    "OFFSET_TOO_SMALL": MOVED,
    "MESSAGE_WAS_REMOVING": RETRY,
    "NO_MATCHED_MESSAGE": RETRY,
}


class Queue(Log):
    """Each message is an entry. Those with the tag b have no row."""

    known: tuple[int, int] | None = None
    """Where the master says that it begins, and until when, after messages were deleted."""

    def because(self, offsets: Iterable[int], reason: str) -> None:
        """Where only some tags are wanted, what is compacted counts as filtered."""
        found = list(offsets)
        super().because(found, reason)
        if reason == "compacted":
            super().because(found, "filtered")

    def append(self, count: int, now_ms: int, codec: str = "none") -> None:
        for _ in range(count):
            self._append_message("a", now_ms, is_packed=codec != "none")

    def append_transaction(self, count: int, now_ms: int, *, abort: bool) -> None:
        """Messages that the job may not want."""
        for _ in range(count):
            self._append_message("b" if abort else "a", now_ms, is_packed=False)

    def _append_message(self, tag: str, now_ms: int, *, is_packed: bool) -> None:
        offset = self.end
        value = self._value(offset)
        at = EPOCH_MS + now_ms
        data = stored(
            zlib.compress(value) if is_packed else value,
            offset,
            properties_of(("TAGS", tag), ("KEYS", "k")),
            flags=PACKED | ZLIB << 8 if is_packed else 0,
            topic=self.topic.encode(),
            born_ms=at,
            stored_ms=at,
        )
        if tag == "b":
            self.because([offset], "filtered")
            self.hidden.add(value)
        self.keep(data, now_ms, (value,) if tag == "a" else ())

    def keep(self, data: bytes, now_ms: int, shown: tuple[bytes, ...]) -> None:
        """A stored message, and its value if it has a row."""
        records = tuple((self.end, value) for value in shown)
        is_other = not shown
        entry = Entry(
            self.end, self.end + 1, data, self.epoch, now_ms, records, -1, False, is_other
        )
        self._store(entry)

    def begins_at(self, now_ms: int) -> int:
        if self.known is not None and now_ms < self.known[1]:
            return min(self.known[0], self.start)
        return self.start


class _Found(NamedTuple):
    status: str
    next_offset: int
    body: bytes = b""


@dataclass(frozen=True)
class _Response:
    code: int
    remark: str = ""
    fields: Mapping[str, object] | None = None
    body: bytes = b""


class RocketmqCluster(SimulatedCluster):
    """``per_response``: messages in one response to a pull."""

    dialect = "rocketmq"
    servers = "b3:9876, b4:9876"
    log_type = Queue
    refuses = frozenset(
        {"lose", "recreate", "damage", "mend"}
        | {"overwrite", "restore", "delete", "lose-file", "optimize"}
    )
    commands = frozenset({"run", "backfill", "plan", "apply", "verify"})

    # --- what happens to it -------------------------------------------------------------

    def elect(self, log: Log, rng: random.Random, *, clean: bool = True) -> None:
        """The master is down for a while. Its slave may lack the last messages, and a name server
        may not know it yet."""
        now = self.world.now_ms
        self.down[MASTER] = now + rng.choice((500, 5_000, 60_000))
        if clean and log.entries and rng.random() < 0.5:
            log.lags = (
                max(rng.choice(log.entries).base, log.start),
                now + rng.choice((500, 5_000)),
            )
        if rng.random() < 0.5:
            self.stale[rng.choice(NAME_SERVERS)] = (now + rng.choice((100, 1_000, 8_000)), {})

    def expire(self, log: Log, rng: random.Random) -> None:
        """The master may take a few seconds to know that its queue begins later. What compaction
        keeps does not expire."""
        if self.topics[log.topic].compacts:
            return
        before = log.start
        super().expire(log, rng)
        if isinstance(log, Queue) and rng.random() < 0.5:
            log.known = (before, self.world.now_ms + rng.choice((500, 5_000)))

    # --- responses ----------------------------------------------------------------------

    def answers(self, node: int, data: bytes) -> list[bytes]:
        found = [self._answer(node, frame) for frame in frames_in(data)]
        random.Random(self.world.steps).shuffle(found)  # responses may overtake each other
        return found

    def _answer(self, node: int, data: bytes) -> bytes:
        asked = read_frame(memoryview(data)[4:])
        kinds = _AT_NAME_SERVERS if node in NAME_SERVERS else _AT_BROKERS
        response = kinds.get(asked.code, _unsupported)(self, node, asked.fields)
        fields = {name: str(value) for name, value in (response.fields or {}).items()}
        if self.world.seed % 2:
            made = Frame(
                response.code, asked.opaque, RESPONSE, response.remark, fields, response.body
            )
            whole = b"".join(map(bytes, write_frame(made)))
        else:
            whole = _with_json_header(response, asked.opaque, fields)
        return struct.pack(">i", len(whole)) + whole

    # --- name servers ---------------------------------------------------------------------

    def _addresses(self, node: int) -> dict[str, str]:
        """The servers of the broker that a name server knows, by number."""
        is_stale = self.stale.get(node, (0, {}))[0] > self.world.now_ms
        known = [each for each in (MASTER, SLAVE) if is_stale or not self.is_down(each)]
        return {str(each - 1): f"b{each}:{PORTS[each]}" for each in known}

    def on_route(self, node: int, fields: Mapping[str, str]) -> _Response:
        topic, addresses = self.topics.get(fields["topic"]), self._addresses(node)
        if topic is None or not addresses:
            return _Response(
                NO_TOPIC, f"No topic route info in name server for the topic: {fields}"
            )
        queue = {"brokerName": BROKER, "readQueueNums": len(topic.logs), "perm": 6}
        broker = {"cluster": "simulated", "brokerName": BROKER, "brokerAddrs": addresses}
        return _Response(SUCCESS, body=_json({"queueDatas": [queue], "brokerDatas": [broker]}))

    def on_brokers(self, node: int, fields: Mapping[str, str]) -> _Response:
        addresses = self._addresses(node)
        known = {BROKER: {"brokerName": BROKER, "brokerAddrs": addresses}} if addresses else {}
        return _Response(SUCCESS, body=_json({"brokerAddrTable": known}))

    def on_topics(self, node: int, fields: Mapping[str, str]) -> _Response:
        names = list(self.topics) if self._addresses(node) else []
        return _Response(SUCCESS, body=_json({"topicList": names}))

    # --- brokers --------------------------------------------------------------------------

    def _queue(self, fields: Mapping[str, str]) -> Queue | None:
        topic: Topic | None = self.topics.get(fields["topic"])
        number = int(fields["queueId"])
        found = topic.logs[number] if topic and number < len(topic.logs) else None
        return found if isinstance(found, Queue) else None

    def _ends_at(self, node: int, queue: Queue) -> int:
        """Only the slave lags."""
        return queue.high_watermark(self.world.now_ms) if node == SLAVE else queue.end

    def on_max_offset(self, node: int, fields: Mapping[str, str]) -> _Response:
        queue = self._queue(fields)
        return _offset(0 if queue is None else self._ends_at(node, queue))

    def on_min_offset(self, node: int, fields: Mapping[str, str]) -> _Response:
        """Of a compacted topic, where the log of all topics begins."""
        queue = self._queue(fields)
        if queue is None:
            return _offset(0)
        if self.topics[queue.topic].compacts and self.world.seed % 2:
            return _offset(queue.end // 2)
        return _offset(queue.begins_at(self.world.now_ms))

    def on_search(self, node: int, fields: Mapping[str, str]) -> _Response:
        queue, time_ms = self._queue(fields), int(fields["timestamp"])
        if queue is None:
            return _offset(0)
        if self.world.seed % 3 == 2:
            return _offset(_closest(queue, time_ms))
        found = [e.base for e in queue.entries if EPOCH_MS + e.time_ms >= time_ms]
        return _offset(found[0] if found else self._ends_at(node, queue))

    def on_config(self, node: int, fields: Mapping[str, str]) -> _Response:
        topic = self.topics.get(fields["topic"])
        if topic is None:
            return _Response(NO_TOPIC, "No topic in this broker.")
        attributes = {"cleanup.policy": "COMPACTION"} if topic.compacts else {}
        return _Response(SUCCESS, body=_json({"topicName": topic.name, "attributes": attributes}))

    def on_pull(self, node: int, fields: Mapping[str, str]) -> _Response:
        if fields["topic"] not in self.topics:
            return _Response(NO_TOPIC, f"topic[{fields['topic']}] not exist, apply first please!")
        queue = self._queue(fields)
        if queue is None:
            return _Response(INVALID, "queueId[] is illegal")
        now = self.world.now_ms
        if queue.is_slow_until_ms > now:
            return _Response(
                BUSY, "[TIMEOUT_CLEAN_QUEUE]broker busy, start flow control for a while"
            )
        begin, end, at = (
            queue.begins_at(now),
            self._ends_at(node, queue),
            int(fields["queueOffset"]),
        )
        found = self._found(queue, begin, end, at, fields)
        next_offset = at if node == SLAVE and CODES[found.status] == MOVED else found.next_offset
        said = {
            "nextBeginOffset": next_offset,
            "minOffset": begin,
            "maxOffset": end,
            "suggestWhichBrokerId": 0,
        }
        return _Response(CODES[found.status], found.status, said, found.body)

    def _found(
        self, queue: Queue, begin: int, end: int, at: int, fields: Mapping[str, str]
    ) -> _Found:
        if end == 0:
            return _Found("OFFSET_OVERFLOW_ONE" if at == 0 else "OFFSET_OVERFLOW_BADLY", 0)
        if at < begin:
            return _Found("OFFSET_TOO_SMALL", begin)
        if at == end:
            return _Found("OFFSET_OVERFLOW_ONE", at)
        if at > end:
            return _Found("OFFSET_OVERFLOW_BADLY", end)
        there = [e for e in queue.entries if at <= e.base < end]
        if not there:
            return _Found("MESSAGE_WAS_REMOVING", end)
        return self._matching(there, min(int(fields["maxMsgNums"]), self.per_response, 32), fields)

    def _matching(self, there: Sequence[Entry], wanted: int, fields: Mapping[str, str]) -> _Found:
        by_tags = fields["subscription"] != "*"
        taken: list[bytes] = []
        until = there[0].base
        for entry in there[: EXAMINED * wanted if by_tags else wanted]:
            until = entry.until
            if not by_tags or not entry.is_aborted:
                taken.append(entry.data)
            if len(taken) == wanted:
                break
        return _Found("FOUND" if taken else "NO_MATCHED_MESSAGE", until, b"".join(taken))


def _closest(queue: Queue, time_ms: int) -> int:
    """What brokers before 5.1.1 take for the first message at or after a time."""
    entries = reversed(queue.entries)
    closest = min(entries, key=lambda e: abs(EPOCH_MS + e.time_ms - time_ms), default=None)
    return 0 if closest is None else closest.base


def _offset(offset: int) -> _Response:
    return _Response(SUCCESS, fields={"offset": offset})


def _unsupported(cluster: RocketmqCluster, node: int, fields: Mapping[str, str]) -> _Response:
    return _Response(UNSUPPORTED, " request type not supported")


def _json(value: object) -> bytes:
    """As older servers write it: the numbers of brokers are not quoted."""
    text = json.dumps(value, separators=(",", ":"))
    return text.replace('"0":', "0:").replace('"1":', "1:").encode()


def _with_json_header(response: _Response, opaque: int, fields: Mapping[str, str]) -> bytes:
    header: dict[str, object] = {"code": response.code, "flag": RESPONSE, "language": "JAVA"}
    header |= {"opaque": opaque, "serializeTypeCurrentRPC": "JSON", "version": 477}
    header |= {"extFields": dict(fields)} if fields else {}
    header |= {"remark": response.remark} if response.remark else {}
    text = json.dumps(header, separators=(",", ":")).encode()
    return struct.pack(">I", len(text)) + text + response.body


_Handler = Callable[[RocketmqCluster, int, Mapping[str, str]], _Response]
_AT_NAME_SERVERS: dict[int, _Handler] = {
    m.ROUTE: RocketmqCluster.on_route,
    m.ALL_BROKERS: RocketmqCluster.on_brokers,
    m.ALL_TOPICS: RocketmqCluster.on_topics,
}
_AT_BROKERS: dict[int, _Handler] = {
    m.PULL: RocketmqCluster.on_pull,
    m.MAX_OFFSET: RocketmqCluster.on_max_offset,
    m.MIN_OFFSET: RocketmqCluster.on_min_offset,
    m.SEARCH_OFFSET: RocketmqCluster.on_search,
    m.TOPIC_CONFIG: RocketmqCluster.on_config,
}
