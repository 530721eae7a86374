"""Reads the entries of a Kafka log by their headers, and checks that they do not contradict each
other.

No checksum covers the offset of an entry, so it is compared with its neighbours. If the offsets of
two entries exclude each other, the checksums and the following entry show which one is wrong; it is
raised as BadRecord, by way of ``batch_error``. An entry before the offsets that are still needed is
skipped, whatever it is. If an offset was changed so that its entry moves into a possible gap, this
goes undetected unless something fetched with it contradicts it.

Pure functions of bytes. ``READERS`` has one reader per magic byte: a new format is one more line
there.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeAlias

from rangeland.decode.kafka.entry_layouts import BATCH_PREFIX, BATCH_V2
from rangeland.dialects.kafka.entry_spans import (
    LENGTH_END,
    MAGIC,
    MAX_OFFSET,
    first_of,
    spans,
)
from rangeland.dialects.kafka.legacy_messages import (
    StoredMessages,
    Wrapper,
    batch_error,
    is_plain,
    read_messages,
)
from rangeland.dialects.kafka.record_batch import BatchV2, batch_of
from rangeland.errors import BadRecord
from rangeland.wire.memory_budget import MAX_BATCH_BYTES

LogEntry: TypeAlias = BatchV2 | StoredMessages | Wrapper
"""An entry of a Kafka log, in any format, as far as its header describes it. Verifying the checksum
and decompressing wait until it is opened; entries before the wanted offsets, and aborted ones, are
never opened.

