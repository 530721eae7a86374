"""From fetched bytes to rows, with a class for every offset on the way.

A walk over the entries decides, from their headers alone where it can, what every offset
is: a record to land, a transaction marker, a record of an aborted transaction, or an offset
the log's cleaner has emptied. All records to land are then decoded in one go.

Counting is done twice over: the walk says how many offsets there are and how many rows it
expects, the decoder says how many it found. If the two do not fit, nothing is given out.

Rules: no I/O, no state between calls. Aborted transactions are told apart as Kafka's own
consumer does (CompletedFetch): by the list that came with the fetch, and abort markers. Where
batches are all alike they are taken as one (``_take_run``), with what ``take`` makes of each.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from rangeland.decode import Payload, Payloads, RecordFormat, decode_records
from rangeland.decode.kafka.batch_table import BatchColumn, Heads
from rangeland.decode.kafka.layout import UndecodableRecord
from rangeland.decode.kafka.reference import DecodedRecord, read_records
from rangeland.dialects.fetch_values import NO_CONTEXT, FetchContext, Gap
from rangeland.dialects.kafka.batch_opening import is_control, open_run
from rangeland.dialects.kafka.entry_scan import (
    MAX_OFFSET,
    BatchGroup,
    LogEntry,
    bad_batch,
    entries,
    next_offset,
    runs,
)
from rangeland.dialects.kafka.legacy_messages import Run, Wrapper, bad_message, split_run
from rangeland.errors import BadRecord, ProofFailed
from rangeland.model import Counts, Isolation
from rangeland.wire.layouts import CONTROL_KEY
from rangeland.wire.memory_budget import MAX_BATCH_BYTES, RECORD_BYTES

__all__ = [
    "Aborted",
    "KafkaChunk",
    "aborted_within",
    "decode_chunk",
    "decode_chunks",
    "entry_around",
    "next_offset",
]

MAX_CHUNK_BYTES = 64 << 20
"""A chunk ends after the batch with which its unpacked records pass this. Each record counts for
more than its bytes: small ones take several times as much as columns (``wire.bounds``)."""

Aborted = tuple[int, int]
"""Producer id, first offset of the transaction."""

_ABORT = 0


@dataclass(frozen=True, slots=True)
class KafkaChunk:
    """What became of the offsets ``[from_offset, next_offset)``, which ``counts`` adds up
    to. ``batch`` has the columns ``decode.columns.RECORDS``, or is None without rows."""

    next_offset: int
    batch: pa.RecordBatch | None
    counts: Counts


def decode_chunks(
    records: memoryview,
    from_offset: int,
    until_offset: int,
    isolation: Isolation,
    aborted: Sequence[Aborted],
    context: FetchContext = NO_CONTEXT,
) -> Iterator[KafkaChunk | Gap]:
    """All of one fetch answer, in chunks of bounded memory. Their ranges follow on each
    other; the last ends at ``until_offset`` or after the last complete batch."""
    walk = _LogWalk(
        from_offset,
        until_offset,
        isolation,
        aborted,
        context.max_batch_bytes,
        stops_at_gaps=context.reports_gaps,
    )
    found = runs(records, from_offset, context)
    while walk.at < until_offset:
        walk.go_on(found, MAX_CHUNK_BYTES)
        chunk = walk.finish()
        if chunk.next_offset > from_offset:
            yield chunk
        elif walk.gap is None:
            return
        if walk.gap is not None:
            yield walk.gap
            walk.pass_gap()
        from_offset = walk.at


def decode_chunk(
    records: memoryview,
    from_offset: int,
    until_offset: int,
    isolation: Isolation,
    aborted: Sequence[Aborted],
    *,
    max_bytes: int = MAX_CHUNK_BYTES,
) -> KafkaChunk:
    """The offsets from ``from_offset`` that the complete batches of ``records`` tell of, up
    to ``until_offset`` or until ``max_bytes`` are unpacked. Batches before ``from_offset``
    are passed over, so that the same bytes can be given again for the rest.

    ``aborted`` is the list that came with these bytes. ``next_offset`` of the result is
    ``from_offset`` if there is nothing to tell, and never beyond ``until_offset``.
    Raises BadRecord with the fact base_offset and, where known, next_offset after it."""
    walk = _LogWalk(from_offset, until_offset, isolation, aborted)
    walk.go_on(runs(records, from_offset), max_bytes)
    return walk.finish()


def entry_around(records: memoryview, from_offset: int, target: int) -> tuple[int, int | None]:
    """Any offset may begin or end a range."""
    return target, target + 1


def aborted_within(
    records: memoryview, first: int, until: int, aborted: Sequence[Aborted]
) -> tuple[Aborted, ...]:
    """Of the transactions whose list came with ``records``, those that have to do with the
    offsets ``[first, until)``: not ended before them, and not begun after them."""
    transactions = _Transactions(aborted)
    try:
        for entry in entries(records, first):
            if entry.last_offset >= first:
                break
            transactions.is_aborted(entry, is_passed=True)
    except BadRecord:  # it is the one at ``first``: all before it has been passed
        pass
    return transactions.open_at(until)


class _Transactions:
    """Which producers are inside an aborted transaction, at the entry last looked at."""

    def __init__(self, aborted: Sequence[Aborted]) -> None:
        self._pending = deque(sorted(aborted, key=lambda each: each[1]))
        self._open: dict[int, int] = {}

    @property
    def is_open(self) -> bool:
        return bool(self._open)

    @property
    def opens_at(self) -> int:
        """Entries that end before this offset are in none, if none is open."""
        return self._pending[0][1] if self._pending else MAX_OFFSET

    def is_aborted(self, entry: LogEntry, *, is_passed: bool = False) -> bool:
        """To be asked of every entry, in order. The next marker of a producer whose aborted
        transaction is open ends it, so one that is passed over need not be whole."""
        producer = entry.producer_id
        if producer < 0:
            return False
        while self._pending and self._pending[0][1] <= entry.last_offset:
            producer_id, first_offset = self._pending.popleft()
            self._open[producer_id] = first_offset
        if producer not in self._open:
            return False
        if not entry.control:
            return entry.transactional
        if _is_abort_marker(entry, is_passed=is_passed):
            del self._open[producer]
        return False

    def open_at(self, until_offset: int) -> tuple[Aborted, ...]:
        """Those that are open now, and those that begin before ``until_offset``."""
        pending = [one for one in self._pending if one[1] < until_offset]
        return (*self._open.items(), *pending)


class _LogWalk:
    """All offsets from ``from_offset`` to ``at`` are classed, or are in ``payloads``. It may go
    on after ``finish``, with what comes next."""

    def __init__(
        self,
        from_offset: int,
        until_offset: int,
        isolation: Isolation,
        aborted: Sequence[Aborted],
        max_batch_bytes: int = MAX_BATCH_BYTES,
        *,
        stops_at_gaps: bool = False,
    ) -> None:
        self.max_batch_bytes = max_batch_bytes
        committed = isolation is Isolation.READ_COMMITTED
        self.until_offset = until_offset
        self.at = from_offset
        self.transactions = _Transactions(aborted if committed else ())
        self.last_offset = -1
        self.rest: BatchGroup | None = None
        self.stops_at_gaps = stops_at_gaps
        self.gap: Gap | None = None
        self.pending: deque[LogEntry] = deque()
        self._begin()

    def _begin(self) -> None:
        self.from_offset = self.at
        self.payloads = Payloads()
        self.ends: dict[int, int | None] = {}
        self.unpacked_bytes = 0
        self.control = self.aborted = self.compacted = 0
        self.expected_rows = 0
        self.cut_width = 0

    def pass_gap(self) -> None:
        """Goes on after the gap that the walk has stopped at; its offsets are somebody else's."""
        if self.gap is not None:
            self.at = self.from_offset = self.gap.next_offset
            self.gap = None

    def go_on(self, found: Iterator[BatchGroup | LogEntry], max_bytes: int) -> None:
        """Until the end of the range, or of what is ``found``, or ``max_bytes`` are unpacked.
        Damage that begins where the range ends is known to be there only for what lies between
        it and ``good_until``: the error says so."""
        try:
            self._go_on(found, max_bytes)
        except BadRecord as error:
            if error.damage is None or error.damage.base_offset < self.until_offset:
                raise
            raise bad_batch(why=error.why, **error.facts, good_until=self.at) from error

    def _go_on(self, found: Iterator[BatchGroup | LogEntry], max_bytes: int) -> None:
        while self.at < self.until_offset and self.unpacked_bytes < max_bytes and not self.gap:
            if self.pending:
                self.take(self.pending.popleft())
                continue
            one = self.rest or next(found, None)
            self.rest = None
            if one is None:
                return
            if isinstance(one, BatchGroup):
                taken = self._take_run(one, max_bytes)
                rest = one.heads[taken:]
                self.rest = one._replace(heads=rest) if len(rest) else None
            elif isinstance(one, Run):
                for part in split_run(one, self.until_offset):
                    self.take(part)
            else:
                self.take(one)

    def _take_run(self, run: BatchGroup, max_bytes: int) -> int:
        """How many of the batches it has taken; at least one."""
        if self.transactions.is_open:
            return self._take_each(run, max_bytes)
        lasts, opens_at = run.heads[:, BatchColumn.LAST_OFFSET], self.transactions.opens_at
        if passed := int(np.searchsorted(lasts, min(self.at, opens_at))):
            self.last_offset = int(lasts[passed - 1])
            return passed
        whole = int(np.searchsorted(lasts, min(self.until_offset, opens_at)))
        if whole == 0 or int(run.heads[0, BatchColumn.BASE_OFFSET]) < self.at:
            self.take(run.entry(0))
            return 1
        if self.stops_at_gaps:
            whole = min(whole, self._until_gap(run.heads[:whole]))
            if whole == 0:
                self.take(run.entry(0))
                return 1
        return self._take_whole(run._replace(heads=run.heads[:whole]), max_bytes)

    def _until_gap(self, heads: Heads) -> int:
        """How many of these batches follow on the walk and on each other without a gap."""
        ends = np.concatenate(([self.at], heads[:-1, BatchColumn.LAST_OFFSET] + 1))
        gaps = np.flatnonzero(heads[:, BatchColumn.BASE_OFFSET] > ends)
        return int(gaps[0]) if len(gaps) else len(heads)

    def _take_each(self, run: BatchGroup, max_bytes: int) -> int:
        for row in range(len(run.heads)):
            self.take(run.entry(row))
            is_enough = self.at >= self.until_offset or self.unpacked_bytes >= max_bytes
            if is_enough or self.gap or not self.transactions.is_open:
                break
        return row + 1

    def _take_whole(self, run: BatchGroup, max_bytes: int) -> int:
        """Takes batches that are in the range from end to end and in no aborted transaction,
        until ``max_bytes`` are unpacked."""
        taken, unpacked = open_run(
            run, self.payloads, max_bytes - self.unpacked_bytes, self.max_batch_bytes
        )
        self.unpacked_bytes += unpacked
        heads = run.heads[:taken]
        counts = heads[:, BatchColumn.RECORD_COUNT]
        count = int(counts.sum())
        control = int(counts[is_control(heads)].sum())
        self.last_offset = int(heads[-1, BatchColumn.LAST_OFFSET])
        self.compacted += self.last_offset + 1 - self.at - count
        self.control += control
        self.expected_rows += count - control
        self.at = self.last_offset + 1
        return taken

    def take(self, entry: LogEntry) -> None:
        """One that is passed over is not opened, and a wrapper's beginning is inside of it."""
        if isinstance(entry, Wrapper):
            entry.max_bytes = self.max_batch_bytes
        last = entry.last_offset
        if self.stops_at_gaps and last >= self.at and self._stops_before(entry):
            return
        is_aborted = self.transactions.is_aborted(entry, is_passed=last < self.at)
        base = entry.base_offset if last >= self.at else last
        if base <= self.last_offset:
            raise bad_batch(base, f"it comes after offset {self.last_offset}")
        self.last_offset = last
        if last < self.at:
            return
        first = min(max(base, self.at), self.until_offset)
        until = min(last + 1, self.until_offset)
        if first == until and first > self.at:
            # It lies after the range and is never opened, yet it alone says that the offsets
            # before it are empty.
            self._check(entry)
        self.compacted += first - self.at
        self.at = until
        if first == until:
            return
        if entry.control:
            self.control += self._count(entry, first, until)
        elif is_aborted:
            self.aborted += self._count(entry, first, until)
        else:
            self._land(entry, first, until)

    def _check(self, entry: LogEntry) -> None:
        try:
            entry.check()
        except UndecodableRecord as error:
            raise _of_batch(error, entry.payload()) from None

    def _stops_before(self, entry: LogEntry) -> bool:
        """True where a gap comes before this entry or lies in it, which is taken later then.
        Messages in a run each stand for themselves: no header says what was between them."""
        first = min(entry.base_offset, self.until_offset)
        if first > self.at:
            self._check(entry)  # it alone says that there is nothing before it
            self.gap = Gap(first)
            self.pending.appendleft(entry)
            return True
        if not isinstance(entry, Run) or entry.record_count > entry.last_offset - entry.base_offset:
            return False
        self.pending.extendleft(reversed(list(entry.messages())))
        return True

    def _count(self, entry: LogEntry, first: int, until: int) -> int:
        """Records of an entry whose rows nobody wants; its other offsets are compacted.

        The header's number will do, unless the range cuts through an entry with gaps."""
        width, whole = until - first, entry.last_offset + 1 - entry.base_offset
        if entry.record_count == whole:
            count = width
        elif width == whole:
            count = entry.record_count
        else:
            count = sum(1 for _ in _read(entry, first, until))
        entry.check()
        self.compacted += width - count
        return count

    def _land(self, entry: LogEntry, first: int, until: int) -> None:
        payload = entry.payload(self.max_batch_bytes)
        if isinstance(entry, Run):
            self.ends[len(self.payloads)] = entry.after
        self.payloads.append(payload)
        self.unpacked_bytes += len(payload.data) + RECORD_BYTES * entry.record_count
        width, whole = until - first, entry.last_offset + 1 - entry.base_offset
        if entry.record_count == whole:
            self.expected_rows += width
        elif width == whole:
            self.expected_rows += entry.record_count
            self.compacted += width - entry.record_count
        else:
            self.cut_width += width

    def finish(self) -> KafkaChunk:
        batch = self._decode()
        rows = batch.num_rows if batch is not None else 0
        cut_rows = rows - self.expected_rows
        counts = Counts(
            landed=rows,
            control=self.control,
            aborted=self.aborted,
            compacted=self.compacted + self.cut_width - cut_rows,
        )
        if not 0 <= cut_rows <= self.cut_width or counts.total != self.at - self.from_offset:
            raise ProofFailed(
                f"offsets [{self.from_offset}, {self.at}) became {counts}",
                why=f"{self.expected_rows} rows were expected of whole batches "
                f"and at most {self.cut_width} of others",
                from_offset=self.from_offset,
                next_offset=self.at,
                landed=rows,
            )
        chunk = KafkaChunk(self.at, batch if rows else None, counts)
        self._begin()
        return chunk

    def _decode(self) -> pa.RecordBatch | None:
        if not self.payloads:
            return None
        try:
            return decode_records(self.payloads, self.from_offset, self.until_offset)
        except UndecodableRecord as error:
            after = self.ends.get(error.payload)
            raise _of_batch(error, self.payloads[error.payload], after) from None


