"""Reads slices from quarantine instead of from brokers.

Damaged bytes go through the decoder of the log again. Intact records with an undecodable key or
value go only through the payload decoder.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby

import pyarrow as pa
import pyarrow.compute as pc

from rangeland.decode.columns import BROKER, OFFSET, PARTITION, RECORDS, TOPIC, with_partition
from rangeland.decode.payload.row_format import RowFormat
from rangeland.dialects.dialect import load_dialect
from rangeland.dialects.fetch_values import FetchContext, FetchedRecords, ResponseSpan
from rangeland.dialects.row_schema import rows_of
from rangeland.fetch.fetched_pieces import FetchedPiece
from rangeland.fetch.read_settings import ReadSettings
from rangeland.fetch.slice_chunks import ReadChunk
from rangeland.fetch.undecodable_rows import entries_of, reason_of
from rangeland.loss import DamagedBytes, UndecodableRecords
from rangeland.model import Counts, Isolation, Range, Slice
from rangeland.schema_registry.executor_schemas import ExecutorSchemas


def quarantined_pieces(slices: Sequence[Slice], settings: ReadSettings) -> Iterator[FetchedPiece]:
    """The pieces of those slices whose bytes are damaged in quarantine."""
    for s in slices:
        damaged = settings.quarantined_bytes[s.index]
        if not isinstance(damaged, DamagedBytes):
            continue
        spans = (ResponseSpan(len(damaged.records), s.from_offset, s.until_offset),)
        tags = tuple(tag.encode() for tag in settings.tags)
        records = FetchedRecords(
            memoryview(damaged.records),
            s.from_offset,
            damaged.aborted if settings.isolation is Isolation.READ_COMMITTED else (),
            FetchContext(spans, has_gaps=True, tags=tags, from_quarantine=True),
            max_batch_bytes=settings.cluster.max_batch_bytes,
        )
        yield FetchedPiece(s.index, records, s.until_offset)


def quarantined_rows(slices: Sequence[Slice], settings: ReadSettings) -> Iterator[ReadChunk]:
    """The chunks of those slices whose records are intact in quarantine, with keys and values as
    bytes."""
    schema = rows_of(settings.dialect)
    capabilities = load_dialect(settings.dialect).capabilities
    for slice_ in slices:
        intact = settings.quarantined_bytes[slice_.index]
        if not isinstance(intact, UndecodableRecords):
            continue
        kept = _inside(intact, slice_.from_offset, slice_.until_offset)
        rows = with_partition(kept.select(_records(schema)), slice_.partition)
        yield ReadChunk(
            slice_.index,
            from_offset=slice_.from_offset,
            until_offset=slice_.until_offset,
            counts=Counts(landed=rows.num_rows),
            rows=rows,
            offsets_are_bytes=capabilities.offsets_are_bytes,
        )


def _inside(intact: UndecodableRecords, from_offset: int, until_offset: int) -> pa.RecordBatch:
    """The intact records of these offsets."""
    rows: pa.RecordBatch = intact.rows
    offsets = rows.column(OFFSET.name)
    low = pc.greater_equal(offsets, from_offset)
    return rows.filter(pc.and_(low, pc.less(offsets, until_offset)))


def decodable(
    intact: UndecodableRecords,
    where: Range,
    dialect: str,
    row_format: RowFormat | None,
    schemas: ExecutorSchemas,
) -> list[tuple[Range, str]]:
    """The parts of a range of intact records, each with the reason why it cannot be decoded; the
    reason is empty if it can be decoded now. The records were kept without a gap, so each entry
    reaches to the next one."""
    kept = _inside(intact, where.from_offset, where.until_offset)
    rows = with_partition(kept.select(_records(rows_of(dialect))), where.partition)
    entries = entries_of(rows, where.until_offset, adjacent=True)
    reasons: dict[int, str] = {}
    if row_format is not None:
        begin = 0
        decoder = row_format.decoder(where.partition.topic)
        for decoded in schemas.answer(decoder.decode(rows), decoder.add_schema):
            for failure in decoded.undecodable:
                entry = int(entries.of_row[begin + failure.row])
                reasons.setdefault(entry, f"{failure.field}: {reason_of(failure)}")
            begin += decoded.batch.num_rows
    ranges = []
    for is_undecodable, group in groupby(range(len(entries.starts)), reasons.__contains__):
        alike = list(group)
        from_offset = int(entries.starts[alike[0]])
        until_offset = int(entries.ends[alike[-1]])
        range_ = replace(where, from_offset=from_offset, until_offset=until_offset)
        ranges.append((range_, reasons[alike[0]] if is_undecodable else ""))
    return ranges


def _records(row_schema: pa.Schema) -> list[str]:
    """The columns of a dialect's rows that come from its records."""
    partition = (TOPIC.name, PARTITION.name, BROKER.name)
    own = [f.name for f in row_schema if f.name not in (*RECORDS.names, *partition)]
    return [*RECORDS.names, *own]
