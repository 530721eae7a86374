"""Creates and fills topics, for tests, the demo and benchmarks.

Every function takes the bootstrap servers and returns only when the brokers have confirmed the
result: a topic exists when every broker knows a leader for each partition; records are written when
all of them are acknowledged. Records that could not be written are an error.
"""

from __future__ import annotations

import random
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from rangeland.errors import Unreachable, UsageError
from rangeland.testing.client_library import (
    TIMEOUT_S,
    admin,
    client_error,
    join_servers,
    library,
    our_errors,
    producer,
    reaching_back,
)
from rangeland.testing.probe import leaders_seen_by

Servers = str | Sequence[str]
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
WHOLE_BATCHES_MS = 10_000
"""A linger that no batch reaches: each batch is either full, or the last one, which is sent when
writing ends."""


@dataclass(frozen=True, slots=True)
class Record:
    """A record to write. None is null, ``b""`` is empty. If ``partition`` or ``timestamp_ms`` is
    None, the client chooses it."""

    value: bytes | None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp_ms: int | None = None
    partition: int | None = None


def numbered_records(count: int, start: int = 0) -> list[Record]:
    """Records with keys ``key-00000000``, ... and values ``value-00000000``, ..."""
    numbers = range(start, start + count)
    return [Record(b"value-%08d" % number, b"key-%08d" % number) for number in numbers]


# --- topics -----------------------------------------------------------------------------


def create_topic(
    bootstrap: Servers,
    topic: str,
    partitions: int = 1,
    replicas: int = 1,
    config: Mapping[str, object] | None = None,
) -> None:
    """Creates one topic; see `create_topics`."""
    create_topics(bootstrap, [topic], partitions, replicas, config)


def create_topics(
    bootstrap: Servers,
    topics: Sequence[str],
    partitions: int = 1,
    replicas: int = 1,
    config: Mapping[str, object] | None = None,
) -> None:
    """Creates topics and waits until every broker that is up knows all their leaders.

    Raises `Conflict` if one of them exists, and `Unreachable` if the leaders are not known in time.
    """
    new_topic = library("confluent_kafka.admin").NewTopic
    settings = {name: str(value) for name, value in (config or {}).items()}
    new_topics = [new_topic(topic, partitions, replicas, config=settings) for topic in topics]
    client = admin(bootstrap)  # kept in a variable: otherwise it would be closed too early
    for topic, future in client.create_topics(new_topics, request_timeout=TIMEOUT_S).items():
        with our_errors(f"Topic {topic} was not created"):
            future.result()
    for topic in topics:
        wait_for_topic(bootstrap, topic, partitions)


def wait_for_topic(bootstrap: Servers, topic: str, partitions: int) -> None:
    """Waits until every broker that is up knows the leaders of all partitions. Raises
    `Unreachable`."""
    is_known = partial(_known_everywhere, bootstrap, topic, partitions)
    _wait_until(is_known, f"Not every broker knows the leaders of {topic}")


def delete_topic(bootstrap: Servers, topic: str) -> None:
    """Deletes a topic and waits until no broker that is up knows it any more."""
    client = admin(bootstrap)
    for future in client.delete_topics([topic], request_timeout=TIMEOUT_S).values():
        with our_errors(f"Topic {topic} was not deleted"):
            future.result()
    _wait_until(
        lambda: not any(_leaders(bootstrap, topic).values()),
        f"A broker still knows the deleted topic {topic}",
    )


def delete_records(bootstrap: Servers, topic: str, before: Mapping[int, int]) -> None:
    """Moves the log start of each partition in ``before`` to the offset given there, as if
    retention had removed everything below it."""
    TopicPartition = library().TopicPartition
    offsets = [TopicPartition(topic, partition, offset) for partition, offset in before.items()]
    client = admin(bootstrap)
    for log, future in client.delete_records(offsets).items():
        with our_errors(f"Records of {topic}/{log.partition} were not deleted"):
            future.result()


def leader_of(bootstrap: Servers, topic: str, partition: int = 0) -> int:
    """The broker id of the leader; -1 while there is none."""
    views = _leaders(bootstrap, topic).values()
    return max((leaders.get(partition, -1) for leaders in views), default=-1)


def wait_for_leader(
    bootstrap: Servers, topic: str, partition: int = 0, *, other_than: int = -1
) -> int:
    """Waits until every broker that is up names the same leader, other than ``other_than``."""
    candidates: list[int] = []

    def is_agreed() -> bool:
        views = _leaders(bootstrap, topic).values()
        leader_ids = {leaders.get(partition, -1) for leaders in views}
        candidates[:] = leader_ids
        return len(leader_ids) == 1 and not leader_ids & {-1, other_than}

    _wait_until(is_agreed, f"There is no new leader of {topic}/{partition}")
    return candidates[0]