def _is_abort_marker(entry: LogEntry, *, is_passed: bool) -> bool:
    """A marker is one record; a cleaner may have taken it and left the batch."""
    try:
        record = next(_read(entry, entry.base_offset, entry.last_offset + 1), None)
    except BadRecord:
        if is_passed:
            return True
        raise
    if record is None:
        return False
    if record.key is None or len(record.key) < CONTROL_KEY.size:
        raise bad_batch(entry.base_offset, "its transaction marker has no kind")
    return CONTROL_KEY.read(record.key).kind == _ABORT


def _read(entry: LogEntry, first: int, until: int) -> Iterator[DecodedRecord]:
    """For the few entries of which a record must be seen here."""
    payload = entry.payload()
    try:
        yield from read_records(payload, 0, first, until)
    except UndecodableRecord as error:
        raise _of_batch(error, payload) from None


def _of_batch(error: UndecodableRecord, payload: Payload, after: int | None = None) -> BadRecord:
    """The decoder counts payloads; people and policies know batches by offset."""
    if payload.form is RecordFormat.PLAIN:
        return bad_message(error, payload, after)
    facts = {name: value for name, value in error.facts.items() if name != "payload"}
    return bad_batch(
        payload.base_offset,
        f"at byte {error.position} of its record {error.record}, {error.reason}",
        next_offset=payload.base_offset + payload.last_offset_delta + 1,
        **facts,
    )
