"""Fetches one batch from each of many logs, for inspection: one request per leader, few bytes.

Batches that do not arrive are left out, for example if a leader is missing or a batch is larger
than the largest request. This is never an error, and nothing waits for them.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from typing import TypeVar

from rangeland.connection.pool import ConnectionPool
from rangeland.dialects.error_meaning import ErrorMeaning
from rangeland.dialects.fetch_values import FetchedPartition, PartitionFetch
from rangeland.errors import BadRecord, RangelandError
from rangeland.model import Leader, Partition
from rangeland.survey.broker_requests import ask_records, by_address

Sample = TypeVar("Sample")

SIZES = (64 << 10, 4 << 20)
"""The bytes requested from each partition, first and then again if they contain no complete
batch."""
MAX_BYTES = 4 * max(SIZES)
"""The maximum size of one response."""
MAX_WAIT_MS = 500
"""The records already exist, so a broker that waits this long has none to return."""


def sample_batches(
    brokers: ConnectionPool,
    leaders: Mapping[Partition, Leader],
    fetch_for: Callable[[Partition, int], PartitionFetch],
    read: Callable[[FetchedPartition], Mapping[Partition, Sample]],
) -> dict[Partition, Sample]:
    """Fetches a batch of each partition, and returns what ``read`` makes of the responses; for
    partitions that it leaves out, more bytes are requested. ``fetch_for``: the request for one
    partition, for at most so many bytes."""
    samples: dict[Partition, Sample] = {}
    for size in SIZES:
        missing = {p: leader for p, leader in leaders.items() if p not in samples}
        for address, group in by_address(missing).items():
            fetches = [fetch_for(p, size) for p in group]
            try:
                result = ask_records(brokers, address, fetches, MAX_BYTES, MAX_WAIT_MS)
            except RangelandError:
                continue
            for fetched in result.partitions:
                if fetched.partition in group:
                    samples |= read(fetched)
    return samples


def batch_checksums(
    brokers: ConnectionPool, leaders: Mapping[Partition, Leader], offsets: Mapping[Partition, int]
) -> dict[Partition, int | None]:
    """A checksum of the batch or entry at the offset of each partition; None if a broker answers
    without a complete one. Partitions are left out if no broker answers for them, or if the
    response is empty although the log continues. Checksums identify logs whose topics have no id.
    Since only compaction rewrites batches, changed bytes at an offset mean that the topic was
    recreated, that its log was truncated and has grown since, or that it was compacted; these cases
    cannot be distinguished.
    """
    is_bytes = brokers.dialect.capabilities.offsets_are_bytes
    answered: set[Partition] = set()

    def fetch_for(partition: Partition, size: int) -> PartitionFetch:
        answered.discard(partition)
        topic_id = leaders[partition].topic_id
        return PartitionFetch(partition, topic_id, None, offsets[partition], size)

    def checksum(fetched: FetchedPartition) -> dict[Partition, int]:
        offset = offsets[fetched.partition]
        until_offset = offset + 1
        lacks_records = fetched.is_empty and offset < (fetched.readable_end or 0)
        if fetched.meaning.is_retriable or lacks_records:
            return {}
        answered.add(fetched.partition)
        try:
            records = fetched.records
            end = brokers.dialect.scan(records).next_offset if len(records) else None
            if fetched.meaning is not ErrorMeaning.OK or end is None:
                return {}
            if is_bytes:  # then an entry begins at the offset
                until_offset = brokers.dialect.entry_around(records, offset)[1] or offset
            entry = brokers.dialect.cut_out(records, offset, until_offset)
        except BadRecord:
            return {}
        return {fetched.partition: zlib.crc32(entry)} if len(entry) else {}

    led = {p: leaders[p] for p in offsets if p in leaders}
    checksums = sample_batches(brokers, led, fetch_for, checksum)
    return {**dict.fromkeys(answered), **checksums}
