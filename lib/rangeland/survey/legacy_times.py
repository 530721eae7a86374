"""Corrects time lookups in logs that begin in a format without timestamps. There, a broker may be
wrong when it reports that no record is late enough.

A broker searches for a time only in the first segment that may contain it. A segment without
timestamps may contain any time up to its last modification, which is late if the file was copied;
then it hides all later segments. So if a broker finds nothing, the segments are requested with the
oldest version of the request. The broker is right only if all segments were written before the
time, or if the first later one has timestamps. Otherwise the result is the segment that ends before
the time, as for logs without any timestamps. Brokers that no longer support that version are
believed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from rangeland.connection.pool import ConnectionPool
from rangeland.dialects.cluster_values import OffsetResult
from rangeland.dialects.error_meaning import ErrorMeaning
from rangeland.dialects.fetch_values import FetchedPartition, FetchOptions, PartitionFetch
from rangeland.dialects.protocol_session import BrokerRequest, NoCommonVersion
from rangeland.model import Address, AtTime, Isolation, Latest, Leader, Partition
from rangeland.survey.broker_requests import ask_offsets

SAMPLE_BYTES = 1 << 10
"""Only the header of the first entry is needed."""
NO_ANSWER = OffsetResult(ErrorMeaning.RETRY, "nothing", None)
"""The result if a response leaves out a partition, or has no records."""


def judge_segments(log: OffsetResult, earlier: OffsetResult) -> OffsetResult | int | None:
    """A better result, None if the broker is right, or the beginning of the first segment that was
    written to since the time: its entry must be judged first. ``log``: all segments and the log's
    end. ``earlier``: the segments last written to before the time."""
    for result in (log, earlier):
        if result.meaning is not ErrorMeaning.OK:
            return result
    last = earlier.borders[-1] if earlier.borders else -1
    border = next((border for border in log.borders if border > last), None)
    return border if border is not None and border < (log.offset or 0) else None


def judge_entry(
    entry: FetchedPartition, earlier: OffsetResult, lacks_timestamp: Callable[[memoryview], bool]
) -> OffsetResult | None:
    """A better result, or None if the entry has a timestamp, and so the broker is right."""
    if entry.meaning is not ErrorMeaning.OK:
        return OffsetResult(entry.meaning, entry.code_name, None)
    if entry.is_empty:
        return NO_ANSWER
    return replace(earlier, borders=()) if lacks_timestamp(entry.records.data) else None


def corrected_times(
    brokers: ConnectionPool,
    address: Address,
    denied: Mapping[Partition, Leader],
    when: AtTime,
) -> dict[Partition, OffsetResult]:
    """Better results for the logs whose broker is wrong, and errors for those that could not be
    checked. ``denied``: logs in which the broker at ``address``, their leader, finds no record as
    late as the time."""
    lacks_timestamp = brokers.dialect.capabilities.lacks_timestamp
    if lacks_timestamp is None or not denied:
        return {}
    before = AtTime(max(0, when.time_ms - 1))
    isolation = Isolation.READ_UNCOMMITTED
    try:
        logs = ask_offsets(brokers, address, denied, Latest(), isolation, by_segment=True)
        earlier = ask_offsets(brokers, address, denied, before, isolation, by_segment=True)
    except NoCommonVersion:
        return {}
    judgements = {
        p: judge_segments(logs.get(p, NO_ANSWER), earlier.get(p, NO_ANSWER)) for p in denied
    }
    offsets = {p: x for p, x in judgements.items() if isinstance(x, int)}
    entries = _fetch_entries(brokers, address, denied, offsets)
    for p in offsets:
        judgements[p] = judge_entry(entries[p], earlier[p], lacks_timestamp)
    return {p: x for p, x in judgements.items() if isinstance(x, OffsetResult)}


def _fetch_entries(
    brokers: ConnectionPool,
    address: Address,
    leaders: Mapping[Partition, Leader],
    offsets: Mapping[Partition, int],
) -> dict[Partition, FetchedPartition]:
    """The leader's responses for the offset of each partition. Each partition has its own request:
    if a request names several, only the first is guaranteed a complete entry."""
    dialect = brokers.dialect
    options = FetchOptions(Isolation.READ_UNCOMMITTED, max_wait_ms=0, max_bytes=SAMPLE_BYTES)
    fetches = [
        PartitionFetch(p, leaders[p].topic_id, leaders[p].epoch, offset, SAMPLE_BYTES)
        for p, offset in offsets.items()
    ]
    requests: list[BrokerRequest] = []
    for fetch in fetches:
        requests += dialect.records_requests([fetch], options)
    responses = brokers.call_all(address, requests)
    entries: dict[Partition, FetchedPartition] = {}
    for fetch, response in zip(fetches, responses, strict=True):
        result = dialect.read_records([response], [fetch], Isolation.READ_UNCOMMITTED)
        nothing = FetchedPartition(fetch.partition, result.meaning, result.code_name)
        own = (x for x in result.partitions if x.partition == fetch.partition)
        entries[fetch.partition] = next(own, nothing)
    return entries
