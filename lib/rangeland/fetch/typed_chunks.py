"""Turns chunks of bytes into chunks of typed rows, and applies the policy to undecodable records.

Keys and values of a whole chunk are decoded at once. A record that cannot be decoded ends the
reading, or it is skipped or quarantined: then it has no row, and its offset counts as lost or
quarantined. Offsets that follow one another are one loss. Quarantine keeps the intact records, not
the bytes of their entry, so that each can be landed by itself.

A loss covers whole entries. In most logs each record is one. Where offsets are bytes, the records
of an entry share its offset: one of them can be skipped alone, but it is quarantined with its whole
entry, so that no offset is both landed and in quarantine.

A chunk that takes much memory is typed in parts. If a slice is held in one of them, it ends before
that part, or before an earlier one where it is not known which class the offsets without a row have
up to there.

Which schemas records were written with may have to be asked first: a question is a value among the
chunks. Nothing here asks; ``slice_reading`` does.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from rangeland.decode.columns import KEY, OFFSET, PARTITION, TOPIC, VALUE
from rangeland.decode.payload.row_format import DecodedRows, RowDecoder, RowFormat, UndecodableRow
from rangeland.decode.payload.schema_ids.schema_catalogue import (
    AskSchemas,
    FoundSchema,
    TopicField,
)
from rangeland.errors import Damage, DamagedLog, UndecodablePayload
from rangeland.fetch.chunk_parts import classes_are_known, of_whole_entries, offset_of, split
from rangeland.fetch.slice_chunks import LostChunk, LostRecords, ReadChunk, SliceChunk
from rangeland.fetch.slice_failures import MAX_LOSSES, decide_loss
from rangeland.fetch.slice_state import Fail
from rangeland.loss import Action, DecidedLoss, Loss, LossKind, UndecodableRecords
from rangeland.model import Counts, Partition, Slice
from rangeland.planning.policy import Policy
from rangeland.wording import count_noun

SHOWN_BYTES = 40
TRANSFORM = "transform"
"""The field of a row that failed in the transform, not in its key or value."""
REASON = pa.field("reason", pa.string())
SCHEMA_ID = pa.field("schema_id", pa.int32())


class TypedChunks:
    """Gives the chunks of one task typed rows."""

    def __init__(
        self,
        row_format: RowFormat,
        policy: Policy,
        slices: Sequence[Slice],
        omitted: Mapping[int, Mapping[int, str]] | None = None,
    ) -> None:
        self._format = row_format
        self._decoders: dict[str, RowDecoder] = {}
        self._policy = policy
        self._slices: Mapping[int, Slice] = {s.index: s for s in slices}
        self._omitted = omitted or {}
        self._losses: dict[int, int] = {}

    def type_rows(self, chunk: ReadChunk) -> Iterator[SliceChunk | AskSchemas]:
        """The chunk with typed rows, in several chunks if they take much memory. A question has to
        be answered before the next result is taken. If the policy is to hold, the last one is a
        loss without width: its slice ends there. If it is to fail, raises UndecodablePayload."""
        if chunk.rows is None:
            yield chunk
            return
        topic = self._slices[chunk.slice_index].partition.topic
        may_hold = self._policy.of(LossKind.UNDECODABLE, topic) is Action.HOLD
        for decoded in self._decode(chunk):
            if isinstance(decoded, AskSchemas):
                yield decoded
                continue
            first, rest = split(chunk, decoded.batch.num_rows)
            typed = self._type_rows(first, decoded)
            if may_hold and isinstance(typed, ReadChunk) and not classes_are_known(first, chunk):
                held = yield from self._find_held(rest)
                typed = typed if held is None else _hold_from(chunk, held)
                may_hold = False
            yield typed
            if isinstance(typed, LostChunk):
                return
            chunk = rest

    def _decode(self, chunk: ReadChunk) -> Iterator[DecodedRows | AskSchemas]:
        decoder = self._decoder(self._slices[chunk.slice_index].partition.topic)
        return of_whole_entries(chunk, decoder.decode(chunk.rows))

    def _find_held(self, chunk: ReadChunk) -> Generator[AskSchemas, None, LostChunk | None]:
        """The loss with which a slice ends inside a chunk, if it does."""
        for decoded in self._decode(chunk):
            if isinstance(decoded, AskSchemas):
                yield decoded
                continue
            first, chunk = split(chunk, decoded.batch.num_rows)
            typed = self._type_rows(first, decoded)
            if isinstance(typed, LostChunk):
                return typed
        return None

    def add_schema(self, topic_field: TopicField, schema_id: int, found: FoundSchema) -> None:
        """Takes the answer to a question. Raises JobFileError, whatever the policy, for a schema
        that the table has no columns for."""
        self._decoder(topic_field.topic).add_schema(topic_field, schema_id, found)

    def _type_rows(self, chunk: ReadChunk, decoded: DecodedRows) -> SliceChunk:
        """The chunk with its decoded rows, without those that the policy drops; or the loss of
        its slice's rest if the policy is to hold."""
        rows: pa.RecordBatch = chunk.rows
        slice_ = self._slices[chunk.slice_index]
        typed = replace(chunk, rows=decoded.batch, schema_ids=decoded.schema_ids)
        undecodable = self._undecodable_rows(chunk, decoded.undecodable)
        if not undecodable:
            return typed
        partition = slice_.partition
        first = undecodable[0]
        evidence = evidence_of(rows, [first])
        whole = Loss(
            partition, chunk.from_offset, chunk.until_offset, LossKind.UNDECODABLE, evidence
        )
        error = undecodable_error(partition, rows, first, len(undecodable), chunk.address)
        loss = decide_loss(whole, self._policy, slice_, error)
        if isinstance(loss, Fail):
            raise loss.error
        action = loss.action
        if action is Action.HOLD:
            return LostChunk(
                chunk.slice_index,
                loss,
                chunk.address,
                chunk.offsets_are_bytes,
                bytes_read=chunk.bytes_read,
            )
        entries = entries_of(rows, chunk.until_offset, adjacent=chunk.offsets_are_bytes)
        lost = tuple(lost_records(partition, rows, entries, undecodable, action))
        self._check_losses_are_few(slice_, rows, first, len(lost))
        mask = lost_row_mask(entries, undecodable, action)
        width = sum(records.loss.width for records in lost)
        others = Counts(quarantined=width) if action is Action.QUARANTINE else Counts(lost=width)
        return replace(
            typed,
            rows=decoded.batch.filter(pa.array(~mask)),
            counts=chunk.counts + others + Counts(landed=-int(mask.sum())),
            lost_records=lost,
        )

    def _undecodable_rows(
        self, chunk: ReadChunk, undecodable: Sequence[UndecodableRow]
    ) -> Sequence[UndecodableRow]:
        """The undecodable rows and those on which the transform fails, in order."""
        reasons = self._omitted.get(chunk.slice_index)
        if not reasons:
            return undecodable
        offsets = chunk.rows.column(OFFSET.name).to_pylist()
        by_row = {
            row: UndecodableRow(row, TRANSFORM, reasons[offset])
            for row, offset in enumerate(offsets)
            if offset in reasons
        }
        by_row |= {failure.row: failure for failure in undecodable}
        return [by_row[row] for row in sorted(by_row)]

    def _decoder(self, topic: str) -> RowDecoder:
        if topic not in self._decoders:
            self._decoders[topic] = self._format.decoder(topic)
        return self._decoders[topic]

    def _check_losses_are_few(
        self, slice_: Slice, rows: pa.RecordBatch, first: UndecodableRow, count: int
    ) -> None:
        total = self._losses[slice_.index] = self._losses.get(slice_.index, 0) + count
        if total <= MAX_LOSSES:
            return
        error = undecodable_error(slice_.partition, rows, first, 1, "")
        raise error.with_words(
            what=f"{slice_} has more than {MAX_LOSSES} places with records that cannot be decoded",
            why="the policy is not to fail, but so many mean that the schema is wrong; one of them "
            f"is {error.what}: {error.why}",
            do="correct the schema under `decode` in the job file, or land the topic with another "
            "job that leaves these records out in a transform",
        )


