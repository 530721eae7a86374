"""Reads the times of single records from the records themselves, with one or two requests per
leader.

Having no time and having no answer are different results. A record that was read may have no
timestamp, and there may be no record. But if a record could not be read (its leader is missing or
refuses, its batch is damaged or larger than the request), that proves nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from rangeland.connection.pool import ConnectionPool
from rangeland.dialects.error_meaning import ErrorMeaning
from rangeland.dialects.fetch_values import FetchedPartition, Gap, PartitionFetch
from rangeland.errors import RangelandError
from rangeland.model import Leader, Partition
from rangeland.survey.batch_fetch import sample_batches


@dataclass(frozen=True, slots=True)
class FirstRecord:
    """The first record in ``[from_offset, until_offset)``."""

    leader: Leader
    from_offset: int
    until_offset: int
    max_responses: int | None = None
    """After how many responses without a record it is given up, if after any; each has at most
    ``batch_fetch.SIZES``, or one larger batch."""


class RecordTime(NamedTuple):
    """The time of a record that was read. ``time_ms``: its timestamp, None if it has none."""

    time_ms: int | None


class NoRecordBefore(NamedTuple):
    """Everything before ``offset`` was read, and contains no record."""

    offset: int


def first_times(
    brokers: ConnectionPool, records: Mapping[Partition, FirstRecord]
) -> dict[Partition, int]:
    """The timestamps of these records, in ms. Records without a timestamp, records that could not
    be read, and records that follow many offsets without a record are left out."""
    times = _read_times(brokers, records)
    return {
        p: time.time_ms
        for p, time in times.items()
        if isinstance(time, RecordTime) and time.time_ms is not None
    }


def confirmed_times(
    brokers: ConnectionPool, records: Mapping[Partition, FirstRecord]
) -> dict[Partition, RecordTime | None]:
    """The times of these records; None if the entries up to ``until_offset`` were read and have no
    record. Records that could not be read, or were given up, are left out. A full response is empty
    for the last of several partitions, so those are requested again as long as others get an
    answer."""
    times: dict[Partition, RecordTime | None] = {}
    wanted = dict(records)
    while wanted:
        rest: dict[Partition, FirstRecord] = {}
        for p, x in _read_times(brokers, wanted).items():
            if isinstance(x, RecordTime):
                times[p] = x
            elif x.offset >= wanted[p].until_offset:
                times[p] = None
            elif (left := _after_response(wanted[p], x)) is not None:
                rest[p] = left
        if rest == wanted:
            break
        wanted = rest
    return times


def _after_response(wanted: FirstRecord, seen: NoRecordBefore) -> FirstRecord | None:
    """What is left to read; None if the record is given up."""
    if seen.offset == wanted.from_offset:
        return wanted
    left = None if wanted.max_responses is None else wanted.max_responses - 1
    return None if left == 0 else replace(wanted, from_offset=seen.offset, max_responses=left)


def _read_times(
    brokers: ConnectionPool, records: Mapping[Partition, FirstRecord]
) -> dict[Partition, RecordTime | NoRecordBefore]:
    """The times that responses show for these records. Records for which they show nothing are left
    out."""
    without_record: dict[Partition, NoRecordBefore] = {}

    def fetch_for(partition: Partition, size: int) -> PartitionFetch:
        record = records[partition]
        leader = record.leader
        return PartitionFetch(partition, leader.topic_id, leader.epoch, record.from_offset, size)

    def read_time(fetched: FetchedPartition) -> dict[Partition, RecordTime]:
        partition = fetched.partition
        match _time_in(brokers, fetched, records[partition]):
            case RecordTime() as time:
                return {partition: time}
            case NoRecordBefore() as nothing:
                without_record[partition] = nothing  # a larger response may have one
        return {}

    leaders = {p: record.leader for p, record in records.items()}
    times = sample_batches(brokers, leaders, fetch_for, read_time)
    return {**without_record, **times}


def _time_in(
    brokers: ConnectionPool, fetched: FetchedPartition, record: FirstRecord
) -> RecordTime | NoRecordBefore | None:
    """The time that a response shows for the record; None for an error, or if an entry is damaged
    or incomplete."""
    if fetched.meaning is not ErrorMeaning.OK:
        return None
    next_offset = record.from_offset
    if fetched.is_empty:
        # A full response, a quota and slow remote storage look the same, so this proves nothing.
        return NoRecordBefore(next_offset)
    try:
        for chunk in brokers.dialect.decode_chunks(
            fetched.records, record.from_offset, record.until_offset
        ):
            next_offset = chunk.next_offset
            if not isinstance(chunk, Gap) and chunk.batch is not None and chunk.batch.num_rows:
                moment = chunk.batch.column("timestamp")[0].value
                return RecordTime(None if moment is None else moment // 1000)
    except RangelandError:
        return None
    return NoRecordBefore(next_offset) if next_offset > record.from_offset else None
