"""Builds a chunk: assigns a class to each offset of its entries, and decodes all records that land
in one call.

Offsets are counted twice: headers say how many rows there will be, and the decoder reports how many
it found. If the two disagree, there is no chunk.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field

import pyarrow as pa

from rangeland.decode import kafka_decoder
from rangeland.decode.kafka.batch_table import BatchColumn, Payloads
from rangeland.decode.kafka.layout import UndecodableRecord
from rangeland.dialects.fetch_values import DecodedChunk, miscount_error
from rangeland.dialects.kafka.batch_opening import is_control, open_group
from rangeland.dialects.kafka.entry_checks import LogEntry
from rangeland.dialects.kafka.entry_records import entry_error, records_of
from rangeland.dialects.kafka.legacy_messages import StoredMessages
from rangeland.dialects.kafka.log_entries import BatchGroup
from rangeland.model import Counts
from rangeland.wire.memory_budget import RECORD_BYTES


@dataclass(slots=True)
class ChunkBuilder:
    """The chunk that begins at ``from_offset``. When an entry is added, either its offsets get a
    class at once, or its payload is kept for the decoder."""

    from_offset: int
    until_offset: int
    """The end of the range: records at or after it get no row."""
    max_batch_bytes: int
    unpacked_bytes: int = 0
    """How much memory the payloads take, not counting the headers of their records."""
    payloads: Payloads = field(default_factory=Payloads)
    ends: dict[int, int | None] = field(default_factory=dict)
    """For plain messages, by the index of their payload: where the next entry begins."""
    control: int = 0
    aborted: int = 0
    compacted: int = 0
    expected_rows: int = 0
    """The number of rows expected from those payloads whose headers say how many of their records
    are in the range."""
    cut_width: int = 0
    """The number of offsets of the range in the other payloads: these have gaps, and the range cuts
    through them."""

    def add_control(self, entry: LogEntry, from_offset: int, until_offset: int) -> None:
        """Adds the offsets ``[from_offset, until_offset)`` of a batch of transaction markers."""
        self.control += self._count(entry, from_offset, until_offset)

    def add_aborted(self, entry: LogEntry, from_offset: int, until_offset: int) -> None:
        """Adds the offsets ``[from_offset, until_offset)`` of an entry that belongs to an aborted
        transaction."""
        self.aborted += self._count(entry, from_offset, until_offset)

    def add_records(self, entry: LogEntry, from_offset: int, until_offset: int) -> None:
        """Adds the offsets ``[from_offset, until_offset)`` of an entry whose records land. Raises
        BadRecord if the entry cannot be opened."""
        payload = entry.payload(self.max_batch_bytes)
        if isinstance(entry, StoredMessages):
            self.ends[len(self.payloads)] = entry.next_offset
        self.payloads.append(payload)
        self.unpacked_bytes += len(payload.data) + RECORD_BYTES * entry.record_count
        count = _records_within(entry, from_offset, until_offset)
        if count is None:
            self.cut_width += until_offset - from_offset
        else:
            self.expected_rows += count
            self.compacted += until_offset - from_offset - count

    def add_batches(self, group: BatchGroup, next_offset: int, max_bytes: int) -> int:
        """Adds all offsets from ``next_offset`` to the end of the batch with which ``max_bytes``
        are decompressed, and returns how many batches that takes. All batches must be in the range,
        and none in an aborted transaction."""
        batches, size = open_group(
            group, self.payloads, max_bytes - self.unpacked_bytes, self.max_batch_bytes
        )
        self.unpacked_bytes += size
        heads = group.heads[:batches]
        counts = heads[:, BatchColumn.RECORD_COUNT]
        count = int(counts.sum())
        control = int(counts[is_control(heads)].sum())
        self.compacted += int(heads[-1, BatchColumn.LAST_OFFSET]) + 1 - next_offset - count
        self.control += control
        self.expected_rows += count - control
        return batches

    def finish(self, next_offset: int, max_headers: int = sys.maxsize) -> DecodedChunk:
        """The chunk, which ends at ``next_offset``. Raises TooManyHeaders if several payloads
        together have more than ``max_headers``, BadRecord if one cannot be decoded, and ProofFailed
        if the rows disagree with the headers."""
        rows = self._decode(max_headers)
        landed = rows.num_rows if rows is not None else 0
        cut_rows = landed - self.expected_rows
        counts = Counts(
            landed=landed,
            control=self.control,
            aborted=self.aborted,
            compacted=self.compacted + self.cut_width - cut_rows,
        )
        if not 0 <= cut_rows <= self.cut_width or counts.total != next_offset - self.from_offset:
            why = f"{self.expected_rows} rows were expected from whole batches and at most "
            why += f"{self.cut_width} from others"
            raise miscount_error(self.from_offset, next_offset, landed, counts, why)
        return DecodedChunk(next_offset, rows if landed else None, counts)

    def _count(self, entry: LogEntry, from_offset: int, until_offset: int) -> int:
        """The number of records in an entry that does not land; its other offsets are compacted."""
        count = _records_within(entry, from_offset, until_offset)
        if count is None:
            count = records_of(entry, from_offset, until_offset).num_rows
        entry.check()
        self.compacted += until_offset - from_offset - count
        return count

    def _decode(self, max_headers: int) -> pa.RecordBatch | None:
        """The rows of all payloads; None if there are no payloads."""
        if not self.payloads:
            return None
        limit = max_headers if len(self.payloads) > 1 else sys.maxsize
        try:
            return kafka_decoder().decode_records(
                self.payloads, self.from_offset, self.until_offset, limit
            )
        except UndecodableRecord as error:
            next_offset = self.ends.get(error.payload)
            raise entry_error(error, self.payloads[error.payload], next_offset) from None


def _records_within(entry: LogEntry, from_offset: int, until_offset: int) -> int | None:
    """How many records an entry has at ``[from_offset, until_offset)``, according to its header;
    None if its offsets have gaps and only some of them are in the range."""
    width = until_offset - from_offset
    whole = entry.last_offset + 1 - entry.base_offset
    if entry.record_count == whole:
        return width
    return entry.record_count if width == whole else None