``last_offset`` includes compacted offsets, ``record_count`` does not. ``check`` raises BadRecord if
the stored bytes do not match their checksum. ``payload`` is verified, and decompressed within
``max_bytes``; it raises BadRecord too. The header of a wrapper shows only ``last_offset``: reading
anything else opens it, and may raise BadRecord.
"""

_ATTRIBUTES = MAGIC + 1  # the position in formats older than v2


def read_entry(
    records: memoryview,
    byte_index: int,
    end: int,
    floor: int,
    from_offset: int,
    max_bytes: int = MAX_BATCH_BYTES,
) -> LogEntry:
    """The entry as its own header describes it. If a batch contradicts itself, the entry after it
    decides where it ends, rather than its header. ``max_bytes``: the limit for an unpacked
    wrapper."""
    raw = records[byte_index:end]
    magic = records[byte_index + MAGIC]
    reader = READERS.get(magic)
    if reader is None:
        base_offset = BATCH_PREFIX.read(records, byte_index).base_offset
        raise batch_error(base_offset, f"its format (magic {magic}) is not known", magic=magic)
    try:
        entry = reader(raw, floor)
    except BadRecord as error:
        if magic != 2 or len(raw) < BATCH_V2.size:
            raise
        own_end = error.damage.next_offset if error.damage else None
        next_offset = _resume_offset(records, end, floor)
        next_offset = own_end if next_offset is None else next_offset
        if next_offset is not None and floor < next_offset <= from_offset:
            return _stand_in(raw, floor, next_offset)
        begin = error.damage.base_offset if error.damage else from_offset
        if own_end is None and (floor or next_offset is not None):
            begin = floor or from_offset  # its own offset is impossible
        raise batch_error(begin, error.why, next_offset, **error.own_facts) from None
    if (
        isinstance(entry, StoredMessages)
        and end + MAGIC < len(records)
        and records[end + MAGIC] == 2
    ):
        return entry._replace(next_offset=max(first_of(records, end), entry.last_offset + 1))
    if isinstance(entry, Wrapper):
        entry.max_bytes = max_bytes
        entry.next_from = partial(_resume_offset, records, end)
    return with_known_end(entry, records, end) if isinstance(entry, BatchV2) else entry


def with_known_end(batch: BatchV2, records: memoryview, end: int) -> BatchV2:
    """The batch. If it has gaps, it gets the beginning of the next entry too, because its own
    header does not prove where it ends."""
    if batch.record_count == batch.last_offset + 1 - batch.base_offset:
        return batch
    next_offset = _resume_offset(records, end, batch.last_offset + 1)
    return batch if next_offset is None else batch._replace(next_offset=next_offset)


def placed_entry(
    records: memoryview, where: tuple[int, int], floor: int, from_offset: int, max_bytes: int
) -> LogEntry:
    """One of two entries whose stored offsets exclude each other. If this is the wrong one, it is
    raised as an error, or skipped if it ends before ``from_offset``."""
    byte_index, end = where
    base = first_of(records, byte_index)
    following = first_inside(records, end)
    entry = read_entry(records, byte_index, end, floor, from_offset, max_bytes)
    if isinstance(entry, Wrapper) and (first := _first_packed(entry)) is not None:
        base = first
    lowest = floor or from_offset
    if entry.last_offset < floor or (base < floor and not isinstance(entry, Wrapper)):
        begin, next_offset = floor, _resume_offset(records, end, floor)
        why = f"it follows offset {floor - 1}, but claims to be at {base}"
    elif floor <= following <= entry.last_offset and _is_misplaced(
        records, end, entry, base, lowest
    ):
        begin, next_offset = min(lowest, base), _resume_offset(records, end, floor)
        if base > lowest and not _is_confirmed(records, end):
            # Either may be wrong: if an entry follows both, reading continues after both.
            next_offset = _resume_offset(records, end, entry.last_offset + 1) or next_offset
        why = f"it claims offsets {base} to {entry.last_offset}, but is followed by {following}"
    else:
        return entry
    if next_offset is not None and floor < next_offset <= from_offset:
        return _stand_in(records[byte_index:end], floor, next_offset)
    raise batch_error(begin, why, next_offset)


def unrequested_entry(
    records: memoryview, end: int, entry: LogEntry, requested_offset: int, from_offset: int
) -> LogEntry:
    """What replaces a first entry that claims to end before the requested offset: a broker begins
    with the entry that contains this offset, or with the next one. Raises BadRecord unless the
    offsets up to the next entry have already been dealt with."""
    next_offset = _resume_offset(records, end, requested_offset)
    if next_offset is not None and next_offset <= from_offset:
        return _stand_in(records[:end], requested_offset, next_offset)
    why = f"it claims to end at {entry.last_offset}, but {requested_offset} was requested"
    raise batch_error(requested_offset, why, next_offset)


def has_gap(entry: LogEntry, floor: int) -> bool:
    """Whether offsets are missing before an entry of an old format, or between plain messages; also
    True for a wrapper that cannot be opened."""
    if isinstance(entry, Wrapper):
        return not floor or (first := _first_packed(entry)) is None or first > floor
    if not isinstance(entry, StoredMessages):
        return False
    return (
        not floor
        or entry.base_offset > floor
        or entry.last_offset >= entry.base_offset + entry.record_count
    )


def _first_packed(wrapper: Wrapper) -> int | None:
    """The first offset in a wrapper; None if the wrapper cannot be opened."""
    try:
        return wrapper.base_offset
    except BadRecord:
        return None


def first_inside(records: memoryview, byte_index: int) -> int:
    """The same as ``first_of``; but for a wrapper that can be opened, the first offset inside
    it."""
    stored_offset = first_of(records, byte_index)
    if byte_index + _ATTRIBUTES >= len(records) or is_plain(records, byte_index):
        return stored_offset
    if records[byte_index + MAGIC] not in (0, 1):
        return stored_offset
    _, length = BATCH_PREFIX.unpack_from(records, byte_index)
    first = _first_opened(records, byte_index, byte_index + LENGTH_END + length, 0)
    return stored_offset if first is None else first


def _is_misplaced(records: memoryview, end: int, entry: LogEntry, base: int, lowest: int) -> bool:
    """Whether this entry is the wrong one, not the one at ``end``: its checksum is wrong, or it
    begins after ``lowest``, or the entry at ``end`` is confirmed by the one after it."""
    try:
        entry.check()
    except BadRecord:
        return True
    if isinstance(entry, StoredMessages) and first_of(records, end) > entry.last_offset:
        return True  # the wrapper after it shows this, and has a checksum
    return base > lowest or (base != lowest and _is_confirmed(records, end))


def _is_confirmed(records: memoryview, byte_index: int) -> bool:
    """Whether the entry at ``byte_index`` is followed by the next one without a gap."""
    for start, end in spans(records[byte_index:]):
        try:
            entry = read_entry(records, byte_index + start, byte_index + end, 0, 0)
        except BadRecord:
            return False
        return first_of(records, byte_index + end) == entry.last_offset + 1
    return False


def _resume_offset(records: memoryview, byte_index: int, floor: int) -> int | None:
    """The offset of the first entry at or after ``byte_index`` that begins at ``floor`` or later;
    None if there is no such entry."""
    while byte_index + MAGIC < len(records):
        base, length = BATCH_PREFIX.unpack_from(records, byte_index)
        end = byte_index + LENGTH_END + length
        if length < MAGIC + 1 - LENGTH_END:
            return None
        if base >= floor:
            if records[byte_index + MAGIC] == 2 or is_plain(records, byte_index):
                return int(base)
            return _first_opened(records, byte_index, end, floor)
        byte_index = end
    return None


def _first_opened(records: memoryview, byte_index: int, end: int, floor: int) -> int | None:
    """The first offset of an entry in an old format, which may have to be opened to find it; None
    if the entry cannot be read."""
    if not byte_index < end <= len(records):  # a damaged length may even be negative
        return None
    raw = records[byte_index:end]
    try:
        for start, stop in spans(raw):
            return read_entry(raw, start, stop, 0, 0).base_offset  # this opens a wrapper
    except BadRecord:
        return None
    return None


def _stand_in(stored: memoryview, from_offset: int, until_offset: int) -> LogEntry:
    """An entry that takes the place of a skipped one, with the offsets ``[from_offset,
    until_offset)``. A batch keeps its producer."""
    if stored[MAGIC] != 2:
        return StoredMessages(stored, from_offset, until_offset - 1, 0)
    batch = batch_of(stored)
    header = batch.header._replace(base_offset=from_offset)
    return batch._replace(header=header, base_offset=from_offset, last_offset=until_offset - 1)


def _read_v2(stored: memoryview, floor: int) -> LogEntry:
    """The batch as its header describes it. Raises BadRecord for an impossible header."""
    if len(stored) < BATCH_V2.size:
        base_offset, length = BATCH_PREFIX.unpack_from(stored)
        raise batch_error(base_offset, f"its length is {length}", length=length)
    header = BATCH_V2.read(stored)
    base_offset = header.base_offset
    delta = header.last_offset_delta
    count = header.record_count
    if base_offset < 0 or delta < 0 or base_offset + delta > MAX_OFFSET:
        raise batch_error(base_offset, "its offsets are impossible", last_offset_delta=delta)
    batch = batch_of(stored, header)
    if not 0 <= count <= delta + 1:
        raise batch.damage_error(
            f"it claims {count} records at {delta + 1} offsets", record_count=count
        )
    return batch


READERS: dict[int, Callable[[memoryview, int], LogEntry]] = {
    0: read_messages,
    1: read_messages,
    2: _read_v2,
}
"""The reader for each magic byte: it takes an entry's bytes and the offset after the previous
entry."""