def _hold_from(chunk: ReadChunk, held: LostChunk) -> LostChunk:
    """The held loss, from the beginning of a chunk on."""
    loss = replace(held.loss, from_offset=chunk.from_offset)
    return replace(held, loss=loss, bytes_read=chunk.bytes_read)


@dataclass(frozen=True, slots=True)
class Entries:
    """The entries of rows: their first and end offsets, and the index of each row's entry, all in
    the order of the log."""

    starts: np.ndarray
    ends: np.ndarray
    of_row: np.ndarray


def entries_of(rows: pa.RecordBatch, until_offset: int, *, adjacent: bool) -> Entries:
    """The entries of rows that end at ``until_offset``. ``adjacent``: each entry ends where the
    next one begins."""
    starts, of_row = np.unique(rows.column(OFFSET.name).to_numpy(), return_inverse=True)
    ends = np.append(starts[1:], until_offset) if adjacent else starts + 1
    return Entries(starts, ends, of_row)


def lost_row_mask(
    entries: Entries, undecodable: Sequence[UndecodableRow], action: Action
) -> np.ndarray:
    """A mask of the rows that do not go to the table: the undecodable ones, and all other rows of
    their entries if these are quarantined."""
    mask = np.zeros(len(entries.of_row), bool)
    mask[[failure.row for failure in undecodable]] = True
    if action is Action.QUARANTINE:
        mask = np.isin(entries.of_row, entries.of_row[mask])
    return mask


