"""What really happened to each log: its entries, and why any offset is not in it.

A value is unique in its world and names its record. ``Truth`` keeps the reasons for every offset
of every incarnation of a topic, so that a class that the product gives can be compared.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import cycle

from tests.record_batches import ABORT, COMMIT, Batch, Record, encode, marker
from tests.simulation.world import EPOCH_MS

EPOCH_AT = 12
CHECKED_AT = 21
MOST_PLANNED = 200
CODECS = ("none", "none", "none", "gzip", "zstd", "lz4", "snappy")


@dataclass(frozen=True)
class Entry:
    """``[base, until)`` of the log. ``records`` are those with a row, as offset and value."""

    base: int
    until: int
    data: bytes
    epoch: int
    time_ms: int
    records: tuple[tuple[int, bytes], ...] = ()
    producer_id: int = -1
    is_marker: bool = False
    is_aborted: bool = False
    codec: str = "none"
    is_empty: bool = False
    """A cleaner has left the batch, so that its producer's sequence is known, and no record."""
    intact: bytes = b""
    """Its bytes before one of them was damaged."""


@dataclass(frozen=True)
class Transaction:
    """One that has not ended in this log. ``until``: after its last record here. ``aborts``: how it
    will end, if that is known. After ``deadline_ms`` the coordinator aborts it; None: it never
    does."""

    producer: int
    first: int
    until: int
    deadline_ms: int | None = None
    aborts: bool | None = None


