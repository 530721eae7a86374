"""Confirms what a broker says of a log: that no record is as late as a time. One may be.

A broker looks for a time only in the first segment that may contain it. If all records of that
segment are deleted, and the segment itself is not yet (``DeleteRecords`` or retention moved the
log's start, and ``log.retention.check.interval.ms`` has not passed since), or if a cleaner has left
nothing in it but empty batches, it finds nothing there and does not look further (Kafka 4.1,
``UnifiedLog.fetchOffsetByTimestamp``). A range from that time on would then begin at the log's end,
and leave out all that the log has.
"""

from __future__ import annotations

from collections.abc import Mapping

from rangeland.connection.pool import ConnectionPool
from rangeland.dialects.cluster_values import OffsetResult
from rangeland.dialects.error_meaning import ErrorMeaning
from rangeland.model import Address, AtTime, Earliest, Isolation, Latest, Leader, Partition
from rangeland.survey.broker_requests import request_latest_timestamps, request_offsets
from rangeland.survey.record_times import FirstRecord, first_times

CONTRADICTION = "that no record is as late as that, and that the latest one is at offset"


def confirm_no_record(
    brokers: ConnectionPool,
    address: Address,
    leaders: Mapping[Partition, Leader],
    when: AtTime,
    isolation: Isolation,
    found: Mapping[Partition, OffsetResult],
) -> dict[Partition, OffsetResult]:
    """Other results for those of ``found`` that deny a record which the log has: its first one, if
    that is late enough, or else that the broker has to be asked again. All partitions are led by
    the broker at ``address``. One request, if the broker's latest timestamps agree with it."""

    def ends(when: Earliest | Latest) -> dict[Partition, OffsetResult]:
        results = request_offsets(brokers, address, odd, when, isolation) if odd else {}
        return _usable(results, odd)

    denied = {
        p: leaders[p] for p, x in found.items() if x.meaning is ErrorMeaning.OK and x.offset is None
    }
    if not denied:
        return {}
    newest = _usable(request_latest_timestamps(brokers, address, denied, isolation), denied)
    odd = {
        p: denied[p] for p, x in newest.items() if x.time_ms is None or x.time_ms >= when.time_ms
    }
    starts, stops = ends(Earliest()), ends(Latest())
    spans = {
        p: (starts[p].offset or 0, stops[p].offset or 0) for p in odd if p in starts and p in stops
    }
    firsts = {p: FirstRecord(odd[p], *span) for p, span in spans.items() if span[0] < span[1]}
    late = _late(brokers, firsts, when)
    latest = {p: newest[p].offset for p in firsts.keys() - late}
    newest_records = {
        p: FirstRecord(odd[p], at, at + 1)
        for p, at in latest.items()
        if at is not None and spans[p][0] < at < spans[p][1]
    }
    deleted = {p for p, at in latest.items() if at is not None and at < spans[p][0]}
    return {p: OffsetResult(ErrorMeaning.OK, "", spans[p][0]) for p in late} | {
        p: OffsetResult(ErrorMeaning.RETRY, f"{CONTRADICTION} {latest[p]}", None)
        for p in deleted | _late(brokers, newest_records, when)
    }


def _usable(
    results: Mapping[Partition, OffsetResult], asked: Mapping[Partition, Leader]
) -> dict[Partition, OffsetResult]:
    return {p: x for p, x in results.items() if p in asked and x.meaning is ErrorMeaning.OK}


def _late(
    brokers: ConnectionPool, records: Mapping[Partition, FirstRecord], when: AtTime
) -> set[Partition]:
    """The partitions whose record is as late as the time, or later."""
    times = first_times(brokers, records) if records else {}
    return {partition for partition, time_ms in times.items() if time_ms >= when.time_ms}
