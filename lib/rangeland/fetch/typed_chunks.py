"""Chunks of bytes to chunks of typed rows, and what the policy does about records in between.

Keys and values of a whole chunk are decoded at once. A record that cannot be decoded ends the
reading, or it is skipped or quarantined: then it has no row, and its offset is lost or quarantined
in the chunk's counts. Offsets that follow on each other are one loss.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby

import pyarrow as pa
import pyarrow.compute as pc

from rangeland.connection.cluster_settings import ClusterSettings
from rangeland.decode.columns import (
    BROKER,
    OFFSET,
    PARTITION,
    RECORDS,
    TOPIC,
    with_partition,
)
from rangeland.decode.payload.row_format import DecodedRows, RowDecoder, RowFormat, UndecodableRow
from rangeland.dialects.dialect import load_dialect
from rangeland.dialects.row_schema import rows_of
from rangeland.errors import UndecodablePayload
from rangeland.fetch.damage_policy import log_loss
from rangeland.fetch.receipt_builder import SliceChunk
from rangeland.fetch.undecodable_records import (
    TRANSFORM,
    entries_of,
    evidence_of,
    left_out,
    lost_records,
    offset_of,
    reason_of,
    undecodable,
)
from rangeland.model import COUNT_NAMES, Counts, QuarantinedBytes, Range, Slice
from rangeland.planning.policy import Action, Loss, LossKind, Policy

MAX_LOSSES = 10_000
"""Per slice: each is a row of the ledger. More show a wrong schema rather than bad records."""


class TypedChunks:
    """Gives the chunks of one task typed rows."""

    def __init__(
        self,
        row_format: RowFormat,
        policy: Policy,
        slices: Sequence[Slice],
        left_out: Mapping[int, Mapping[int, str]] | None = None,
    ) -> None:
        self._format = row_format
        self._decoders: dict[str, RowDecoder] = {}
        self._policy = policy
        self._slices: Mapping[int, Slice] = {s.index: s for s in slices}
        self._left_out = left_out or {}
        self._losses: dict[int, int] = {}

    def typed(self, chunk: SliceChunk) -> Iterator[SliceChunk]:
        """The chunk with typed rows, in several chunks if they take much memory. Where the policy
        is to hold, the last one has none: its slice ends where that chunk begins. Raises
        UndecodablePayload where the policy is to fail."""
        if chunk.batch is None:
            yield chunk
            return
        decoder = self._decoder(self._slices[chunk.slice_index].partition.topic)
        for decoded in _of_whole_entries(chunk, decoder.decode(chunk.batch)):
            first, chunk = _split(chunk, decoded.batch.num_rows)
            found = self._typed(first, decoded)
            yield found
            if found.loss is not None:
                return

    def _typed(self, chunk: SliceChunk, decoded: DecodedRows) -> SliceChunk:
        rows: pa.RecordBatch = chunk.batch
        piece = self._slices[chunk.slice_index]
        typed = replace(chunk, batch=decoded.batch, schema_ids=decoded.schema_ids)
        found = self._found(chunk, decoded.undecodable)
        if not found:
            return typed
        action = self._policy.of(LossKind.UNDECODABLE, piece.partition.topic)
        first = found[0]
        if action is Action.FAIL:
            raise undecodable(piece.partition, rows, first, len(found), chunk.leader)
        if action is Action.HOLD:
            return _held(chunk, piece, evidence_of(rows, [first]))
        entries = entries_of(rows, chunk.until_offset, in_bytes=chunk.entry_span is not None)
        lost = tuple(lost_records(piece.partition, rows, entries, found, action))
        self._refuse_many(piece, rows, first, len(lost))
        for one in lost:
            log_loss(one.loss)
        gone = left_out(entries, found, action)
        width = sum(one.loss.width for one in lost)
        moved = Counts(quarantined=width) if action is Action.QUARANTINE else Counts(lost=width)
        return replace(
            typed,
            batch=decoded.batch.filter(pa.array(~gone)),
            counts=chunk.counts + moved + Counts(landed=-int(gone.sum())),
            records=lost,
        )

    def _found(
        self, chunk: SliceChunk, undecodable: Sequence[UndecodableRow]
    ) -> Sequence[UndecodableRow]:
        """With the records on which the transform fails, in order of rows."""
        reasons = self._left_out.get(chunk.slice_index)
        if not reasons:
            return undecodable
        offsets = chunk.batch.column(OFFSET.name).to_pylist()
        failed = {
            row: UndecodableRow(row, TRANSFORM, reasons[offset])
            for row, offset in enumerate(offsets)
            if offset in reasons
        }
        failed |= {one.row: one for one in undecodable}
        return [failed[row] for row in sorted(failed)]

    def _decoder(self, topic: str) -> RowDecoder:
        if topic not in self._decoders:
            self._decoders[topic] = self._format.decoder(topic)
        return self._decoders[topic]

    def _refuse_many(
        self, piece: Slice, rows: pa.RecordBatch, first: UndecodableRow, found: int
    ) -> None:
        total = self._losses[piece.index] = self._losses.get(piece.index, 0) + found
        if total <= MAX_LOSSES:
            return
        error = undecodable(piece.partition, rows, first, 1, "")
        raise UndecodablePayload(
            f"{piece} has more than {MAX_LOSSES} places with records that cannot be decoded",
            why="the policy is not to fail, but so many mean that the schema is wrong; one of them "
            f"is {error.what}: {error.why}",
            do="correct the schema under `decode` in the job file, or land the topic with another "
            "job that leaves these records out in a transform",
            **error.facts,
        )


def _of_whole_entries(chunk: SliceChunk, pieces: Iterator[DecodedRows]) -> Iterator[DecodedRows]:
    """The pieces of a chunk. Where offsets are bytes, none ends inside of an entry: its records
    have one offset."""
    if chunk.entry_span is None:
        yield from pieces
        return
    offsets = chunk.batch.column(OFFSET.name)
    waiting: list[DecodedRows] = []
    end = 0
    for piece in pieces:
        waiting.append(piece)
        end += piece.batch.num_rows
        if end == len(offsets) or offsets[end] != offsets[end - 1]:
            yield _together(waiting)
            waiting = []


def _together(pieces: Sequence[DecodedRows]) -> DecodedRows:
    if len(pieces) == 1:
        return pieces[0]
    begin = 0
    found: list[UndecodableRow] = []
    counts: Counter[int] = Counter()
    for piece in pieces:
        found += [replace(one, row=begin + one.row) for one in piece.undecodable]
        counts.update(piece.schema_ids)
        begin += piece.batch.num_rows
    return DecodedRows(pa.concat_batches([piece.batch for piece in pieces]), found, counts)


def _split(chunk: SliceChunk, rows: int) -> tuple[SliceChunk, SliceChunk]:
    """The first rows of a chunk with the offsets up to the next row, and the rest."""
    batch: pa.RecordBatch = chunk.batch
    if rows == batch.num_rows:
        rest = replace(chunk, from_offset=chunk.until_offset, counts=Counts(), batch=None)
        return chunk, rest
    end = offset_of(batch, rows)
    width = end - chunk.from_offset
    # Of which class an offset without a row is, only matters for the sum of all pieces.
    others = width - rows if chunk.entry_span is None else 0
    taken = {"landed": rows}
    for name in COUNT_NAMES[1:]:
        taken[name] = min(others, getattr(chunk.counts, name))
        others -= taken[name]
    counts = Counts(**{name: getattr(chunk.counts, name) - n for name, n in taken.items()})
    first = replace(chunk, until_offset=end, counts=Counts(**taken), batch=batch.slice(0, rows))
    rest = replace(chunk, from_offset=end, counts=counts, batch=batch.slice(rows), bytes_read=0)
    if chunk.entry_span is None:
        return first, rest
    return replace(first, entry_span=width), replace(rest, entry_span=chunk.entry_span - width)


def typing_of(slices: Sequence[Slice], settings: ClusterSettings) -> TypedChunks | None:
    """None where keys and values stay as they are, and no record is left out."""
    if settings.rows is None and not settings.left_out:
        return None
    formats = settings.rows or RowFormat()
    return TypedChunks(formats, settings.policy, slices, settings.left_out)


def quarantined_rows(slices: Sequence[Slice], settings: ClusterSettings) -> Iterator[SliceChunk]:
    """The chunks of slices whose records are intact in quarantine."""
    schema = rows_of(settings.dialect)
    in_bytes = load_dialect(settings.dialect).capabilities.offsets_are_bytes
    typing = typing_of(slices, settings)
    for piece in slices:
        rows = inside(
            settings.quarantined_bytes[piece.index], piece.from_offset, piece.until_offset
        )
        batch = with_partition(rows.select(_records(schema)), piece.partition)
        ends = (piece.from_offset, piece.until_offset)
        entry_span = piece.width if in_bytes else None
        landed = Counts(landed=batch.num_rows)
        chunk = SliceChunk(piece.index, *ends, landed, batch, entry_span=entry_span)
        yield from [chunk] if typing is None else typing.typed(chunk)


def inside(kept: QuarantinedBytes, from_offset: int, until_offset: int) -> pa.RecordBatch:
    """The intact records of these offsets."""
    rows: pa.RecordBatch = kept.rows
    offsets = rows.column(OFFSET.name)
    low = pc.greater_equal(offsets, from_offset)
    return rows.filter(pc.and_(low, pc.less(offsets, until_offset)))


def decodable(
    kept: QuarantinedBytes, where: Range, dialect: str, row_format: RowFormat | None
) -> list[tuple[Range, str]]:
    """The pieces of a range of intact records: those that can be decoded now, and others with the
    reason why not. They were kept without a gap, so each entry reaches to the next one."""
    rows = inside(kept, where.from_offset, where.until_offset)
    batch = with_partition(rows.select(_records(rows_of(dialect))), where.partition)
    entries = entries_of(batch, where.until_offset, in_bytes=True)
    reasons: dict[int, str] = {}
    if row_format is not None:
        begin = 0
        for decoded in row_format.decoder(where.partition.topic).decode(batch):
            for one in decoded.undecodable:
                entry = int(entries.of_row[begin + one.row])
                reasons.setdefault(entry, f"{one.part}: {reason_of(one)}")
            begin += decoded.batch.num_rows
    pieces = []
    for is_bad, group in groupby(range(len(entries.starts)), reasons.__contains__):
        run = list(group)
        ends = int(entries.starts[run[0]]), int(entries.ends[run[-1]])
        piece = replace(where, from_offset=ends[0], until_offset=ends[1])
        pieces.append((piece, reasons[run[0]] if is_bad else ""))
    return pieces


def _records(rows: pa.Schema) -> list[str]:
    """The columns of a dialect's rows that are in its records."""
    partition = (TOPIC.name, PARTITION.name, BROKER.name)
    own = [f.name for f in rows if f.name not in (*RECORDS.names, *partition)]
    return [*RECORDS.names, *own]


def _held(chunk: SliceChunk, piece: Slice, evidence: str) -> SliceChunk:
    ends = (chunk.from_offset, piece.until_offset)
    loss = Loss(piece.partition, *ends, LossKind.UNDECODABLE, evidence, Action.HOLD)
    log_loss(loss)
    return SliceChunk(
        chunk.slice_index,
        chunk.from_offset,
        chunk.from_offset,
        Counts(),
        leader=chunk.leader,
        bytes_read=chunk.bytes_read,
        loss=loss,
        entry_span=None if chunk.entry_span is None else 0,
    )
