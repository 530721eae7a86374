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
from rangeland.survey.broker_requests import request_offsets
from rangeland.survey.record_times import FirstRecord, first_times

NEWEST = AtTime(-3)
"""The record with the latest timestamp (KIP-734). Brokers that do not know it name the first."""
CONTRADICTION = "that no record is as late as that, and has one at offset"


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
    the broker at ``address``."""
    denied = {
        p: leaders[p] for p, x in found.items() if x.meaning is ErrorMeaning.OK and x.offset is None
    }
    if brokers.dialect.capabilities.lacks_timestamp is None or not denied:
        return {}

    def ask(
        which: Mapping[Partition, Leader], at: Earliest | Latest | AtTime
    ) -> dict[Partition, int]:
        results = request_offsets(brokers, address, which, at, isolation)
        return {p: x.offset for p, x in results.items() if p in which and x.offset is not None}

    starts, ends = ask(denied, Earliest()), ask(denied, Latest())
    spans = {p: (starts[p], ends[p]) for p in denied if p in starts and p in ends}
    spans = {p: (start, end) for p, (start, end) in spans.items() if start < end}
    firsts = {p: FirstRecord(denied[p], start, end) for p, (start, end) in spans.items()}
    late = _late(brokers, firsts, when)
    rest = {p: denied[p] for p in spans.keys() - late}
    newest = {
        p: FirstRecord(denied[p], offset, offset + 1)
        for p, offset in (ask(rest, NEWEST) if rest else {}).items()
        if spans[p][0] < offset < spans[p][1]
    }
    hidden = _late(brokers, newest, when)
    return {p: OffsetResult(ErrorMeaning.OK, "", spans[p][0]) for p in late} | {
        p: OffsetResult(ErrorMeaning.RETRY, f"{CONTRADICTION} {newest[p].from_offset}", None)
        for p in hidden
    }


def _late(
    brokers: ConnectionPool, records: Mapping[Partition, FirstRecord], when: AtTime
) -> set[Partition]:
    """The partitions whose record is as late as the time, or later."""
    times = first_times(brokers, records) if records else {}
    return {partition for partition, time_ms in times.items() if time_ms >= when.time_ms}
