"""The same random history on real brokers and on the simulation's model of them.

What is written, deleted and created again happens to both; then the product's own sessions ask
both the same questions, and their responses must be the same: metadata, offsets, offsets for times
that lie between two steps, ends of epochs, and fetches at any offset and of any size, also of
partitions and topics that are not there. A fetch is compared as the meaning of its code, the end
that may be read, the bytes where they can be the same, and the decoded rows and classes. Ids,
addresses and times of records may differ.
"""

from __future__ import annotations

import random
import time
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import pytest

from rangeland.cluster_settings import ClusterSettings
from rangeland.connection import broker_connection
from rangeland.connection.failures import ConnectionClosed
from rangeland.connection.pool import ConnectionPool
from rangeland.connection.socket_stream import Stream
from rangeland.dialects.error_meaning import ErrorMeaning
from rangeland.dialects.fetch_values import (
    FetchedPartition,
    FetchOptions,
    FetchResult,
    PartitionFetch,
)
from rangeland.errors import BadRecord, RangelandError
from rangeland.model import (
    Address,
    AtTime,
    Counts,
    Earliest,
    Isolation,
    Latest,
    Leader,
    Partition,
)
from rangeland.survey.metadata_lookup import ask_metadata
from rangeland.testing.processes import PATIENCE_S
from tests.fetched_records import fetched_at
from tests.simulation.clusters import SimulatedCluster, SimulatedStream
from tests.simulation.logs import Log
from tests.simulation.world import EPOCH_MS, World

PARTITIONS = 2
ANY_BYTES = 1 << 20
SIZES = (ANY_BYTES, ANY_BYTES, ANY_BYTES, 1, 60, 100, 150, 250, 400)
Leaders = Mapping[Partition, Leader]


class WallClock(World):
    """Its clock shows the time of the machine, and moves only with ``tick``."""

    def point(self, tag: str) -> None:
        """No fault strikes."""


def model_world(seed: int) -> World:
    world = WallClock(seed)
    world.now_ms = time.time_ns() // 1_000_000 - EPOCH_MS
    return world


