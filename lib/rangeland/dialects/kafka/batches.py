"""The entries of a Kafka log as a fetch brings them: finding them, and opening one.

An entry is a v2 batch, or what stood for it before: a wrapper, which is a message that holds
packed ones, or a run of plain messages (``messagesets``). One log may have all of them.

A fetch answer holds whole batches and, at its end, maybe a piece of one, which is ignored:
the next fetch brings it again. Finding entries only hops over their prefixes; checksum and
decompression wait until an entry is opened, which many never are (before the wanted
offsets, aborted).

Rules: pure functions of bytes. Which offsets are wanted and what becomes of them is decided
in ``records``. ``READERS`` is the table by magic byte: a format is one more line there.
What is wrong with an entry is said by ``bad_batch``, whichever it is.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Protocol

from crc32c import crc32c

from rangeland.decode import walk_messages
from rangeland.decode.payload import Payload
from rangeland.dialects.kafka.compression import CODECS, Undecodable, decompress
from rangeland.dialects.kafka.messagesets import (
    MAX_RUN_BYTES,
    bad_batch,
    is_plain,
    read_messages,
)
from rangeland.errors import BadRecord
from rangeland.wire.layouts import BATCH_PREFIX, BATCH_V2, BatchHeader

__all__ = ["READERS", "BatchV2", "Entry", "bad_batch", "entries", "next_offset", "spans"]

_LENGTH_END = BATCH_PREFIX.size
_MAGIC = BATCH_V2.position_of("magic")  # at the same place in all formats
_CHECKED = BATCH_V2.position_of("attributes")
_MAX_OFFSET = (1 << 63) - 2

_CODEC, _LOG_APPEND, _TRANSACTIONAL, _CONTROL = 0x07, 0x08, 0x10, 0x20


class Entry(Protocol):
    """One entry of a log: what must be known before it is opened. ``last_offset`` counts
    offsets that a cleaner has emptied; ``record_count`` does not. Of a wrapper only
    ``last_offset`` is known: whoever asks for the others opens it, and may get BadRecord."""

    @property
    def base_offset(self) -> int: ...
    @property
    def last_offset(self) -> int: ...
    @property
    def record_count(self) -> int: ...
    @property
    def producer_id(self) -> int: ...
    @property
    def transactional(self) -> bool: ...
    @property
    def control(self) -> bool: ...
    def check(self) -> None:
        """Raises BadRecord if the stored bytes do not have their checksum."""

    def payload(self) -> Payload:
        """Checked and decompressed. Raises BadRecord."""


class BatchV2(NamedTuple):
    """A v2 record batch (Kafka's DefaultRecordBatch); ``stored`` are all of its bytes."""

    header: BatchHeader
    stored: memoryview
    base_offset: int
    last_offset: int
    record_count: int
    producer_id: int
    transactional: bool
    control: bool

    def check(self) -> None:
        found = crc32c(self.stored[_CHECKED:])
        if found != self.header.crc:
            codec = self.header.attributes & _CODEC
            name = CODECS[codec].name if codec in CODECS else "none"
            raise self.bad(
                f"its checksum is wrong (codec {name})",
                expected_crc=self.header.crc,
                found_crc=found,
                codec=codec,
            )

    def payload(self) -> Payload:
        """An empty batch keeps its codec and has no bytes to unpack."""
        self.check()
        header, body = self.header, self.stored[BATCH_V2.size :]
        codec = header.attributes & _CODEC
        try:
            data = decompress(codec, body) if body else body
        except Undecodable as error:
            raise self.bad(str(error), codec=codec) from None
        stamped = header.attributes & _LOG_APPEND
        return Payload(
            data,
            header.base_offset,
            header.base_timestamp_ms,
            header.max_timestamp_ms if stamped else None,
            header.record_count,
            header.last_offset_delta,
        )

    def bad(self, why: str, **facts: Any) -> BadRecord:
        return bad_batch(self.base_offset, why, next_offset=self.last_offset + 1, **facts)


def entries(records: memoryview) -> Iterator[Entry]:
    """The complete entries, in order. Raises BadRecord for one that cannot be one."""
    floor = 0
    for position, end in spans(records, with_runs=True):
        magic = records[position + _MAGIC]
        reader = READERS.get(magic)
        if reader is None:
            base_offset = BATCH_PREFIX.read(records, position).base_offset
            raise bad_batch(base_offset, f"its format (magic {magic}) is not known", magic=magic)
        entry = reader(records[position:end], floor)
        floor = entry.last_offset + 1
        yield entry


def next_offset(records: memoryview, from_offset: int = 0) -> int | None:
    """The offset after the last complete entry, found without decoding anything. The bytes
    say it themselves: ``from_offset`` is for dialects whose bytes do not.

    None if there is no complete entry: the fetch was too small for the next one, or brought
    nothing. Raises BadRecord."""
    last = deque(spans(records, with_runs=True), maxlen=1)
    if not last:
        return None
    ((position, end),) = last
    return next(entries(records[position:end])).last_offset + 1


def spans(records: memoryview, *, with_runs: bool = False) -> Iterator[tuple[int, int]]:
    """Where complete entries begin and end; a run of plain messages is one, or each of them
    is. Raises BadRecord for a length that is none."""
    position, size = 0, len(records)
    unpack = BATCH_PREFIX.unpack_from
    while position + _LENGTH_END <= size:
        base_offset, length = unpack(records, position)
        if length < _MAGIC + 1 - _LENGTH_END:
            raise bad_batch(base_offset, f"its length is {length}", length=length)
        end = position + _LENGTH_END + length
        if end > size:
            return
        if with_runs and is_plain(records, position):
            end = max(end, position + walk_messages(records[position:], MAX_RUN_BYTES).end)
        yield position, end
        position = end


def _read_v2(stored: memoryview, floor: int) -> Entry:
    if len(stored) < BATCH_V2.size:
        base_offset, length = BATCH_PREFIX.unpack_from(stored)
        raise bad_batch(base_offset, f"its length is {length}", length=length)
    header = BATCH_V2.read(stored)
    base_offset, delta, count = header.base_offset, header.last_offset_delta, header.record_count
    attributes = header.attributes
    if base_offset < 0 or delta < 0 or base_offset + delta > _MAX_OFFSET:
        raise bad_batch(base_offset, "its offsets are impossible", last_offset_delta=delta)
    batch = BatchV2(
        header,
        stored,
        base_offset,
        base_offset + delta,
        count,
        header.producer_id,
        bool(attributes & _TRANSACTIONAL),
        bool(attributes & _CONTROL),
    )
    if not 0 <= count <= delta + 1:
        raise batch.bad(
            f"it says it has {count} records at {delta + 1} offsets", record_count=count
        )
    return batch


READERS: dict[int, Callable[[memoryview, int], Entry]] = {
    0: read_messages,
    1: read_messages,
    2: _read_v2,
}
"""Each is given an entry's bytes, and the offset behind the entry before."""
