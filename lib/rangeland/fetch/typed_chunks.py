"""Turns chunks of bytes into chunks of typed rows, and applies the policy to undecodable records.

Keys and values of a whole chunk are decoded at once. A record that cannot be decoded ends the
reading, or it is skipped or quarantined: then it has no row, and its offset counts as lost or
quarantined (``undecodable_rows``).

A chunk that takes much memory is typed in parts. If the slice is held because of a record in one
part, it ends before that part, or earlier: before the first part whose counts by class are
uncertain.

The schemas that records were written with may have to be looked up first: then a question is
returned among the chunks. This module asks nothing itself; ``slice_reading`` does.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import replace

import pyarrow as pa

from rangeland.decode.columns import OFFSET
from rangeland.decode.payload.row_format import DecodedRows, RowDecoder, RowFormat, UndecodableRow
from rangeland.decode.payload.schema_ids.schema_catalogue import (
    AskSchemas,
    FoundSchema,
    TopicField,
)
from rangeland.fetch.chunk_parts import classes_are_known, of_whole_entries, split
from rangeland.fetch.loss_judgement import MAX_LOSSES, decide_loss
from rangeland.fetch.slice_chunks import LostChunk, ReadChunk, SliceChunk
from rangeland.fetch.slice_state import Fail
from rangeland.fetch.undecodable_rows import (
    TRANSFORM,
    entries_of,
    evidence_of,
    lost_offsets,
    lost_row_mask,
    undecodable_error,
)
from rangeland.loss import Action, Loss, LossKind
from rangeland.model import Counts, Slice
from rangeland.planning.policy import Policy


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
        be answered before the next result is taken. If a record cannot be decoded and the policy is
        to hold, the last chunk is a loss without width, where the slice ends; if the policy is to
        fail, raises UndecodablePayload."""
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
        """The loss at which the slice ends inside this chunk, if it does."""
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
        """Takes the answer to a question. Whatever the policy, raises JobFileError for a schema for
        which the table has no columns."""
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
                leader_epoch=chunk.leader_epoch,
            )
        entries = entries_of(rows, chunk.until_offset, adjacent=chunk.offsets_are_bytes)
        lost = tuple(lost_offsets(partition, rows, entries, undecodable, action))
        self._check_losses_are_few(slice_, rows, first, len(lost))
        mask = lost_row_mask(entries, undecodable, action)
        width = sum(records.loss.width for records in lost)
        others = Counts(quarantined=width) if action is Action.QUARANTINE else Counts(lost=width)
        return replace(
            typed,
            rows=decoded.batch.filter(pa.array(~mask)),
            counts=chunk.counts + others + Counts(landed=-int(mask.sum())),
            lost_offsets=lost,
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
            why="the policy is not to fail, but so many suggest that the schema is wrong; one of "
            f"them is {error.what}: {error.why}",
            do="correct the schema under `decode` in the job file, or land the topic with another "
            "job that leaves these records out in a transform",
        )


def _hold_from(chunk: ReadChunk, held: LostChunk) -> LostChunk:
    """The held loss, from the beginning of a chunk on."""
    loss = replace(held.loss, from_offset=chunk.from_offset)
    return replace(held, loss=loss, bytes_read=chunk.bytes_read)
