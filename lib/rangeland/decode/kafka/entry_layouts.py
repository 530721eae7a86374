"""The layouts in Kafka's log: of record batches, of messages in formats 0 and 1, and of the key of
a transaction marker.

Values are as they are stored: checking them is up to the caller.
"""

from __future__ import annotations

from typing import NamedTuple

from rangeland.wire.fixed_layouts import I8, I16, I32, I64, U32, StructLayout


class BatchPrefix(NamedTuple):
    """The beginning of every entry of a log, whatever its magic. ``length`` counts the bytes after
    it, so an entry has ``BATCH_PREFIX.size + length`` bytes."""

    base_offset: I64
    length: I32


class BatchHeader(NamedTuple):
    """The header of a v2 batch (DefaultRecordBatch). ``crc`` is the stored CRC-32C of everything
    after it, from ``attributes`` to the end of the batch."""

    base_offset: I64
    length: I32
    leader_epoch: I32
    magic: I8
    crc: U32
    attributes: I16
    last_offset_delta: I32
    base_timestamp_ms: I64
    max_timestamp_ms: I64
    producer_id: I64
    producer_epoch: I16
    base_sequence: I32
    record_count: I32


class MessageV0(NamedTuple):
    """The part of a message of format 0 that precedes its key. ``length`` counts the bytes after
    it; ``crc`` is the CRC-32 of everything after it. After the key come another length and the
    value."""

    offset: I64
    length: I32
    crc: U32
    magic: I8
    attributes: I8
    key_length: I32


class MessageV1(NamedTuple):
    """The part of a message of format 1 that precedes its key: the same as ``MessageV0``, with a
    time."""

    offset: I64
    length: I32
    crc: U32
    magic: I8
    attributes: I8
    timestamp_ms: I64
    key_length: I32


class ControlKey(NamedTuple):
    """The key of a transaction marker."""

    version: I16
    kind: I16


BATCH_PREFIX = StructLayout(BatchPrefix)
BATCH_V2 = StructLayout(BatchHeader)
MESSAGE_V0 = StructLayout(MessageV0)
MESSAGE_V1 = StructLayout(MessageV1)
CONTROL_KEY = StructLayout(ControlKey)
