"""A model of Jafka: a broker with the partitions of a topic, and one that has none of them.

Offsets are byte positions. A log is a row of segments, and a fetch never reaches beyond one of
them. Brokers answer as upstream's ``Log.java`` does, with its mistake about times.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator, Sequence
from itertools import takewhile
from typing import ClassVar

from rangeland.dialects.jafka.messages import EARLIEST_TIME, LATEST_TIME
from tests.jafka_entries import entry, packed, plain
from tests.simulation.clusters import SimulatedCluster, frames_in
from tests.simulation.logs import Entry, Log
from tests.simulation.world import EPOCH_MS

OWNER = 1
NONE, OUT_OF_RANGE, WRONG_PARTITION = 0, 1, 3
FETCH, MULTI_FETCH, OFFSETS = 1, 2, 4
ENTRIES = 3
"""In a segment, roughly."""


class ByteLog(Log):
    """``spans``: where the longest entry that ever began at an offset ended. ``made_ms``: when each
    segment was begun.

    Nothing is written to a log that has lost its end: ranges that were planned before would end
    inside new entries, which no policy but ``hold`` passes."""

    segment_bytes: ClassVar[int] = 90
    """After the entry that exceeds this, another segment begins."""

    def __init__(self, *arguments: object, **more: object) -> None:
        super().__init__(*arguments, **more)  # type: ignore[arg-type]
        self.segments = [0]
        self.spans: dict[int, int] = {}
        self.made_ms: dict[int, int] = {}

    def append(self, count: int, now_ms: int, codec: str = "none") -> None:
        """A packed set is one entry."""
        if self.end < self.highest:
            return
        if codec == "none":
            for _ in range(count):
                value = self._value(self.end)
                self.keep([value], entry(value), now_ms)
        else:
            values = [self._value(self.end) for _ in range(count)]
            self.keep(values, packed(plain(values)), now_ms)

    def append_transaction(self, count: int, now_ms: int, *, abort: bool) -> None:
        self.append(count, now_ms)

    def keep(self, values: Sequence[bytes], data: bytes, now_ms: int) -> None:
        base, until = self.end, self.end + len(data)
        self.spans[base] = max(until, self.spans.get(base, 0))
        records = tuple((base, value) for value in values)
        self.made_ms.setdefault(base, now_ms)
        self._store(Entry(base, until, data, self.epoch, now_ms, records))
        if self.end - self.segments[-1] > self.segment_bytes:
            self.segments.append(self.end)
            self.made_ms[self.end] = now_ms

    def expire(self, count: int) -> None:
        """Whole segments go."""
        kept = self.segments[min(count // ENTRIES, len(self.segments) - 1) :]
        super().expire(sum(one.base < kept[0] for one in self.entries))
        self.start, self.segments = kept[0], kept

    def truncate(self, count: int) -> None:
        super().truncate(count)
        self.segments = [one for one in self.segments if one <= self.end]

    def piece(self, offset: int, most: int) -> bytes:
        """Up to the end of its segment."""
        first = max(one for one in self.segments if one <= offset)
        until = min((one for one in self.segments if one > offset), default=self.end)
        data = b"".join(one.data for one in self.entries if first <= one.base < until)
        return data[offset - first :][:most]

    def listed(self, time_ms: int, most: int, now_ms: int) -> list[int]:
        """Upstream's ``getOffsetsBefore``, which passes over what it has found for a time."""
        ends = [*self.segments[1:], self.end]
        times = [
            max((e.time_ms for e in self.entries if a <= e.base < b), default=self.made_ms[a])
            for a, b in zip(self.segments, ends, strict=True)
        ]
        known = list(zip(self.segments, times, strict=True))
        if self.end > self.segments[-1]:
            known.append((self.end, now_ms))
        known.reverse()
        if time_ms == EARLIEST_TIME:
            known = known[-1:]
        elif time_ms != LATEST_TIME:
            after = list(takewhile(lambda one: EPOCH_MS + one[1] > time_ms, known))
            known = known[len(after) + 1 :]
        return [offset for offset, _ in known][:most]


