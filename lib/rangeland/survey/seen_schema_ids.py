"""Finds out which schema ids keys and values have, by looking at the first and last records of
ranges.

The first plan is made from the same survey, so its records are older than the schemas that are
fetched for them. The schema of an id that occurs only in between is fetched by the task that finds
it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace

import pyarrow as pa

from rangeland.connection.pool import ConnectionPool
from rangeland.decode.payload.schema_ids.confluent_framing import count_schema_ids
from rangeland.decode.payload.schema_ids.schema_catalogue import RecordField, TopicField
from rangeland.dialects.error_meaning import ErrorMeaning
from rangeland.dialects.fetch_values import FetchedPartition, Gap, PartitionFetch
from rangeland.errors import RangelandError
from rangeland.model import Leader, Partition, Slice
from rangeland.survey.batch_fetch import sample_batches

LAST_OFFSETS = 10
"""How far before the end the last records are looked for. In a transactional topic, the last
offsets are markers, which have no record."""

Look = Callable[[Partition, pa.RecordBatch], None]


def seen_schema_ids(
    brokers: ConnectionPool, slices: Iterable[Slice], fields: Collection[RecordField]
) -> dict[TopicField, Counter[int]]:
    """The ids seen for each topic and field, and in how many records. Other ids may occur in
    between: tasks fetch their schemas themselves, and count all."""
    sampled = list(slices)
    counts: dict[TopicField, Counter[int]] = {
        TopicField(s.partition.topic, field): Counter() for s in sampled for field in fields
    }

    def look(partition: Partition, rows: pa.RecordBatch) -> None:
        for field in fields:
            counted = count_schema_ids(rows.column(field))
            counts[TopicField(partition.topic, field)].update(counted)

    look_at_ends(brokers, sampled, look)
    return counts


def look_at_ends(brokers: ConnectionPool, slices: Iterable[Slice], look: Look) -> None:
    """Calls ``look`` with decoded rows of each partition from within its slices. Sends each leader
    one request for the beginnings and one for the ends, and more only if a batch is large. Batches
    that do not arrive are left out, as in ``batch_fetch``."""
    first: dict[Partition, Slice] = {}
    last: dict[Partition, Slice] = {}
    for piece in sorted(slices, key=lambda piece: (piece.partition, piece.from_offset)):
        first.setdefault(piece.partition, piece)
        last[piece.partition] = piece
    _look(brokers, first, look)
    if brokers.dialect.capabilities.offsets_are_bytes:
        return  # where the last entries begin is unknown
    ends = {
        p: replace(x, from_offset=max(x.from_offset, x.until_offset - LAST_OFFSETS))
        for p, x in last.items()
    }
    _look(brokers, {p: x for p, x in ends.items() if x.from_offset > first[p].from_offset}, look)


def _look(brokers: ConnectionPool, slices: Mapping[Partition, Slice], look: Look) -> None:
    def fetch_for(partition: Partition, size: int) -> PartitionFetch:
        piece = slices[partition]
        return PartitionFetch(partition, piece.topic_id, None, piece.from_offset, size)

    def look_into(fetched: FetchedPartition) -> dict[Partition, bool]:
        piece = slices[fetched.partition]
        is_ok = fetched.meaning is ErrorMeaning.OK
        return {piece.partition: True} if is_ok and _has_rows(brokers, fetched, piece, look) else {}

    leaders = {p: Leader(piece.leader) for p, piece in slices.items()}
    sample_batches(brokers, leaders, fetch_for, look_into)


def _has_rows(brokers: ConnectionPool, fetched: FetchedPartition, piece: Slice, look: Look) -> bool:
    has_rows = False
    try:
        for chunk in brokers.dialect.decode_chunks(fetched.records, *piece.interval):
            if not isinstance(chunk, Gap) and chunk.batch is not None and chunk.batch.num_rows:
                look(fetched.partition, chunk.batch)
                has_rows = True
    except RangelandError:
        return True  # damage is found when the range is read; more bytes would not help
    return has_rows
