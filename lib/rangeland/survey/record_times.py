"""The times of single records, read from the records themselves.

What is unavailable (a missing leader, a batch larger than the request, a record without a
timestamp) is left out. One request per leader, or two.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rangeland.connection.pool import ConnectionPool
from rangeland.dialects.error_meaning import ErrorMeaning
from rangeland.dialects.fetch_values import FetchedPartition, Gap, PartitionFetch
from rangeland.errors import RangelandError
from rangeland.model import Leader, Partition
from rangeland.survey.batch_fetch import sample_batches


@dataclass(frozen=True, slots=True)
class FirstRecord:
    """The first record in ``[from_offset, until_offset)``."""

    leader: Leader
    from_offset: int
    until_offset: int


def first_times(
    brokers: ConnectionPool, wanted: Mapping[Partition, FirstRecord]
) -> dict[Partition, int]:
    """The timestamps, in ms, of the first records at these positions."""

    def asked_of(partition: Partition, at: FirstRecord, size: int) -> PartitionFetch:
        return PartitionFetch(partition, at.leader.topic_id, at.leader.epoch, at.from_offset, size)

    def seen_in(fetched: FetchedPartition) -> dict[Partition, int | None]:
        is_well = fetched.meaning is ErrorMeaning.OK
        return _first(brokers, fetched, wanted[fetched.partition]) if is_well else {}

    found = sample_batches(brokers, wanted, lambda at: at.leader, asked_of, seen_in)
    return {partition: time_ms for partition, time_ms in found.items() if time_ms is not None}


def _first(
    brokers: ConnectionPool, fetched: FetchedPartition, at: FirstRecord
) -> dict[Partition, int | None]:
    """The time of the first row; None if it has none. Empty if there is no row."""
    isolation = brokers.settings.isolation
    span = (at.from_offset, at.until_offset)
    try:
        records, aborted = fetched.records, fetched.aborted
        for chunk in brokers.dialect.decode_chunks(records, *span, isolation, aborted):
            if not isinstance(chunk, Gap) and chunk.batch is not None and chunk.batch.num_rows:
                moment = chunk.batch.column("timestamp")[0].value
                return {fetched.partition: None if moment is None else moment // 1000}
    except RangelandError:
        return {fetched.partition: None}
    return {}
