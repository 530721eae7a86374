"""A checksum of one batch of each log, which identifies the log if its topic has no id.

Only compaction rewrites batches, so if the bytes at an offset change, the topic was recreated, or
its log was truncated and has grown since, or it was compacted; these cannot be distinguished.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping

from rangeland.connection.pool import ConnectionPool
from rangeland.dialects.error_meaning import ErrorMeaning
from rangeland.dialects.fetch_values import FetchedPartition, PartitionFetch
from rangeland.errors import BadRecord
from rangeland.model import Leader, Partition
from rangeland.survey.batch_samples import sample_batches


def batch_checksums(
    brokers: ConnectionPool, leaders: Mapping[Partition, Leader], offsets: Mapping[Partition, int]
) -> dict[Partition, int]:
    """Of the batch or entry at the offset of each partition; those that do not arrive complete are
    left out."""

    is_bytes = brokers.dialect.capabilities.offsets_are_bytes

    def asked_of(partition: Partition, leader: Leader, size: int) -> PartitionFetch:
        return PartitionFetch(partition, leader.topic_id, None, offsets[partition], size)

    def seen_in(part: FetchedPartition) -> dict[Partition, int]:
        at = offsets[part.partition]
        until = at + 1
        try:
            end = brokers.dialect.next_offset(part.records, at) if len(part.records) else None
            if part.verdict is not ErrorMeaning.OK or end is None:
                return {}
            if is_bytes:  # then an entry begins there
                until = brokers.dialect.entry_around(part.records, at, at)[1] or at
            entry = brokers.dialect.cut_out(part.records, at, at, until)
        except BadRecord:
            return {}
        return {part.partition: zlib.crc32(entry)} if len(entry) else {}

    wanted = {p: leaders[p] for p in offsets if p in leaders}
    return sample_batches(brokers, wanted, lambda leader: leader, asked_of, seen_in)
