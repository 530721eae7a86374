"""SimpleConsumer: slices in, decoded chunks out. Drives the loop with real connections.

``FetchThread`` fetches ahead; decoding happens in the caller's thread. An error in either ends
both, and is raised to the caller.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial

from rangeland.decode.columns import with_partition
from rangeland.dialects.dialect import Dialect, load_dialect
from rangeland.dialects.fetch_values import Gap
from rangeland.errors import BadRecord, Bug, Damage
from rangeland.fetch.broker_questions import ask_cleanup_policy
from rangeland.fetch.fetch_thread import FetchThread
from rangeland.fetch.offset_gaps import GapExplainer
from rangeland.fetch.pacing import FetchLimits
from rangeland.fetch.quarantine_reading import quarantined_pieces, quarantined_rows
from rangeland.fetch.read_settings import ReadSettings
from rangeland.fetch.receipt_builder import SliceChunk, lost_chunk
from rangeland.fetch.replica_choice import Sender
from rangeland.fetch.response_reader import EntryEnd, FetchedPiece
from rangeland.fetch.slice_failures import (
    damage_loss,
    first_damaged,
    located_damage_error,
    log_loss,
)
from rangeland.fetch.typed_chunks import TypedChunks, typing_of
from rangeland.loss import Action, Loss
from rangeland.model import Address, QuarantinedBytes, Slice
from rangeland.untrusted import parse_address


def read_slices(
    slices: Sequence[Slice], settings: ReadSettings, limits: FetchLimits | None = None
) -> Generator[SliceChunk, None, None]:
    """Chunks of all slices, those of each slice in order and without a gap, slices interleaved. A
    chunk whose loss is held is the last one of its slice.

    Batches have the columns of ``decode.columns`` with topic and partition added, typed if the
    settings have a row format. Raises RangeLost, BadRecord, Unreachable or RemoteProtocolError;
    never ends early."""
    if settings.quarantined_bytes:
        intact = [s for s in slices if settings.quarantined_bytes[s.index].rows is not None]
        yield from quarantined_rows(intact, settings)
        damaged = [s for s in slices if settings.quarantined_bytes[s.index].rows is None]
        kept = quarantined_pieces(damaged, settings)
        yield from _PieceDecoder(load_dialect(settings.dialect), settings).read(kept, damaged)
        return
    limits = limits or FetchLimits(no_progress_ms=settings.cluster.no_progress_ms)
    fetcher = FetchThread(slices, settings, limits)
    fetcher.start()
    try:
        yield from _PieceDecoder(fetcher.brokers.dialect, settings).read(fetcher.pieces(), slices)
    finally:
        fetcher.stop()


class _UnprovenGap(Exception):
    """A gap was seen, and is believed only after the leader has been read again."""


@dataclass(frozen=True, slots=True)
class _DamagedPart:
    """A part of a piece that cannot be decoded: what is lost by it, and why."""

    loss: Loss
    damage: Damage
    why: str


class _PieceDecoder:
    """Turns pieces of slices into chunks."""

    def __init__(self, dialect: Dialect, settings: ReadSettings) -> None:
        self._dialect = dialect
        self._settings = settings
        self._in_bytes = dialect.capabilities.offsets_are_bytes
        self._gaps = GapExplainer(settings, partial(ask_cleanup_policy, settings.cluster))

    def read(self, pieces: Iterator[FetchedPiece], slices: Sequence[Slice]) -> Iterator[SliceChunk]:
        by_index = {s.index: s for s in slices}
        typing = typing_of(slices, self._settings)
        held: set[int] = set()
        for piece in pieces:
            if piece.index in held:  # fetched before the loss was known
                continue
            for chunk in self._chunks_of(piece, by_index[piece.index], typing):
                yield chunk
                if chunk.is_held:
                    held.add(chunk.slice_index)
                    break

    def _chunks_of(
        self, piece: FetchedPiece, slice_: Slice, typing: TypedChunks | None
    ) -> Iterator[SliceChunk]:
        if piece.loss is not None:
            yield lost_chunk(piece.index, piece.loss, piece.leader, self._in_bytes)
            return
        size = len(piece.records)
        for chunk in self._decode_confirmed(piece, slice_):
            batch = chunk.batch
            if batch is not None:
                batch = with_partition(batch, slice_.partition)
            chunk = replace(chunk, batch=batch, bytes_read=size)
            yield from [chunk] if typing is None else typing.type_rows(chunk)
            size = 0

    def _decode_confirmed(self, piece: FetchedPiece, slice_: Slice) -> Iterator[SliceChunk]:
        """The piece to its end. If it is damaged and may come from a replica, or has an unexplained
        gap, the rest of it is read from the leader: only a second response of the leader proves a
        loss."""
        next_offset = piece.from_offset
        try:
            for chunk in self._decode(piece, slice_):
                next_offset = chunk.until_offset
                yield replace(chunk, leader=piece.leader)
            return
        except _UnprovenGap:
            pass
        except BadRecord:
            if piece.sender.proves_damage:
                raise
        rest = replace(
            slice_, from_offset=next_offset, until_offset=piece.until_offset, leader=None
        )
        start = piece.context.floor if next_offset == piece.from_offset else next_offset
        with closing(self._at_leader(rest, EntryEnd(start, piece.leader, piece.epoch))) as chunks:
            for chunk in chunks:
                if chunk.loss is not None and chunk.is_held:
                    # The rest of the slice is held, not only that of the piece.
                    loss = replace(chunk.loss, until_offset=slice_.until_offset)
                    yield replace(chunk, loss=loss)
                    return
                yield chunk

    def _at_leader(self, rest: Slice, floor: EntryEnd) -> Generator[SliceChunk, None, None]:
        limits = FetchLimits(no_progress_ms=self._settings.cluster.no_progress_ms)
        floors = {rest.index: floor}
        fetcher = FetchThread([rest], self._settings, limits, leader_only=True, floors=floors)
        fetcher.start()
        try:
            for piece in fetcher.pieces():
                if piece.loss is not None:
                    yield lost_chunk(piece.index, piece.loss, piece.leader, self._in_bytes)
                    continue
                for chunk in self._decode(replace(piece, sender=Sender.LEADER_AGAIN), rest):
                    yield replace(chunk, leader=piece.leader)
        finally:
            fetcher.stop()

    def _decode(self, piece: FetchedPiece, slice_: Slice) -> Iterator[SliceChunk]:
        """The piece to its end. A batch that cannot be decoded ends the run, unless the policy says
        otherwise: then everything before it is decoded, and it is skipped or quarantined, or the
        slice ends there. Unexplained gaps are treated in the same way."""
        next_offset = piece.from_offset
        while next_offset < piece.until_offset:
            decoded_until, damaged = yield from self._decode_up_to_damage(
                piece, next_offset, slice_
            )
            if damaged is None:
                return
            loss = damaged.loss
            if decoded_until < loss.from_offset:
                first = loss.from_offset
                raise Bug(f"{slice_}: the records before offset {first} were not decoded")
            kept = None
            if loss.action is Action.QUARANTINE:
                kept = self._bytes_to_keep(piece, damaged)
            log_loss(loss)
            yield lost_chunk(piece.index, loss, piece.leader, self._in_bytes, kept)
            if loss.action is Action.HOLD:
                return
            next_offset = loss.until_offset

    def _decode_up_to_damage(
        self,
        piece: FetchedPiece,
        from_offset: int,
        slice_: Slice,
        known: _DamagedPart | None = None,
    ) -> Generator[SliceChunk, None, tuple[int, _DamagedPart | None]]:
        """Returns up to where the piece could be decoded, and the damage there; None if it is
        intact, or an unexplained gap ends the slice. ``known``: damage that was found already, up
        to which the piece is decoded."""
        next_offset = from_offset
        good_until = piece.until_offset if known is None else known.loss.from_offset
        # Where offsets are bytes, the first byte of the records is at the next offset.
        begin = from_offset - piece.from_offset if self._in_bytes else 0
        records = piece.records[begin:]
        part = replace(piece, from_offset=from_offset, until_offset=good_until, records=records)
        try:
            for chunk in self._chunks(part, slice_):
                yield chunk
                next_offset = chunk.until_offset
                if chunk.is_held:
                    return next_offset, None
            return next_offset, known
        except BadRecord as error:
            if not piece.sender.proves_damage:
                raise
            found = self._judge_damage(error, piece, slice_, next_offset, good_until)
        if next_offset < found.loss.from_offset < good_until:
            # Damage is found before everything ahead of it has been returned.
            return (yield from self._decode_up_to_damage(piece, next_offset, slice_, found))
        return next_offset, found

    def _judge_damage(
        self,
        error: BadRecord,
        piece: FetchedPiece,
        slice_: Slice,
        next_offset: int,
        good_until: int,
    ) -> _DamagedPart:
        """What is lost by damage that was found while decoding ``[next_offset, good_until)``, by
        the policy. Raises the error where nothing else can be done."""
        policy, capabilities = self._settings.policy, self._dialect.capabilities
        bad = located_damage_error(error, slice_.partition, piece.leader, capabilities)
        if bad.damage is None:
            raise bad from error
        first = first_damaged(bad.damage, next_offset, good_until, piece.until_offset)
        loss = damage_loss(bad, policy, slice_, first, piece.until_offset)
        return _DamagedPart(loss, bad.damage, bad.why)

    def _chunks(self, piece: FetchedPiece, slice_: Slice) -> Iterator[SliceChunk]:
        """The content of a piece, and the gaps in it: compacted, or lost. Raises _UnprovenGap at
        the first lost one, unless the leader has been read again for it."""
        next_offset, topic = piece.from_offset, slice_.partition.topic
        is_quarantined, isolation = bool(self._settings.quarantined_bytes), self._settings.isolation
        is_unfinished = True
        while is_unfinished:
            is_unfinished = False
            are_explained = is_quarantined or self._gaps.are_explained(topic)
            context = replace(piece.context, reports_gaps=not are_explained)
            span = (next_offset, piece.until_offset)
            for part in self._dialect.decode_chunks(
                piece.records, *span, isolation, piece.aborted, context
            ):
                if isinstance(part, Gap):
                    if self._gaps.explain(topic, _leader_of(piece)):
                        is_unfinished = True  # again from the gap on, with all gaps explained
                        break
                    if not piece.sender.proves_gap:
                        raise _UnprovenGap
                    loss = self._gaps.loss_of(slice_, next_offset, part.next_offset)
                    yield lost_chunk(piece.index, loss, piece.leader, self._in_bytes)
                else:
                    width = part.next_offset - next_offset
                    if is_quarantined and part.counts.compacted == width:
                        raise _misplaced_error(next_offset, part.next_offset)
                    entry_span = width if self._in_bytes else None
                    yield SliceChunk(
                        piece.index,
                        from_offset=next_offset,
                        until_offset=part.next_offset,
                        counts=part.counts,
                        batch=part.batch,
                        entry_span=entry_span,
                    )
                next_offset = part.next_offset

    def _bytes_to_keep(self, piece: FetchedPiece, damaged: _DamagedPart) -> QuarantinedBytes:
        """The bytes that cannot be decoded, and what is needed to decode them alone."""
        first, until = damaged.damage.base_offset, damaged.damage.next_offset
        if until is None:
            raise Bug(f"a batch at offset {first} is to be quarantined, and its end is unknown")
        records, start = piece.records, piece.from_offset
        stored = self._dialect.cut_out(records, start, first, until, piece.context)
        begin = max(first, 0)
        open_there = self._dialect.aborted_within(records, begin, until, piece.aborted)
        return QuarantinedBytes(bytes(stored), open_there, damaged.why)


def _leader_of(piece: FetchedPiece) -> tuple[Address, ...]:
    return (parse_address(piece.leader),) if piece.leader else ()


def _misplaced_error(first: int, after: int) -> BadRecord:
    """The bytes that were quarantined for these offsets claim to be of others."""
    return BadRecord(
        f"the bytes quarantined for offsets {first} to {after - 1} contain none of them",
        why="the offset stored with them is wrong, and no checksum covers it",
        do="land the offsets from the log, if another replica has them intact",
        damage=Damage(first, after),
    )
