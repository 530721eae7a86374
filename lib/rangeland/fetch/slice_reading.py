"""Reads slices: slices in, decoded chunks out. Drives the loop with real connections.

``FetchThread`` fetches ahead; decoding happens in the caller's thread. An error in either ends
both, and is raised to the caller. ``loss_judgement`` decides what damage or a gap means; this
module acts on it, for example by reading the leader again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import assert_never

from rangeland.decode.columns import with_partition
from rangeland.dialects.cluster_values import CleanupPolicy
from rangeland.dialects.dialect import Dialect, load_dialect
from rangeland.dialects.fetch_values import DecodedChunk, Gap
from rangeland.errors import BadRecord, Bug, Damage
from rangeland.fetch.fetch_thread import FetchThread
from rangeland.fetch.leader_lookup import ask_cleanup_policy
from rangeland.fetch.loss_judgement import (
    Compacted,
    ReadAtLeader,
    first_damaged,
    judge_cleanup,
    judge_damage,
    judge_gap,
    located_damage_error,
    stated_cleanup,
    too_many_gaps_error,
)
from rangeland.fetch.pacing import FetchLimits
from rangeland.fetch.quarantine_reading import quarantined_pieces, quarantined_rows
from rangeland.fetch.read_settings import ReadSettings
from rangeland.fetch.receipt_builder import LostChunk, ReadChunk, SliceChunk
from rangeland.fetch.replica_choice import Sender
from rangeland.fetch.response_reader import EntryEnd, FetchedPiece, LostPiece, Piece
from rangeland.fetch.slice_failures import log_loss
from rangeland.fetch.slice_state import Fail
from rangeland.fetch.typed_chunks import TypedChunks, typing_of
from rangeland.loss import Action, DamagedBytes, DecidedLoss, QuarantinedBytes
from rangeland.model import Slice
from rangeland.untrusted import parse_address


def read_slices(
    slices: Sequence[Slice], settings: ReadSettings, limits: FetchLimits | None = None
) -> Generator[SliceChunk, None, None]:
    """Chunks of all slices, interleaved; each slice's chunks are in order and without a gap. A
    chunk whose loss is held is the last of its slice.

    Batches have the columns of ``decode.columns`` with topic and partition added, typed if the
    settings have a row format. Never ends early: raises RangeLost or BadRecord for a loss,
    Unreachable if no broker serves a slice now, AccessDenied, MissingRequirement or JobFileError if
    brokers refuse, and RemoteProtocolError for an invalid response."""
    if settings.quarantined_bytes:
        yield from quarantined_rows(slices, settings)
        pieces = quarantined_pieces(slices, settings)
        yield from _PieceDecoder(load_dialect(settings.dialect), settings).read(pieces, slices)
        return
    limits = limits or FetchLimits(no_progress_ms=settings.cluster.no_progress_ms)
    fetcher = FetchThread(slices, settings, limits)
    fetcher.start()
    try:
        yield from _PieceDecoder(fetcher.brokers.dialect, settings).read(fetcher.pieces(), slices)
    finally:
        fetcher.stop()


@dataclass(frozen=True, slots=True)
class _Damaged:
    """Damage in a piece, and the loss that it causes."""

    loss: DecidedLoss
    error: BadRecord


class _PieceDecoder:
    """Turns pieces of slices into chunks."""

    def __init__(self, dialect: Dialect, settings: ReadSettings) -> None:
        self._dialect = dialect
        self._settings = settings
        self._in_bytes = dialect.capabilities.offsets_are_bytes
        self._cleanup: dict[str, CleanupPolicy] = {}  # of topics whose logs have gaps
        self._lost_gaps: Counter[int] = Counter()  # by slice

    def read(self, pieces: Iterator[Piece], slices: Sequence[Slice]) -> Iterator[SliceChunk]:
        by_index = {s.index: s for s in slices}
        typing = typing_of(slices, self._settings)
        held_slices: set[int] = set()
        for piece in pieces:
            if piece.index in held_slices:  # fetched before the loss was known
                continue
            for chunk in self._chunks_of(piece, by_index[piece.index], typing):
                yield chunk
                if isinstance(chunk, LostChunk) and chunk.is_held:
                    held_slices.add(chunk.slice_index)
                    break

    def _chunks_of(
        self, piece: Piece, slice_: Slice, typing: TypedChunks | None
    ) -> Iterator[SliceChunk]:
        size = len(piece.records) if isinstance(piece, FetchedPiece) else 0
        for chunk in self._decode(piece, slice_):
            chunk = replace(chunk, bytes_read=size)
            size = 0
            if isinstance(chunk, LostChunk) or chunk.batch is None:
                yield chunk
                continue
            chunk = replace(chunk, batch=with_partition(chunk.batch, slice_.partition))
            yield from [chunk] if typing is None else typing.type_rows(chunk)

    def _decode(self, piece: Piece, slice_: Slice) -> Iterator[SliceChunk]:
        match piece:
            case FetchedPiece():
                yield from self._decode_bytes(piece, slice_)
            case LostPiece(loss=loss):
                yield self._lost_chunk(slice_, loss)
            case _:
                assert_never(piece)

    def _decode_bytes(self, piece: FetchedPiece, slice_: Slice) -> Iterator[SliceChunk]:
        """Decodes the piece to its end, or to a loss that is held. Where its sender does not prove
        the damage or gap in it, the rest is read from the leader."""
        at, until = piece.from_offset, piece.until_offset
        ahead: _Damaged | None = None
        while at < piece.until_offset:
            end: _Damaged | Compacted | ReadAtLeader | Fail | None = ahead
            for result in self._walk(piece, slice_, at, until):
                if not isinstance(result, SliceChunk):
                    end = result
                    break
                yield result
                at = result.until_offset
                if isinstance(result, LostChunk) and result.is_held:
                    return
            match end:
                case None:
                    return
                case Fail(error):
                    raise error
                case ReadAtLeader():
                    yield from self._read_at_leader(piece, at, slice_)
                    return
                case Compacted():
                    pass  # on from the gap, which is explained now
                case _Damaged(loss) if at < loss.from_offset < until:
                    until, ahead = loss.from_offset, end  # what precedes it is decoded first
                case _Damaged(loss):
                    yield self._damaged_chunk(piece, slice_, at, end)
                    at, until, ahead = loss.until_offset, piece.until_offset, None

    def _walk(
        self, piece: FetchedPiece, slice_: Slice, at: int, until: int
    ) -> Iterator[SliceChunk | _Damaged | Compacted | ReadAtLeader | Fail]:
        """The chunks of the offsets ``[at, until)``, including gaps. They end with the damage that
        stops them, the error that ends the run, or what has to be done first."""
        cleanup = self._cleanup.get(slice_.partition.topic)
        is_explained = piece.context.from_quarantine or (cleanup is not None and cleanup.compacts)
        options = replace(piece.options, reports_gaps=not is_explained)
        # Where offsets are bytes, the first byte of the records is at the next offset.
        begin = at - piece.from_offset if self._in_bytes else 0
        records, isolation = piece.records[begin:], self._settings.isolation
        try:
            for decoded in self._dialect.decode_chunks(
                records, at, until, isolation, piece.aborted, piece.context, options
            ):
                if isinstance(decoded, Gap):
                    yield self._judge_gap(piece, slice_, at, decoded)
                else:
                    yield self._chunk(piece, at, decoded)
                at = decoded.next_offset
        except BadRecord as error:
            yield self._judge_damage(error, piece, slice_, at, until)

    def _chunk(self, piece: FetchedPiece, at: int, decoded: DecodedChunk) -> ReadChunk:
        until, width = decoded.next_offset, decoded.next_offset - at
        if piece.context.from_quarantine and decoded.counts.compacted == width:
            raise _misplaced_error(at, until)
        return ReadChunk(
            piece.index,
            from_offset=at,
            until_offset=until,
            counts=decoded.counts,
            batch=decoded.batch,
            leader=piece.leader,
            entry_span=width if self._in_bytes else None,
        )

    def _judge_damage(
        self, error: BadRecord, piece: FetchedPiece, slice_: Slice, at: int, until: int
    ) -> _Damaged | ReadAtLeader | Fail:
        """The meaning of damage that was found while decoding ``[at, until)``."""
        policy, capabilities = self._settings.policy, self._dialect.capabilities
        located = located_damage_error(error, slice_.partition, piece.leader, capabilities)
        first = first_damaged(error.damage, at, until, piece.until_offset)
        judgement = judge_damage(located, piece.sender, policy, slice_, first, piece.until_offset)
        return _Damaged(judgement, error) if isinstance(judgement, DecidedLoss) else judgement

    def _damaged_chunk(
        self, piece: FetchedPiece, slice_: Slice, at: int, damaged: _Damaged
    ) -> LostChunk:
        loss = damaged.loss
        if at < loss.from_offset:
            first = loss.from_offset
            raise Bug(f"{slice_}: the records before offset {first} were not decoded")
        quarantined = None
        if loss.action is Action.QUARANTINE:
            quarantined = self._bytes_to_keep(piece, damaged.error)
        log_loss(loss)
        return self._lost_chunk(slice_, loss, piece.leader, quarantined)

    def _judge_gap(
        self, piece: FetchedPiece, slice_: Slice, at: int, gap: Gap
    ) -> LostChunk | Compacted | ReadAtLeader | Fail:
        cleanup = self._cleanup_of(slice_.partition.topic, piece.leader)
        if isinstance(cleanup, Fail):
            return cleanup
        policy, sender = self._settings.policy, piece.sender
        judgement = judge_gap(cleanup, sender, policy, slice_, at, gap.next_offset)
        if not isinstance(judgement, DecidedLoss):
            return judgement
        self._lost_gaps[slice_.index] += 1
        count = self._lost_gaps[slice_.index]
        if count == 1 or judgement.action is Action.HOLD:
            log_loss(judgement)
        error = too_many_gaps_error(slice_, count, judgement)
        if error is not None:
            return Fail(error)
        return self._lost_chunk(slice_, judgement, piece.leader)

    def _cleanup_of(self, topic: str, leader: str) -> CleanupPolicy | Fail:
        """The cleanup policy of the topic. The leader is asked first."""
        if topic in self._cleanup:
            return self._cleanup[topic]
        cleanup: CleanupPolicy | Fail | None = stated_cleanup(topic, self._settings)
        if cleanup is None:
            first = (parse_address(leader),) if leader else ()
            reply = ask_cleanup_policy(self._settings.cluster, topic, first)
            cleanup = judge_cleanup(topic, reply, self._settings)
        if not isinstance(cleanup, Fail):
            self._cleanup[topic] = cleanup
        return cleanup

    def _read_at_leader(self, piece: FetchedPiece, at: int, slice_: Slice) -> Iterator[SliceChunk]:
        """The rest of the piece, from the leader that metadata names."""
        rest = replace(slice_, from_offset=at, until_offset=piece.until_offset, leader=None)
        floor = piece.options.floor if at == piece.from_offset else at
        floors = {} if floor is None else {slice_.index: EntryEnd(floor, piece.leader, piece.epoch)}
        limits = FetchLimits(no_progress_ms=self._settings.cluster.no_progress_ms)
        fetcher = FetchThread([rest], self._settings, limits, leader_only=True, floors=floors)
        fetcher.start()
        try:
            for reread in fetcher.pieces():
                if isinstance(reread, FetchedPiece) and reread.sender is not Sender.LEADER_AGAIN:
                    raise Bug(f"{slice_}: the broker read as its leader is {reread.sender.value}")
                for chunk in self._decode(reread, slice_):
                    yield chunk
                    if isinstance(chunk, LostChunk) and chunk.is_held:
                        return
        finally:
            fetcher.stop()

    def _lost_chunk(
        self,
        slice_: Slice,
        loss: DecidedLoss,
        leader: str = "",
        quarantined: QuarantinedBytes | None = None,
    ) -> LostChunk:
        if loss.action is Action.HOLD:
            # The rest of the slice is held, not only the rest of a piece that is read again.
            loss = replace(loss, until_offset=slice_.until_offset)
        return LostChunk(
            slice_.index,
            loss,
            leader,
            offsets_are_bytes=self._in_bytes,
            quarantined_bytes=quarantined,
        )

    def _bytes_to_keep(self, piece: FetchedPiece, error: BadRecord) -> DamagedBytes:
        """The bytes that cannot be decoded, and what is needed to decode them alone."""
        damage = error.damage
        if damage is None or damage.next_offset is None:
            raise Bug("a batch is to be quarantined, and its end is unknown", why=error.what)
        first, until = damage.base_offset, damage.next_offset
        records, start = piece.records, piece.from_offset
        stored = self._dialect.cut_out(records, start, first, until, piece.context, piece.options)
        open_there = self._dialect.aborted_within(records, max(first, 0), until, piece.aborted)
        return DamagedBytes(bytes(stored), open_there, error.why)


def _misplaced_error(first: int, after: int) -> BadRecord:
    """The bytes that were quarantined for these offsets claim to have other offsets."""
    return BadRecord(
        f"the bytes quarantined for offsets {first} to {after - 1} contain none of them",
        why="the offset stored with them is wrong, and no checksum covers it",
        do="land the offsets from the log, if another replica has them intact",
        damage=Damage(first, after),
    )
