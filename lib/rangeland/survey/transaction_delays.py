"""Finds out what cannot be read yet: how far logs are committed, and which transaction delays the
rest.

This is for display only, so there are no errors: anything unavailable (a missing leader, a batch
larger than the request, a record without a timestamp) is left out. It takes three or four requests
per leader.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from rangeland.cluster_settings import ClusterSettings
from rangeland.connection.pool import ConnectionPool
from rangeland.dialects.error_meaning import ErrorMeaning
from rangeland.errors import RangelandError
from rangeland.model import (
    Address,
    Isolation,
    Latest,
    Leader,
    LogState,
    OpenTransaction,
    Partition,
)
from rangeland.survey.broker_requests import ask_offsets, by_address, leaders_of
from rangeland.survey.record_times import FirstRecord, first_times


@dataclass(frozen=True, slots=True)
class LogEnds:
    """The end of a log, for readers of all records (``high_watermark``) and of committed records
    only (``last_stable_offset``). ``transaction`` is open between the two; ``began_at_ms`` is the
    timestamp of its first record."""

    high_watermark: int
    last_stable_offset: int
    transaction: OpenTransaction | None = None
    began_at_ms: int | None = None


def log_ends(
    settings: ClusterSettings, logs: Mapping[Partition, LogState]
) -> dict[Partition, LogEnds]:
    """The log ends of the partitions whose leaders answer; empty if the dialect has no
    transactions."""
    # Uncommitted, to include records of open transactions.
    with ConnectionPool(replace(settings, isolation=Isolation.READ_UNCOMMITTED)) as brokers:
        if not brokers.dialect.capabilities.has_transactions:
            return {}
        ends: dict[Partition, LogEnds] = {}
        for address, leaders in by_address(leaders_of(logs)).items():
            ends |= _ends_at(brokers, address, leaders)
        return _with_times(brokers, logs, ends)


def _ends_at(
    brokers: ConnectionPool, address: Address, leaders: Mapping[Partition, Leader]
) -> dict[Partition, LogEnds]:
    try:
        # In this order, so that records written between the two do not count as uncommitted.
        high = _latest(brokers, address, leaders, Isolation.READ_UNCOMMITTED)
        stable = _latest(brokers, address, leaders, Isolation.READ_COMMITTED)
    except RangelandError:
        return {}
    delayed = {p for p in high.keys() & stable.keys() if stable[p] < high[p]}
    transactions = _transactions(brokers, address, delayed) if delayed else {}
    return {
        p: LogEnds(
            max(high[p], stable[p]),
            stable[p],
            transactions.get(p, OpenTransaction(stable[p])) if p in delayed else None,
        )
        for p in high.keys() & stable.keys()
    }


def _latest(
    brokers: ConnectionPool,
    address: Address,
    leaders: Mapping[Partition, Leader],
    isolation: Isolation,
) -> dict[Partition, int]:
    results = ask_offsets(brokers, address, leaders, Latest(), isolation)
    return {
        p: result.offset
        for p, result in results.items()
        if result.meaning is ErrorMeaning.OK and result.offset is not None and p in leaders
    }


def _transactions(
    brokers: ConnectionPool, address: Address, partitions: set[Partition]
) -> dict[Partition, OpenTransaction]:
    try:
        requests = brokers.dialect.transactions_requests(partitions)
        return brokers.dialect.read_transactions(brokers.call_all(address, requests))
    except RangelandError:  # the broker is too old for the request, or does not allow it
        return {}


def _with_times(
    brokers: ConnectionPool, logs: Mapping[Partition, LogState], ends: dict[Partition, LogEnds]
) -> dict[Partition, LogEnds]:
    first_records = {
        p: FirstRecord(logs[p].leader, end.transaction.first_offset, end.high_watermark)
        for p, end in ends.items()
        if end.transaction is not None
    }
    times = first_times(brokers, first_records) if first_records else {}
    return ends | {p: replace(ends[p], began_at_ms=time_ms) for p, time_ms in times.items()}
