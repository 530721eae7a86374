"""From pulled bytes to rows, with a class for every offset on the way.

The decoder makes rows of all messages of the range, or of those with the tags that were asked
for; what is packed is unpacked here, and then it is the row's value. An offset between two
messages has none: its queue is compacted, which brokers do to topics that ask for it. Where
tags were asked for it is filtered: nobody says of what a broker leaves out whether it is there.

Transactions need nothing here: a broker keeps what is not committed in a topic of its own, and
gives a message its place in the queue when it is.

Rules: no I/O, no state between calls.
"""

from __future__ import annotations

import struct
import zlib
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import cramjam
import numpy as np
import pyarrow as pa

from rangeland.decode import columns, stored_decoder
from rangeland.decode.stored import NOT_PACKED, Walked
from rangeland.dialects.kafka.compression import CODECS, MAX_BATCH_BYTES, Undecodable
from rangeland.dialects.rocketmq.stored import bad_decoded, bad_message_at
from rangeland.dialects.rocketmq.tagged import Given, take_head
from rangeland.errors import BadRecord, ProofFailed
from rangeland.model import Counts, Isolation

MAX_CHUNK_BYTES: Final = 64 << 20
"""A chunk ends after the message with which its unpacked values pass this."""

ZLIB_OF_OLD, LZ4, ZSTD, ZLIB = 0, 1, 2, 3
_FRAMED: Final = {LZ4: 3, ZSTD: 4}
"""By their numbers in Kafka's batches: the codecs are the same."""

FIRST_VALUES_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Chunk:
    """What became of the offsets up to ``next_offset``, which ``counts`` adds up to. ``batch``
    has the columns ``decode.stored.STORED``, or is None without rows."""

    next_offset: int
    batch: pa.RecordBatch | None
    counts: Counts


def decode_chunks(
    records: memoryview,
    from_offset: int,
    until_offset: int,
    isolation: Isolation,
    aborted: Sequence[tuple[int, int]],
) -> Iterator[Chunk]:
    """All of one answer, in chunks of bounded memory where messages are packed. Their ranges
    follow on each other; the last ends at ``until_offset`` or behind the last whole message.
    ``isolation`` and ``aborted`` say nothing.

    Raises BadRecord with the fact base_offset and, where known, next_offset behind it."""
    if from_offset >= until_offset or not len(records):
        return
    given = take_head(records)
    try:
        batch, codecs, walked = stored_decoder().decode_stored(
            given.messages, from_offset, until_offset, given.tags
        )
    except BadRecord as error:
        raise bad_decoded(given, error, from_offset) from None
    end = min(until_offset, _told_until(given, walked, until_offset))
    if end <= from_offset:
        return
    if codecs is None:
        yield _chunk(batch, from_offset, end, given.until_offset is not None)
        return
    yield from _unpacked_chunks(batch, codecs, from_offset, end, given.until_offset is not None)


def _told_until(given: Given, walked: Walked, until_offset: int) -> int:
    """Up to where the records say what became of offsets."""
    rest = given.messages[walked.end :]
    if not rest and given.until_offset is not None:
        return given.until_offset
    # A message behind the range ends the walk before it: then the range is told of to its end.
    is_whole = len(rest) > 0 and not _is_cut(rest)
    return until_offset if is_whole else walked.last_offset + 1


def _is_cut(rest: memoryview) -> bool:
    """Whether the bytes begin with no whole message."""
    return len(rest) < 4 or int.from_bytes(rest[:4], "big") > len(rest)


def _chunk(batch: pa.RecordBatch, from_offset: int, next_offset: int, by_tags: bool) -> Chunk:
    rows = batch.num_rows
    left = next_offset - from_offset - rows
    counts = Counts(landed=rows, **{"filtered" if by_tags else "compacted": left})
    if left < 0:
        raise ProofFailed(
            f"offsets [{from_offset}, {next_offset}) became {rows} rows",
            from_offset=from_offset,
            next_offset=next_offset,
            landed=rows,
        )
    return Chunk(next_offset, batch if rows else None, counts)


