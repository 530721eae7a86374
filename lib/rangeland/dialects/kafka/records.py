"""Turns fetched bytes into rows, with a class for every offset on the way.

A walk over the entries decides what every offset is, from headers alone if possible: a record to
land, a transaction marker, a record of an aborted transaction, or an offset that log compaction has
emptied. All records to land are then decoded in one call.

Offsets are counted twice: the walk expects a number of rows, and the decoder reports how many it
found. If the two disagree, nothing is returned.

Pure: no I/O, no state between calls. Consecutive batches are taken as one group
(``_take_group``) if that has the same result as taking each (``take``).
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from rangeland.decode import kafka_decoder
from rangeland.decode.kafka.batch_table import BatchColumn, Heads, Payloads
from rangeland.decode.kafka.layout import TooManyHeaders, UndecodableRecord
from rangeland.dialects.fetch_values import (
    DEFAULT_OPTIONS,
    NO_CONTEXT,
    DecodedChunk,
    DecodeOptions,
    FetchContext,
    Gap,
)
from rangeland.dialects.kafka.aborted_transactions import Aborted, AbortedTransactions
from rangeland.dialects.kafka.batch_opening import is_control, open_run
from rangeland.dialects.kafka.entry_records import entry_error, records_of
from rangeland.dialects.kafka.entry_scan import BatchGroup, runs
from rangeland.dialects.kafka.legacy_messages import Run, batch_error, split_run
from rangeland.dialects.kafka.log_entries import LogEntry
from rangeland.errors import BadRecord, ProofFailed
from rangeland.model import Counts, Isolation
from rangeland.wire.memory_budget import HEADER_BYTES, MAX_BATCH_BYTES, RECORD_BYTES

MAX_CHUNK_BYTES = 64 << 20
"""A chunk ends after the batch with which its decompressed records exceed this. Each record counts
for more than its bytes: small ones take several times as much memory as columns
(``wire.memory_budget``). Headers are counted only when a chunk is decoded: if they exceed this
too, the chunk is begun again with fewer batches."""
_MAX_HEADERS = MAX_CHUNK_BYTES // HEADER_BYTES


def decode_chunks(
    records: memoryview,
    from_offset: int,
    until_offset: int,
    isolation: Isolation,
    aborted: Sequence[Aborted],
    context: FetchContext = NO_CONTEXT,
    options: DecodeOptions = DEFAULT_OPTIONS,
) -> Iterator[DecodedChunk | Gap]:
    """All of one fetch response, in chunks of bounded memory. Each continues where the previous one
    ends; the last ends at ``until_offset`` or after the last complete batch. Batches before
    ``from_offset`` are skipped. ``aborted`` is the list that was returned with these bytes. Raises
    BadRecord with the damage, and where reading resumes after it if that is known."""

    def begin() -> tuple[_LogWalk, Iterator[BatchGroup | LogEntry]]:
        walk = _LogWalk(
            from_offset,
            until_offset,
            isolation,
            aborted,
            options.max_batch_bytes,
            stops_at_gaps=options.reports_gaps,
        )
        return walk, runs(records, from_offset, options)

    max_bytes = MAX_CHUNK_BYTES
    walk, entries = begin()
    while walk.at < until_offset:
        walk.advance(entries, max_bytes)
        try:
            chunk = walk.finish(_MAX_HEADERS if max_bytes > 1 else sys.maxsize)
        except TooManyHeaders as error:
            fitting = walk.unpacked_bytes * _MAX_HEADERS // error.headers
            max_bytes = max(1, min(fitting, max_bytes) // 2)
            walk, entries = begin()
            continue
        if chunk.next_offset > from_offset:
            yield chunk
        elif walk.gap is None:
            return
        if walk.gap is not None:
            yield walk.gap
            walk.skip_gap()
        from_offset = walk.at


class _LogWalk:
    """All offsets from ``from_offset`` to ``at`` are classed, or are in ``payloads``. After
    ``finish`` the walk may continue with the next entries."""

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
        reads_committed = isolation is Isolation.READ_COMMITTED
        self.until_offset = until_offset
        self.at = from_offset
        self.transactions = AbortedTransactions(aborted if reads_committed else ())
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

    def skip_gap(self) -> None:
        """Continues after the gap at which the walk has stopped; the caller classes its offsets."""
        if self.gap is not None:
            self.at = self.from_offset = self.gap.next_offset
            self.gap = None

    def advance(self, entries: Iterator[BatchGroup | LogEntry], max_bytes: int) -> None:
        """Walks to the end of the range or of ``entries``, or until ``max_bytes`` are decompressed.
        Damage that begins where the range ends matters only because nothing else accounts for the
        offsets from ``good_until`` up to it, and the error carries that offset."""
        try:
            self._advance(entries, max_bytes)
        except BadRecord as error:
            if error.damage is None or error.damage.base_offset < self.until_offset:
                raise
            damage = replace(error.damage, good_until=self.at)
            raise error.with_values(damage=damage) from error

    def _advance(self, entries: Iterator[BatchGroup | LogEntry], max_bytes: int) -> None:
        while self.at < self.until_offset and self.unpacked_bytes < max_bytes and not self.gap:
            if self.pending:
                self.take(self.pending.popleft())
                continue
            item = self.rest or next(entries, None)
            self.rest = None
            if item is None:
                return
            if isinstance(item, BatchGroup):
                batches = self._take_group(item, max_bytes)
                heads = item.heads[batches:]
                self.rest = item._replace(heads=heads) if len(heads) else None
            elif isinstance(item, Run):
                for part in split_run(item, self.until_offset):
                    self.take(part)
            else:
                self.take(item)

    def _take_group(self, group: BatchGroup, max_bytes: int) -> int:
        """Takes batches from the beginning, and returns how many; at least one."""
        if self.transactions.is_open:
            return self._take_each(group, max_bytes)
        lasts, opens_at = group.heads[:, BatchColumn.LAST_OFFSET], self.transactions.opens_at
        if count := int(np.searchsorted(lasts, min(self.at, opens_at))):
            self.last_offset = int(lasts[count - 1])
            return count
        whole = int(np.searchsorted(lasts, min(self.until_offset, opens_at)))
        if whole == 0 or int(group.heads[0, BatchColumn.BASE_OFFSET]) < self.at:
            self.take(group.entry(0))
            return 1
        if self.stops_at_gaps:
            whole = min(whole, self._until_gap(group.heads[:whole]))
            if whole == 0:
                self.take(group.entry(0))
                return 1
        return self._take_whole(group._replace(heads=group.heads[:whole]), max_bytes)

    def _until_gap(self, heads: Heads) -> int:
        """How many of these batches continue the walk, one after the other, without a gap."""
        ends = np.concatenate(([self.at], heads[:-1, BatchColumn.LAST_OFFSET] + 1))
        gaps = np.flatnonzero(heads[:, BatchColumn.BASE_OFFSET] > ends)
        return int(gaps[0]) if len(gaps) else len(heads)

    def _take_each(self, group: BatchGroup, max_bytes: int) -> int:
        for row in range(len(group.heads)):
            self.take(group.entry(row))
            is_enough = self.at >= self.until_offset or self.unpacked_bytes >= max_bytes
            if is_enough or self.gap or not self.transactions.is_open:
                break
        return row + 1

    def _take_whole(self, group: BatchGroup, max_bytes: int) -> int:
        """Takes batches that are completely in the range and in no aborted transaction, until
        ``max_bytes`` are decompressed."""
        batches, size = open_run(
            group, self.payloads, max_bytes - self.unpacked_bytes, self.max_batch_bytes
        )
        self.unpacked_bytes += size
        heads = group.heads[:batches]
        counts = heads[:, BatchColumn.RECORD_COUNT]
        count = int(counts.sum())
        control = int(counts[is_control(heads)].sum())
        self.last_offset = int(heads[-1, BatchColumn.LAST_OFFSET])
        self.compacted += self.last_offset + 1 - self.at - count
        self.control += control
        self.expected_rows += count - control
        self.at = self.last_offset + 1
        return batches

    def take(self, entry: LogEntry) -> None:
        """An entry that is skipped is not opened, so where a skipped wrapper begins is unknown."""
        last = entry.last_offset
        if self.stops_at_gaps and last >= self.at and self._stops_before(entry):
            return
        is_aborted = self.transactions.is_aborted(entry, is_passed=last < self.at)
        base = entry.base_offset if last >= self.at else last
        if base <= self.last_offset:
            raise batch_error(base, f"it follows offset {self.last_offset}")
        self.last_offset = last
        if last < self.at:
            return
        first = min(max(base, self.at), self.until_offset)
        until = min(last + 1, self.until_offset)
        if first == until and first > self.at:
            # It is after the range and is never opened, but only it shows that the offsets before
            # it are empty.
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
            self._queue_payload(entry, first, until)

    def _check(self, entry: LogEntry) -> None:
        try:
            entry.check()
        except UndecodableRecord as error:
            raise entry_error(error, entry.payload()) from None

    def _stops_before(self, entry: LogEntry) -> bool:
        """Whether there is a gap before this entry or inside it; then the entry is taken later.
        The messages of a run are separate: no header accounts for the offsets between them."""
        first = min(entry.base_offset, self.until_offset)
        if first > self.at:
            self._check(entry)  # only it shows that there is nothing before it
            self.gap = Gap(first)
            self.pending.appendleft(entry)
            return True
        if not isinstance(entry, Run) or entry.record_count > entry.last_offset - entry.base_offset:
            return False
        self.pending.extendleft(reversed(list(entry.messages())))
        return True

    def _count(self, entry: LogEntry, first: int, until: int) -> int:
        """The number of records of an entry that is not landed; its other offsets are compacted.

        The header has this number, unless the range cuts through an entry with gaps."""
        width, whole = until - first, entry.last_offset + 1 - entry.base_offset
        if entry.record_count == whole:
            count = width
        elif width == whole:
            count = entry.record_count
        else:
            count = records_of(entry, first, until).num_rows
        entry.check()
        self.compacted += width - count
        return count

    def _queue_payload(self, entry: LogEntry, first: int, until: int) -> None:
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

    def finish(self, max_headers: int = sys.maxsize) -> DecodedChunk:
        """Raises TooManyHeaders if several batches have more than ``max_headers`` together."""
        batch = self._decode(max_headers)
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
                why=f"{self.expected_rows} rows were expected from whole batches "
                f"and at most {self.cut_width} from others",
                from_offset=self.from_offset,
                next_offset=self.at,
                landed=rows,
            )
        chunk = DecodedChunk(self.at, batch if rows else None, counts)
        self._begin()
        return chunk

    def _decode(self, max_headers: int) -> pa.RecordBatch | None:
        if not self.payloads:
            return None
        limit = max_headers if len(self.payloads) > 1 else sys.maxsize
        try:
            return kafka_decoder().decode_records(
                self.payloads, self.from_offset, self.until_offset, limit
            )
        except UndecodableRecord as error:
            after = self.ends.get(error.payload)
            raise entry_error(error, self.payloads[error.payload], after) from None