@dataclass
class Log:
    """One partition of one incarnation of a topic. ``reasons``: why an offset has no row.
    ``shows_aborted``: readers take records whatever became of their transactions."""

    topic: str
    number: int
    incarnation: int
    leader: int = 1
    epoch: int = 0
    start: int = 0
    end: int = 0
    entries: list[Entry] = field(default_factory=list)
    epochs: list[tuple[int, int]] = field(default_factory=lambda: [(0, 0)])
    reasons: dict[int, set[str]] = field(default_factory=dict)
    written: dict[int, list[bytes]] = field(default_factory=dict)
    lags: tuple[int, int] | None = None
    """The high watermark that a new leader knows, and until when."""
    is_slow_until_ms: int = 0
    was_slow: bool = False
    shows_aborted: bool = False
    hidden: set[bytes] = field(default_factory=set)
    """The values of records that are aborted, or whose transactions have not ended."""
    producers: int = 100
    highest: int = 0
    """Where it has ended at most."""
    opened: list[Transaction] = field(default_factory=list)
    ended: dict[int, Transaction] = field(default_factory=dict)
    """By the offset of the marker."""
    segments: list[int] = field(default_factory=lambda: [0])
    """Where each begins. A response to a fetch is of one of them."""
    per_segment: int = 0
    """Entries, after which the next one begins; 0: it is set from outside."""
    stable: int = 0
    """The highest last stable offset that was reported."""

    def last_stable(self, now_ms: int, *, is_old: bool = False) -> int:
        """Where committed records may be read to: where the first transaction begins whose end the
        high watermark has not passed. Retention may move the log's start behind the first offset
        of an open transaction. Old brokers forget a transaction all of whose records are gone.
        Newer ones do not, and where the log begins inside a batch, they say that committed records
        end where that batch begins."""
        end = self.high_watermark(now_ms)
        held = self.opened
        if end < self.end:
            held = held + [one for marker, one in self.ended.items() if marker >= end]
        if is_old:
            held = [one for one in held if one.until > self.start]
        if not held:
            return end
        at = max(min(one.first for one in held), self.start)
        if not is_old:
            at = next((e.base for e in self.entries if e.base <= at < e.until), at)
        return min(end, at)

    def high_watermark(self, now_ms: int) -> int:
        if self.lags is not None and now_ms < self.lags[1]:
            return min(self.end, self.lags[0])
        return self.end

    def because(self, offsets: Iterable[int], reason: str) -> None:
        for offset in offsets:
            self.reasons.setdefault(offset, set()).add(reason)

    # --- writing ------------------------------------------------------------------------

    def append(
        self, count: int, now_ms: int, codec: str = "none", keys: Sequence[bytes] = ()
    ) -> None:
        """``keys`` of the records, in turn."""
        records = [(self.end + i, self._value(self.end + i)) for i in range(count)]
        self._add(records, now_ms, codec, keys=keys)

    def append_transaction(self, count: int, now_ms: int, *, abort: bool) -> None:
        """A batch of a transaction, and the marker that ends it."""
        self.producers += 1
        self.end_transaction(self.begin_transaction(count, now_ms, self.producers), now_ms, abort)

    def begin_transaction(
        self, count: int, now_ms: int, producer: int, deadline_ms: int | None = None
    ) -> Transaction:
        """A batch of a producer that has no transaction open here."""
        self._append_transactional(count, now_ms, producer)
        begun = Transaction(producer, self.end - count, self.end, deadline_ms)
        self.opened.append(begun)
        return begun

    def extend_transaction(self, one: Transaction, count: int, now_ms: int) -> None:
        """Another batch of it."""
        self._append_transactional(count, now_ms, one.producer)
        self.opened[self.opened.index(one)] = replace(one, until=self.end)

    def _append_transactional(self, count: int, now_ms: int, producer: int) -> None:
        records = [(self.end + i, self._value(self.end + i)) for i in range(count)]
        if not self.shows_aborted:
            self.hidden.update(value for _, value in records)
        self._add(records, now_ms, "none", producer)

    def end_transaction(self, one: Transaction, now_ms: int, abort: bool) -> None:
        """Writes the marker."""
        self.opened.remove(one)
        self.ended[self.end] = replace(one, aborts=abort, deadline_ms=None)
        if abort:
            self._abort(one)
        else:
            shown = [e for e in self.entries if _is_of(e, one)]
            self.hidden.difference_update(value for e in shown for _, value in e.records)
        batch = marker(self.end, one.producer, ABORT if abort else COMMIT)
        self.because([self.end], "control")
        data = self._with_epoch(encode(batch))
        self._store(Entry(self.end, self.end + 1, data, self.epoch, now_ms, (), one.producer, True))

    def _abort(self, one: Transaction) -> None:
        for at, entry in enumerate(self.entries):
            if not _is_of(entry, one):
                continue
            shown = entry.records if self.shows_aborted else ()
            if not self.shows_aborted:
                self.because(range(entry.base, entry.until), "aborted")
            self.entries[at] = replace(entry, records=shown, is_aborted=True)

    def time_out(self, now_ms: int) -> None:
        """The coordinator aborts what is overdue, in order."""
        late = [one for one in self.opened if (one.deadline_ms or now_ms) < now_ms]
        for one in sorted(late, key=lambda one: one.deadline_ms or 0):
            self.end_transaction(one, now_ms, one.aborts is not False)

    def _value(self, offset: int) -> bytes:
        number = len(self.written.get(offset, ()))
        value = f"{self.topic}/{self.number}/{self.incarnation}/{offset}/{number}".encode()
        self.written.setdefault(offset, []).append(value)
        return value

    def _add(
        self,
        records: Sequence[tuple[int, bytes]],
        now_ms: int,
        codec: str,
        producer: int = -1,
        keys: Sequence[bytes] = (),
    ) -> None:
        base, until = self.end, self.end + len(records)
        batch = Batch(
            base,
            [
                Record(key=key, value=value)
                for (_, value), key in zip(records, cycle(keys or [b"k"]), strict=False)
            ],
            codec=codec,
            base_timestamp_ms=EPOCH_MS + now_ms,
            max_timestamp_ms=EPOCH_MS + now_ms,
            transactional=producer >= 0,
            producer_id=producer,
        )
        data = self._with_epoch(encode(batch))
        rows = tuple(records)
        self._store(Entry(base, until, data, self.epoch, now_ms, rows, producer, codec=codec))

    def _with_epoch(self, data: bytes) -> bytes:
        return data[:EPOCH_AT] + self.epoch.to_bytes(4, "big") + data[EPOCH_AT + 4 :]

    def _store(self, entry: Entry) -> None:
        self.begin_epoch(entry.epoch)
        newest = self.segments[-1]
        if self.per_segment and sum(e.base >= newest for e in self.entries) >= self.per_segment:
            self.segments.append(entry.base)
        self.entries.append(entry)
        self.end = entry.until
        self.highest = max(self.highest, self.end)

    def begin_epoch(self, epoch: int) -> None:
        """The log's leader has this one; an earlier one that had no records is forgotten."""
        if self.epochs[-1][0] < epoch:
            self.epochs = [(e, at) for e, at in self.epochs if at < self.end]
            self.epochs.append((epoch, self.end))

    # --- losing -------------------------------------------------------------------------

    def expire(self, count: int) -> None:
        """Retention removes the first ``count`` entries."""
        if count:
            self.expire_before(self.entries[:count][-1].until)

    def expire_before(self, offset: int) -> None:
        """The log begins here, which may be inside an entry."""
        self.because(range(self.start, offset), "expired")
        self.start = offset
        self.entries = [entry for entry in self.entries if entry.until > offset]
        if self.entries and self.entries[0].base < offset:
            left = tuple(one for one in self.entries[0].records if one[0] >= offset)
            self.entries[0] = replace(self.entries[0], records=left)
        passed = [epoch for epoch, at in self.epochs if at <= offset]
        if passed:
            later = [(epoch, at) for epoch, at in self.epochs if at > offset]
            self.epochs = [(passed[-1], offset), *later]

    def truncate(self, count: int) -> None:
        """A leader that lacks the last ``count`` entries is elected. Transactions that ended there
        are open again: their producers and their coordinator do not know that."""
        self.because(range(self.entries[-count].base, self.end), "truncated")
        self.entries = self.entries[: len(self.entries) - count]
        self.end = self.entries[-1].until if self.entries else self.start
        self.segments = [at for at in self.segments if at < self.end] or self.segments[:1]
        self.epochs = [(e, at) for e, at in self.epochs if at < self.end] or [self.epochs[0]]
        lost = [marker for marker in self.ended if marker >= self.end]
        again = [*self.opened, *(self.ended.pop(marker) for marker in sorted(lost))]
        self.opened = [
            replace(one, until=min(one.until, self.end)) for one in again if one.first < self.end
        ]

    def drop(self, index: int, reason: str) -> None:
        """An entry in the middle of the log goes, by compaction or with a lost segment."""
        if not 0 < index < len(self.entries) - 1:
            return
        entry = self.entries.pop(index)
        self.because(range(entry.base, entry.until), reason)

    def thin(self, index: int, left: Sequence[int]) -> None:
        """A cleaner leaves only these offsets of an entry, which is as wide as before."""
        entry = self.entries[index]
        records = [
            Record(key=b"k", value=value, delta=offset - entry.base)
            for offset, value in entry.records
            if offset in left
        ]
        batch = Batch(
            entry.base,
            records,
            codec=entry.codec,
            base_timestamp_ms=EPOCH_MS + entry.time_ms,
            max_timestamp_ms=EPOCH_MS + entry.time_ms,
            last_offset_delta=entry.until - entry.base - 1,
        )
        data = encode(batch)
        data = data[:EPOCH_AT] + entry.data[EPOCH_AT : EPOCH_AT + 4] + data[EPOCH_AT + 4 :]
        gone = [offset for offset, _ in entry.records if offset not in left]
        self.because(gone, "compacted")
        rows = tuple(one for one in entry.records if one[0] in left)
        self.entries[index] = replace(entry, data=data, records=rows)

    def damage(self, rng: random.Random) -> None:
        """One bit of an entry is flipped where the log is stored, in a part with a checksum."""
        if not self.entries:
            return
        index = rng.randrange(len(self.entries))
        entry = self.entries[index]
        data = bytearray(entry.data)
        data[rng.randrange(CHECKED_AT, len(data))] ^= 1 << rng.randrange(8)
        self.entries[index] = replace(entry, data=bytes(data), intact=entry.intact or entry.data)
        self.because(range(entry.base, entry.until), "corrupt")

    def mend(self) -> None:
        """A replica with intact bytes is elected."""
        self.entries = [
            replace(e, data=e.intact, intact=b"") if e.intact else e for e in self.entries
        ]

    def delete(self) -> None:
        """The topic is deleted. A survey may combine its id with the end of the next one, and plan
        offsets that it never had."""
        self.because(range(self.highest + MOST_PLANNED), "recreated")

    def segment_end(self, offset: int) -> int:
        """Where the next segment begins after the one that this offset is in."""
        return next((at for at in self.segments if at > offset), max(self.end, offset + 1))

    def epoch_end(self, epoch: int) -> tuple[int, int]:
        """The newest epoch in the log up to this one, and where its records end; unknown, -1, for
        an epoch newer than the leader's."""
        if epoch == self.epochs[-1][0]:
            return epoch, self.end
        above = [at for e, at in self.epochs if e > epoch]
        if not above:
            return -1, -1
        return max((e for e, _ in self.epochs if e <= epoch), default=epoch), min(above)