class JafkaCluster(SimulatedCluster):
    """Server 1 has everything; server 2 was never written to."""

    dialect = "jafka"
    servers = "1:b1:9092, 2:b2:9092"
    log_type = ByteLog
    refuses = frozenset(
        {"compact", "lose", "slow", "recreate", "damage", "mend"}
        | {"overwrite", "restore", "delete", "lose-file", "optimize"}
    )
    commands = frozenset({"run", "backfill", "plan", "apply", "verify"})
    offsets_are_bytes = True

    def elect(self, log: Log, rng: random.Random, *, clean: bool = True) -> None:
        """The broker is started again."""
        self.down[OWNER] = self.world.now_ms + rng.choice((500, 5_000, 60_000))

    # --- responses ----------------------------------------------------------------------

    def answers(self, node: int, data: bytes) -> list[bytes]:
        """Nothing for a question that it does not understand: it closes the connection."""
        return [frame for each in frames_in(data) for frame in self._answer(node, each)]

    def _answer(self, node: int, data: bytes) -> Iterator[bytes]:
        (key,) = struct.unpack_from(">h", data, 4)
        if key == FETCH:
            code, found = self._fetched(node, *_fetch_in(data, 6)[0])
            yield _framed(code, found)
        elif key == MULTI_FETCH:
            yield _framed(NONE, self._multi(node, data))
        elif key == OFFSETS:
            topic, number, at = _place_in(data, 6)
            time_ms, most = struct.unpack_from(">qi", data, at)
            if number >= self._partitions(topic):
                return
            log = self._log(node, topic, number)
            listed = log.listed(time_ms, most, self.world.now_ms) if log else []
            yield _framed(NONE, struct.pack(f">i{len(listed)}q", len(listed), *listed))

    def _multi(self, node: int, data: bytes) -> bytes:
        (count,) = struct.unpack_from(">h", data, 6)
        at, parts = 8, []
        for _ in range(count):
            asked, at = _fetch_in(data, at)
            code, found = self._fetched(node, *asked)
            parts.append(struct.pack(">ih", 2 + len(found), code) + found)
        return b"".join(parts)

    def _partitions(self, topic: str) -> int:
        """As configured, for a topic that was never written to."""
        return len(self.topics[topic].logs) if topic in self.topics else 1

    def _log(self, node: int, topic: str, number: int) -> ByteLog | None:
        """With the first log of a topic the broker makes those of all partitions."""
        if node != OWNER or topic not in self.topics or number >= self._partitions(topic):
            return None
        logs = [log for log in self.topics[topic].logs if isinstance(log, ByteLog)]
        made_ms = [log.made_ms[0] for log in logs if log.made_ms]
        if not made_ms:
            return None
        logs[number].made_ms.setdefault(0, min(made_ms))
        return logs[number]

    def _fetched(self, node: int, topic: str, number: int, at: int, most: int) -> tuple[int, bytes]:
        """A topic that was never written to reads like one that is idle."""
        if number >= self._partitions(topic):
            return WRONG_PARTITION, b""
        log = self._log(node, topic, number)
        if log is None:
            return NONE, b""
        if not log.start <= at <= log.end:
            return OUT_OF_RANGE, b""
        return NONE, log.piece(at, most)


def _place_in(data: bytes, at: int) -> tuple[str, int, int]:
    (size,) = struct.unpack_from(">h", data, at)
    topic = data[at + 2 : at + 2 + size].decode()
    (number,) = struct.unpack_from(">i", data, at + 2 + size)
    return topic, number, at + 6 + size


def _fetch_in(data: bytes, at: int) -> tuple[tuple[str, int, int, int], int]:
    topic, number, at = _place_in(data, at)
    offset, most = struct.unpack_from(">qi", data, at)
    return (topic, number, offset, most), at + 12


def _framed(code: int, body: bytes) -> bytes:
    return struct.pack(">ih", 2 + len(body), code) + body
