"""Which schema ids keys and values have, from the first and last records of ranges."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable

import pyarrow as pa

from rangeland.connection.pool import ConnectionPool
from rangeland.decode.payload.confluent_framing import count_schema_ids
from rangeland.decode.payload.schema_catalogue import RecordField, TopicField
from rangeland.model import Partition, Slice
from rangeland.survey.end_samples import look_at_ends


def seen_schema_ids(
    brokers: ConnectionPool, slices: Iterable[Slice], fields: Collection[RecordField]
) -> dict[TopicField, Counter[int]]:
    """For each topic and field, the ids that were seen and in how many records. Others may occur
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
