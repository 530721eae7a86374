"""Checks a broker's claim that no record of a log is as late as a time. One may be.

A broker looks for a time only in the first segment that may contain it. If all records of that
segment are deleted, and the segment itself is not yet (``DeleteRecords`` or retention moved the
log's start, and ``log.retention.check.interval.ms`` has not passed since), or if a cleaner has left
only empty batches in it, the broker finds nothing there and does not look further (Kafka 4.1,
``UnifiedLog.fetchOffsetByTimestamp``). A range from that time on would then begin at the log's end,
and leave out all that the log has.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rangeland.connection.pool import ConnectionPool
from rangeland.dialects.cluster_values import OffsetResult
from rangeland.dialects.error_meaning import ErrorMeaning
from rangeland.model import Address, AtTime, Earliest, Isolation, Latest, Leader, Partition
from rangeland.survey.broker_requests import request_latest_timestamps, request_offsets
from rangeland.survey.record_times import FirstRecord, first_times

CONTRADICTION = "that no record is as late as that, and that the latest one is at offset"


@dataclass(frozen=True, slots=True)
class DeniedLog:
    """A log whose broker finds no record as late as ``time_ms``, although the latest timestamp may
    be. ``latest_offset``: the record with that timestamp, deleted or not."""

    time_ms: int
    leader: Leader
    start_offset: int
    end_offset: int
    latest_offset: int | None


def judge_denial(
    log: DeniedLog, times: Mapping[int, int | None]
) -> OffsetResult | FirstRecord | None:
    """A better result, None if the broker is believed, or the record whose time must be known
    first. The range begins at the log's first record if that is late enough. If the latest record
    is late enough, or deleted, the broker must be asked again. ``times``: the known times, by
    offset."""

    def is_late(offset: int) -> bool:
        time_ms = times[offset]
        return time_ms is not None and time_ms >= log.time_ms

    start, latest = log.start_offset, log.latest_offset
    if start >= log.end_offset:
        return None
    if start not in times:
        return FirstRecord(log.leader, start, log.end_offset)
    if is_late(start):
        return OffsetResult(ErrorMeaning.OK, "", start)
    if latest is None or latest >= log.end_offset:
        return None
    if latest >= start and latest not in times:
        return FirstRecord(log.leader, latest, latest + 1)
    if latest >= start and not is_late(latest):
        return None
    return OffsetResult(ErrorMeaning.RETRY, f"{CONTRADICTION} {latest}", None)


def confirm_no_record(
    brokers: ConnectionPool,
    address: Address,
    leaders: Mapping[Partition, Leader],
    when: AtTime,
    isolation: Isolation,
    results: Mapping[Partition, OffsetResult],
) -> dict[Partition, OffsetResult]:
    """Other results for those of ``results`` that deny a record which the log has. All partitions
    are led by the broker at ``address``. One request, if its latest timestamps agree with it."""
    denied = {
        p: leaders[p]
        for p, x in results.items()
        if x.meaning is ErrorMeaning.OK and x.offset is None
    }
    if not denied:
        return {}
    reported = _usable(request_latest_timestamps(brokers, address, denied, isolation))
    latest = {
        p: record
        for p, record in reported.items()
        if p in denied and (record.time_ms is None or record.time_ms >= when.time_ms)
    }
    if not latest:
        return {}
    doubted = {p: leaders[p] for p in latest}
    starts = _usable(request_offsets(brokers, address, doubted, Earliest(), isolation))
    ends = _usable(request_offsets(brokers, address, doubted, Latest(), isolation))
    logs = {
        p: DeniedLog(when.time_ms, leaders[p], starts[p].offset or 0, ends[p].offset or 0, x.offset)
        for p, x in latest.items()
        if p in starts and p in ends
    }
    return _judge(brokers, logs)


def _judge(
    brokers: ConnectionPool, logs: Mapping[Partition, DeniedLog]
) -> dict[Partition, OffsetResult]:
    """Asks for times until all logs are judged. Logs whose broker is believed are left out."""
    times: dict[Partition, dict[int, int | None]] = {p: {} for p in logs}
    while True:
        judgements = {p: judge_denial(log, times[p]) for p, log in logs.items()}
        records = {p: x for p, x in judgements.items() if isinstance(x, FirstRecord)}
        if not records:
            return {p: x for p, x in judgements.items() if isinstance(x, OffsetResult)}
        answers = first_times(brokers, records)
        for p, record in records.items():
            times[p][record.from_offset] = answers.get(p)


def _usable(results: Mapping[Partition, OffsetResult]) -> dict[Partition, OffsetResult]:
    return {p: x for p, x in results.items() if x.meaning is ErrorMeaning.OK}
