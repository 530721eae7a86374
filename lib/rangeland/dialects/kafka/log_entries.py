"""Finds the entries in the bytes that were fetched from a Kafka log.

An entry is a v2 batch or one of the older forms (``legacy_messages``): a wrapper, which is a
message that contains compressed ones, or consecutive plain messages. One log may contain all of
them.

A fetch response consists of complete entries and perhaps an incomplete one at its end, which is
ignored: the next fetch returns it again. Finding entries reads only their prefixes. Verifying
checksums and decompressing wait until an entry is opened, and many never are (those before the
wanted offsets, and aborted ones).

Almost all entries are batches that nothing contradicts. The kernel finds these, many in one step
(``BatchGroup``). From the first other entry on, each entry is examined in Python
(``entry_checks``). Both ways give the same chunks and errors for any bytes.

Pure functions of bytes. Which offsets are wanted, and which class they get, is decided in
``records``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from rangeland.decode import kafka_decoder
from rangeland.decode.kafka.batch_table import BatchColumn, BatchWalk, Heads
from rangeland.decode.kafka.entry_layouts import BATCH_V2
from rangeland.dialects.fetch_values import FetchedRecords, Scan, UnconfirmedGap
from rangeland.dialects.kafka.entry_checks import (
    LogEntry,
    first_inside,
    has_gap,
    placed_entry,
    read_entry,
    unrequested_entry,
    with_known_end,
)
from rangeland.dialects.kafka.entry_spans import MAX_OFFSET, first_and_delta, first_of, spans
from rangeland.dialects.kafka.record_batch import BatchV2, batch_of
from rangeland.errors import BadRecord

HEADS = 1024
"""The most batches that are found in one step."""


@dataclass(frozen=True, slots=True)
class KafkaScan(Scan):
    """The result of a scan. The checksum of the last batch is computed only if somebody asks for
    ``has_certain_end``."""

    unconfirmed_batch: memoryview | None = None
    """The last entry, if it is a batch and not even the beginning of another entry follows it, as
    may happen because a response may end where its segment ends."""

    @property
    def has_certain_end(self) -> bool:
        """False if no entry follows the last batch and its checksum, which covers where it claims
        to end, is wrong."""
        if self.unconfirmed_batch is None:
            return True
        try:
            batch_of(self.unconfirmed_batch).check()
        except BadRecord:
            return False
        return True


class BatchGroup(NamedTuple):
    """Consecutive batches that nothing contradicts; each is read from ``records`` only when it is
    needed."""

    records: memoryview
    heads: Heads

    def entry(self, row: int) -> BatchV2:
        begin = self.heads.item(row, BatchColumn.BYTE_INDEX)
        end = self.heads.item(row, BatchColumn.END)
        return with_known_end(batch_of(self.records[begin:end]), self.records, end)


def entries(fetched: FetchedRecords, from_offset: int = 0) -> Iterator[LogEntry]:
    """The complete entries, in order. Raises BadRecord for an invalid entry, and for offsets that
    contradict those of its neighbours. An entry that ends at or before ``from_offset`` has been
    dealt with already, and is skipped even if it is invalid or contradicts what is known."""
    for _, _, entry in locate_entries(fetched, from_offset):
        yield entry


def grouped_entries(
    fetched: FetchedRecords, from_offset: int = 0
) -> Iterator[BatchGroup | LogEntry]:
    """The same as ``entries``, except that consecutive batches are grouped where possible."""
    records = fetched.data
    requested = fetched.requested_offset or 0
    begin = 0
    floor = fetched.floor or 0
    for walk, heads in _batch_steps(records, floor):
        if begin == 0 and len(heads) and int(heads[0, BatchColumn.LAST_OFFSET]) < requested:
            break
        begin = walk.end
        floor = walk.last_offset + 1
        if len(heads):
            yield BatchGroup(records, heads)
        if walk.is_all:
            return
    for _, _, entry in locate_entries(fetched, from_offset, begin=begin, floor=floor):
        yield entry


def _batch_steps(records: memoryview, floor: int) -> Iterator[tuple[BatchWalk, Heads]]:
    """Walks over the batches at the beginning, up to the first entry that is not a batch or
    contradicts its neighbours. Yields the state of the walk and the rows found in each step."""
    walk = BatchWalk(0, 0, floor - 1, is_all=False)
    while True:
        heads = np.empty((HEADS, len(BatchColumn)), np.int64)
        walk = kafka_decoder().walk_batches(records, walk.end, walk.last_offset, heads)
        yield walk, heads[: walk.batches]
        if walk.is_all or walk.batches < HEADS:
            return


def locate_entries(
    fetched: FetchedRecords,
    from_offset: int,
    *,
    begin: int = 0,
    floor: int | None = None,
    join_messages: bool = True,
) -> Iterator[tuple[int, int, LogEntry]]:
    """The same as ``entries``, with the byte indexes at which each entry begins and ends. ``begin``
    is the byte index at which to start, if the entries before it, which end at the offset
    ``floor``, were found by other means."""
    records = fetched.data
    floor = fetched.floor or 0 if floor is None else floor
    max_bytes = fetched.max_batch_bytes
    requested = fetched.requested_offset or 0
    base = first_of(records, begin)
    for byte_index, end in spans(records, begin, join_messages=join_messages):
        following = first_of(records, end)
        entry = read_entry(records, byte_index, end, floor, from_offset, max_bytes)
        is_needed = entry.last_offset >= from_offset
        if is_needed and has_gap(entry, floor):  # the next entry must confirm it
            following = first_inside(records, end)
        if byte_index == 0 and entry.last_offset < requested:
            yield byte_index, end, unrequested_entry(records, end, entry, requested, from_offset)
            floor = requested
        elif base < floor or following <= entry.last_offset:
            for start, stop in spans(records[byte_index:end]):
                where = (byte_index + start, byte_index + stop)
                entry = placed_entry(records, where, floor, from_offset, max_bytes)
                yield *where, entry
                floor = entry.last_offset + 1
        else:
            yield byte_index, end, entry
            floor = entry.last_offset + 1
        base = first_of(records, end)


def scan(fetched: FetchedRecords) -> KafkaScan:
    """What the headers of the complete entries show; none is opened. Raises BadRecord for an
    invalid entry, and if offsets do not rise."""
    records = fetched.data
    floor = fetched.floor or 0
    requested = fetched.requested_offset or 0
    walk, tail = _last_batches(records, floor)
    if not walk.is_all:
        return KafkaScan(_last_end(fetched))
    if not len(tail):
        return KafkaScan(None)
    next_offset: int | None = walk.last_offset + 1
    if walk.last_offset >= requested and _is_before(records, requested):
        next_offset = _last_end(fetched)
    if first_of(records, walk.end) <= MAX_OFFSET:
        return KafkaScan(next_offset)
    byte_index, _, base = tail[-1, : BatchColumn.BASE_OFFSET + 1].tolist()
    batch = records[byte_index : walk.end]
    end_before = int(tail[-2, BatchColumn.LAST_OFFSET]) + 1 if len(tail) > 1 else floor
    begin = max(end_before, fetched.from_offset)
    gap = UnconfirmedGap(begin, base, walk.last_offset, batch) if base > begin else None
    return KafkaScan(next_offset, gap, batch)


def _last_batches(records: memoryview, floor: int) -> tuple[BatchWalk, Heads]:
    """The state at the end of a walk over the batches, and the rows for the last two batches."""
    last_steps = deque(_batch_steps(records, floor), maxlen=2)  # the last step may have no rows
    tail: Heads = np.concatenate([heads[-2:] for _, heads in last_steps])[-2:]
    return last_steps[-1][0], tail


def _last_end(fetched: FetchedRecords) -> int | None:
    """The offset after the last complete entry, found by going through all entries; None if there
    is none."""
    last: tuple[int, int] | None = None
    rises = True
    records = fetched.data
    floor = fetched.floor or 0
    requested = fetched.requested_offset or 0
    for byte_index, end in spans(records, join_messages=True):
        base, delta = first_and_delta(records, byte_index, end)
        rises = rises and base >= floor
        floor = base + delta + 1
        last = byte_index, end
    if last is None:
        return None
    byte_index, end = last
    if rises and first_of(records, end) >= floor and not _is_before(records, requested):
        return next(entries(FetchedRecords(records[byte_index:end], 0))).last_offset + 1
    for entry in entries(fetched, fetched.from_offset):
        floor = entry.last_offset + 1
    return floor


def first_offset(fetched: FetchedRecords, from_offset: int) -> int:
    """The first offset of the entries, or ``from_offset`` if some entry begins before it."""
    for entry in entries(fetched, from_offset):
        if entry.last_offset >= from_offset:
            return max(from_offset, entry.base_offset)
    return from_offset


def _is_before(records: memoryview, offset: int) -> bool:
    """Whether the first entry claims to end before the offset; never before 0."""
    if not offset or len(records) < BATCH_V2.size:
        return False
    base, delta = first_and_delta(records, 0, len(records))
    return base + delta < offset


def cut_out(fetched: FetchedRecords, from_offset: int, until_offset: int) -> memoryview:
    """The raw bytes of the complete entries with offsets in ``[from_offset, until_offset)``, for
    quarantine. A damaged entry begins where the one before it ends, so at most its header is
    needed."""
    records = fetched.data
    begins = _begin(fetched, from_offset)
    ends = begins
    for start, end in spans(records[begins:]):
        if start > 0 and first_of(records, begins + start) >= until_offset:
            break
        ends = begins + end
    return records[begins:ends]


def _begin(fetched: FetchedRecords, from_offset: int) -> int:
    """The byte index at which the entry with this offset begins, or else the first damaged one."""
    begins = 0
    try:
        for byte_index, end, entry in locate_entries(fetched, from_offset, join_messages=False):
            if entry.last_offset >= from_offset:
                return byte_index
            begins = end
    except BadRecord:  # this is the damaged entry
        pass
    return begins
