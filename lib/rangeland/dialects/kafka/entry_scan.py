"""The entries of a Kafka log as a fetch brings them: finding them.

An entry is a v2 batch, or what stood for it before: a wrapper, which is a message that holds
packed ones, or a run of plain messages (``messagesets``). One log may have all of them.

A fetch answer holds whole batches and, at its end, maybe a piece of one, which is ignored:
the next fetch brings it again. Finding entries only hops over their prefixes; checksum and
decompression wait until an entry is opened, which many never are (before the wanted
offsets, aborted).

Almost always entries are batches that nothing contradicts: those the kernel finds, many in
one step (``BatchGroup``). From the first that is anything else on, each is looked at here.

Rules: pure functions of bytes. Which offsets are wanted and what becomes of them is decided
in ``records``. ``READERS`` is the table by magic byte: a format is one more line there.
What is wrong with an entry is said by ``bad_batch``, whichever it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from struct import Struct
from typing import NamedTuple

import numpy as np

from rangeland.decode import Heads, walk_batches, walk_messages
from rangeland.decode.kafka.batch_table import BatchColumn
from rangeland.dialects.fetch_values import NO_CONTEXT, FetchContext
from rangeland.dialects.kafka.legacy_messages import (
    MAX_RUN_BYTES,
    Run,
    Wrapper,
    bad_batch,
    is_plain,
    read_messages,
)
from rangeland.dialects.kafka.log_entries import BatchV2, LogEntry, batch_of
from rangeland.errors import BadRecord
from rangeland.wire.layouts import BATCH_PREFIX, BATCH_V2

__all__ = [
    "READERS",
    "BatchGroup",
    "BatchV2",
    "LogEntry",
    "bad_batch",
    "entries",
    "next_offset",
    "runs",
    "spans",
]

HEADS = 1024
"""Batches that are found in one step, at most."""

_LENGTH_END = BATCH_PREFIX.size
_MAGIC = BATCH_V2.position_of("magic")  # at the same place in all formats
_ATTRIBUTES = _MAGIC + 1  # in those before v2
MAX_OFFSET = (1 << 63) - 2

_OFFSETS = Struct(f">q{BATCH_V2.position_of('last_offset_delta') - 8}xi")
"""The first offset and the last one's delta."""


class BatchGroup(NamedTuple):
    """Batches in a row that nothing contradicts, which are read from ``records`` when they are
    asked for."""

    records: memoryview
    heads: Heads

    def entry(self, row: int) -> BatchV2:
        head = self.heads[row]
        end = int(head[BatchColumn.END])
        return _whole(
            batch_of(self.records[int(head[BatchColumn.POSITION]) : end]), self.records, end
        )


def entries(
    records: memoryview, from_offset: int = 0, context: FetchContext = NO_CONTEXT
) -> Iterator[LogEntry]:
    """The complete entries, in order. Raises BadRecord for one that cannot be one, and for
    offsets that contradict those of its neighbours, which no checksum covers. What ends at or
    before ``from_offset`` is dealt with already, and passed over whatever it is. So
    is one that contradicts what is known of the fetch."""
    for _, _, entry in located(records, from_offset, context):
        yield entry


def runs(
    records: memoryview, from_offset: int = 0, context: FetchContext = NO_CONTEXT
) -> Iterator[BatchGroup | LogEntry]:
    """As ``entries``, with the batches among them that can be told as one."""
    begin, floor = 0, context.floor
    while True:
        heads = np.empty((HEADS, len(BatchColumn)), np.int64)
        run = walk_batches(records, begin, floor - 1, heads)
        if begin == 0 and run.batches and int(heads[0, BatchColumn.LAST_OFFSET]) < context.asked_at:
            break
        begin, floor = run.end, run.last_offset + 1
        if run.batches:
            yield BatchGroup(records, heads[: run.batches])
        if run.is_all:
            return
        if run.batches < HEADS:
            break
    for _, _, entry in _one_by_one(records, begin, floor, from_offset, context.asked_at):
        yield entry