def _unpacked_chunks(
    batch: pa.RecordBatch, codecs: Any, from_offset: int, end: int, by_tags: bool
) -> Iterator[Chunk]:
    offsets = batch.column(columns.OFFSET.name).to_numpy()
    stored = batch.column(columns.VALUE.name)
    _, ends, data = stored.buffers()
    places = np.frombuffer(ends, np.int32, len(stored) + 1, 4 * stored.offset).tolist()
    packed = memoryview(data).cast("B")
    first, values = 0, _Values()
    for row, codec in enumerate(codecs.tolist()):
        try:
            values.add(codec, packed[places[row] : places[row + 1]])
        except Undecodable as error:
            offset = int(offsets[row])
            raise bad_message_at(offset, str(error), next_offset=offset + 1, codec=codec) from None
        if values.size >= MAX_CHUNK_BYTES and row + 1 < len(codecs):
            until = int(offsets[row]) + 1
            yield _chunk(_with_values(batch, first, values), from_offset, until, by_tags)
            first, values, from_offset = row + 1, _Values(), until
    yield _chunk(_with_values(batch, first, values), from_offset, end, by_tags)


def _with_values(batch: pa.RecordBatch, first: int, values: _Values) -> pa.RecordBatch:
    column = values.column()
    part = batch.slice(first, len(column))
    index = part.schema.get_field_index(columns.VALUE.name)
    return part.set_column(index, columns.VALUE, column)


class _Values:
    """A column of values that grows. Each is unpacked to where it stays."""

    def __init__(self) -> None:
        self.size = 0
        self._ends = array("i", [0])
        self._data = pa.allocate_buffer(FIRST_VALUES_BYTES, resizable=True)

    def add(self, codec: int, data: memoryview) -> None:
        """Raises Undecodable."""
        if codec in _FRAMED:
            _, bound, unpack = CODECS[_FRAMED[codec]]
            place = self._room(self._bounded(bound, data))
            try:
                self.size += unpack(data, place)
            except cramjam.DecompressionError as error:
                raise Undecodable(f"its body cannot be unpacked: {error}") from None
        else:
            value = _plain(codec, data)
            self._room(len(value))[:] = value
            self.size += len(value)
        self._ends.append(self.size)

    def _bounded(self, bound: Callable[[memoryview], int], data: memoryview) -> int:
        try:
            size = bound(data)
        except (struct.error, IndexError) as error:
            raise Undecodable(f"its body cannot be unpacked: {error}") from None
        if size > MAX_BATCH_BYTES:
            raise Undecodable(f"its body may unpack to {size} bytes, {MAX_BATCH_BYTES} allowed")
        return size

    def _room(self, size: int) -> memoryview:
        if self.size + size > self._data.size:
            self._data.resize(max(self.size + size, 2 * self._data.size))
        return memoryview(self._data).cast("B")[self.size : self.size + size]

    def column(self) -> pa.Array:
        data = self._data
        data.resize(self.size, shrink_to_fit=True)
        ends = pa.py_buffer(self._ends)
        return pa.Array.from_buffers(columns.VALUE.type, len(self._ends) - 1, [None, ends, data], 0)


def _plain(codec: int, data: memoryview) -> bytes | memoryview:
    if codec == NOT_PACKED:
        return data
    if codec in (ZLIB_OF_OLD, ZLIB):
        return _inflated(data)
    raise Undecodable(f"codec {codec} is not known")


def _inflated(data: memoryview) -> bytes:
    stream = zlib.decompressobj()
    try:
        value = stream.decompress(data, MAX_BATCH_BYTES)
    except zlib.error as error:
        raise Undecodable(f"its zlib data cannot be unpacked: {error}") from None
    if stream.unconsumed_tail:
        raise Undecodable(f"its zlib data unpacks to more than {MAX_BATCH_BYTES} bytes")
    if not stream.eof:
        raise Undecodable("its zlib data ends too early")
    return value