def _known_everywhere(bootstrap: Servers, topic: str, partitions: int) -> bool:
    views = _leaders(bootstrap, topic)
    return bool(views) and all(
        len(leaders) == partitions and min(leaders.values()) >= 0 for leaders in views.values()
    )


def _leaders(bootstrap: Servers, topic: str) -> dict[str, dict[int, int]]:
    """The leaders by partition, as each server that answers sees them; empty if a server does not
    know the topic."""
    responses = {
        server: leaders_seen_by(server, topic) for server in join_servers(bootstrap).split(",")
    }
    return {server: leaders for server, leaders in responses.items() if leaders is not None}


def _wait_until(condition: Callable[[], bool], message: str) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        if time.monotonic() > deadline:
            raise Unreachable(message, why=f"waited {TIMEOUT_S} s", do="look at the brokers' logs")
        time.sleep(0.05)


# --- records ----------------------------------------------------------------------------


def produce(
    bootstrap: Servers,
    topic: str,
    records: Iterable[Record],
    *,
    codec: str = "none",
    partition: int | None = None,
    acks: int | str = "all",
    batch_bytes: int = 1 << 20,
    batch_records: int = 10_000,
    linger_ms: int = 5,
    idempotent: bool = False,
    version: str = "",
) -> int:
    """Writes records in order and returns their number, once all are acknowledged.

    ``partition`` is for records that do not name one themselves. A batch ends at ``batch_bytes``,
    at ``batch_records`` or after ``linger_ms`` (use `WHOLE_BATCHES_MS` for batches whose ends must
    not depend on how busy the machine is). Without ``idempotent``, a retry may write twice, as in
    production; do not disturb brokers if counts matter. ``version`` is the brokers' version, if
    they are too old to report it.
    """
    settings = _settings(codec, batch_bytes, batch_records, linger_ms) | reaching_back(version)
    # One request at a time: a retry that follows a later request would change the order.
    settings |= {"enable.idempotence": True} if idempotent else {"max.in.flight": 1}
    settings["acks"] = acks
    writer = _Writer(bootstrap, topic, settings)
    count = writer.write(records, partition)
    writer.finish()
    return count


def produce_transaction(
    bootstrap: Servers,
    topic: str,
    records: Iterable[Record],
    *,
    commit: bool = True,
    **options: Any,
) -> int:
    """Writes records in one transaction, with the options of `open_transaction`, and commits or
    aborts it; returns their number.

    Records of an aborted transaction are in the log as well, followed by a marker in each
    partition.
    """
    with open_transaction(bootstrap, topic, records, commit=commit, **options) as count:
        return count


@contextmanager
def open_transaction(
    bootstrap: Servers,
    topic: str,
    records: Iterable[Record],
    *,
    commit: bool = False,
    codec: str = "none",
    partition: int | None = None,
    transactional_id: str | None = None,
) -> Iterator[int]:
    """Writes records in a transaction that stays open inside the ``with`` block, so that the last
    stable offset stays below them; then aborts it, or with ``commit`` commits it, and waits until
    its markers are in the log."""
    identity = transactional_id or f"rangeland-testing-{uuid.uuid4().hex}"
    settings = _settings(codec, 1 << 20, 10_000, 5) | {"transactional.id": identity}
    writer = _Writer(bootstrap, topic, settings)
    with our_errors(f"The transaction on {topic} did not begin"):
        writer.client.init_transactions(TIMEOUT_S)
        writer.client.begin_transaction()
    committing = False
    try:
        count = writer.write(records, partition)
        writer.finish()  # an abort would drop what has not been sent
        yield count
        committing = commit
    finally:
        end = writer.client.commit_transaction if committing else writer.client.abort_transaction
        with our_errors(f"The transaction on {topic} was not ended"):
            end(TIMEOUT_S)
            # Markers are written after the response, and until they are, the coordinator does not
            # give this identity to anyone else.
            _Writer(bootstrap, topic, settings).client.init_transactions(TIMEOUT_S)


def fill(
    bootstrap: Servers,
    topic: str,
    records: int = 4_000_000,
    *,
    codec: str = "lz4",
    partitions: int = 4,
    replicas: int = 1,
    seed: int = 1,
    version: str = "",
    is_made: bool = False,
) -> int:
    """Creates a topic, unless it ``is_made``, and fills it with page views, 8-byte keys and JSON
    values of about 175 bytes, spread evenly over its partitions. Equal seeds give equal records.
    Returns the size of keys and values in bytes. Takes about 3 s per million records. ``version``:
    see `produce`."""
    if not is_made:
        create_topic(bootstrap, topic, partitions, replicas)
    views = page_views(records, seed)
    return spread(bootstrap, topic, views, partitions, codec=codec, version=version)


