"""Decodes fetched pieces to chunks, and decides what follows from damage and gaps in them.

A piece is decoded up to its end, or up to damage that cannot be skipped. Whatever requires a
connection is returned as a value among the chunks: a question, or a request to read the rest of the
piece from the leader. This module does no I/O; ``slice_reading`` does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, replace

from rangeland.dialects.cluster_values import CleanupPolicy, NoSeedAnswered
from rangeland.dialects.dialect import Dialect
from rangeland.dialects.fetch_values import DecodedChunk, Gap
from rangeland.errors import BadRecord, Bug, Damage
from rangeland.fetch.fetched_pieces import EntryEnd, FetchedPiece, LostPiece, Piece
from rangeland.fetch.loss_judgement import (
    first_damaged,
    judge_cleanup,
    judge_damage,
    judge_gap,
    located_damage_error,
    stated_cleanup,
    too_many_gaps_error,
)
from rangeland.fetch.read_settings import ReadSettings
from rangeland.fetch.slice_chunks import LostChunk, ReadChunk, SliceChunk
from rangeland.fetch.slice_state import Fail
from rangeland.loss import Action, DamagedBytes, DecidedLoss
from rangeland.model import Slice

# --- results other than chunks -------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AskCleanup:
    """Ask how the log of a topic is cleaned, because it has a gap; ask the broker at ``address``
    first. ``on_cleanup`` takes the answer."""

    topic: str
    address: str


@dataclass(frozen=True, slots=True)
class ReadAtLeader:
    """Read the rest of the piece from the leader that metadata names, since the sender does not
    prove the damage or gap at its beginning. ``floor``: where the entry before it ended, None if
    that is unknown."""

    rest: Slice
    floor: EntryEnd | None


PieceResult = SliceChunk | AskCleanup | ReadAtLeader | Fail


# --- decoding -----------------------------------------------------------------------------


@dataclass(slots=True)
class _PieceState:
    """How far a piece of a slice is decoded."""

    piece: FetchedPiece
    slice: Slice
    next_offset: int


_Section = Generator[PieceResult, None, LostChunk | ReadAtLeader | Fail | None]
"""The results for some offsets of a piece. The return value is what ends them early, if anything
does."""


class PieceDecoder:
    """Decodes the pieces of one task's slices."""

    def __init__(self, slices: Sequence[Slice], settings: ReadSettings, dialect: Dialect) -> None:
        self._slices = {s.index: s for s in slices}
        self._settings = settings
        self._dialect = dialect
        self._offsets_are_bytes = dialect.capabilities.offsets_are_bytes
        topics = {s.partition.topic for s in slices}
        self._cleanup: dict[str, CleanupPolicy | Fail | None] = {
            topic: stated_cleanup(topic, settings) for topic in topics
        }
        self._lost_gaps: Counter[int] = Counter()  # by slice

    def decode(self, piece: Piece) -> Iterator[PieceResult]:
        """The chunks of a piece, in order and without a gap between them. Nothing follows a loss
        that is held, ``ReadAtLeader`` or ``Fail``."""
        slice_ = self._slices[piece.index]
        if isinstance(piece, LostPiece):
            yield self._lost_chunk(slice_, piece, piece.loss, is_unlogged=False)
            return
        state = _PieceState(piece, slice_, piece.from_offset)
        while state.next_offset < piece.until_offset:
            end = yield from self._decode_until(state, piece.until_offset)
            while isinstance(end, LostChunk) and state.next_offset < end.from_offset:
                end = (yield from self._decode_before(state, end)) or end
            if end is None:
                return
            yield end
            if not isinstance(end, LostChunk) or end.is_held:
                return
            state.next_offset = end.until_offset

    def on_cleanup(self, topic: str, answer: CleanupPolicy | NoSeedAnswered) -> None:
        """Takes the brokers' answer to how the log of a topic is cleaned."""
        self._cleanup[topic] = judge_cleanup(topic, answer, self._settings)

    def _decode_before(self, state: _PieceState, lost: LostChunk) -> _Section:
        """Decodes what precedes a loss: the dialect may find damage before it has returned the
        entries before it."""
        until_offset = lost.from_offset
        end = yield from self._decode_until(state, until_offset)
        if end is None and state.next_offset < until_offset:
            raise Bug(f"{state.slice}: the records before offset {until_offset} were not decoded")
        return end

    def _decode_until(self, state: _PieceState, until_offset: int) -> _Section:
        """Decodes up to ``until_offset``. If a loss ends it early, the loss is held, or is due to
        damage, which may be some offsets further on."""
        topic = state.slice.partition.topic
        for found in self._find_chunks(state, until_offset):
            if isinstance(found, BadRecord):
                return self._judge_damage(state, found, until_offset)
            if isinstance(found, Gap):
                if self._cleanup[topic] is None:
                    yield AskCleanup(topic, state.piece.address)
                if self._is_compacted(topic):  # from here on, no gap is reported
                    return (yield from self._decode_until(state, until_offset))
                judgement = self._judge_gap(state, found)
                if not isinstance(judgement, LostChunk) or judgement.is_held:
                    return judgement
                found = judgement
            yield found
            state.next_offset = found.until_offset
        return None

    def _find_chunks(
        self, state: _PieceState, until_offset: int
    ) -> Iterator[SliceChunk | Gap | BadRecord]:
        """The chunks, gaps and damage that the dialect finds up to ``until_offset``; damage comes
        last. The caller advances the state to the end of each chunk."""
        records = state.piece.records
        is_compacted = self._is_compacted(state.slice.partition.topic)
        reports_gaps = not (is_compacted or records.context.from_quarantine)
        try:
            for decoded in self._dialect.decode_chunks(
                records, state.next_offset, until_offset, reports_gaps=reports_gaps
            ):
                yield decoded if isinstance(decoded, Gap) else self._read_chunk(state, decoded)
        except BadRecord as error:
            yield error

    def _read_chunk(self, state: _PieceState, decoded: DecodedChunk) -> ReadChunk:
        piece = state.piece
        from_offset = state.next_offset
        until_offset = decoded.next_offset
        is_empty = decoded.counts.compacted == until_offset - from_offset
        if piece.records.context.from_quarantine and is_empty:
            raise _misplaced_error(from_offset, until_offset)
        return ReadChunk(
            piece.index,
            from_offset=from_offset,
            until_offset=until_offset,
            counts=decoded.counts,
            rows=decoded.batch,
            address=piece.address,
            offsets_are_bytes=self._offsets_are_bytes,
            leader_epoch=piece.epoch,
        )

    # --- damage ---------------------------------------------------------------------------

    def _judge_damage(
        self, state: _PieceState, error: BadRecord, until_offset: int
    ) -> LostChunk | ReadAtLeader | Fail:
        """Decides what to do about damage found between the next offset and ``until_offset``."""
        piece = state.piece
        slice_ = state.slice
        policy = self._settings.policy
        capabilities = self._dialect.capabilities
        located = located_damage_error(error, slice_.partition, piece.address, capabilities)
        first = first_damaged(error.damage, state.next_offset, until_offset, piece.until_offset)
        loss = judge_damage(located, piece.sender, policy, slice_, first, piece.until_offset)
        if loss is None:
            return self._rest_at_leader(state)
        if isinstance(loss, Fail):
            return loss
        if loss.from_offset >= until_offset:
            raise Bug(f"{slice_}: the records before offset {loss.from_offset} were not decoded")
        is_kept = loss.action is Action.QUARANTINE
        kept = self._bytes_to_keep(piece, error) if is_kept else None
        return self._lost_chunk(slice_, piece, loss, kept)

    def _bytes_to_keep(self, piece: FetchedPiece, error: BadRecord) -> DamagedBytes:
        """The bytes that cannot be decoded, and what is needed to decode them alone."""
        damage = error.damage
        if damage is None or damage.next_offset is None:
            raise Bug("an entry is to be quarantined, and its end is unknown", why=error.what)
        from_offset = damage.base_offset
        until_offset = damage.next_offset
        stored = self._dialect.cut_out(piece.records, from_offset, until_offset)
        open_there = self._dialect.aborted_within(piece.records, max(from_offset, 0), until_offset)
        return DamagedBytes(bytes(stored), open_there, error.why)

    # --- gaps -----------------------------------------------------------------------------

    def _is_compacted(self, topic: str) -> bool:
        """Whether compaction is known to explain the gaps of the topic."""
        cleanup = self._cleanup[topic]
        return isinstance(cleanup, CleanupPolicy) and bool(cleanup.compacts)

    def _judge_gap(self, state: _PieceState, gap: Gap) -> LostChunk | ReadAtLeader | Fail:
        """Decides what to do about a gap at the next offset that compaction does not explain."""
        piece = state.piece
        slice_ = state.slice
        policy = self._settings.policy
        cleanup = self._cleanup[slice_.partition.topic]
        if cleanup is None:
            raise Bug(f"{slice_}: a gap is judged before it is known how the log is cleaned")
        if isinstance(cleanup, Fail):
            return cleanup
        loss = judge_gap(cleanup, piece.sender, policy, slice_, state.next_offset, gap.next_offset)
        if loss is None:
            return self._rest_at_leader(state)
        if isinstance(loss, Fail):
            return loss
        self._lost_gaps[slice_.index] += 1
        count = self._lost_gaps[slice_.index]
        if (error := too_many_gaps_error(slice_, count, loss)) is not None:
            return Fail(error)
        is_unlogged = count == 1 or loss.action is Action.HOLD
        return self._lost_chunk(slice_, piece, loss, is_unlogged=is_unlogged)

    # --- both -----------------------------------------------------------------------------

    def _rest_at_leader(self, state: _PieceState) -> ReadAtLeader:
        piece = state.piece
        from_offset = state.next_offset
        rest = replace(
            state.slice, from_offset=from_offset, until_offset=piece.until_offset, leader=None
        )
        floor = piece.records.floor if from_offset == piece.from_offset else from_offset
        end = None if floor is None else EntryEnd(floor, piece.address, piece.epoch)
        return ReadAtLeader(rest, end)

    def _lost_chunk(
        self,
        slice_: Slice,
        piece: Piece,
        loss: DecidedLoss,
        quarantined: DamagedBytes | None = None,
        *,
        is_unlogged: bool = True,
    ) -> LostChunk:
        if loss.action is Action.HOLD:
            # The rest of the slice is held, not just the rest of a piece that is read again.
            loss = replace(loss, until_offset=slice_.until_offset)
        return LostChunk(
            slice_.index,
            loss,
            piece.address if isinstance(piece, FetchedPiece) else "",
            offsets_are_bytes=self._offsets_are_bytes,
            quarantined_bytes=quarantined,
            is_unlogged=is_unlogged,
            leader_epoch=piece.epoch,
        )


def _misplaced_error(from_offset: int, until_offset: int) -> BadRecord:
    """The error for bytes that were quarantined for these offsets but claim to have others."""
    offsets = f"{from_offset} to {until_offset - 1}"
    return BadRecord(
        f"the bytes quarantined for offsets {offsets} contain none of them",
        why="the offset stored with them is wrong, and no checksum covers it",
        do="land the offsets from the log, if another replica has them intact",
        damage=Damage(from_offset, until_offset),
    )
