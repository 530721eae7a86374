"""Logs that begin in a format without timestamps, where "no record is that late" may be wrong.

A broker searches for a time only in the first segment that may contain it. A segment without
timestamps may contain any time up to its last modification, which is late if it was copied; then
it hides all later segments. So if a broker finds nothing, its segments are requested with the
oldest version of the request: the response is right only if all segments were written before, or if
the first later one has timestamps. Otherwise the response is the segment that ends before the time,
as for logs without any timestamps. Brokers that no longer support that version are believed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from rangeland.connection.pool import ConnectionPool
from rangeland.dialects.cluster_values import OffsetResult
from rangeland.dialects.error_meaning import ErrorMeaning
from rangeland.dialects.fetch_values import FetchedPartition, FetchOptions, PartitionFetch
from rangeland.dialects.protocol_session import BrokerRequest, NoCommonVersion
from rangeland.model import Address, AtTime, Isolation, Latest, Leader, Partition
from rangeland.survey.broker_requests import request_offsets

SAMPLE_BYTES = 1 << 10
_NOTHING = OffsetResult(ErrorMeaning.RETRY, "nothing", None)
"""What is taken for the result where a response leaves a partition out, or has no records."""


def corrected_times(
    brokers: ConnectionPool,
    address: Address,
    leaders: Mapping[Partition, Leader],
    when: AtTime,
    found: Mapping[Partition, OffsetResult],
) -> dict[Partition, OffsetResult]:
    """Better results for those of ``found`` that are wrong, and errors for those that could not be
    checked."""
    late = {
        p: leaders[p] for p, x in found.items() if x.meaning is ErrorMeaning.OK and x.offset is None
    }
    lacks_timestamp = brokers.dialect.capabilities.lacks_timestamp
    if lacks_timestamp is None or not late:
        return {}
    try:
        logs = _segments(brokers, address, late, Latest())
        written_before = _segments(brokers, address, late, AtTime(max(0, when.time_ms - 1)))
    except NoCommonVersion:
        return {}
    both = {p: (written_before.get(p, _NOTHING), logs.get(p, _NOTHING)) for p in late}
    better = {p: x for p, pair in both.items() for x in pair if x.meaning is not ErrorMeaning.OK}
    first = {p: _first_after(log, before) for p, (before, log) in both.items() if p not in better}
    suspects = {p: offset for p, offset in first.items() if offset is not None}
    for partition, fetched in _fetch_samples(brokers, address, late, suspects).items():
        if fetched.meaning is not ErrorMeaning.OK:
            better[partition] = OffsetResult(fetched.meaning, fetched.code, None)
        elif fetched.is_empty:
            better[partition] = _NOTHING
        elif lacks_timestamp(fetched.records):
            better[partition] = replace(written_before[partition], borders=())
    return better


def _segments(
    brokers: ConnectionPool,
    address: Address,
    leaders: Mapping[Partition, Leader],
    when: AtTime | Latest,
) -> dict[Partition, OffsetResult]:
    """The beginnings of the segments that were last written to before ``when``, then the end of the
    log."""
    isolation = Isolation.READ_UNCOMMITTED
    return request_offsets(brokers, address, leaders, when, isolation, by_segment=True)


def _first_after(log: OffsetResult, before: OffsetResult) -> int | None:
    """The beginning of the first segment that was written to afterwards."""
    last = before.borders[-1] if before.borders else -1
    later_borders = [border for border in log.borders if border > last]
    end = log.offset or 0
    return later_borders[0] if later_borders and later_borders[0] < end else None


def _fetch_samples(
    brokers: ConnectionPool,
    address: Address,
    leaders: Mapping[Partition, Leader],
    offsets: Mapping[Partition, int],
) -> dict[Partition, FetchedPartition]:
    """What the leader returns at the offset of each partition. Each has its own request: if one
    names several, only the first is guaranteed a complete entry."""
    dialect = brokers.dialect
    options = FetchOptions(Isolation.READ_UNCOMMITTED, max_wait_ms=0, max_bytes=SAMPLE_BYTES)
    fetches = [
        PartitionFetch(p, leaders[p].topic_id, leaders[p].epoch, offset, SAMPLE_BYTES)
        for p, offset in offsets.items()
    ]
    requests: list[BrokerRequest] = []
    for one in fetches:
        requests += dialect.records_requests([one], options)
    responses = brokers.call_all(address, requests)
    found: dict[Partition, FetchedPartition] = {}
    for one, response in zip(fetches, responses, strict=True):
        whole = dialect.read_records([response], [one], Isolation.READ_UNCOMMITTED)
        found[one.partition] = FetchedPartition(
            one.partition, whole.meaning, whole.code, memoryview(b"")
        )
        found |= {fetched.partition: fetched for fetched in whole.partitions}
    return found
