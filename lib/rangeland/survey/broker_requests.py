"""Makes one round of requests to one broker, about records or offsets of some of its partitions.

A dialect describes requests and responses as values; this module sends them. All functions except
``ask_sizes`` raise ConnectionLost.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from rangeland.connection.pool import ConnectionPool
from rangeland.dialects.cluster_values import OffsetResult
from rangeland.dialects.fetch_values import FetchOptions, FetchResult, PartitionFetch
from rangeland.errors import RangelandError
from rangeland.model import (
    Address,
    AtTime,
    Earliest,
    Isolation,
    Latest,
    Leader,
    LogState,
    Partition,
)


def by_address(leaders: Mapping[Partition, Leader]) -> dict[Address, dict[Partition, Leader]]:
    """Leaders grouped by address, for one request each. Those without an address are left out."""
    groups: dict[Address, dict[Partition, Leader]] = {}
    for partition, leader in leaders.items():
        if leader.address is not None:
            groups.setdefault(leader.address, {})[partition] = leader
    return groups


def leaders_of(logs: Mapping[Partition, LogState]) -> dict[Partition, Leader]:
    return {partition: log.leader for partition, log in logs.items()}


def ask_records(
    brokers: ConnectionPool,
    address: Address,
    fetches: Sequence[PartitionFetch],
    max_bytes: int,
    max_wait_ms: int = 0,
) -> FetchResult:
    """Asks for records. ``max_bytes``: the limit for the whole response. ``max_wait_ms``: how long
    the broker may wait for records."""
    dialect = brokers.dialect
    isolation = brokers.settings.isolation
    options = FetchOptions(isolation, max_wait_ms, max_bytes)
    responses = brokers.call_all(address, dialect.records_requests(fetches, options))
    return dialect.read_records(responses, fetches, isolation)


def ask_offsets(
    brokers: ConnectionPool,
    address: Address,
    leaders: Mapping[Partition, Leader],
    when: Earliest | Latest | AtTime,
    isolation: Isolation,
    *,
    by_segment: bool = False,
) -> dict[Partition, OffsetResult]:
    """Asks for the offsets of a time or an end. ``by_segment``: uses the oldest version of the
    request, for which brokers report the beginnings of the segments that were last written to
    before the time, then the end of the log (``OffsetResult.borders``)."""
    requests = brokers.dialect.offsets_requests(leaders, when, isolation)
    if by_segment:
        requests = [replace(request, max_version=0) for request in requests]
    return brokers.dialect.read_offsets(brokers.call_all(address, requests))


def ask_sizes(
    brokers: ConnectionPool,
    leaders: Mapping[Partition, Leader],
    start: Mapping[Partition, OffsetResult],
    end: Mapping[Partition, OffsetResult],
) -> dict[Partition, int]:
    """Asks for sizes on the leaders' disks, one request for each leader. Unknown sizes are left
    out: sizes only help to cut slices."""
    sizes: dict[Partition, int] = {}
    for address, group in by_address(leaders).items():
        try:
            logs = {p: (start[p].offset or 0, end[p].offset or 0) for p in group}
            responses = brokers.call_all(address, brokers.dialect.sizes_requests(logs))
        except RangelandError:
            # Old brokers do not know this request, and some clients may not send it.
            continue
        reported = brokers.dialect.read_sizes(responses)
        sizes |= {p: size for p, size in reported.items() if p in group}
    return sizes
