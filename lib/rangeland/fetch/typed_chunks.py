"""Chunks of bytes to chunks of typed rows, and what the policy does about records in between.

Keys and values of a whole chunk are decoded at once. A record that cannot be decoded ends the
reading, or it is skipped or quarantined: then it has no row, and its offset is lost or quarantined
in the chunk's counts. Offsets that follow on each other are one loss.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rangeland.connection.cluster_settings import ClusterSettings
from rangeland.decode.columns import (
    BROKER,
    KEY,
    OFFSET,
    PARTITION,
    RECORDS,
    TOPIC,
    VALUE,
    with_partition,
)
from rangeland.decode.payload.row_format import DecodedRows, RowDecoder, RowFormat, UndecodableRow
from rangeland.dialects.row_schema import rows_of
from rangeland.errors import UndecodablePayload
from rangeland.fetch.damage_policy import log_loss
from rangeland.fetch.receipt_builder import LostRecords, SliceChunk
from rangeland.model import COUNT_NAMES, Counts, Partition, QuarantinedBytes, Range, Slice
from rangeland.planning.policy import Action, Loss, LossKind, Policy
from rangeland.wording import counted

MAX_LOSSES = 10_000
"""Per slice: each is a row of the ledger. More show a wrong schema rather than bad records."""
SHOWN_BYTES = 40
REASON = pa.field("reason", pa.string())
SCHEMA_ID = pa.field("schema_id", pa.int32())


class TypedChunks:
    """Gives the chunks of one task typed rows."""

    def __init__(self, row_format: RowFormat, policy: Policy, slices: Sequence[Slice]) -> None:
        self._format = row_format
        self._decoders: dict[str, RowDecoder] = {}
        self._policy = policy
        self._slices: Mapping[int, Slice] = {s.index: s for s in slices}
        self._losses: dict[int, int] = {}

    def typed(self, chunk: SliceChunk) -> Iterator[SliceChunk]:
        """The chunk with typed rows, in several chunks if they take much memory. Where the policy
        is to hold, the last one has none: its slice ends where that chunk begins. Raises
        UndecodablePayload where the policy is to fail."""
        if chunk.batch is None:
            yield chunk
            return
        decoder = self._decoder(self._slices[chunk.slice_index].partition.topic)
        for decoded in decoder.decode(chunk.batch):
            first, chunk = _split(chunk, decoded.batch.num_rows)
            found = self._typed(first, decoded)
            yield found
            if found.loss is not None:
                return

    def _typed(self, chunk: SliceChunk, decoded: DecodedRows) -> SliceChunk:
        rows: pa.RecordBatch = chunk.batch
        piece = self._slices[chunk.slice_index]
        typed = replace(chunk, batch=decoded.batch, schema_ids=decoded.schema_ids)
        if not decoded.undecodable:
            return typed
        action = self._policy.of(LossKind.UNDECODABLE, piece.partition.topic)
        first = decoded.undecodable[0]
        if action is Action.FAIL:
            raise undecodable(piece.partition, rows, first, len(decoded.undecodable), chunk.leader)
        if action is Action.HOLD:
            return _held(chunk, piece, _evidence(rows, [first]))
        lost = tuple(_lost(piece.partition, rows, decoded.undecodable, action))
        self._refuse_many(piece, rows, first, len(lost))
        for one in lost:
            log_loss(one.loss)
        kept = np.ones(rows.num_rows, bool)
        kept[[one.row for one in decoded.undecodable]] = False
        n = len(decoded.undecodable)
        moved = Counts(quarantined=n) if action is Action.QUARANTINE else Counts(lost=n)
        return replace(
            typed,
            batch=decoded.batch.filter(pa.array(kept)),
            counts=chunk.counts + moved + Counts(landed=-n),
            records=lost,
        )

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
            why=f"the policy is not to fail, but so many show a wrong schema; one of them is "
            f"{error.what}: {error.why}",
            do="correct the schema under `decode` in the job file, or land the topic with another "
            "job that leaves these records out in a transform",
            **error.facts,
        )


def _split(chunk: SliceChunk, rows: int) -> tuple[SliceChunk, SliceChunk]:
    """The first rows of a chunk with the offsets up to the next row, and the rest."""
    batch: pa.RecordBatch = chunk.batch
    if rows == batch.num_rows:
        rest = replace(chunk, from_offset=chunk.until_offset, counts=Counts(), batch=None)
        return chunk, rest
    end = _offset(batch, rows)
    width = end - chunk.from_offset
    # Of which class an offset without a row is, only matters for the sum of all pieces.
    others = width - rows if chunk.taken_up is None else 0
    taken = {"landed": rows}
    for name in COUNT_NAMES[1:]:
        taken[name] = min(others, getattr(chunk.counts, name))
        others -= taken[name]
    counts = Counts(**{name: getattr(chunk.counts, name) - n for name, n in taken.items()})
    first = replace(chunk, until_offset=end, counts=Counts(**taken), batch=batch.slice(0, rows))
    rest = replace(chunk, from_offset=end, counts=counts, batch=batch.slice(rows), bytes_read=0)
    if chunk.taken_up is None:
        return first, rest
    return replace(first, taken_up=width), replace(rest, taken_up=chunk.taken_up - width)


def kept_rows(slices: Sequence[Slice], settings: ClusterSettings) -> Iterator[SliceChunk]:
    """The chunks of slices whose records are intact in quarantine."""
    schema = rows_of(settings.dialect)
    typing = None
    if settings.rows is not None:
        typing = TypedChunks(settings.rows, settings.policy, slices)
    for piece in slices:
        rows = inside(settings.kept[piece.index], piece.from_offset, piece.until_offset)
        batch = with_partition(rows.select(_records(schema)), piece.partition)
        ends = (piece.from_offset, piece.until_offset)
        chunk = SliceChunk(piece.index, *ends, Counts(landed=batch.num_rows), batch)
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
    reason why not."""
    rows = inside(kept, where.from_offset, where.until_offset)
    batch = with_partition(rows.select(_records(rows_of(dialect))), where.partition)
    reasons: dict[int, str] = {}
    if row_format is not None:
        begin = 0
        for decoded in row_format.decoder(where.partition.topic).decode(batch):
            for one in decoded.undecodable:
                reasons[_offset(batch, begin + one.row)] = f"{one.part}: {_reason(one)}"
            begin += decoded.batch.num_rows
    offsets = range(where.from_offset, where.until_offset)
    pieces = []
    for is_bad, group in groupby(offsets, reasons.__contains__):
        run = list(group)
        piece = replace(where, from_offset=run[0], until_offset=run[-1] + 1)
        pieces.append((piece, reasons[run[0]] if is_bad else ""))
    return pieces


