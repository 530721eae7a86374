"""Which entries offsets are in, of logs whose offsets are the positions of entries.

Such a log has no index, and at an offset inside an entry a broker gives bytes all the same.
An offset that somebody names is found by walking entries from the nearest known one. One
that a landing ended at is only looked at: as a rule an entry begins there, and its checksum
says so. If none does, the log is another than it was, and the entry around is looked for.

A glance that an entry is longer than is taken again, longer. An answer with an error says
nothing about entries: it is neither taken for "none begins there" nor walked on from.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from rangeland.connection.pool import ConnectionPool
from rangeland.dialects.error_meaning import ErrorMeaning
from rangeland.dialects.fetch_values import FetchOptions, PartitionFetch
from rangeland.errors import BadRecord, Unreachable
from rangeland.model import Address, LogState, Partition

WALK_BYTES = 8 << 20
LARGEST_ENTRY_BYTES = 1 << 30
GLANCE_BYTES = 16 << 10
GLANCE_GROWTH = 4
GLANCES_BYTES = 64 << 20
"""Of all glances that are taken with one request."""
NOTHING = memoryview(b"")
Place = tuple[Partition, int]


def entries_at(
    brokers: ConnectionPool,
    logs: Mapping[Partition, LogState],
    named: Iterable[Place],
    marks: Iterable[Place],
) -> dict[Place, tuple[int, int]]:
    """For each offset that is ``named``, where the entry it is in begins and ends; for those
    of ``marks`` only where no entry is seen to begin. Ends of a log are left out, and what is
    beyond them. Raises BadRecord where the way to a named one cannot be walked, and Unreachable
    where a broker does not give what is on the way."""
    found = {}
    for place in _inside({*named}, logs):
        found[place] = _entry_around(brokers, logs[place[0]], place[1])
    for place in _doubtful(brokers, logs, _inside({*marks} - found.keys(), logs)):
        try:
            found[place] = _entry_around(brokers, logs[place[0]], place[1])
        except BadRecord:
            continue  # whoever reads from there will meet it
    return found


def _inside(places: Iterable[Place], logs: Mapping[Partition, LogState]) -> list[Place]:
    return sorted(
        (p, offset)
        for p, offset in places
        if p in logs and logs[p].start_offset < offset < logs[p].end_offset
    )


def _doubtful(
    brokers: ConnectionPool, logs: Mapping[Partition, LogState], places: Iterable[Place]
) -> list[Place]:
    """Those where no whole entry with its right checksum begins; a glance at each, and longer
    ones at those that are cut off."""
    by_leader: dict[Address, list[Place]] = {}
    for partition, offset in places:
        address = logs[partition].leader.address
        if address is not None and offset not in (logs[partition].borders or ()):
            by_leader.setdefault(address, []).append((partition, offset))
    doubtful: list[Place] = []
    for address, group in by_leader.items():
        max_bytes = GLANCE_BYTES
        while group and max_bytes <= LARGEST_ENTRY_BYTES:
            at_once = max(1, GLANCES_BYTES // max_bytes)
            seen: dict[Place, bool | None] = {}
            for start in range(0, len(group), at_once):
                seen |= _glance(brokers, address, group[start : start + at_once], max_bytes)
            doubtful += [place for place, begins in seen.items() if begins is False]
            group = [place for place, begins in seen.items() if begins is None]
            max_bytes *= GLANCE_GROWTH
        doubtful += group
    return doubtful


def _glance(
    brokers: ConnectionPool, address: Address, places: Sequence[Place], max_bytes: int
) -> dict[Place, bool | None]:
    """Whether an entry begins at each; None: it goes on behind what was asked for. Those that
    the broker gives an error for are left out: whoever reads from there will meet it."""
    dialect, isolation = brokers.dialect, brokers.settings.isolation
    asked = [PartitionFetch(p, None, None, offset, max_bytes) for p, offset in places]
    terms = FetchOptions(isolation, 0, LARGEST_ENTRY_BYTES)
    answers = brokers.call_all(address, dialect.ask_records(asked, terms))
    read = dialect.read_records(answers, asked, isolation)
    parts = read.parts if read.verdict is ErrorMeaning.OK else ()
    records = {part.partition: part.records for part in parts if part.verdict is ErrorMeaning.OK}
    return {
        place: _begins(brokers, records[place[0]], place[1], max_bytes)
        for place in places
        if place[0] in records
    }


def _begins(
    brokers: ConnectionPool, records: memoryview, offset: int, max_bytes: int
) -> bool | None:
    dialect = brokers.dialect
    try:
        end = dialect.next_offset(records, offset)
        if end is None:
            # With less than was asked for the log is at its end, and the entry is not whole.
            return None if len(records) >= max_bytes else False
        chunks = dialect.decode_chunks(records, offset, end, brokers.settings.isolation, ())
        return next(iter(chunks), None) is not None
    except BadRecord as error:
        # Of a later entry: the first was right.
        return error.damage is not None and error.damage.base_offset > offset


def _entry_around(brokers: ConnectionPool, log: LogState, offset: int) -> tuple[int, int]:
    """Reads from the nearest known entry before: the log itself has no index."""
    dialect = brokers.dialect
    position = max(b for b in log.borders or (log.start_offset,) if b <= offset)
    max_bytes = WALK_BYTES
    while position < offset:
        records = _records_at(brokers, log, position, max_bytes, offset)
        try:
            start, end = dialect.entry_around(records, position, offset)
        except BadRecord as error:
            why = f"{error.what}: {error.why}"
            raise _cannot_be_told(log, offset, why, error.do) from error
        if end is not None:
            return start, end
        if start == position:
            if len(records) < max_bytes or max_bytes >= LARGEST_ENTRY_BYTES:
                why = f"the entry at {position} is not whole in the {len(records)} bytes there"
                raise _cannot_be_told(log, offset, why, "restore the log, or name another offset")
            max_bytes *= 2
        else:
            max_bytes = WALK_BYTES
        position = start
    return position, position


def _records_at(
    brokers: ConnectionPool, log: LogState, position: int, max_bytes: int, offset: int
) -> memoryview:
    """What the log has there, on the way to ``offset``. Raises Unreachable for an error, and
    for nothing at all."""
    dialect, isolation = brokers.dialect, brokers.settings.isolation
    address = log.leader.address
    assert address is not None
    asked = [PartitionFetch(log.partition, log.leader.topic_id, None, position, max_bytes)]
    terms = FetchOptions(isolation, 0, LARGEST_ENTRY_BYTES)
    answers = brokers.call_all(address, dialect.ask_records(asked, terms))
    read = dialect.read_records(answers, asked, isolation)
    said = [(read.verdict, read.code), *((part.verdict, part.code) for part in read.parts)]
    wrong = [code for verdict, code in said if verdict is not ErrorMeaning.OK]
    if not wrong and read.parts and read.parts[0].records:
        return read.parts[0].records
    raise Unreachable(
        f"{log.partition}: whether an entry begins at {offset} could not be read",
        why=f"{address} answered {wrong[0] if wrong else 'no records'} at offset {position}",
        do="check the broker and its log, then run again",
        partition=str(log.partition),
        offset=offset,
        position=position,
    )


def _cannot_be_told(log: LogState, offset: int, why: str, do: str) -> BadRecord:
    return BadRecord(
        f"{log.partition}: whether an entry begins at {offset} cannot be told",
        why=why,
        do=do,
        partition=str(log.partition),
        offset=offset,
    )
