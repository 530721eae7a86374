"""Turns fetched bytes into rows, and accounts for every byte of the log.

A walk takes consecutive plain entries as they are, opens packed ones, and stops at the end of the
range, which must be the end of an entry. All messages are then decoded in one call.

Messages are counted twice: by the walk, and by the decoder as rows. If the two counts disagree,
nothing is returned.

Pure: no I/O, no state between calls. The bytes do not contain the offset at which they begin.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rangeland.decode import columns, jafka_decoder
from rangeland.decode.jafka.layout import HEADER_BYTES, MessageSet, SetFault, UndecodableEntry
from rangeland.dialects.fetch_values import DecodedChunk, FetchedRecords, miscount_error
from rangeland.dialects.jafka.log_entries import (
    GZIP_MAGIC,
    LENGTH_BYTES,
    Unpacked,
    check_begins_with_entry,
    entry_error,
    entry_fault_error,
    is_packed_set,
)
from rangeland.dialects.jafka.messages import ENTRY_HEADER
from rangeland.errors import BadRecord
from rangeland.model import Counts
from rangeland.wire.bounded_decompression import NotDecompressible
from rangeland.wire.memory_budget import MAX_BATCH_BYTES, RECORD_BYTES

MAX_CHUNK_BYTES = 64 << 20
"""A chunk ends after the entry that takes its decompressed messages past this size."""


def decode_chunks(
    fetched: FetchedRecords, from_offset: int, until_offset: int, *, reports_gaps: bool = False
) -> Iterator[DecodedChunk]:
    """The entries from ``from_offset`` on, in chunks of bounded memory. Each chunk continues where
    the previous one ends; the last ends at ``until_offset`` or after the last complete entry. There
    are no gaps between entries.

    Raises BadRecord, which says what is damaged and, if known, where reading can resume; also
    raised for an entry that extends beyond ``until_offset``.
    """
    while from_offset < until_offset:
        records = fetched.data[from_offset - fetched.from_offset :]
        max_bytes = fetched.max_batch_bytes
        chunk = decode_chunk(records, from_offset, until_offset, max_batch_bytes=max_bytes)
        if chunk.next_offset == from_offset:
            return
        yield chunk
        from_offset = chunk.next_offset


def decode_chunk(
    records: memoryview,
    from_offset: int,
    until_offset: int,
    *,
    max_bytes: int = MAX_CHUNK_BYTES,
    max_batch_bytes: int = MAX_BATCH_BYTES,
) -> DecodedChunk:
    """The complete entries at the beginning of ``records``, up to ``until_offset`` or until
    ``max_bytes`` are decompressed. If there is no complete entry, ``next_offset`` of the result is
    ``from_offset``. Raises what ``decode_chunks`` raises."""
    walk = _EntryWalker(records, from_offset, until_offset - from_offset, max_batch_bytes)
    while walk.byte_index < walk.width and walk.unpacked_bytes < max_bytes:
        if not walk.take(max_bytes - walk.unpacked_bytes):
            break
    if walk.byte_index == 0:
        check_begins_with_entry(records, from_offset)
    return walk.finish()


@dataclass(slots=True)
class _EntryWalker:
    """Takes entries from the beginning of ``records``, which is at ``from_offset``, up to ``width``
    bytes. Everything before ``byte_index`` is in ``sets``."""

    records: memoryview
    from_offset: int
    width: int
    max_batch_bytes: int
    byte_index: int = 0
    sets: list[MessageSet] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    """For each set, the offset at which its packed entry ends; -1 for plain sets."""
    messages: int = 0
    unpacked_bytes: int = 0

    def take(self, max_bytes: int) -> bool:
        """Takes consecutive plain entries, then a packed one. Returns False if there is neither."""
        start = self.byte_index
        records = self.records[start:]
        limit = min(self.width - start, max_bytes)
        walk = jafka_decoder().walk_entries(records, limit, plain_only=True)
        if walk.entries:
            self.sets.append(MessageSet(records[: walk.end], self.from_offset + start))
            self.ends.append(-1)
            self.messages += walk.entries
            self.unpacked_bytes += walk.end + RECORD_BYTES * walk.entries
            self._go_to(start + walk.start, start + walk.end)
        if walk.fault is SetFault.NOT_PLAIN:
            self._take_packed()
        elif walk.fault is not None:
            raise entry_fault_error(self.records, self.byte_index, self.from_offset, walk.fault)
        return self.byte_index > start

    def _take_packed(self) -> None:
        """Takes all messages of the packed entry at ``byte_index``."""
        start = self.byte_index
        end = start + LENGTH_BYTES + ENTRY_HEADER.read(self.records, start).length
        unpacked = Unpacked(self.from_offset + start, self.max_batch_bytes)
        try:
            unpacked.add(self.records[start:end])
        except NotDecompressible as error:
            fault = entry_fault_error(self.records, start, self.from_offset, SetFault.NOT_PLAIN)
            why = str(error)
            raise fault.with_words(why=why).with_facts(reason=why) from None
        self.sets += unpacked.sets
        self.ends += [self.from_offset + end] * len(unpacked.sets)
        self.messages += unpacked.messages
        self.unpacked_bytes += max(unpacked.size_bytes, end - start)
        self.unpacked_bytes += RECORD_BYTES * unpacked.messages
        self._go_to(start, end)

    def _go_to(self, last_start: int, end: int) -> None:
        self.byte_index = end
        if end > self.width:
            begin = self.from_offset
            raise beyond_range_error(begin + self.width, begin + last_start, begin + end)

    def finish(self) -> DecodedChunk:
        """The chunk of all entries taken so far. Raises BadRecord if one cannot be decoded, and
        ProofFailed if rows are missing."""
        batch = self._decode() if self.sets else None
        rows = batch.num_rows if batch is not None else 0
        next_offset = self.from_offset + self.byte_index
        if rows != self.messages:
            why = f"{self.messages} messages were counted in them"
            raise miscount_error(self.from_offset, next_offset, rows, f"{rows} rows", why)
        return DecodedChunk(next_offset, batch if rows else None, Counts(landed=rows))

    def _decode(self) -> pa.RecordBatch:
        try:
            batch = jafka_decoder().decode_sets(self.sets)
        except UndecodableEntry as error:
            raise self._entry_error(error) from None
        self._check_plain_messages_are_unpacked(batch)
        return batch

    def _check_plain_messages_are_unpacked(self, batch: pa.RecordBatch) -> None:
        """Raises BadRecord for a packed entry that is marked as plain, which is possible because no
        checksum covers the bits for the codec. Such a message is recognised by its value: a
        compressed set with correct checksums."""
        packed_at = {s.base_offset for s in self.sets if s.is_packed}
        values = batch.column(columns.VALUE.name)
        offsets = batch.column(columns.OFFSET.name)
        begins = pc.binary_slice(values, 0, len(GZIP_MAGIC))
        are_gzip = pc.equal(begins, pa.scalar(GZIP_MAGIC)).to_numpy(zero_copy_only=False)
        for row in np.flatnonzero(are_gzip).tolist():
            offset = offsets[row].as_py()
            value = values[row].as_buffer()
            if offset not in packed_at and is_packed_set(memoryview(value)):
                why = "it is marked as plain, but contains a compressed set of messages"
                end = offset + LENGTH_BYTES + HEADER_BYTES + value.size
                raise entry_error(offset, why, next_offset=end)

    def _entry_error(self, error: UndecodableEntry) -> BadRecord:
        """Turns the decoder's error, which counts sets, into one that names the entry by its
        offset."""
        message_set = self.sets[error.set]
        end = self.ends[error.set]
        fault = error.fault
        if message_set.is_packed:
            record = message_set.first_position + error.record
            why = f"in its message {record}, {fault.reason}"
            return entry_error(message_set.base_offset, why, next_offset=end, position=record)
        byte_index = error.byte_index + message_set.base_offset - self.from_offset
        return entry_fault_error(self.records, byte_index, self.from_offset, fault)


def beyond_range_error(range_end: int, from_offset: int, until_offset: int) -> BadRecord:
    """The error for an entry at ``[from_offset, until_offset)`` in a range that ends before it
    does. A plan's ranges end where entries end, so the length of this entry, or of an earlier one,
    is damaged."""
    occupied = f"it occupies [{from_offset}, {until_offset})"
    why = f"{occupied}, but the range ends at {range_end}, where an entry began"
    return entry_error(from_offset, why, entry_end=until_offset)