def located(
    records: memoryview,
    from_offset: int,
    context: FetchContext = NO_CONTEXT,
    *,
    with_runs: bool = True,
) -> Iterator[tuple[int, int, LogEntry]]:
    """As ``entries``, with the bytes where each begins and ends."""
    floor, asked_at = context.floor, context.asked_at
    return _one_by_one(records, 0, floor, from_offset, asked_at, with_runs=with_runs)


def _one_by_one(
    records: memoryview,
    begin: int,
    floor: int,
    from_offset: int,
    asked_at: int = 0,
    *,
    with_runs: bool = True,
) -> Iterator[tuple[int, int, LogEntry]]:
    """From the byte ``begin`` on, where what comes before ends at the offset ``floor``."""
    base = first_of(records, begin)
    for position, end in spans(records, begin, with_runs=with_runs):
        following = first_of(records, end)
        entry = _entry(records, position, end, floor, from_offset)
        if _has_gap(entry, floor):  # what comes next must bear it out
            following = _first_in(records, end)
        if position == 0 and entry.last_offset < asked_at:
            yield position, end, _not_asked_for(records, end, entry, asked_at, from_offset)
            floor = asked_at
        elif base < floor or following <= entry.last_offset:
            for start, stop in spans(records[position:end]):
                where = (position + start, position + stop)
                entry = _placed(records, where, floor, from_offset)
                yield *where, entry
                floor = entry.last_offset + 1
        else:
            yield position, end, entry
            floor = entry.last_offset + 1
        base = first_of(records, end)


def next_offset(
    records: memoryview, from_offset: int = 0, context: FetchContext = NO_CONTEXT
) -> int | None:
    """The offset after the last complete entry, found without decoding anything. The bytes
    say it themselves: at ``from_offset`` they were asked for.

    None if there is no complete entry: the fetch was too small for the next one, or brought
    nothing. Raises BadRecord, also where offsets do not rise."""
    run = walk_batches(records, 0, context.floor - 1)
    if run.is_all and run.batches and run.last_offset < context.asked_at:
        return run.last_offset + 1  # nothing of it was asked for
    if run.is_all and not _is_before(records, context.asked_at):
        return run.last_offset + 1 if run.batches else None
    last = None
    floor, rises = context.floor, True
    for last in spans(records, with_runs=True):
        position, end = last
        base, delta = _first_and_delta(records, position, end)
        rises = rises and base >= floor
        floor = base + delta + 1
    if last is None:
        return None
    position, end = last
    if rises and first_of(records, end) >= floor and not _is_before(records, context.asked_at):
        return next(entries(records[position:end])).last_offset + 1
    for entry in entries(records, from_offset, context):
        floor = entry.last_offset + 1
    return floor


def _is_before(records: memoryview, offset: int) -> bool:
    """Whether the first entry says that it ends before the offset."""
    if not offset or len(records) < BATCH_V2.size:
        return False
    base, delta = _first_and_delta(records, 0, len(records))
    return base + delta < offset


def spans(
    records: memoryview, begin: int = 0, *, with_runs: bool = False
) -> Iterator[tuple[int, int]]:
    """Where complete entries begin and end, from ``begin`` on; a run of plain messages is one,
    or each of them is. Raises BadRecord for a length that is none."""
    position, size = begin, len(records)
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


def first_of(records: memoryview, position: int) -> int:
    """The offset that is stored with what begins there, even if it is cut off: the first of
    a batch or a run, the last of a wrapper. Above all others where nothing is."""
    if position + _LENGTH_END > len(records):
        return MAX_OFFSET + 1
    base_offset, _ = BATCH_PREFIX.unpack_from(records, position)
    return int(base_offset)


