"""A checksum of one batch of each log, to know the log by where its topic has no id.

Batches are never rewritten but by compaction, so where the same offset has other bytes after a
while, the topic was created again, or its log was cut off and has grown since; or it was
compacted, which cannot be told from that.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping

from rangeland.connection.pool import ConnectionPool
from rangeland.dialects.error_meaning import ErrorMeaning
from rangeland.dialects.fetch_values import FetchedPartition, PartitionFetch
from rangeland.errors import BadRecord
from rangeland.model import Leader, Partition
from rangeland.survey.sample import peek


def fingerprints(
    brokers: ConnectionPool, leaders: Mapping[Partition, Leader], offsets: Mapping[Partition, int]
) -> dict[Partition, int]:
    """Of the batch or entry at the offset of each partition; those that do not come whole are
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
    return peek(brokers, wanted, lambda leader: leader, asked_of, seen_in)
