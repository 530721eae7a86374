"""The slow, obvious decoder of message sets: the judge of what the kernel must give.

One entry at a time, one field at a time. The first fault in reading order is raised, at the
place where its entry begins.

Rules: clarity before speed, no trick that the kernel also uses.
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
    bad_entry,
    messages_batch,
)


class _Message(NamedTuple):
    value: bytes
    offset: int
    position: int


class JafkaReference:
    """See ``sets.SetDecoder``."""

    def walk_entries(self, data: Any, until: int, *, plain_only: bool = False) -> EntryWalk:
        raw = bytes(data)
        entries, start, end = 0, 0, 0
        fault = None
        while end < until:
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
    place = record = 0
    while place < len(raw):
        length, fault = _length(raw, place)
        fault = fault or _kind(raw, place) or _checksum(raw, place, length)
        if fault is not None:
            raise bad_entry(fault, index, record, place)
        value = raw[place + LENGTH_BYTES + HEADER_BYTES : place + LENGTH_BYTES + length]
        if one.is_packed:
            yield _Message(value, one.base_offset, one.first_position + record)
        else:
            yield _Message(value, one.base_offset + place, 0)
        record += 1
        place += LENGTH_BYTES + length


def _length(raw: bytes, place: int) -> tuple[int, SetFault | None]:
    if place + LENGTH_BYTES > len(raw):
        return 0, SetFault.ENTRY_PAST_SET
    length = int.from_bytes(raw[place : place + LENGTH_BYTES], "big", signed=True)
    if length < HEADER_BYTES:
        return length, SetFault.ENTRY_TOO_SHORT
    if place + LENGTH_BYTES + length > len(raw):
        return length, SetFault.ENTRY_PAST_SET
    return length, None


def _kind(raw: bytes, place: int) -> SetFault | None:
    magic, attributes = raw[place + LENGTH_BYTES], raw[place + LENGTH_BYTES + 1]
    if magic != MAGIC:
        return SetFault.UNKNOWN_MAGIC
    return SetFault.NOT_PLAIN if attributes & CODEC_MASK else None


def _checksum(raw: bytes, place: int, length: int) -> SetFault | None:
    payload = place + LENGTH_BYTES + HEADER_BYTES
    stored = int.from_bytes(raw[payload - 4 : payload], "big")
    found = zlib.crc32(raw[payload : place + LENGTH_BYTES + length])
    return None if found == stored else SetFault.BAD_CHECKSUM
