"""Which schema ids keys and values have, from the first and last records of ranges.

The first plan is made of the same survey, so its records are older than the schemas that are
fetched for them. An id that only occurs in between is fetched by the task that meets it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping

import pyarrow as pa

from rangeland.connection.pool import ConnectionPool
from rangeland.decode.payload.schema_ids.confluent_framing import count_schema_ids
from rangeland.decode.payload.schema_ids.schema_catalogue import RecordField, TopicField
from rangeland.dialects.error_meaning import ErrorMeaning
from rangeland.dialects.fetch_values import FetchedPartition, Gap, PartitionFetch
from rangeland.errors import RangelandError
from rangeland.model import Leader, Partition, Slice
from rangeland.survey.batch_fetch import sample_batches


def seen_schema_ids(
    brokers: ConnectionPool, slices: Iterable[Slice], fields: Collection[RecordField]
) -> dict[TopicField, Counter[int]]:
    """The ids that were seen for each topic and field, and in how many records. Others may occur
    between them: tasks fetch those themselves, and count all."""
    listed = list(slices)
    found: dict[TopicField, Counter[int]] = {
        TopicField(one.partition.topic, field): Counter() for one in listed for field in fields
    }

    def look(partition: Partition, rows: pa.RecordBatch) -> None:
        for field in fields:
            counts = count_schema_ids(rows.column(field)).schema_ids
            found[TopicField(partition.topic, field)].update(counts)

    look_at_ends(brokers, listed, look)
    return found


LAST_OFFSETS = 10
"""How far before the end the last records are looked for: the last offsets of a transactional
topic are markers, which have no record."""

Look = Callable[[Partition, pa.RecordBatch], None]


def look_at_ends(brokers: ConnectionPool, slices: Iterable[Slice], look: Look) -> None:
    """Calls ``look`` with rows of each partition, as its decoder returns them, that are within the
    slices. One request per leader for the beginnings, one for the ends; more only where a batch is
    large. What does not arrive is left out, as in ``batch_fetch``."""
    first: dict[Partition, Slice] = {}
    last: dict[Partition, Slice] = {}
    for one in sorted(slices, key=lambda one: (one.partition, one.from_offset)):
        first.setdefault(one.partition, one)
        last[one.partition] = one
    _look(brokers, first, {p: one.from_offset for p, one in first.items()}, look)
    if brokers.dialect.capabilities.offsets_are_bytes:
        return  # where the last entries begin is unknown
    starts = {p: max(one.from_offset, one.until_offset - LAST_OFFSETS) for p, one in last.items()}
    others = {p: start for p, start in starts.items() if start > first[p].from_offset}
    _look(brokers, last, others, look)


def _look(
    brokers: ConnectionPool,
    slices: Mapping[Partition, Slice],
    starts: Mapping[Partition, int],
    look: Look,
) -> None:
    def asked_of(partition: Partition, one: Slice, size: int) -> PartitionFetch:
        return PartitionFetch(partition, one.topic_id, None, starts[partition], size)

    def seen_in(fetched: FetchedPartition) -> dict[Partition, bool]:
        if fetched.meaning is not ErrorMeaning.OK:
            return {}
        start, until = starts[fetched.partition], slices[fetched.partition].until_offset
        return {fetched.partition: True} if _has_rows(brokers, fetched, start, until, look) else {}

    wanted = {p: slices[p] for p in starts}
    sample_batches(brokers, wanted, lambda one: Leader(one.leader), asked_of, seen_in)


def _has_rows(
    brokers: ConnectionPool, fetched: FetchedPartition, start: int, until: int, look: Look
) -> bool:
    isolation = brokers.settings.isolation
    found = False
    try:
        for chunk in brokers.dialect.decode_chunks(
            fetched.records, start, until, isolation, fetched.aborted, fetched.context
        ):
            if not isinstance(chunk, Gap) and chunk.batch is not None and chunk.batch.num_rows:
                look(fetched.partition, chunk.batch)
                found = True
    except RangelandError:
        return True  # damage is found when the range is read; more bytes would not help
    return found