def _first_and_delta(records: memoryview, position: int, end: int) -> tuple[int, int]:
    if records[position + _MAGIC] == 2 and end - position >= BATCH_V2.size:
        base, delta = _OFFSETS.unpack_from(records, position)
        return base, delta
    return first_of(records, position), 0


# --- entries that contradict each other ---------------------------------------------------


def _entry(records: memoryview, position: int, end: int, floor: int, from_offset: int) -> LogEntry:
    """The entry by its own header. Of a batch that contradicts itself, its end is not
    believed where the next one tells it."""
    stored, magic = records[position:end], records[position + _MAGIC]
    reader = READERS.get(magic)
    if reader is None:
        base_offset = BATCH_PREFIX.read(records, position).base_offset
        raise bad_batch(base_offset, f"its format (magic {magic}) is not known", magic=magic)
    try:
        entry = reader(stored, floor)
    except BadRecord as error:
        if magic != 2 or len(stored) < BATCH_V2.size:
            raise
        own_end = error.damage.next_offset if error.damage else None
        after = _resumes(records, end, floor)
        after = own_end if after is None else after
        if after is not None and floor < after <= from_offset:
            return _passed(stored, floor, after)
        facts = error.facts if after is None else error.facts | {"next_offset": after}
        if own_end is None and (floor or after is not None):
            facts |= {"base_offset": floor or from_offset}  # its own is impossible
        raise bad_batch(why=error.why, **facts) from None
    if isinstance(entry, Run) and end + _MAGIC < len(records) and records[end + _MAGIC] == 2:
        return entry._replace(after=max(first_of(records, end), entry.last_offset + 1))
    return _whole(entry, records, end) if isinstance(entry, BatchV2) else entry


def _whole(batch: BatchV2, records: memoryview, end: int) -> BatchV2:
    """Of a batch with gaps the header alone does not say where it ends."""
    if batch.record_count == batch.last_offset + 1 - batch.base_offset:
        return batch
    after = _resumes(records, end, batch.last_offset + 1)
    return batch if after is None else batch._replace(after=after)


def _placed(records: memoryview, where: tuple[int, int], floor: int, from_offset: int) -> LogEntry:
    """One of two entries that cannot both be where they say. The one to blame is raised, or
    passed over where it ends before ``from_offset``."""
    position, end = where
    base, following = first_of(records, position), _first_in(records, end)
    entry = _entry(records, position, end, floor, from_offset)
    known = floor or from_offset
    if entry.last_offset < floor or (base < floor and not isinstance(entry, Wrapper)):
        begin, after = floor, _resumes(records, end, floor)
        why = f"it comes after offset {floor - 1}, and says that it is at {base}"
    elif floor <= following <= entry.last_offset and _is_misplaced(
        records, end, entry, base, known
    ):
        begin, after = min(known, base), _resumes(records, end, floor)
        if base > known and not _is_borne_out(records, end):
            # Either may be wrong: where one follows on both, reading goes on behind both.
            after = _resumes(records, end, entry.last_offset + 1) or after
        why = f"it says that it is at {base} to {entry.last_offset}, and {following} comes after it"
    else:
        return entry
    if after is not None and floor < after <= from_offset:
        return _passed(records[position:end], floor, after)
    facts = {} if after is None else {"next_offset": after}
    raise bad_batch(begin, why, **facts)


def _not_asked_for(
    records: memoryview, end: int, entry: LogEntry, asked_at: int, from_offset: int
) -> LogEntry:
    """What stands for the first entry that came, which says that it ends before the offset that
    was asked for: a broker begins with the entry that holds it, or with the next one."""
    after = _resumes(records, end, asked_at)
    if after is not None and after <= from_offset:
        return _passed(records[:end], asked_at, after)
    facts = {} if after is None else {"next_offset": after}
    why = f"it says that it ends at {entry.last_offset}, and {asked_at} was asked for"
    raise bad_batch(asked_at, why, **facts)