def _records(rows: pa.Schema) -> list[str]:
    """The columns of a dialect's rows that are in its records."""
    partition = (TOPIC.name, PARTITION.name, BROKER.name)
    own = [f.name for f in rows if f.name not in (*RECORDS.names, *partition)]
    return [*RECORDS.names, *own]


def undecodable(
    partition: Partition, rows: pa.RecordBatch, one: UndecodableRow, count: int, leader: str
) -> UndecodablePayload:
    """The error that names a record, and begins with its bytes."""
    offset = _offset(rows, one.row)
    more = f"; nor can {count - 1} more of the records read with it" if count > 1 else ""
    return UndecodablePayload(
        f"{partition}: the {one.part} of the record at offset {offset} cannot be decoded",
        why=f"{_reason(one)}; it begins with {_shown(rows, one)}{more}",
        do="correct the schema under `decode` in the job file, or choose what happens to such "
        "records with `policy: {undecodable: skip}` or `quarantine`",
        base_offset=offset,
        next_offset=offset + 1,
        topic=partition.topic,
        partition=partition.number,
        broker=partition.broker or None,
        offset=offset,
        part=one.part,
        reason=one.reason,
        schema_id=one.schema_id,
        leader=leader,
    )


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
        taken_up=None if chunk.taken_up is None else 0,
    )


def _lost(
    partition: Partition, rows: pa.RecordBatch, found: Sequence[UndecodableRow], action: Action
) -> Iterator[LostRecords]:
    offsets = rows.column(OFFSET.name).take(pa.array([one.row for one in found])).to_numpy()
    # Within a run, an offset rises as much as its index does.
    numbered = zip(offsets.tolist(), range(len(found)), found, strict=True)
    for _, group in groupby(numbered, lambda entry: entry[0] - entry[1]):
        run = list(group)
        members = [one for _, _, one in run]
        loss = Loss(
            partition,
            run[0][0],
            run[-1][0] + 1,
            LossKind.UNDECODABLE,
            _evidence(rows, members),
            action,
        )
        kept = _kept(rows, members, loss.evidence) if action is Action.QUARANTINE else None
        yield LostRecords(loss, kept)


def _kept(rows: pa.RecordBatch, members: Sequence[UndecodableRow], reason: str) -> QuarantinedBytes:
    taken = rows.drop_columns([TOPIC.name, PARTITION.name])
    taken = taken.take(pa.array([one.row for one in members]))
    reasons = pa.array([one.reason for one in members], REASON.type)
    ids = pa.array([one.schema_id for one in members], SCHEMA_ID.type)
    batch = taken.append_column(REASON, reasons).append_column(SCHEMA_ID, ids)
    return QuarantinedBytes(b"", (), reason, batch)


def _evidence(rows: pa.RecordBatch, members: Sequence[UndecodableRow]) -> str:
    first = members[0]
    text = f"the {first.part} at offset {_offset(rows, first.row)}: {_reason(first)}"
    text += f"; it begins with {_shown(rows, first)}"
    return text if len(members) == 1 else f"{counted(len(members), 'record')}; {text}"


def _reason(one: UndecodableRow) -> str:
    return one.reason if one.schema_id is None else f"{one.reason} (schema {one.schema_id})"


def _offset(rows: pa.RecordBatch, row: int) -> int:
    return int(rows.column(OFFSET.name)[row].as_py())


def _shown(rows: pa.RecordBatch, one: UndecodableRow) -> str:
    """The first bytes, escaped as in Python."""
    column = KEY.name if one.part == KEY.name else VALUE.name
    data: bytes = rows.column(column)[one.row].as_py() or b""
    return repr(data[:SHOWN_BYTES])[1:] + ("..." if len(data) > SHOWN_BYTES else "")