def tick(world: World) -> int:
    """Moves the model's clock to now, later than all that was written before; returns it."""
    before_ms = EPOCH_MS + world.now_ms
    while (now_ms := time.time_ns() // 1_000_000) <= before_ms + 1:
        time.sleep(0.001)
    world.now_ms = now_ms - EPOCH_MS
    return now_ms


@contextmanager
def model_pool(model: SimulatedCluster, settings: ClusterSettings) -> Iterator[ConnectionPool]:
    """Connections of the product that end at the model."""

    def opened(address: Address, known: ClusterSettings) -> Any:
        if known.client_id != settings.client_id:
            return Stream(address, known)
        return SimulatedStream(model, address, known)

    with pytest.MonkeyPatch.context() as patch, ConnectionPool(settings) as pool:
        patch.setattr(broker_connection, "Stream", opened)
        yield pool


@dataclass(frozen=True)
class Asked:
    """``offsets``, ``times_ms`` and ``epochs`` are asked of each partition, and fetches of so many
    ``sizes`` in bytes, one for each offset. ``epoch_off``: requests name an epoch that is so much
    newer than the leader's. ``joint``: so many bytes of all partitions in one request."""

    offsets: Sequence[int]
    sizes: Sequence[int]
    times_ms: Sequence[int]
    epochs: Sequence[int] = ()
    isolation: Isolation = Isolation.READ_COMMITTED
    tags: tuple[str, ...] = ()
    epoch_off: int | None = None
    joint: int = ANY_BYTES


class Side:
    """The product's view of one cluster. ``has_bytes``: what is stored has the same bytes on
    both."""

    def __init__(self, pool: ConnectionPool, *, has_bytes: bool = True) -> None:
        self.pool = pool
        self._dialect = pool.dialect
        self._has_bytes = has_bytes
        self._known: list[dict[Partition, Leader]] = []
        """Leaders by incarnation of the topic, which only those who have ids can tell apart."""
        self.aborted: dict[str, frozenset[tuple[int, int]]] = {}
        """What each fetch said of aborted transactions, by question."""

    def leaders(self, topic: str) -> dict[Partition, Leader]:
        view = ask_metadata(self.pool, [topic], self.pool.settings.seeds)
        return dict(view.topics[topic].leaders)

    def seen(self, topic: str, asked: Asked) -> dict[str, Any]:
        """Every response, by question."""
        self.aborted.clear()
        view = ask_metadata(self.pool, [topic], self.pool.settings.seeds).topics[topic]
        leaders = {p: at for p, at in sorted(view.leaders.items()) if at.address is not None}
        found: dict[str, Any] = {"topic": (view.meaning.name, view.is_unknown, len(leaders))}
        if leaders:
            found["incarnation"] = self._incarnation(leaders)
        for partition, leader in leaders.items():
            found |= self._of_partition(str(partition.number), partition, leader, asked)
        if leaders:
            found |= self._joint(leaders, asked)
        for number, earlier in enumerate(self._known):
            if not leaders or number + 1 < len(self._known):
                found |= self._of_others(f"incarnation {number}", earlier, asked)
        if leaders:
            last, leader = max(leaders.items())
            found |= self._of_others(
                "no partition", {replace(last, number=last.number + 1): leader}, asked
            )
        return found

    def _incarnation(self, leaders: dict[Partition, Leader]) -> int:
        """A number for the topic's id, in the order in which they were seen."""
        ids = [next(iter(known.values())).topic_id for known in self._known]
        topic_id = next(iter(leaders.values())).topic_id
        if topic_id not in ids:
            self._known.append({})
            ids.append(topic_id)
        self._known[ids.index(topic_id)] = leaders
        return ids.index(topic_id)

    def _of_others(self, name: str, leaders: Leaders, asked: Asked) -> dict[str, Any]:
        """What brokers say of partitions that are not there any more, or yet."""
        found: dict[str, Any] = {}
        for partition, leader in leaders.items():
            found |= self._of_partition(
                f"{name}: {partition.number}", partition, leader, replace(asked, epoch_off=None)
            )
        return found

    def _of_partition(
        self, name: str, partition: Partition, leader: Leader, asked: Asked
    ) -> dict[str, Any]:
        found: dict[str, Any] = {f"{name} epoch": leader.epoch}
        if leader.epoch is not None and asked.epoch_off is not None:
            leader = replace(leader, epoch=leader.epoch + asked.epoch_off)
        kinds: Mapping[str, Earliest | Latest | AtTime] = {
            "first": Earliest(),
            "end": Latest(),
            **{f"time {n}": AtTime(at) for n, at in enumerate(asked.times_ms)},
        }
        for kind, when in kinds.items():
            questions = self._dialect.offsets_requests({partition: leader}, when, asked.isolation)
            try:
                responses = self._call(leader, questions)
            except ConnectionClosed:
                found[f"{name} {kind}"] = "closed"
                continue
            for response in self._dialect.read_offsets(responses).values():
                found[f"{name} {kind}"] = (
                    response.meaning.name,
                    response.offset,
                    response.is_exact,
                )
        for epoch in asked.epochs:
            questions = self._dialect.epochs_requests({partition: leader}, {partition: epoch})
            ends = self._dialect.read_epochs(self._call(leader, questions))
            found[f"{name} end of epoch {epoch}"] = ends.get(partition)
        for offset, size in zip(asked.offsets, asked.sizes, strict=True):
            response = self._fetch({partition: leader}, {partition: (offset, size)}, size, asked)
            name_of = f"{name} fetch {size} from {offset}"
            (part,) = response.partitions
            found[name_of] = self._shown(part, offset, asked)
            self.aborted[name_of] = frozenset(part.records.aborted)
        return found

    def _joint(self, leaders: Leaders, asked: Asked) -> dict[str, Any]:
        """One request for all partitions of a broker."""
        found: dict[str, Any] = {}
        wanted = zip(leaders, asked.offsets, asked.sizes, strict=False)
        places = {partition: (offset, size) for partition, offset, size in wanted}
        if len({leader.address for leader in leaders.values()}) > 1:
            return {}
        response = self._fetch(leaders, places, asked.joint, asked)
        for part in response.partitions:
            name = f"{part.partition.number} fetch {asked.joint} for all, {places[part.partition]}"
            found[name] = self._shown(part, places[part.partition][0], asked)
        return found

    def end_of(self, topic: str, number: int) -> int:
        """Where records may be read to, committed or not."""
        found = {p: at for p, at in self.leaders(topic).items() if p.number == number}
        ((partition, leader),) = found.items()
        asked = self._dialect.offsets_requests(found, Latest(), Isolation.READ_UNCOMMITTED)
        return self._dialect.read_offsets(self._call(leader, asked))[partition].offset or 0

    def wait_for(self, topic: str, partitions: int) -> None:
        """Until all of them have leaders that know it: a broker names them a little before."""
        deadline = time.monotonic() + PATIENCE_S
        while self._led(self.leaders(topic)) != partitions:
            assert time.monotonic() < deadline, f"{topic} has no {partitions} partitions"
            time.sleep(0.02)

    def wait_until_gone(self) -> None:
        """Until no broker answers about what was there last: some do for a while."""
        deadline = time.monotonic() + PATIENCE_S
        while self._led(self._known[-1]):
            assert time.monotonic() < deadline, f"{self._known[-1]} are still there"
            time.sleep(0.02)

    def _led(self, leaders: Leaders) -> int:
        """Of how many of these partitions the leaders know the end."""
        meanings = []
        for partition, leader in leaders.items():
            if leader.address is not None:
                one = {partition: leader}
                asked = self._dialect.offsets_requests(one, Latest(), Isolation.READ_UNCOMMITTED)
                response = self._dialect.read_offsets(self._call(leader, asked))[partition]
                meanings.append(response.meaning)
        return meanings.count(ErrorMeaning.OK)

    def stored(self, topic: str, number: int, offset: int) -> bytes:
        """What the log has from this offset on."""
        found = {p: at for p, at in self.leaders(topic).items() if p.number == number}
        places = dict.fromkeys(found, (offset, ANY_BYTES))
        asked = Asked((), (), (), isolation=Isolation.READ_UNCOMMITTED)
        (part,) = self._fetch(found, places, ANY_BYTES, asked).partitions
        return bytes(part.records.data)

    def offsets_in(self, data: bytes, base: int) -> set[int]:
        """Of the records in these entries, whatever became of their transactions."""
        until = self._dialect.scan(fetched_at(data, base)).next_offset
        assert until is not None
        found: set[int] = set()
        for chunk in self._dialect.decode_chunks(fetched_at(data, base), base, until):
            batch = getattr(chunk, "batch", None)
            found.update(() if batch is None else batch.column("offset").to_pylist())
        return found

    def _call(self, leader: Leader, questions: Sequence[Any]) -> list[Any]:
        assert leader.address is not None
        return list(self.pool.call_all(leader.address, questions))

    def _fetch(
        self,
        leaders: Leaders,
        places: Mapping[Partition, tuple[int, int]],
        total: int,
        asked: Asked,
    ) -> FetchResult:
        wanted = [
            PartitionFetch(p, leaders[p].topic_id, leaders[p].epoch, offset, size, None)
            for p, (offset, size) in places.items()
        ]
        options = FetchOptions(asked.isolation, 1, total, tags=asked.tags)
        leader = leaders[next(iter(places))]
        responses = self._call(leader, self._dialect.records_requests(wanted, options))
        return self._dialect.read_records(responses, wanted, asked.isolation)

    def _shown(self, part: FetchedPartition, offset: int, asked: Asked) -> tuple[Any, ...]:
        """The meaning of its code; where records may be read to; how many bytes there are, and
        their checksum; the next offset; what became of those before it; and the rows from the
        offset on."""
        shown: tuple[Any, ...] = (part.meaning.name, part.readable_end)
        if self._has_bytes:
            shown += (len(part.records), zlib.crc32(part.records.data))
        if part.is_empty:
            return shown
        try:
            return *shown, *self._decoded(part, offset)
        except BadRecord:  # where offsets are bytes, any may be inside an entry
            return *shown, "not an entry"

    def _decoded(self, part: FetchedPartition, offset: int) -> tuple[Any, ...]:
        records = replace(part.records, requested_offset=offset)
        until = self._dialect.scan(records).next_offset
        if until is None:
            return ("no whole entry",)
        counts, rows = Counts(), []
        for chunk in self._dialect.decode_chunks(records, offset, until):
            counts = Counts.sum([counts, getattr(chunk, "counts", Counts())])
            batch = getattr(chunk, "batch", None)
            if batch is not None:
                columns = [batch.column(name).to_pylist() for name in ("offset", "value")]
                rows += zip(*columns, strict=True)
        return until, counts, tuple(rows)


class BrokerHistory:
    """One topic in both. Subclasses carry steps out on the real brokers. Whatever is drawn depends
    on the seed and on what was drawn before, so that a history can be repeated."""

    steps: Sequence[str] = ("append",)
    codecs: Sequence[str] = ("none", "none", "gzip")
    has_tags = False

    def __init__(
        self, seed: int, topic: str, model: SimulatedCluster, real: Side, own: Side
    ) -> None:
        self.random = random.Random(seed)
        self.topic = topic
        self.model = model
        self._real, self._own = real, own
        self._times = [tick(model.world)]
        self.said: list[str] = [f"seed {seed}"]

    @property
    def logs(self) -> list[Log]:
        found = self.model.topics.get(self.topic)
        return found.logs if found else []

    def begin(self) -> None:
        self.model.create(self.topic, PARTITIONS, compacts=False)
        self.create(PARTITIONS)
        self.wait_for(PARTITIONS)
        self.compare()

    def play(self, steps: int) -> None:
        """``begin`` was called."""
        for _ in range(steps):
            self.step(self.random.choice(self.steps))

    def step(self, name: str) -> None:
        tick(self.model.world)
        getattr(self, "_" + name)()
        self.compare()

    def end(self) -> None:
        """Leaves nothing open."""

    def create(self, partitions: int) -> None:
        raise NotImplementedError

    def delete(self) -> None:
        raise NotImplementedError

    def grow(self, partitions: int) -> None:
        raise NotImplementedError

    def wait_for(self, partitions: int) -> None:
        """Until brokers answer about all of them."""
        self._real.wait_for(self.topic, partitions)

    def write(self, log: Log, before: int) -> None:
        """What the model's log has from this entry on, to the real one."""
        raise NotImplementedError

    def wait_for_end(self, log: Log) -> None:
        """What a broker has acknowledged may be readable a moment later."""
        deadline = time.monotonic() + PATIENCE_S
        while self._real.end_of(self.topic, log.number) < log.end:
            assert time.monotonic() < deadline, [*self.said, "it does not end there"]
            time.sleep(0.01)

    # --- steps ----------------------------------------------------------------------------

    def _append(self) -> None:
        log = self.random.choice(self.logs)
        before, codec = len(log.entries), self.random.choice(self.codecs)
        log.append(self.random.randint(1, 4), self.model.world.now_ms, codec)
        self.said.append(f"append {codec}: {log.number} ends at {log.end}")
        self.write(log, before)

    def _recreate(self) -> None:
        """Between the two, there is no such topic."""
        self.said.append("delete")
        self.delete()
        old = self.model.topics.pop(self.topic)
        self.compare()
        self.said.append("create again")
        self.model.topics[self.topic] = old
        self.model.recreate(self.topic)
        self.create(len(old.logs))
        self.wait_for(len(old.logs))

    def _grow(self) -> None:
        count = len(self.logs) + 1
        if count <= PARTITIONS + 2:
            self.said.append(f"{count} partitions")
            self.grow(count)
            self.wait_for(count)
            self.model.grow(self.topic, count)

    # --- comparison -----------------------------------------------------------------------

    def compare(self) -> None:
        self._times.append(tick(self.model.world))
        tick(self.model.world)  # so that all times lie before now
        self._mend()
        asked = self._questions()
        try:
            mine = self._own.seen(self.topic, asked)
            other = self._real.seen(self.topic, asked)
        except RangelandError as error:
            raise AssertionError("\n".join([*self.said, str(asked)])) from error
        wrong = [
            f"{name}\n  model: {mine.get(name)}\n   real: {other.get(name)}"
            for name in sorted({*mine, *other})
            if mine.get(name) != other.get(name)
        ]
        for name, known in self._own.aborted.items():
            if not known <= self._real.aborted.get(name, frozenset()):  # it may name later ones
                wrong.append(f"{name}: aborted {known}, but really {self._real.aborted.get(name)}")
        if wrong:
            times = [at - self._times[0] for at in asked.times_ms]
            state = [(log.start, log.end, log.epochs, log.opened) for log in self.logs]
            raise AssertionError("\n".join([*self.said, f"{asked} {times} {state}", *wrong]))

    def _mend(self) -> None:
        """Nothing of the model is down or slow: its clock, which began later, is below zero. One
        of its brokers leads all."""
        now_ms = self.model.world.now_ms
        self.model.down = dict.fromkeys(range(1, 5), now_ms)
        for log in self.logs:
            log.is_slow_until_ms, log.leader = now_ms, 1

    def _questions(self) -> Asked:
        draw, ends = self.random, [log.end for log in self.logs] or [0]
        offsets = {0, *ends, max(ends) + 1, draw.randrange(max(ends) + 3)}
        offsets |= {max(log.start - 1, 0) for log in self.logs} | {log.start for log in self.logs}
        offsets |= {self._place(log) for log in self.logs}
        epochs: Iterable[int] = (log.epoch for log in self.logs)
        return Asked(
            sorted(offsets),
            [draw.choice(SIZES) for _ in offsets],
            draw.sample(self._times, min(len(self._times), 2)),
            range(max(epochs, default=0) + 2),
            draw.choice(tuple(Isolation)),
            draw.choice(((), ("a",))) if self.has_tags else (),
            draw.choice((None, None, None, -1, 1)),
            draw.choice(SIZES),
        )

    def _place(self, log: Log) -> int:
        """Where an entry may begin."""
        return self.random.randint(log.start, log.end)