def _has_gap(entry: LogEntry, known: int) -> bool:
    """Whether offsets are missing before a message of an old format, or between several."""
    if not isinstance(entry, Run):
        return False
    return (
        not known
        or entry.base_offset > known
        or entry.last_offset >= entry.base_offset + entry.record_count
    )


def _first_in(records: memoryview, position: int) -> int:
    """As ``first_of``, but of a wrapper that can be opened the first offset that is in it."""
    stored = first_of(records, position)
    if position + _ATTRIBUTES >= len(records) or is_plain(records, position):
        return stored
    if records[position + _MAGIC] not in (0, 1):
        return stored
    _, length = BATCH_PREFIX.unpack_from(records, position)
    first = _unpacked_first(records, position, position + _LENGTH_END + length, 0)
    return stored if first is None else first


def _is_misplaced(records: memoryview, end: int, entry: LogEntry, base: int, known: int) -> bool:
    """Whether it is to blame, and not what comes after it at ``end``: its checksum is wrong,
    or it does not follow on the ``known`` offset, or what comes after it is borne out."""
    try:
        entry.check()
    except BadRecord:
        return True
    if isinstance(entry, Run) and first_of(records, end) > entry.last_offset:
        return True  # by what is packed behind it, which a checksum covers
    return base > known or (base != known and _is_borne_out(records, end))


def _is_borne_out(records: memoryview, position: int) -> bool:
    """Whether the next entry follows without a gap on the one that begins there."""
    for start, end in spans(records[position:]):
        try:
            entry = _entry(records, position + start, position + end, 0, 0)
        except BadRecord:
            return False
        return first_of(records, position + end) == entry.last_offset + 1
    return False


def _resumes(records: memoryview, position: int, floor: int) -> int | None:
    """The first offset from ``floor`` on that an entry begins with, from these bytes on; None
    where none is in sight."""
    while position + _MAGIC < len(records):
        base, length = BATCH_PREFIX.unpack_from(records, position)
        end = position + _LENGTH_END + length
        if length < _MAGIC + 1 - _LENGTH_END:
            return None
        if base >= floor:
            if records[position + _MAGIC] == 2 or is_plain(records, position):
                return int(base)
            return _unpacked_first(records, position, end, floor)
        position = end
    return None


def _unpacked_first(records: memoryview, position: int, end: int, floor: int) -> int | None:
    if not position < end <= len(records):  # its length may be damaged, and even negative
        return None
    try:
        first = next(entries(records[position:end]), None)
        return None if first is None else first.base_offset  # which opens a wrapper
    except BadRecord:
        return None


def _passed(stored: memoryview, floor: int, after: int) -> LogEntry:
    """What stands in for an entry that is passed over: of a batch, who wrote it is known."""
    if stored[_MAGIC] != 2:
        return Run(stored, floor, after - 1, 0)
    batch = batch_of(stored)
    header = batch.header._replace(base_offset=floor)
    return batch._replace(header=header, base_offset=floor, last_offset=after - 1)


def _read_v2(stored: memoryview, floor: int) -> LogEntry:
    if len(stored) < BATCH_V2.size:
        base_offset, length = BATCH_PREFIX.unpack_from(stored)
        raise bad_batch(base_offset, f"its length is {length}", length=length)
    header = BATCH_V2.read(stored)
    base_offset, delta, count = header.base_offset, header.last_offset_delta, header.record_count
    if base_offset < 0 or delta < 0 or base_offset + delta > MAX_OFFSET:
        raise bad_batch(base_offset, "its offsets are impossible", last_offset_delta=delta)
    batch = batch_of(stored, header)
    if not 0 <= count <= delta + 1:
        raise batch.bad(
            f"it says it has {count} records at {delta + 1} offsets", record_count=count
        )
    return batch


READERS: dict[int, Callable[[memoryview, int], LogEntry]] = {
    0: read_messages,
    1: read_messages,
    2: _read_v2,
}
"""Each is given an entry's bytes, and the offset behind the entry before."""
