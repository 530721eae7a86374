"""A v2 record batch: its header, and how it is opened. It is a ``LogEntry``.

Pure functions of bytes. ``log_entries`` decides whether a batch is consistent with its neighbours,
``records`` decides which class its offsets get.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from crc32c import crc32c

from rangeland.decode.kafka.batch_table import LOG_APPEND
from rangeland.decode.kafka.entry_layouts import BATCH_V2, BatchHeader
from rangeland.decode.kafka.layout import Payload
from rangeland.dialects.kafka.compression import CODEC_MASK, codec_name, decompress
from rangeland.dialects.kafka.legacy_messages import batch_error
from rangeland.errors import BadRecord
from rangeland.wire.bounded_decompression import NotDecompressible, check_within_limits
from rangeland.wire.memory_budget import HEADER_BYTES, MAX_BATCH_BYTES

CHECKED = BATCH_V2.byte_index_of("attributes")
CONTROL = 0x20
_TRANSACTIONAL = 0x10


class BatchV2(NamedTuple):
    """A v2 record batch (Kafka's DefaultRecordBatch). ``stored`` contains all of its bytes."""

    header: BatchHeader
    stored: memoryview
    base_offset: int
    last_offset: int
    record_count: int
    producer_id: int
    transactional: bool
    control: bool
    next_offset: int | None = None
    """The beginning of the next entry, if the end given in the header is uncertain; a correct
    checksum makes it certain."""

    def check(self) -> None:
        crc = crc32c(self.stored[CHECKED:])
        if crc != self.header.crc:
            codec = self.header.attributes & CODEC_MASK
            raise self.damage_error(
                f"its checksum is wrong (codec {codec_name(codec)})",
                self.next_offset,
                expected_crc=self.header.crc,
                found_crc=crc,
                codec=codec,
            )

    def payload(self, max_bytes: int = MAX_BATCH_BYTES) -> Payload:
        self.check()
        header = self.header
        codec = header.attributes & CODEC_MASK
        try:
            data = unpack_records(
                codec, self.stored[BATCH_V2.size :], header.record_count, max_bytes
            )
        except NotDecompressible as error:
            raise self.damage_error(str(error), codec=codec) from None
        has_append_time = header.attributes & LOG_APPEND
        return Payload(
            data,
            header.base_offset,
            header.base_timestamp_ms,
            header.max_timestamp_ms if has_append_time else None,
            header.record_count,
            header.last_offset_delta,
            max_headers=max_bytes // HEADER_BYTES,
        )

    def damage_error(self, why: str, next_offset: int | None = None, **facts: Any) -> BadRecord:
        """The error for damage in the batch. ``next_offset``: where the batch ends, if not where
        its header says."""
        next_offset = self.last_offset + 1 if next_offset is None else next_offset
        return batch_error(self.base_offset, why, next_offset=next_offset, **facts)


def unpack_records(codec: int, body: memoryview, record_count: int, max_bytes: int) -> Any:
    """The records of a batch, decompressed. An empty batch keeps its codec but has no bytes to
    decompress. Raises NotDecompressible."""
    data = decompress(codec, body, max_bytes) if body else body
    check_within_limits(record_count, len(data) if codec else 0, max_bytes)
    return data


def batch_of(stored: memoryview, header: BatchHeader | None = None) -> BatchV2:
    """The batch as its header describes it, not verified."""
    header = header or BATCH_V2.read(stored)
    return BatchV2(
        header,
        stored,
        header.base_offset,
        header.base_offset + header.last_offset_delta,
        header.record_count,
        header.producer_id,
        bool(header.attributes & _TRANSACTIONAL),
        bool(header.attributes & CONTROL),
    )
