"""The slow, obvious decoder of message sets, which the kernel must equal.

One entry at a time, one field at a time. The first fault in reading order is raised, at the
position where its entry begins. Clarity before speed, and no trick that the kernel also uses.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Any, NamedTuple

import pyarrow as pa

from rangeland.decode import columns
from rangeland.decode.jafka.layout import (
    CODEC_MASK,
    HEADER_BYTES,
    LENGTH_BYTES,
    MAGIC,
    POSITION,
    EntryWalk,
    MessageSet,
    SetFault,
    UndecodableEntry,
    messages_batch,
)


class _Message(NamedTuple):
    value: bytes
    offset: int
    position: int


class JafkaReference:
    """The functions of ``JafkaKernel``."""

    def walk_entries(self, data: Any, width: int, *, plain_only: bool = False) -> EntryWalk:
        raw = bytes(data)
        entries, start, end = 0, 0, 0
        fault = None
        while end < width:
            length, fault = _length(raw, end)
            if fault is None and plain_only:
                fault = _kind(raw, end)
            if fault is not None:
                break
            entries += 1
            start, end = end, end + LENGTH_BYTES + length
        return EntryWalk(entries, start, end, None if fault is SetFault.ENTRY_PAST_SET else fault)

    def decode_sets(self, sets: list[MessageSet]) -> pa.RecordBatch:
        messages = [m for index, one in enumerate(sets) for m in _messages(one, index)]
        return messages_batch(
            pa.array([m.value for m in messages], columns.VALUE.type),
            pa.array([m.offset for m in messages], columns.OFFSET.type),
            pa.array([m.position for m in messages], POSITION.type),
        )


def _messages(one: MessageSet, index: int) -> Iterator[_Message]:
    raw = bytes(one.data)
    start = record = 0
    while start < len(raw):
        length, fault = _length(raw, start)
        fault = fault or _kind(raw, start) or _checksum(raw, start, length)
        if fault is not None:
            raise UndecodableEntry(fault, index, record, start)
        value = raw[start + LENGTH_BYTES + HEADER_BYTES : start + LENGTH_BYTES + length]
        if one.is_packed:
            yield _Message(value, one.base_offset, one.first_position + record)
        else:
            yield _Message(value, one.base_offset + start, 0)
        record += 1
        start += LENGTH_BYTES + length


def _length(raw: bytes, position: int) -> tuple[int, SetFault | None]:
    if position + LENGTH_BYTES > len(raw):
        return 0, SetFault.ENTRY_PAST_SET
    length = int.from_bytes(raw[position : position + LENGTH_BYTES], "big", signed=True)
    if length < HEADER_BYTES:
        return length, SetFault.ENTRY_TOO_SHORT
    if position + LENGTH_BYTES + length > len(raw):
        return length, SetFault.ENTRY_PAST_SET
    return length, None


def _kind(raw: bytes, position: int) -> SetFault | None:
    magic, attributes = raw[position + LENGTH_BYTES], raw[position + LENGTH_BYTES + 1]
    if magic != MAGIC:
        return SetFault.UNKNOWN_MAGIC
    return SetFault.NOT_PLAIN if attributes & CODEC_MASK else None


def _checksum(raw: bytes, position: int, length: int) -> SetFault | None:
    payload = position + LENGTH_BYTES + HEADER_BYTES
    stored = int.from_bytes(raw[payload - 4 : payload], "big")
    found = zlib.crc32(raw[payload : position + LENGTH_BYTES + length])
    return None if found == stored else SetFault.WRONG_CHECKSUM