def _is_of(entry: Entry, one: Transaction) -> bool:
    """Whether its records are of this transaction."""
    return entry.producer_id == one.producer and not entry.is_marker and entry.base >= one.first


@dataclass
class Topic:
    name: str
    topic_id: str
    incarnation: int
    logs: list[Log]
    compacts: bool = False


class Truth:
    """All logs that ever were, by partition and incarnation."""

    def __init__(self) -> None:
        self.logs: dict[tuple[str, int, int], Log] = {}
        self.ids: dict[str, int] = {}

    def add(self, topic: Topic) -> None:
        self.ids[topic.topic_id] = topic.incarnation
        for log in topic.logs:
            self.logs[log.topic, log.number, log.incarnation] = log

    def of(self, topic: str, number: int) -> list[Log]:
        return [x for (name, n, _), x in self.logs.items() if (name, n) == (topic, number)]


def fill(log: Log, rng: random.Random, now_ms: int, *, transactions: bool) -> None:
    """Some more entries."""
    for _ in range(rng.randint(1, 4)):
        if transactions and rng.random() < 0.25:
            log.append_transaction(rng.randint(1, 3), now_ms, abort=rng.random() < 0.5)
        else:
            log.append(rng.randint(1, 5), now_ms, rng.choice(CODECS))
