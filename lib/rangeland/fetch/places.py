"""Which entries offsets are in, of logs whose offsets are the positions of entries.

Such a log has no index, and at an offset inside an entry a broker gives bytes all the same.
An offset that somebody names is found by walking entries from the nearest known one. One
that a landing ended at is only looked at: as a rule an entry begins there, and its checksum
says so. If none does, the log is another than it was, and the entry around is looked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from rangeland.dialects.contract import Asked, FetchTerms
from rangeland.errors import BadRecord
from rangeland.fetch.pool import Brokers
from rangeland.model import Address, LogState, Partition

WALK_BYTES = 8 << 20
LARGEST_ENTRY_BYTES = 1 << 30
GLANCE_BYTES = 16 << 10
NOTHING = memoryview(b"")
Place = tuple[Partition, int]


def entries_at(
    brokers: Brokers,
    logs: Mapping[Partition, LogState],
    named: Iterable[Place],
    marks: Iterable[Place],
) -> dict[Place, tuple[int, int]]:
    """For each offset that is ``named``, where the entry it is in begins and ends; for those
    of ``marks`` only where no entry is seen to begin. Ends of a log are left out, and what is
    beyond them. Raises BadRecord where the way to a named one cannot be walked."""
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
    brokers: Brokers, logs: Mapping[Partition, LogState], places: Iterable[Place]
) -> list[Place]:
    """Those where no whole entry with its right checksum begins; one glance at each."""
    by_leader: dict[Address, list[Place]] = {}
    for partition, offset in places:
        address = logs[partition].leader.address
        if address is not None and offset not in (logs[partition].borders or ()):
            by_leader.setdefault(address, []).append((partition, offset))
    dialect, isolation = brokers.dialect, brokers.settings.isolation
    terms = FetchTerms(isolation, 0, LARGEST_ENTRY_BYTES)
    doubtful = []
    for address, group in by_leader.items():
        asked = [Asked(p, None, None, offset, GLANCE_BYTES) for p, offset in group]
        answers = brokers.call_all(address, dialect.ask_records(asked, terms))
        parts = dialect.read_records(answers, asked, isolation).parts
        records = {part.partition: part.records for part in parts}
        doubtful += [p for p in group if not _begins(brokers, records.get(p[0], NOTHING), p[1])]
    return doubtful


def _begins(brokers: Brokers, records: memoryview, offset: int) -> bool:
    dialect = brokers.dialect
    try:
        end = dialect.next_offset(records, offset)
        if end is None:
            return False
        chunks = dialect.decode_chunks(records, offset, end, brokers.settings.isolation, ())
        return next(iter(chunks), None) is not None
    except BadRecord as error:
        # Of a later entry: the first was right.
        return bool(error.facts.get("base_offset", offset) > offset)


def _entry_around(brokers: Brokers, log: LogState, offset: int) -> tuple[int, int]:
    """Reads from the nearest known entry before: the log itself has no index."""
    dialect = brokers.dialect
    position = max(b for b in log.borders or (log.start_offset,) if b <= offset)
    max_bytes = WALK_BYTES
    terms = FetchTerms(brokers.settings.isolation, 0, LARGEST_ENTRY_BYTES)
    address = log.leader.address
    assert address is not None
    while position < offset and max_bytes <= LARGEST_ENTRY_BYTES:
        asked = [Asked(log.partition, log.leader.topic_id, None, position, max_bytes)]
        answers = brokers.call_all(address, dialect.ask_records(asked, terms))
        read = dialect.read_records(answers, asked, terms.isolation)
        records = read.parts[0].records if read.parts else NOTHING
        try:
            start, end = dialect.entry_around(records, position, offset)
        except BadRecord as error:
            raise BadRecord(
                f"{log.partition}: whether an entry begins at {offset} cannot be told",
                why=f"{error.what}: {error.why}",
                do=error.do,
                partition=str(log.partition),
                offset=offset,
            ) from error
        if end is not None:
            return start, end
        max_bytes = WALK_BYTES if start > position else max_bytes * 2
        position = start
    return position, position
