"""The times of single records, read from the records themselves.

Anything unavailable (a missing leader, a batch larger than the request, a record without a
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
    brokers: ConnectionPool, records: Mapping[Partition, FirstRecord]
) -> dict[Partition, int]:
    """The timestamps, in ms, of these records."""

    def fetch_for(partition: Partition, record: FirstRecord, size: int) -> PartitionFetch:
        leader = record.leader
        return PartitionFetch(partition, leader.topic_id, leader.epoch, record.from_offset, size)

    def read_time(fetched: FetchedPartition) -> dict[Partition, int | None]:
        is_well = fetched.meaning is ErrorMeaning.OK
        return _time_of(brokers, fetched, records[fetched.partition]) if is_well else {}

    times = sample_batches(brokers, records, lambda record: record.leader, fetch_for, read_time)
    return {partition: time_ms for partition, time_ms in times.items() if time_ms is not None}


def _time_of(
    brokers: ConnectionPool, fetched: FetchedPartition, record: FirstRecord
) -> dict[Partition, int | None]:
    """The time of the first row, None if it has none. Empty if there is no row."""
    isolation = brokers.settings.isolation
    span = (record.from_offset, record.until_offset)
    try:
        records, aborted = fetched.records, fetched.aborted
        for chunk in brokers.dialect.decode_chunks(records, *span, isolation, aborted):
            if not isinstance(chunk, Gap) and chunk.batch is not None and chunk.batch.num_rows:
                moment = chunk.batch.column("timestamp")[0].value
                return {fetched.partition: None if moment is None else moment // 1000}
    except RangelandError:
        return {fetched.partition: None}
    return {}
