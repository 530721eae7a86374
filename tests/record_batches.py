"""Writes v2 record batches, for tests: what a producer, a transaction coordinator or a log
cleaner would write, and, on request, what none of them should.

It shares nothing with the decoders but the declared header layout."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace

import cramjam
import crc32c

from rangeland.decode.kafka.entry_layouts import BATCH_V2, BatchHeader

CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
NO_PRODUCER = -1
COMMIT, ABORT = 1, 0

LZ4_BLOCK_BYTES = 1 << 16
LZ4_LINKED, LZ4_INDEPENDENT = bytes.fromhex("5440ae"), bytes.fromhex("7440bd")
"""Flags, block size, and their checksum."""

Header = tuple[bytes, bytes | None]


@dataclass(frozen=True)
class Record:
    """``delta`` None: one above the record before."""

    key: bytes | None = None
    value: bytes | None = None
    headers: tuple[Header, ...] = ()
    timestamp_delta: int = 0
    delta: int | None = None


@dataclass(frozen=True)
class Batch:
    """``last_offset_delta`` None: that of the last record; larger where a cleaner took the
    last records. ``crc_error`` is added to the checksum. ``body`` replaces the stored
    records, ``count`` what the header says of their number."""

    base_offset: int
    records: Sequence[Record] = ()
    codec: str = "none"
    xerial: bool = False
    base_timestamp_ms: int = 1_700_000_000_000
    max_timestamp_ms: int = 1_700_000_000_000
    log_append: bool = False
    transactional: bool = False
    control: bool = False
    producer_id: int = NO_PRODUCER
    last_offset_delta: int | None = None
    crc_error: int = 0
    codec_number: int | None = None
    magic: int = 2
    body: bytes | None = None
    count: int | None = None

    @property
    def offsets(self) -> list[int]:
        return [self.base_offset + delta for delta in deltas(self.records)]

    @property
    def last_delta(self) -> int:
        if self.last_offset_delta is not None:
            return self.last_offset_delta
        return max(deltas(self.records), default=0)

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_delta + 1


def deltas(records: Sequence[Record]) -> list[int]:
    found: list[int] = []
    for record in records:
        after = found[-1] + 1 if found else 0
        found.append(after if record.delta is None else record.delta)
    return found


def varint(value: int) -> bytes:
    raw = (value << 1) ^ (-1 if value < 0 else 0)
    out = bytearray()
    while raw >= 0x80:
        out.append(raw & 0x7F | 0x80)
        raw >>= 7
    return bytes([*out, raw])


def encode_records(records: Sequence[Record]) -> bytes:
    """The uncompressed record section of a batch."""
    return b"".join(
        encode_record(record, delta) for record, delta in zip(records, deltas(records), strict=True)
    )


def encode_record(record: Record, delta: int) -> bytes:
    fields = [
        b"\0",
        varint(record.timestamp_delta),
        varint(delta),
        _sized(record.key),
        _sized(record.value),
        varint(len(record.headers)),
        *(_sized(key) + _sized(value) for key, value in record.headers),
    ]
    body = b"".join(fields)
    return varint(len(body)) + body


def _sized(value: bytes | None) -> bytes:
    return varint(-1) if value is None else varint(len(value)) + value


def compress(codec: str, data: bytes, xerial: bool = False) -> bytes:
    if codec == "none":
        return data
    if codec == "snappy":
        if xerial:
            return _xerial(data)
        return bytes(cramjam.snappy.compress_raw(data))
    packed = bytes(getattr(cramjam, codec).compress(data))
    return _independent(packed) if codec == "lz4" and len(data) <= LZ4_BLOCK_BYTES else packed


def _independent(frame: bytes) -> bytes:
    """A frame of one block that says that its blocks are independent: brokers refuse one that
    does not, and the library never writes it. The header ends with a byte of its own checksum."""
    assert frame[4:7] == LZ4_LINKED
    return frame[:4] + LZ4_INDEPENDENT + frame[7:]


def _xerial(data: bytes, block_bytes: int = 32 * 1024) -> bytes:
    blocks = [data[i : i + block_bytes] for i in range(0, len(data), block_bytes)]
    packed = [bytes(cramjam.snappy.compress_raw(block)) for block in blocks]
    return (
        b"\x82SNAPPY\0"
        + struct.pack(">ii", 1, 1)
        + b"".join(struct.pack(">i", len(block)) + block for block in packed)
    )


def encode(batch: Batch) -> bytes:
    """The whole batch as stored in a log and sent by a broker."""
    body = batch.body
    if body is None:
        body = compress(batch.codec, encode_records(batch.records), batch.xerial)
    codec = CODECS[batch.codec] if batch.codec_number is None else batch.codec_number
    flags = 8 * batch.log_append + 16 * batch.transactional + 32 * batch.control
    header = BatchHeader(
        base_offset=batch.base_offset,
        length=BATCH_V2.size + len(body) - 12,
        leader_epoch=0,
        magic=batch.magic,
        crc=0,
        attributes=codec | flags,
        last_offset_delta=batch.last_delta,
        base_timestamp_ms=batch.base_timestamp_ms,
        max_timestamp_ms=batch.max_timestamp_ms,
        producer_id=batch.producer_id,
        producer_epoch=0 if batch.producer_id >= 0 else -1,
        base_sequence=-1,
        record_count=len(batch.records) if batch.count is None else batch.count,
    )
    checked = BATCH_V2.write(header)[BATCH_V2.byte_index_of("attributes") :] + body
    crc = (crc32c.crc32c(checked) + batch.crc_error) & 0xFFFFFFFF
    return BATCH_V2.write(header._replace(crc=crc)) + body


def encode_log(batches: Sequence[Batch]) -> bytes:
    return b"".join(encode(batch) for batch in batches)


def marker(offset: int, producer_id: int, kind: int) -> Batch:
    """The end of a transaction, as the coordinator writes it."""
    record = Record(key=struct.pack(">hh", 0, kind), value=struct.pack(">hi", 0, 7))
    return Batch(offset, [record], transactional=True, control=True, producer_id=producer_id)


def cleaned(batch: Batch, keep: Sequence[int]) -> Batch:
    """The batch after a log cleaner: only the records at these indexes, offsets as before."""
    at = deltas(batch.records)
    kept = [replace(batch.records[i], delta=at[i]) for i in sorted(keep)]
    return replace(batch, records=kept, last_offset_delta=batch.last_delta)
