"""Splits a chunk into parts if its typed rows take much memory.

A chunk knows how many offsets each class has; it does not know which ones, except those with a row.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pyarrow as pa

from rangeland.decode.columns import OFFSET
from rangeland.decode.payload.row_format import DecodedRows, UndecodableRow
from rangeland.decode.payload.schema_ids.schema_catalogue import AskSchemas
from rangeland.fetch.slice_chunks import ReadChunk
from rangeland.model import COUNT_NAMES, Counts


def of_whole_entries(
    chunk: ReadChunk, parts: Iterator[DecodedRows | AskSchemas]
) -> Iterator[DecodedRows | AskSchemas]:
    """The rows of a chunk, in parts. Where offsets are bytes, no part ends inside an entry, whose
    records share one offset."""
    if not chunk.offsets_are_bytes:
        yield from parts
        return
    offsets = chunk.rows.column(OFFSET.name)
    pending: list[DecodedRows] = []
    end = 0
    for rows in parts:
        if isinstance(rows, AskSchemas):
            yield rows
            continue
        pending.append(rows)
        end += rows.batch.num_rows
        if end == len(offsets) or offsets[end] != offsets[end - 1]:
            yield _join(pending)
            pending = []


def _join(parts: Sequence[DecodedRows]) -> DecodedRows:
    if len(parts) == 1:
        return parts[0]
    begin = 0
    undecodable: list[UndecodableRow] = []
    counts: Counter[int] = Counter()
    for rows in parts:
        undecodable += [replace(failure, row=begin + failure.row) for failure in rows.undecodable]
        counts.update(rows.schema_ids)
        begin += rows.batch.num_rows
    return DecodedRows(pa.concat_batches([rows.batch for rows in parts]), undecodable, counts)


def split(chunk: ReadChunk, row_count: int) -> tuple[ReadChunk, ReadChunk]:
    """The first rows of a chunk with the offsets up to the next row, and the rest."""
    rows: pa.RecordBatch = chunk.rows
    if row_count == rows.num_rows:
        rest = replace(chunk, from_offset=chunk.until_offset, counts=Counts(), rows=None)
        return chunk, rest
    until_offset = offset_of(rows, row_count)
    width = until_offset - chunk.from_offset
    # For offsets without a row, only the number in each class in the whole chunk is known, not the
    # class of each offset. That is enough unless a slice ends in between.
    without_row = 0 if chunk.offsets_are_bytes else width - row_count
    counts_before = {"landed": row_count}
    for name in COUNT_NAMES[1:]:
        counts_before[name] = min(without_row, getattr(chunk.counts, name))
        without_row -= counts_before[name]
    counts = Counts(**{name: getattr(chunk.counts, name) - n for name, n in counts_before.items()})
    first = replace(
        chunk,
        until_offset=until_offset,
        counts=Counts(**counts_before),
        rows=rows.slice(0, row_count),
    )
    rest = replace(
        chunk, from_offset=until_offset, counts=counts, rows=rows.slice(row_count), bytes_read=0
    )
    return first, rest


def classes_are_known(first: ReadChunk, chunk: ReadChunk) -> bool:
    """Whether the counts of the first part of a chunk are certain: all offsets without a row are of
    one class, or are all in the same part."""
    without_row, without_row_in_all = (
        [getattr(part.counts, name) for name in COUNT_NAMES[1:]] for part in (first, chunk)
    )
    is_of_one_class = sum(count > 0 for count in without_row_in_all) <= 1
    return is_of_one_class or sum(without_row) in (0, sum(without_row_in_all))


def offset_of(rows: pa.RecordBatch, row: int) -> int:
    return int(rows.column(OFFSET.name)[row].as_py())