def spread(
    bootstrap: Servers,
    topic: str,
    pairs: Iterable[tuple[bytes, bytes]],
    partitions: int,
    *,
    codec: str = "lz4",
    version: str = "",
    batch_records: int = 10_000,
) -> int:
    """Writes keys and values in order, spread evenly over the partitions of a topic, and returns
    their size in bytes. ``batch_records``: the most records in a batch."""
    settings = _settings(codec, 256 << 10, batch_records, 50) | reaching_back(version)
    # One request at a time: a batch that is sent again, to a new leader, keeps its place.
    settings |= {"acks": 1, "max.in.flight": 1}
    writer = _Writer(bootstrap, topic, settings)
    total, put = 0, writer.put
    with our_errors(writer.failure):
        for index, (key, value) in enumerate(pairs):
            put(value, key, index % partitions)
            total += len(key) + len(value)
    writer.finish()
    return total


def page_views(count: int, seed: int = 1) -> Iterator[tuple[bytes, bytes]]:
    """Keys and JSON values as a web shop would log them: half noise, half repetition, so that
    codecs have something to compress."""
    draw = random.Random(seed).random
    events = (b"view", b"click", b"buy", b"scroll")
    value = (
        b'{"id":%d,"user":"u%06d","event":"%s","url":"https://example.com/p/%d?ref=%x",'
        b'"price":%.2f,"ts":%d,"agent":"Mozilla/5.0 (X11; Linux x86_64) %d"}'
    )
    for number in range(count):
        chance = draw()
        k = int(chance * 1e9)
        ids = (number, k % 1_000_000, events[k & 3], k % 99_991, k * 2_654_435_761 % (1 << 40))
        rest = (chance * 100, 1_700_000_000_000 + number, k % 1_009)
        yield b"k%07d" % (k % 10_000_000), value % (*ids, *rest)


def _settings(codec: str, batch_bytes: int, batch_records: int, linger_ms: int) -> dict[str, Any]:
    if codec not in CODECS:
        raise UsageError(f"There is no codec {codec}", do=f"use one of: {', '.join(CODECS)}")
    return {
        "compression.type": codec,
        "batch.size": batch_bytes,
        "batch.num.messages": batch_records,
        "linger.ms": linger_ms,
        "queue.buffering.max.messages": 200_000,
        "queue.buffering.max.kbytes": 256 << 10,
        "message.max.bytes": 64 << 20,
        "message.timeout.ms": TIMEOUT_S * 1000,
        "topic.metadata.propagation.max.ms": 3000,
        "delivery.report.only.error": True,
    }


class _Writer:
    """A producer that remembers the first record it could not deliver."""

    def __init__(self, bootstrap: Servers, topic: str, settings: dict[str, Any]) -> None:
        self._topic = topic
        self.failure = f"Not every record was written to the topic {topic}"
        self._failures: list[Any] = []
        with our_errors(f"A producer for {topic} was not made"):
            self.client = producer(bootstrap, settings | {"on_delivery": self._report})
        self._produce = self.client.produce
        self._queued = 0

    def write(self, records: Iterable[Record], partition: int | None) -> int:
        start = self._queued
        with our_errors(self.failure):
            for record in records:
                options: dict[str, Any] = {}
                if record.headers:
                    options["headers"] = list(record.headers)
                if record.timestamp_ms is not None:
                    options["timestamp"] = record.timestamp_ms
                target = record.partition if record.partition is not None else partition
                self.put(record.value, record.key, -1 if target is None else target, **options)
        return self._queued - start

    def put(self, value: bytes | None, key: bytes | None, partition: int, **options: Any) -> None:
        """Queues one record; waits while the queue is full."""
        while True:
            try:
                self._produce(self._topic, value, key, partition, **options)
                break
            except BufferError:
                self.client.poll(0.05)
                self._check_all_delivered()
        self._queued += 1
        if self._queued % 1000 == 0:
            self.client.poll(0)

    def finish(self) -> None:
        """Waits for all acknowledgements. Raises if a record was not acknowledged."""
        unacknowledged = self.client.flush(TIMEOUT_S)
        self._check_all_delivered()
        if unacknowledged:
            raise Unreachable(
                self.failure,
                why=f"{unacknowledged} were not acknowledged in {TIMEOUT_S} s",
                do="check that the brokers are up",
            )

    def _check_all_delivered(self) -> None:
        if self._failures:
            raise client_error(self.failure, self._failures[0])

    def _report(self, error: Any, message: Any) -> None:
        if error is not None:
            self._failures.append(error)
