"""A batch from each of many logs, for inspection: one request per leader, few bytes.

What does not arrive is left out: a missing leader, a batch larger than the largest request. It is
not waited for, and never an error.
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
from rangeland.survey.broker_requests import by_leader, request_records

Where = TypeVar("Where")
Seen = TypeVar("Seen")

SIZES = (64 << 10, 4 << 20)
"""The bytes requested of each partition at first, and if they contain no complete batch."""
MOST_BYTES = 4 * max(SIZES)
"""The most bytes of one response."""
MAX_WAIT_MS = 500


def sample_batches(
    brokers: ConnectionPool,
    wanted: Mapping[Partition, Where],
    leader_of: Callable[[Where], Leader],
    asked_of: Callable[[Partition, Where, int], PartitionFetch],
    seen_in: Callable[[FetchedPartition], Mapping[Partition, Seen]],
) -> dict[Partition, Seen]:
    """Fetches a batch of each partition, and returns what ``seen_in`` reads from the responses; for
    partitions that it leaves out, more bytes are requested. ``asked_of``: the request for one
    partition, of so many bytes at most."""
    found: dict[Partition, Seen] = {}
    for size in SIZES:
        missing = {p: where for p, where in wanted.items() if p not in found}
        for address, group in by_leader(missing, leader_of).items():
            fetches = [asked_of(p, where, size) for p, where in group.items()]
            try:
                read = request_records(brokers, address, fetches, MOST_BYTES, MAX_WAIT_MS)
            except RangelandError:
                continue
            for fetched in read.partitions:
                if fetched.partition in group:
                    found |= seen_in(fetched)
    return found


def batch_checksums(
    brokers: ConnectionPool, leaders: Mapping[Partition, Leader], offsets: Mapping[Partition, int]
) -> dict[Partition, int | None]:
    """A checksum of the batch or entry at the offset of each partition; None where a broker answers
    without a complete one. Partitions that nobody answers for are left out, as are those of empty
    responses, if their logs reach further. Checksums identify logs whose topics have no id: only
    compaction rewrites batches, so if the bytes at an offset change, the topic was recreated, or
    its log was truncated and has grown since, or it was compacted; these cannot be distinguished.
    """
    is_bytes = brokers.dialect.capabilities.offsets_are_bytes
    answered: set[Partition] = set()

    def asked_of(partition: Partition, leader: Leader, size: int) -> PartitionFetch:
        answered.discard(partition)
        return PartitionFetch(partition, leader.topic_id, None, offsets[partition], size)

    def seen_in(fetched: FetchedPartition) -> dict[Partition, int]:
        offset = offsets[fetched.partition]
        until = offset + 1
        if fetched.meaning.may_pass or (fetched.is_empty and offset < (fetched.readable_end or 0)):
            return {}
        answered.add(fetched.partition)
        try:
            records = fetched.records
            end = brokers.dialect.next_offset(records, offset) if len(records) else None
            if fetched.meaning is not ErrorMeaning.OK or end is None:
                return {}
            if is_bytes:  # then an entry begins there
                until = brokers.dialect.entry_around(fetched.records, offset, offset)[1] or offset
            entry = brokers.dialect.cut_out(fetched.records, offset, offset, until)
        except BadRecord:
            return {}
        return {fetched.partition: zlib.crc32(entry)} if len(entry) else {}

    wanted = {p: leaders[p] for p in offsets if p in leaders}
    found = sample_batches(brokers, wanted, lambda leader: leader, asked_of, seen_in)
    return {**dict.fromkeys(answered), **found}
