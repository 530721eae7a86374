"""Determines the leader epochs of a log: the current one, and where older ones ended.

This takes one request per broker, if there is something to compare. Brokers before 2.1 do not
report the epoch in their metadata. For those, it is read from the log's last batch, so an unclean
election shows only after the next write. If a broker does not report the end of an epoch, a log
that was truncated and has grown again looks like one that was not truncated. If it does not answer
at all, the survey is taken again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from rangeland.connection.pool import ConnectionPool
from rangeland.dialects.dialect import Dialect
from rangeland.dialects.fetch_values import FetchedPartition, FetchedRecords, PartitionFetch
from rangeland.dialects.protocol_session import NoCommonVersion
from rangeland.errors import RangelandError
from rangeland.model import Earliest, Leader, LogState, Partition
from rangeland.survey.batch_fetch import sample_batches
from rangeland.survey.broker_requests import ask_offsets, by_address, leaders_of

TRIES = 3
"""Retention runs only every few minutes, so it hardly ever deletes the first batch of a log
twice in a row."""


def with_epochs(
    brokers: ConnectionPool, logs: Mapping[Partition, LogState]
) -> dict[Partition, LogState]:
    """The logs, with the epoch of the last batch if the leader's epoch is not reported."""
    epochs = _last_epochs(brokers, {p: logs[p] for p in lacking_epochs(brokers, logs)})
    return {
        p: replace(log, leader=replace(log.leader, epoch=epochs[p]), epoch_is_read=True)
        if p in epochs
        else log
        for p, log in logs.items()
    }


def lacking_epochs(brokers: ConnectionPool, logs: Mapping[Partition, LogState]) -> list[Partition]:
    """The logs with records whose leader epoch is neither reported nor read."""
    if not brokers.dialect.capabilities.has_epochs:
        return []
    return [
        p
        for p, log in logs.items()
        if log.leader.epoch is None and not log.epoch_is_read and log.end_offset > log.start_offset
    ]


def _last_epochs(
    brokers: ConnectionPool, logs: Mapping[Partition, LogState]
) -> dict[Partition, int | None]:
    """The epochs of the last batches; None for records that are older than epochs."""

    def fetch_for(partition: Partition, size: int) -> PartitionFetch:
        return PartitionFetch(partition, None, None, logs[partition].end_offset - 1, size)

    def read_end(fetched: FetchedPartition) -> dict[Partition, int | None]:
        has_batch = len(fetched.records) > 0
        return {fetched.partition: brokers.dialect.epoch_of(fetched.records)} if has_batch else {}

    return sample_batches(brokers, leaders_of(logs), fetch_for, read_end)


def epoch_ends(
    brokers: ConnectionPool, logs: Mapping[Partition, LogState], epochs: Mapping[Partition, int]
) -> tuple[dict[Partition, int], list[Partition]]:
    """The offsets at which the records of these epochs end, for partitions whose leader has changed
    since; and the partitions whose leader has to be asked again."""
    grown = {p: logs[p] for p, epoch in epochs.items() if p in logs and _is_older(epoch, logs[p])}
    reported = _ask_ends(brokers, leaders_of(grown), epochs)
    ends = {p: end for p, end in reported.items() if end is not None}
    unanswered = [p for p in grown if p not in reported]
    unknown = {p: grown[p] for p in reported if grown[p].epoch_is_read and p not in ends}
    return ends | _ends_before_all(brokers, unknown, epochs), unanswered


def log_ends(
    brokers: ConnectionPool, leaders: Mapping[Partition, Leader]
) -> dict[Partition, int | None]:
    """The ends of the leaders' logs, including what is not replicated yet: a log ends where its
    current epoch ends. None where the broker cannot say. Partitions whose leader does not answer
    are left out."""
    epochs = {p: leader.epoch for p, leader in leaders.items() if leader.epoch is not None}
    reported = _ask_ends(brokers, {p: leaders[p] for p in epochs}, epochs)
    return {p: None for p in leaders if p not in epochs} | reported


def _ask_ends(
    brokers: ConnectionPool, leaders: Mapping[Partition, Leader], epochs: Mapping[Partition, int]
) -> dict[Partition, int | None]:
    """The ends of the epochs; None if the broker does not know an end. Partitions whose leader does
    not answer are left out."""
    reported: dict[Partition, int | None] = {}
    for address, group in by_address(leaders).items():
        try:
            requests = brokers.dialect.epochs_requests(group, {p: epochs[p] for p in group})
            responses = brokers.call_all(address, requests)
        except NoCommonVersion:  # the broker is too old for the request
            reported |= dict.fromkeys(group)
        except RangelandError:
            continue
        else:
            ends = brokers.dialect.read_epochs(responses)
            reported |= {p: end for p, end in ends.items() if p in group}
    return reported


def _ends_before_all(
    brokers: ConnectionPool, logs: Mapping[Partition, LogState], epochs: Mapping[Partition, int]
) -> dict[Partition, int]:
    """The ends of epochs that are older than all batches of their log, for which brokers before 2.0
    report nothing. Their records end where the log's first batch begins. Retention may delete
    that batch while it is requested; then the log begins elsewhere."""
    ends: dict[Partition, int | None] = {}
    unread = dict(logs)
    for _ in range(TRIES):
        ends |= _ends_before_first(brokers, unread, epochs)
        unread = _with_start(brokers, {p: log for p, log in unread.items() if p not in ends})
    return {partition: end for partition, end in ends.items() if end is not None}


def _ends_before_first(
    brokers: ConnectionPool, logs: Mapping[Partition, LogState], epochs: Mapping[Partition, int]
) -> dict[Partition, int | None]:
    """The ends that the first batch of each log shows. Logs whose first batch does not arrive are
    left out."""

    def fetch_for(partition: Partition, size: int) -> PartitionFetch:
        return PartitionFetch(partition, None, None, logs[partition].start_offset, size)

    def read_end(fetched: FetchedPartition) -> dict[Partition, int | None]:
        if len(fetched.records) == 0:
            return {}
        start = logs[fetched.partition].start_offset
        epoch = epochs[fetched.partition]
        end = end_before_batch(brokers.dialect, fetched.records, start, epoch)
        return {fetched.partition: end}

    return sample_batches(brokers, leaders_of(logs), fetch_for, read_end)


def end_before_batch(
    dialect: Dialect, records: FetchedRecords, from_offset: int, epoch: int
) -> int | None:
    """The offset of a log's first batch, if its epoch is later than the given one; None if the
    given epoch may continue in it. ``from_offset``: where the log begins."""
    batch_epoch = dialect.epoch_of(records)
    is_later = batch_epoch is not None and batch_epoch > epoch
    return dialect.first_offset(records, from_offset) if is_later else None


def _with_start(
    brokers: ConnectionPool, logs: Mapping[Partition, LogState]
) -> dict[Partition, LogState]:
    """The logs with the offsets at which they begin now, if their leaders report them."""
    moved_logs = dict(logs)
    for address, group in by_address(leaders_of(logs)).items():
        try:
            results = ask_offsets(brokers, address, group, Earliest(), brokers.settings.isolation)
        except RangelandError:
            continue
        for p, result in results.items():
            if p in group and result.offset is not None:
                moved_logs[p] = replace(logs[p], start_offset=result.offset)
    return moved_logs


def _is_older(epoch: int, log: LogState) -> bool:
    return log.leader.epoch is not None and epoch < log.leader.epoch
