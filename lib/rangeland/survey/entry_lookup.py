"""Finds the entries that contain given offsets, in logs whose offsets are the positions of entries.

Such a log has no index, and a broker returns bytes even for an offset inside an entry.
An offset named by a user is found by walking entries from the nearest known one. The offset at
which a landing ended is only probed: normally an entry begins there, and its checksum confirms it.
If no entry begins there, the log has changed, and the entry around the offset is looked up.

If an entry is longer than a probe, the probe is repeated with more bytes. A response with an error
says nothing about entries: it does not prove that no entry begins there, and no walk continues from
it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from rangeland.connection.pool import ConnectionPool
from rangeland.dialects.error_meaning import ErrorMeaning
from rangeland.dialects.fetch_values import FetchedRecords, PartitionFetch
from rangeland.errors import BadRecord, Unreachable
from rangeland.model import Address, LogState, Partition
from rangeland.survey.broker_requests import ask_records

WALK_BYTES = 8 << 20
"""Large enough that a few requests are enough to walk a segment."""
LARGEST_ENTRY_BYTES = 1 << 30
"""Half of the maximum size of a response, whose length is an int32."""
PROBE_BYTES = 16 << 10
"""Most entries are shorter, and each probed offset costs this much."""
PROBE_GROWTH = 4
"""A long entry is found in a few rounds, which together read a third more than the last alone."""
PROBES_BYTES = 64 << 20
"""The maximum number of bytes of all probes in one request."""
NOTHING = memoryview(b"")
LogOffset = tuple[Partition, int]


def entries_at(
    brokers: ConnectionPool,
    logs: Mapping[Partition, LogState],
    named: Iterable[LogOffset],
    marks: Iterable[LogOffset],
) -> dict[LogOffset, tuple[int, int]]:
    """The beginning and end of the entry around each ``named`` offset, and around each of ``marks``
    at which no entry begins. Offsets at either end of a log, or outside it, are left out. Raises
    BadRecord if the entries before a named offset cannot be walked, and Unreachable if a broker
    does not return them."""
    entries = {}
    for p, offset in _inside({*named}, logs):
        entries[p, offset] = _entry_around(brokers, logs[p], offset)
    for p, offset in _without_entry(brokers, logs, _inside({*marks} - entries.keys(), logs)):
        try:
            entries[p, offset] = _entry_around(brokers, logs[p], offset)
        except BadRecord:
            continue  # reading from there will report it
    return entries


def _inside(offsets: Iterable[LogOffset], logs: Mapping[Partition, LogState]) -> list[LogOffset]:
    return sorted(
        (p, offset)
        for p, offset in offsets
        if p in logs and logs[p].start_offset < offset < logs[p].end_offset
    )


def _without_entry(
    brokers: ConnectionPool, logs: Mapping[Partition, LogState], offsets: Iterable[LogOffset]
) -> list[LogOffset]:
    """The offsets at which no complete entry with a correct checksum begins. Each is probed, with
    more bytes if its entry is cut off."""
    by_leader: dict[Address, list[LogOffset]] = {}
    for partition, offset in offsets:
        address = logs[partition].leader.address
        if address is not None and offset not in (logs[partition].borders or ()):
            by_leader.setdefault(address, []).append((partition, offset))
    missing: list[LogOffset] = []
    for address, group in by_leader.items():
        max_bytes = PROBE_BYTES
        while group and max_bytes <= LARGEST_ENTRY_BYTES:
            at_once = max(1, PROBES_BYTES // max_bytes)
            begins: dict[LogOffset, bool | None] = {}
            for start in range(0, len(group), at_once):
                begins |= _probe(brokers, address, group[start : start + at_once], max_bytes)
            missing += [o for o, has_entry in begins.items() if has_entry is False]
            group = [o for o, has_entry in begins.items() if has_entry is None]
            max_bytes *= PROBE_GROWTH
        missing += group
    return missing


def _probe(
    brokers: ConnectionPool, address: Address, offsets: Sequence[LogOffset], max_bytes: int
) -> dict[LogOffset, bool | None]:
    """Whether an entry begins at each offset; None if it is longer than the requested bytes.
    Offsets for which the broker returns an error are left out: reading from there will report
    it."""
    fetches = [PartitionFetch(p, None, None, offset, max_bytes) for p, offset in offsets]
    result = ask_records(brokers, address, fetches, LARGEST_ENTRY_BYTES)
    fetched = result.partitions if result.meaning is ErrorMeaning.OK else ()
    records = {x.partition: x.records for x in fetched if x.meaning is ErrorMeaning.OK}
    return {
        (p, offset): _begins(brokers, records[p], offset, max_bytes)
        for p, offset in offsets
        if p in records
    }


def _begins(
    brokers: ConnectionPool, records: FetchedRecords, offset: int, max_bytes: int
) -> bool | None:
    dialect = brokers.dialect
    try:
        end = dialect.scan(records).next_offset
        if end is None:
            # Fewer bytes than requested: the log ends there, and the entry is incomplete.
            return None if len(records) >= max_bytes else False
        chunks = dialect.decode_chunks(records, offset, end)
        return next(iter(chunks), None) is not None
    except BadRecord as error:
        # If the damage is in a later entry, the first one is intact.
        return error.damage is not None and error.damage.base_offset > offset


def _entry_around(brokers: ConnectionPool, log: LogState, offset: int) -> tuple[int, int]:
    """Reads from the nearest known entry before it: the log itself has no index."""
    dialect = brokers.dialect
    entry_offset = max(b for b in log.borders or (log.start_offset,) if b <= offset)
    max_bytes = WALK_BYTES
    while entry_offset < offset:
        records = _records_at(brokers, log, entry_offset, max_bytes, offset)
        try:
            from_offset, until_offset = dialect.entry_around(records, offset)
        except BadRecord as error:
            why = f"{error.what}: {error.why}"
            raise _undetermined_error(log, offset, why, error.do) from error
        if until_offset is not None:
            return from_offset, until_offset
        if from_offset == entry_offset:
            if len(records) < max_bytes or max_bytes >= LARGEST_ENTRY_BYTES:
                why = f"the entry at {entry_offset} is not complete in {len(records)} bytes"
                raise _undetermined_error(
                    log, offset, why, "restore the log, or name another offset"
                )
            max_bytes *= 2
        else:
            max_bytes = WALK_BYTES
        entry_offset = from_offset
    return entry_offset, entry_offset


def _records_at(
    brokers: ConnectionPool, log: LogState, entry_offset: int, max_bytes: int, offset: int
) -> FetchedRecords:
    """Bytes of the log from ``entry_offset`` on, before ``offset``. Raises Unreachable for an error
    and for a response without records."""
    address = log.leader.address
    assert address is not None
    fetches = [PartitionFetch(log.partition, log.leader.topic_id, None, entry_offset, max_bytes)]
    result = ask_records(brokers, address, fetches, LARGEST_ENTRY_BYTES)
    codes = [
        (result.meaning, result.code_name),
        *((x.meaning, x.code_name) for x in result.partitions),
    ]
    errors = [code for meaning, code in codes if meaning is not ErrorMeaning.OK]
    if not errors and result.partitions and result.partitions[0].records:
        return result.partitions[0].records
    raise Unreachable(
        f"{log.partition}: could not determine whether an entry begins at {offset}",
        why=f"{address} answered {errors[0] if errors else 'no records'} at offset {entry_offset}",
        do="check the broker and its log, then run again",
        partition=str(log.partition),
        offset=offset,
        position=entry_offset,
    )


def _undetermined_error(log: LogState, offset: int, why: str, do: str) -> BadRecord:
    return BadRecord(
        f"{log.partition}: cannot determine whether an entry begins at {offset}",
        why=why,
        do=do,
        partition=str(log.partition),
        offset=offset,
    )
