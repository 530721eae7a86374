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

import pyarrow as pa
import pyarrow.compute as pc

from rangeland.connection.pool import ConnectionPool
from rangeland.dialects.error_meaning import ErrorMeaning
from rangeland.dialects.fetch_values import FetchedPartition, Gap, PartitionFetch
from rangeland.errors import RangelandError
from rangeland.model import Leader, Partition
from rangeland.survey.batch_fetch import sample_batches


class RecordTime(NamedTuple):
    """The time of a record that was read. ``time_ms``: its timestamp, None if it has none."""

    time_ms: int | None


@dataclass(frozen=True, slots=True)
class FirstRecord:
    """The first record in ``[from_offset, until_offset)``."""

    leader: Leader
    from_offset: int
    until_offset: int


@dataclass(frozen=True, slots=True)
class LatestRecord:
    """The record with the latest timestamp in ``[from_offset, until_offset)``, all of which has to
    be read."""

    leader: Leader
    from_offset: int
    until_offset: int
    max_responses: int
    """After how many responses it is given up; each has at most ``batch_fetch.SIZES``, or one
    larger batch."""
    latest: RecordTime | None = None
    """The latest one before ``from_offset``, if there is a record."""


WantedRecord = FirstRecord | LatestRecord


class ReadBefore(NamedTuple):
    """Everything before ``offset`` was read. ``latest``: the latest record in it, None if it has no
    record; of a ``FirstRecord`` that was not found, always None."""

    offset: int
    latest: RecordTime | None = None


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
    brokers: ConnectionPool, records: Mapping[Partition, WantedRecord]
) -> dict[Partition, RecordTime | None]:
    """The times of these records; None if the entries up to ``until_offset`` were read and have no
    record. Records that could not be read, or were given up, are left out. A full response is empty
    for the last of several partitions, so those are requested again as long as others get an
    answer."""
    times: dict[Partition, RecordTime | None] = {}
    wanted = dict(records)
    while wanted:
        rest: dict[Partition, WantedRecord] = {}
        for p, x in _read_times(brokers, wanted).items():
            if isinstance(x, RecordTime):
                times[p] = x
            elif x.offset >= wanted[p].until_offset:
                times[p] = x.latest
            elif (left := _after_response(wanted[p], x)) is not None:
                rest[p] = left
        if rest == wanted:
            break
        wanted = rest
    return times


def _after_response(wanted: WantedRecord, seen: ReadBefore) -> WantedRecord | None:
    """What is left to read; None if the record is given up."""
    if seen.offset == wanted.from_offset:
        return wanted
    if isinstance(wanted, FirstRecord):
        return replace(wanted, from_offset=seen.offset)
    left = wanted.max_responses - 1
    if left == 0:
        return None
    return replace(wanted, from_offset=seen.offset, max_responses=left, latest=seen.latest)


def _read_times(
    brokers: ConnectionPool, records: Mapping[Partition, WantedRecord]
) -> dict[Partition, RecordTime | ReadBefore]:
    """The times that responses show for these records. Records for which they show nothing are left
    out."""
    unfinished: dict[Partition, ReadBefore] = {}

    def fetch_for(partition: Partition, size: int) -> PartitionFetch:
        record = records[partition]
        leader = record.leader
        return PartitionFetch(partition, leader.topic_id, leader.epoch, record.from_offset, size)

    def read_time(fetched: FetchedPartition) -> dict[Partition, RecordTime]:
        partition = fetched.partition
        match _time_in(brokers, fetched, records[partition]):
            case RecordTime() as time:
                return {partition: time}
            case ReadBefore() as seen:
                unfinished[partition] = seen  # a larger response may show more
        return {}

    leaders = {p: record.leader for p, record in records.items()}
    times = sample_batches(brokers, leaders, fetch_for, read_time)
    return {**unfinished, **times}


def _time_in(
    brokers: ConnectionPool, fetched: FetchedPartition, record: WantedRecord
) -> RecordTime | ReadBefore | None:
    """The time that a response shows for the record; None for an error, or if an entry is damaged
    or incomplete."""
    if fetched.meaning is not ErrorMeaning.OK:
        return None
    next_offset = record.from_offset
    latest = record.latest if isinstance(record, LatestRecord) else None
    if fetched.is_empty:
        # A full response, a quota and slow remote storage look the same, so this proves nothing.
        return ReadBefore(next_offset, latest)
    try:
        for chunk in brokers.dialect.decode_chunks(
            fetched.records, record.from_offset, record.until_offset
        ):
            next_offset = chunk.next_offset
            if isinstance(chunk, Gap) or chunk.batch is None or not chunk.batch.num_rows:
                continue
            moments = chunk.batch.column("timestamp")
            if isinstance(record, FirstRecord):
                return _record_time(moments[0])
            latest = _later(latest, _record_time(pc.max(moments)))
    except RangelandError:
        return None
    if latest is not None and next_offset >= record.until_offset:
        return latest
    return ReadBefore(next_offset, latest) if next_offset > record.from_offset else None


def _record_time(moment: pa.Scalar) -> RecordTime:
    return RecordTime(None if moment.value is None else moment.value // 1000)


def _later(record: RecordTime | None, other: RecordTime) -> RecordTime:
    if record is None or record.time_ms is None:
        return other
    return record if other.time_ms is None else max(record, other)
