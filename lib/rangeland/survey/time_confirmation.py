"""Checks a broker's claim that a log has no record at or after a time.

A broker looks for a time only in the first segment that may contain it. It finds nothing there, and
does not look further, if all records of that segment are deleted but the segment itself is not yet
(``DeleteRecords`` or retention moved the log's start, and ``log.retention.check.interval.ms`` has
not passed since), or if a cleaner has left only empty batches in it (Kafka 4.1,
``UnifiedLog.fetchOffsetByTimestamp``). A range from that time on would then begin at the log's end,
and leave out everything that the log contains.

So the broker is believed only if what was read agrees with it. If a response that could contradict
it is missing, or a record cannot be read, the broker is asked again.

The broker is asked for the record with the latest timestamp (``MAX_TIMESTAMP``, Kafka 3.0 and
newer). It looks for this record among all records on its disks, and only then applies the isolation
level: if the record is at or after the last stable offset (read_committed) or the high watermark
(read_uncommitted), the response is that of a log without records, and not the latest record before
that offset (Kafka 3.0 to 4.0, ``Partition.fetchOffsetForTimestamp``, since 4.0
``ReplicaManager.fetchOffset``). The search by time hides its result in the same way. So both
requests are read_uncommitted, whatever the job reads: an open transaction then hides nothing. A
record that is not replicated yet is still hidden; in that case the leader's log continues after its
high watermark. The broker is then asked again, until everything that was in the log the first time
is replicated. If the latest record is still hidden then, the log is constantly being written to,
and a record near the end of its readable part is judged instead: the last offsets may be
transaction markers, or aborted or compacted records, so more and more of them are read until one
has a record: brokers return the bytes of aborted transactions, too, so reading ends after some of
them. Of few offsets, the first record is judged. Of many, the latest one is, since the first may be
much earlier than all others. If none is found, or they cannot all be read, the broker is asked
again. If one is found and is early, that does not prove that no other record after the first one is
late.

A log without timestamps, or with all of its records in remote storage, has no latest record either,
and is judged without it. Brokers before 3.0 read ``MAX_TIMESTAMP`` as an ordinary time before all
records, and return the first record. If that record is earlier than the requested time, they are
believed; if it is not, or if they return none because its segment has no records left, the log is
checked further.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rangeland.connection.pool import ConnectionPool
from rangeland.deadline import Deadline
from rangeland.dialects.cluster_values import OffsetResult
from rangeland.dialects.error_meaning import ErrorMeaning
from rangeland.model import Address, AtTime, Earliest, Isolation, Latest, Leader, Partition
from rangeland.survey.broker_requests import ask_offsets
from rangeland.survey.epoch_ends import log_ends
from rangeland.survey.record_times import (
    FirstRecord,
    LatestRecord,
    RecordTime,
    WantedRecord,
    confirmed_times,
)

UNREAD = OffsetResult(
    ErrorMeaning.RETRY,
    "that it has no record at or after that time, which could not be checked",
    None,
)
"""The result where the records or responses that could contradict the broker were not read."""
EVERYTHING = Isolation.READ_UNCOMMITTED
CONTRADICTION = (
    "that it has no record at or after that time, although its latest record is at offset"
)

OFFSETS_FROM_END = tuple(4**n for n in range(11))
"""From how many offsets before the end of a log on it is read, one after the other, to find a
record there. The one that is found is at most about four times as far from the end as the last
one."""
NEAR_OFFSETS = 1024
"""Up to how many offsets from the end only the first record of a step is judged, however many
bytes come before it."""
FAR_RESPONSES = 8
"""How many responses, of 4 MiB each, are read of the offsets before those in one step: aborted
transactions of some 40 MiB, or of a million records, hide no earlier record."""


@dataclass(frozen=True, slots=True)
class DeniedLog:
    """A log whose broker finds no record at or after ``time_ms``, although its latest timestamp may
    be that late. ``latest_offset``: the record with that timestamp, deleted or not.
    ``latest_is_hidden``: it is not replicated yet, so its offset is unknown."""

    time_ms: int
    leader: Leader
    start_offset: int
    end_offset: int
    latest_offset: int | None
    latest_is_hidden: bool = False


class ReplicationWait:
    """The ends that logs had when their latest records were first found to be hidden. One object
    for all attempts to confirm a time."""

    def __init__(self) -> None:
        self._ends: dict[tuple[Partition, AtTime], int] = {}

    def must_go_on(
        self, partition: Partition, when: AtTime, watermark: int | None, end: int
    ) -> bool:
        """Whether a part of the log may still be replicated that was in it the first time. The log
        ends at ``end`` now: a new leader may have a shorter one."""
        first_end = self._ends[partition, when] = min(self._ends.get((partition, when), end), end)
        return watermark is None or watermark < first_end


def judge_denial(
    log: DeniedLog, times: Mapping[int, RecordTime | None]
) -> OffsetResult | WantedRecord | None:
    """A better result, None if the broker is believed, or the record whose time must be known
    first. If the log has no record, the broker is believed. If its first record is late enough, the
    range begins there. Otherwise, the broker must be asked again if the record with the latest
    timestamp is late enough, was deleted, or is at or after the log's end, in an open transaction.
    If that record is hidden, a record near the log's end is judged instead. In all other cases the
    broker is believed. ``times``: the known times by the first offset that was asked for, None
    where there is no record."""
    start = log.start_offset
    latest = log.latest_offset
    if start >= log.end_offset:
        return None
    if start not in times:
        return FirstRecord(log.leader, start, log.end_offset)
    if times[start] is None:
        return None
    if _is_late(log, times[start]):
        return OffsetResult(ErrorMeaning.OK, "", start)
    if log.latest_is_hidden:
        return _judge_near_end(log, times)
    if latest is None:
        return None
    if start <= latest < log.end_offset:
        if latest not in times:
            return FirstRecord(log.leader, latest, latest + 1)
        if not _is_late(log, times[latest]):
            return None
    return OffsetResult(ErrorMeaning.RETRY, f"{CONTRADICTION} {latest}", None)


def _judge_near_end(
    log: DeniedLog, times: Mapping[int, RecordTime | None]
) -> OffsetResult | WantedRecord | None:
    """The judgement by the record that is found near the end of a log: the first one of the offsets
    in a step, or the latest one if these are many."""
    until = log.end_offset
    for count in OFFSETS_FROM_END:
        is_near = count <= NEAR_OFFSETS
        # The first record of the log is early, but may be followed by later ones in this step.
        first = log.start_offset if is_near else log.start_offset + 1
        offset = max(first, log.end_offset - count)
        if offset not in times:
            if is_near:
                return FirstRecord(log.leader, offset, until)
            return LatestRecord(log.leader, offset, until, FAR_RESPONSES)
        if (record := times[offset]) is not None:
            late = OffsetResult(ErrorMeaning.RETRY, f"{CONTRADICTION} {offset} or later", None)
            return late if _is_late(log, record) else None
        if offset == first:
            return None
        until = offset  # nothing from here on has a record
    return UNREAD


def _is_late(log: DeniedLog, record: RecordTime | None) -> bool:
    time_ms = None if record is None else record.time_ms
    return time_ms is not None and time_ms >= log.time_ms


def denied_logs(
    leaders: Mapping[Partition, Leader], results: Mapping[Partition, OffsetResult]
) -> dict[Partition, Leader]:
    """The leaders of the logs in which no record is found at or after the time."""
    return {
        p: leader
        for p, leader in leaders.items()
        if p in results and results[p].meaning is ErrorMeaning.OK and results[p].offset is None
    }


def contradicted_denials(
    brokers: ConnectionPool,
    address: Address,
    denied: Mapping[Partition, Leader],
    when: AtTime,
    isolation: Isolation,
    wait: ReplicationWait,
    complete_by: Deadline,
) -> dict[Partition, OffsetResult]:
    """Other results for the logs that have a record at or after the time, and for those where that
    could not be checked now. ``denied``: logs in which the broker at ``address``, their leader,
    finds none with this ``isolation``. A record in an open transaction is after the end of its log.
    Nothing more is asked about a log whose latest timestamp is before the time."""
    latest, hidden = _latest_timestamps(brokers, address, denied, when, wait)
    # A broker that does not support the request for a log cannot be checked.
    others = {
        p: x
        for p, x in latest.items()
        if x.meaning not in (ErrorMeaning.OK, ErrorMeaning.UNSUPPORTED)
    }
    doubted = {
        p: denied[p]
        for p, x in latest.items()
        if x.meaning is ErrorMeaning.OK and (x.time_ms is None or x.time_ms >= when.time_ms)
    }
    if not doubted:
        return others
    anywhere = ask_offsets(brokers, address, doubted, when, EVERYTHING)
    still_denied = denied_logs(doubted, anywhere)
    others |= {p: anywhere.get(p, UNREAD) for p in doubted.keys() - still_denied.keys()}
    doubted = still_denied
    if not doubted:
        return others
    starts = ask_offsets(brokers, address, doubted, Earliest(), isolation)
    ends = ask_offsets(brokers, address, doubted, Latest(), isolation)
    logs: dict[Partition, DeniedLog] = {}
    for p, leader in doubted.items():
        start, end = starts.get(p, UNREAD), ends.get(p, UNREAD)
        if start.offset is None or end.offset is None:
            others[p] = start if start.offset is None else end
        else:
            logs[p] = DeniedLog(
                when.time_ms, leader, start.offset, end.offset, latest[p].offset, p in hidden
            )
    return others | _judge(brokers, logs, complete_by)


def _latest_timestamps(
    brokers: ConnectionPool,
    address: Address,
    leaders: Mapping[Partition, Leader],
    when: AtTime,
    wait: ReplicationWait,
) -> tuple[dict[Partition, OffsetResult], set[Partition]]:
    """The records with the latest timestamps, without an offset for logs that have none, and for
    those that still hide it after the wait, which come second. Empty where the brokers' own search
    by time is exact."""
    latest = _ask_latest(brokers, address, leaders)
    hidden = set[Partition]()
    unseen = denied_logs(leaders, latest)
    if not unseen:
        return latest, hidden
    # No record was hidden if the log ends, after the request, at its high watermark before it.
    watermarks = ask_offsets(brokers, address, unseen, Latest(), EVERYTHING)
    latest |= _ask_latest(brokers, address, unseen)
    ends = log_ends(brokers, unseen)
    for p in denied_logs(unseen, latest):
        watermark, end = watermarks.get(p, UNREAD).offset, ends.get(p)
        if p not in ends:
            latest[p] = UNREAD
        elif end is not None and (watermark is None or end > watermark):
            if wait.must_go_on(p, when, watermark, end):
                latest[p] = UNREAD
            else:
                hidden.add(p)
    return latest, hidden


def _ask_latest(
    brokers: ConnectionPool, address: Address, leaders: Mapping[Partition, Leader]
) -> dict[Partition, OffsetResult]:
    requests = brokers.dialect.latest_timestamps_requests(leaders, EVERYTHING) if leaders else []
    if not requests:
        return {}
    reported = brokers.dialect.read_offsets(brokers.call_all(address, requests))
    return {p: reported.get(p, UNREAD) for p in leaders}


def _judge(
    brokers: ConnectionPool, logs: Mapping[Partition, DeniedLog], complete_by: Deadline
) -> dict[Partition, OffsetResult]:
    """Asks for times until all logs are judged. Logs whose broker is believed are left out. After
    ``complete_by``, nothing is asked that takes many responses."""
    times: dict[Partition, dict[int, RecordTime | None]] = {p: {} for p in logs}
    results: dict[Partition, OffsetResult] = {}
    while times:
        judgements = {p: judge_denial(logs[p], known) for p, known in times.items()}
        results |= {p: x for p, x in judgements.items() if isinstance(x, OffsetResult)}
        records = {p: x for p, x in judgements.items() if isinstance(x, WantedRecord)}
        in_time = records
        if complete_by.has_passed:
            in_time = {p: x for p, x in records.items() if isinstance(x, FirstRecord)}
        answers = confirmed_times(brokers, in_time)
        results |= {p: UNREAD for p in records.keys() - answers.keys()}
        times = {p: {**times[p], records[p].from_offset: x} for p, x in answers.items()}
    return results
