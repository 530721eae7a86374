"""The log of the demo: page views of a small shop, with everything that makes a log awkward.

The log contains tombstones, headers, a committed transaction and one that was rolled back. How many
records of each kind were written is recorded, so that it can be compared with the landed rows; for
the same purpose, another client reads the log.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import astuple, dataclass
from operator import add

from rangeland.testing.consumer import consume
from rangeland.testing.producer import (
    Record,
    create_topic,
    page_views,
    produce,
    produce_transaction,
)

PARTITIONS = 4
TOMBSTONE_EVERY = 500
HEADERS_EVERY = 100
ABORTED_KEY = b"rolled back"


@dataclass(frozen=True, slots=True)
class Written:
    """How many records were written; ``visible`` ones were not rolled back."""

    visible: int = 0
    rolled_back: int = 0
    tombstones: int = 0
    with_headers: int = 0

    def __add__(self, other: Written) -> Written:
        return Written(*map(add, astuple(self), astuple(other)))


@dataclass(frozen=True, slots=True)
class Digest:
    """Counts and checksums of a set of records, regardless of their order."""

    records: int
    null_values: int
    key_checksums: int
    value_checksums: int


def open_shop(servers: Sequence[str], topic: str, records: int) -> Written:
    """Creates the topic and writes ``records`` visible records, and some more that are
    rolled back."""
    create_topic(servers, topic, PARTITIONS)
    in_transaction = max(PARTITIONS, records // 20)
    rolled_back = max(PARTITIONS, records // 1000)
    plain = list(_views(records - in_transaction, seed=1))
    in_commit = list(_views(in_transaction, seed=2))
    produce(servers, topic, plain, codec="lz4", linger_ms=50)
    rolled_back_records = (
        Record(b"never seen", ABORTED_KEY, partition=n % 4) for n in range(rolled_back)
    )
    produce_transaction(servers, topic, rolled_back_records, commit=False)
    produce_transaction(servers, topic, in_commit, commit=True, codec="zstd")
    return _count(plain) + _count(in_commit) + Written(rolled_back=rolled_back)


def more_orders(servers: Sequence[str], topic: str, records: int) -> Written:
    """Appends some more records, without transactions."""
    views = list(_views(records, seed=3))
    produce(servers, topic, views, codec="snappy")
    return _count(views)


def digest_of_log(servers: Sequence[str], topic: str) -> Digest:
    """The digest of the topic as confluent-kafka reads it, under ``read_committed``."""
    records = consume(servers, topic)
    return Digest(
        len(records),
        sum(record.value is None for record in records),
        sum(zlib.crc32(record.key or b"") for record in records),
        sum(zlib.crc32(record.value or b"") for record in records),
    )


def _views(count: int, seed: int) -> Iterator[Record]:
    for number, (key, value) in enumerate(page_views(count, seed)):
        yield Record(
            None if number % TOMBSTONE_EVERY == 7 else value,
            key,
            (("trace", b"%d" % number), ("empty", None)) if number % HEADERS_EVERY == 3 else (),
            partition=number % PARTITIONS,
        )


def _count(records: Iterable[Record]) -> Written:
    total = tombstones = with_headers = 0
    for record in records:
        total += 1
        tombstones += record.value is None
        with_headers += bool(record.headers)
    return Written(total, 0, tombstones, with_headers)
