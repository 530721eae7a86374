"""Turns fetched bytes into rows, and gives every offset on the way a class.

A walk over the entries decides what every offset is, from headers alone if possible: a record that
lands, a transaction marker, a record of an aborted transaction, or an offset that log compaction
has emptied. ``chunk_builder`` counts them, and decodes all records that land in one call.

Pure: no I/O, no state between calls. Consecutive batches are taken as one group (``_take_group``)
if the result is the same as when each is taken by itself (``_take``).
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np

from rangeland.decode.kafka.batch_table import BatchColumn, Heads
from rangeland.decode.kafka.layout import TooManyHeaders, UndecodableRecord
from rangeland.dialects.fetch_values import DecodedChunk, FetchedRecords, Gap
from rangeland.dialects.kafka.aborted_transactions import AbortedTransactions
from rangeland.dialects.kafka.chunk_builder import ChunkBuilder
from rangeland.dialects.kafka.entry_checks import LogEntry
from rangeland.dialects.kafka.entry_records import entry_error
from rangeland.dialects.kafka.legacy_messages import StoredMessages, batch_error, split_messages
from rangeland.dialects.kafka.log_entries import BatchGroup, grouped_entries
from rangeland.errors import BadRecord
from rangeland.wire.memory_budget import HEADER_BYTES

MAX_CHUNK_BYTES = 64 << 20
"""A chunk ends after the entry that takes its decompressed records past this size. Each record
counts for more than its bytes, since small records take several times as much memory as columns
(``wire.memory_budget``). Headers are counted only when a chunk is decoded: if they too exceed this
size, the chunk is started over with fewer entries."""
_MAX_HEADERS = MAX_CHUNK_BYTES // HEADER_BYTES


def decode_chunks(
    fetched: FetchedRecords, from_offset: int, until_offset: int, *, reports_gaps: bool = False
) -> Iterator[DecodedChunk | Gap]:
    """All of one fetch response, in chunks of bounded memory. Each chunk continues where the
    previous one ends; the last ends at ``until_offset`` or after the last complete entry. Entries
    before ``from_offset`` are skipped. Raises BadRecord, which says what is damaged and, if known,
    where reading can resume."""

    def begin(offset: int) -> LogWalk:
        return walk_from(fetched, offset, until_offset, reports_gaps=reports_gaps)

    max_bytes = MAX_CHUNK_BYTES
    walk = begin(from_offset)
    while walk.next_offset < until_offset:
        builder = walk.fill_chunk(max_bytes)
        try:
            chunk = builder.finish(walk.next_offset, _MAX_HEADERS if max_bytes > 1 else sys.maxsize)
        except TooManyHeaders as error:
            fitting = builder.unpacked_bytes * _MAX_HEADERS // error.headers
            max_bytes = max(1, min(fitting, max_bytes) // 2)
            walk = begin(builder.from_offset)
            continue
        if chunk.next_offset > builder.from_offset:
            yield chunk
        elif walk.gap is None:
            return
        if walk.gap is not None:
            yield walk.gap
            walk.skip_gap()


def walk_from(
    fetched: FetchedRecords, from_offset: int, until_offset: int, *, reports_gaps: bool = False
) -> LogWalk:
    """A walk over these records for the offsets ``[from_offset, until_offset)``."""
    return LogWalk(
        grouped_entries(fetched, from_offset),
        AbortedTransactions(fetched.aborted),
        from_offset,
        until_offset,
        fetched.max_batch_bytes,
        reports_gaps,
    )


@dataclass(slots=True)
class LogWalk:
    """A walk over entries that decides what becomes of each of their offsets. All offsets before
    ``next_offset`` are in a chunk, or precede the first chunk."""

    entries: Iterator[BatchGroup | LogEntry]
    transactions: AbortedTransactions
    next_offset: int
    until_offset: int
    max_batch_bytes: int
    reports_gaps: bool
    chunk: ChunkBuilder = field(init=False)
    """The chunk that is being filled."""
    gap: Gap | None = None
    """The gap at which the walk has stopped, if gaps are reported."""
    last_offset: int = -1
    """The last offset of the previous entry, whether or not that is in the range."""
    rest: BatchGroup | None = None
    """The batches of a group that have not been taken yet."""
    pending: deque[LogEntry] = field(default_factory=deque)
    """Entries to take before the rest of the group: the entry after a gap, or single messages."""

    def fill_chunk(self, max_bytes: int) -> ChunkBuilder:
        """Begins a chunk, and walks to the end of the range or of the entries, to a gap, or until
        ``max_bytes`` are decompressed. If damage begins at or after the end of the range, the error
        also says up to where offsets are accounted for (``good_until``): the walk gets that far
        only if nothing before it accounts for the rest of the range."""
        self.chunk = ChunkBuilder(self.next_offset, self.until_offset, self.max_batch_bytes)
        try:
            self._advance(max_bytes)
        except BadRecord as error:
            if error.damage is None or error.damage.base_offset < self.until_offset:
                raise
            damage = replace(error.damage, good_until=self.next_offset)
            raise error.with_values(damage=damage) from error
        return self.chunk

    def skip_gap(self) -> None:
        """Continues after the gap at which the walk has stopped; what class its offsets get is up
        to the caller."""
        if self.gap is not None:
            self.next_offset = self.gap.next_offset
            self.gap = None

    def _is_filled(self, max_bytes: int) -> bool:
        is_end = self.next_offset >= self.until_offset or self.gap is not None
        return is_end or self.chunk.unpacked_bytes >= max_bytes

    def _advance(self, max_bytes: int) -> None:
        """Takes entries until the chunk is full or none are left."""
        while not self._is_filled(max_bytes):
            if self.pending:
                self._take(self.pending.popleft())
                continue
            item = self.rest or next(self.entries, None)
            self.rest = None
            if item is None:
                return
            if isinstance(item, BatchGroup):
                batches = self._take_group(item, max_bytes)
                heads = item.heads[batches:]
                self.rest = item._replace(heads=heads) if len(heads) else None
            elif isinstance(item, StoredMessages):
                for part in split_messages(item, self.until_offset):
                    self._take(part)
            else:
                self._take(item)

    def _take_group(self, group: BatchGroup, max_bytes: int) -> int:
        """Takes batches from the beginning of the group, at least one, and returns how many."""
        if self.transactions.is_open:
            return self._take_each(group, max_bytes)
        lasts = group.heads[:, BatchColumn.LAST_OFFSET]
        opens_at = self.transactions.opens_at
        if count := int(np.searchsorted(lasts, min(self.next_offset, opens_at))):
            self.last_offset = int(lasts[count - 1])  # all of these are before the range
            return count
        whole = int(np.searchsorted(lasts, min(self.until_offset, opens_at)))
        if int(group.heads[0, BatchColumn.BASE_OFFSET]) < self.next_offset:
            whole = 0
        elif whole and self.reports_gaps:
            whole = self._until_gap(group.heads[:whole])
        if whole == 0:
            self._take(group.entry(0))
            return 1
        whole_batches = group._replace(heads=group.heads[:whole])
        batches = self.chunk.add_batches(whole_batches, self.next_offset, max_bytes)
        self.last_offset = int(lasts[batches - 1])
        self.next_offset = self.last_offset + 1
        return batches

    def _until_gap(self, heads: Heads) -> int:
        """How many of these batches continue the walk, each following the previous one without a
        gap."""
        ends = np.concatenate(([self.next_offset], heads[:-1, BatchColumn.LAST_OFFSET] + 1))
        gaps = np.flatnonzero(heads[:, BatchColumn.BASE_OFFSET] > ends)
        return int(gaps[0]) if len(gaps) else len(heads)

    def _take_each(self, group: BatchGroup, max_bytes: int) -> int:
        """Takes batches one by one, as long as an aborted transaction is open, and returns how
        many."""
        for row in range(len(group.heads)):
            self._take(group.entry(row))
            if self._is_filled(max_bytes) or not self.transactions.is_open:
                break
        return row + 1

    def _take(self, entry: LogEntry) -> None:
        """Adds an entry to the chunk, or skips it if it is outside the range. A skipped entry is
        not opened, so the beginning of a skipped wrapper remains unknown."""
        last = entry.last_offset
        is_passed = last < self.next_offset
        if self.reports_gaps and not is_passed and self._stops_before(entry):
            return
        is_aborted = self.transactions.is_aborted(entry, is_passed=is_passed)
        base = last if is_passed else entry.base_offset
        if base <= self.last_offset:
            raise batch_error(base, f"it follows offset {self.last_offset}")
        self.last_offset = last
        if is_passed:
            return
        from_offset = min(max(base, self.next_offset), self.until_offset)
        until_offset = min(last + 1, self.until_offset)
        if from_offset == until_offset and from_offset > self.next_offset:
            # The entry is beyond the range and is never opened, but nothing else shows that the
            # offsets before it are empty.
            _check_is_intact(entry)
        self.chunk.compacted += from_offset - self.next_offset
        self.next_offset = until_offset
        if from_offset == until_offset:
            return
        if entry.control:
            self.chunk.add_control(entry, from_offset, until_offset)
        elif is_aborted:
            self.chunk.add_aborted(entry, from_offset, until_offset)
        else:
            self.chunk.add_records(entry, from_offset, until_offset)

    def _stops_before(self, entry: LogEntry) -> bool:
        """Whether there is a gap before this entry or inside it; then the entry is taken later.
        Plain messages are taken one by one: no header accounts for the offsets between them."""
        first = min(entry.base_offset, self.until_offset)
        if first > self.next_offset:
            _check_is_intact(entry)  # nothing else shows that there is nothing before it
            self.gap = Gap(first)
            self.pending.appendleft(entry)
            return True
        if (
            not isinstance(entry, StoredMessages)
            or entry.record_count > entry.last_offset - entry.base_offset
        ):
            return False
        self.pending.extendleft(reversed(list(entry.messages())))
        return True


def _check_is_intact(entry: LogEntry) -> None:
    """Raises BadRecord if the entry is damaged; the error concerns the whole batch."""
    try:
        entry.check()
    except UndecodableRecord as error:
        raise entry_error(error, entry.payload()) from None
