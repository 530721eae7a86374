"""The beginnings and ends of entries in a fetched Kafka log, judging by their prefixes alone.

Pure functions of bytes. Nothing is opened, and the stored offsets are not checked; ``entry_checks``
does that.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct

from rangeland.decode import kafka_decoder
from rangeland.decode.kafka.entry_layouts import BATCH_PREFIX, BATCH_V2
from rangeland.dialects.kafka.legacy_messages import MAX_JOINED_BYTES, batch_error, is_plain

LENGTH_END = BATCH_PREFIX.size
MAGIC = BATCH_V2.byte_index_of("magic")  # at the same byte in all formats
MAX_OFFSET = (1 << 63) - 2

_OFFSETS = Struct(f">q{BATCH_V2.byte_index_of('last_offset_delta') - 8}xi")
"""The first offset, and how far the last offset is from it."""


def spans(
    records: memoryview, begin: int = 0, *, join_messages: bool = False
) -> Iterator[tuple[int, int]]:
    """The bytes at which complete entries begin and end, from ``begin`` on. With ``join_messages``,
    consecutive plain messages count as one entry, otherwise each is an entry of its own. Raises
    BadRecord for an impossible length."""
    byte_index, size = begin, len(records)
    unpack = BATCH_PREFIX.unpack_from
    while byte_index + LENGTH_END <= size:
        base_offset, length = unpack(records, byte_index)
        if length < MAGIC + 1 - LENGTH_END:
            raise batch_error(base_offset, f"its length is {length}", length=length)
        end = byte_index + LENGTH_END + length
        if end > size:
            return
        if join_messages and is_plain(records, byte_index):
            walk = kafka_decoder().walk_messages(records[byte_index:], MAX_JOINED_BYTES)
            end = max(end, byte_index + walk.end)
        yield byte_index, end
        byte_index = end


def first_of(records: memoryview, byte_index: int) -> int:
    """The offset stored in the entry that begins at ``byte_index``, even if the entry is
    incomplete: the first offset of a batch or of messages, the last of a wrapper. If nothing is
    there, the result is larger than any offset."""
    if byte_index + LENGTH_END > len(records):
        return MAX_OFFSET + 1
    base_offset, _ = BATCH_PREFIX.unpack_from(records, byte_index)
    return int(base_offset)


def first_and_delta(records: memoryview, byte_index: int, end: int) -> tuple[int, int]:
    """The stored offset of an entry, and the distance from it to the last offset, if the header has
    one."""
    if records[byte_index + MAGIC] == 2 and end - byte_index >= BATCH_V2.size:
        base, delta = _OFFSETS.unpack_from(records, byte_index)
        return base, delta
    return first_of(records, byte_index), 0