def lost_records(
    partition: Partition,
    rows: pa.RecordBatch,
    entries: Entries,
    undecodable: Sequence[UndecodableRow],
    action: Action,
) -> Iterator[LostRecords]:
    """The losses, one for each group of adjacent entries. ``undecodable`` is in order of rows."""
    for group in _adjacent_records(entries, undecodable):
        first, last = (int(entries.of_row[failure.row]) for failure in (group[0], group[-1]))
        evidence = evidence_of(rows, group)
        loss = DecidedLoss(
            partition,
            from_offset=int(entries.starts[first]),
            until_offset=int(entries.ends[last]),
            kind=LossKind.UNDECODABLE,
            evidence=evidence,
            action=action,
        )
        records = None
        if action is Action.QUARANTINE:
            start, end = np.searchsorted(entries.of_row, [first, last + 1]).tolist()
            records = _rows_to_keep(rows, range(start, end), group, evidence)
        yield LostRecords(loss, records)


def _adjacent_records(
    entries: Entries, undecodable: Sequence[UndecodableRow]
) -> Iterator[list[UndecodableRow]]:
    """Groups of records whose entries follow one another without an offset in between."""
    group: list[UndecodableRow] = []
    end = -1
    for failure in undecodable:
        number = entries.of_row[failure.row]
        if group and entries.ends[number] != end and entries.starts[number] != end:
            yield group
            group = []
        group.append(failure)
        end = entries.ends[number]
    if group:
        yield group


def _rows_to_keep(
    rows: pa.RecordBatch, row_range: range, group: Sequence[UndecodableRow], reason: str
) -> UndecodableRecords:
    """The rows of whole entries, each with the reason why it cannot be decoded; none for the others
    of its entry."""
    by_row = {failure.row: failure for failure in group}
    blamed = [by_row.get(row) for row in row_range]
    records = rows.drop_columns([TOPIC.name, PARTITION.name]).slice(row_range.start, len(row_range))
    reasons = pa.array(
        [None if failure is None else failure.reason for failure in blamed], REASON.type
    )
    ids = pa.array(
        [None if failure is None else failure.schema_id for failure in blamed], SCHEMA_ID.type
    )
    kept = records.append_column(REASON, reasons).append_column(SCHEMA_ID, ids)
    return UndecodableRecords(kept, reason)


def undecodable_error(
    partition: Partition, rows: pa.RecordBatch, failure: UndecodableRow, count: int, address: str
) -> UndecodablePayload:
    """The error that names a record and shows its first bytes."""
    offset = offset_of(rows, failure.row)
    more = ""
    if count > 1:
        more = f"; {count_noun(count - 1, 'more record')} read with it cannot be decoded either"
    return UndecodablePayload(
        f"{partition}: the {failure.field} of the record at offset {offset} cannot be decoded",
        why=f"{reason_of(failure)}; it begins with {_first_bytes(rows, failure)}{more}",
        do="correct the schema under `decode` in the job file, or choose what happens to such "
        "records with `policy: {undecodable: skip}` or `quarantine`",
        damage=Damage(offset, offset + 1),
        log=DamagedLog(partition),
        offset=offset,
        part=failure.field,
        reason=failure.reason,
        schema_id=failure.schema_id,
        leader=address,
    )


def evidence_of(rows: pa.RecordBatch, group: Sequence[UndecodableRow]) -> str:
    first = group[0]
    offset = offset_of(rows, first.row)
    if first.field == TRANSFORM:
        text = f"the transform fails on offset {offset}: {first.reason}; its value"
    else:
        text = f"the {first.field} at offset {offset}: {reason_of(first)}; it"
    text += f" begins with {_first_bytes(rows, first)}"
    return text if len(group) == 1 else f"{count_noun(len(group), 'record')}; {text}"


def reason_of(failure: UndecodableRow) -> str:
    return (
        failure.reason
        if failure.schema_id is None
        else f"{failure.reason} (schema {failure.schema_id})"
    )


def _first_bytes(rows: pa.RecordBatch, failure: UndecodableRow) -> str:
    """The first bytes, escaped as in Python."""
    column = KEY.name if failure.field == KEY.name else VALUE.name
    data: bytes = rows.column(column)[failure.row].as_py() or b""
    return repr(data[:SHOWN_BYTES])[1:] + ("..." if len(data) > SHOWN_BYTES else "")
