"""SimpleConsumer: slices in, decoded chunks out. Drives the loop with real connections.

``FetchThread`` fetches ahead; decoding happens in the caller's thread. An error in either ends
both, and is raised to the caller.

Quarantined batches are decoded here again: the same pieces, from the settings instead of a broker.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import replace

from rangeland.connection.cluster_settings import ClusterSettings
from rangeland.dialects.dialect import Dialect, load_dialect
from rangeland.dialects.fetch_values import AnsweredSpan, FetchContext, Gap
from rangeland.errors import BadRecord, Bug, Damage
from rangeland.fetch.damage_policy import damage_loss, first_damaged, located, log_loss
from rangeland.fetch.fetch_thread import FetchThread
from rangeland.fetch.fetched_piece import EntryEnd, FetchedPiece
from rangeland.fetch.loop_actions import FetchLimits
from rangeland.fetch.offset_gaps import GapExplainer
from rangeland.fetch.receipt_builder import SliceChunk
from rangeland.fetch.typed_chunks import TypedChunks, kept_rows
from rangeland.model import Address, Counts, QuarantinedBytes, Slice
from rangeland.planning.policy import Action, Loss
from rangeland.untrusted import parse_address


def read_slices(
    slices: Sequence[Slice], settings: ClusterSettings, patience: FetchLimits | None = None
) -> Generator[SliceChunk, None, None]:
    """Chunks of all slices, those of each slice in order and without a gap, slices interleaved. A
    chunk whose loss is held is the last one of its slice.

    Batches have the columns of ``decode.columns`` with topic and partition added, typed if the
    settings have a row format. Raises RangeLost, BadRecord, Unreachable or RemoteProtocolError;
    never ends early."""
    if settings.kept:
        intact = [s for s in slices if settings.kept[s.index].rows is not None]
        yield from kept_rows(intact, settings)
        damaged = [s for s in slices if settings.kept[s.index].rows is None]
        kept = _kept_pieces(damaged, settings)
        yield from _read(kept, damaged, load_dialect(settings.dialect), settings)
        return
    patience = patience or FetchLimits(no_progress_ms=settings.no_progress_ms)
    fetcher = FetchThread(slices, settings, patience)
    fetcher.start()
    try:
        yield from _read(fetcher.pieces(), slices, fetcher.brokers.dialect, settings)
    finally:
        fetcher.stop()


def _kept_pieces(slices: Sequence[Slice], settings: ClusterSettings) -> Iterator[FetchedPiece]:
    for s in slices:
        kept = settings.kept[s.index]
        records = memoryview(kept.records)
        spans = (AnsweredSpan(len(records), s.from_offset, s.until_offset),)
        tags = tuple(tag.encode() for tag in settings.tags)
        context = FetchContext(
            spans=spans,
            has_gaps=True,
            tags=tags,
            from_quarantine=True,
            max_batch_bytes=settings.max_batch_bytes,
        )
        bounds = (s.from_offset, s.until_offset)
        yield FetchedPiece(s.index, *bounds, records, kept.aborted, context=context)


def _read(
    pieces: Iterator[FetchedPiece],
    slices: Sequence[Slice],
    dialect: Dialect,
    settings: ClusterSettings,
) -> Iterator[SliceChunk]:
    from rangeland.decode.columns import with_partition

    by_index = {s.index: s for s in slices}
    gaps = GapExplainer(settings)
    formats = settings.rows
    typing = None if formats is None else TypedChunks(formats, settings.policy, slices)
    held: set[int] = set()
    for piece in pieces:
        if piece.index in held:  # fetched before the loss was known
            continue
        if piece.loss is not None:
            chunk = _without_rows(piece, in_bytes=dialect.capabilities.offsets_are_bytes)
            held |= _held(chunk)
            yield chunk
            continue
        size = len(piece.records)
        partition = by_index[piece.index].partition
        for chunk in _decoded(piece, by_index[piece.index], dialect, settings, gaps):
            batch = chunk.batch
            if batch is not None:
                batch = with_partition(batch, partition)
            chunk = replace(chunk, batch=batch, bytes_read=size)
            for one in [chunk] if typing is None else typing.typed(chunk):
                held |= _held(one)
                yield one
            size = 0
            if chunk.slice_index in held:
                break


def _held(chunk: SliceChunk) -> set[int]:
    is_held = chunk.loss is not None and chunk.loss.action is Action.HOLD
    return {chunk.slice_index} if is_held else set()


def _without_rows(piece: FetchedPiece, *, in_bytes: bool) -> SliceChunk:
    if piece.loss is None:
        raise Bug(f"a piece of offsets from {piece.from_offset} on has neither bytes nor a loss")
    return _lost(piece.index, piece.loss, in_bytes=in_bytes, leader=piece.leader)


def _lost(
    index: int,
    loss: Loss,
    *,
    in_bytes: bool,
    leader: str = "",
    kept: QuarantinedBytes | None = None,
) -> SliceChunk:
    """A loss that is skipped or quarantined has its width, one that is held has none."""
    is_held = loss.action is Action.HOLD
    until_offset = loss.from_offset if is_held else loss.until_offset
    width = until_offset - loss.from_offset
    quarantined = loss.action is Action.QUARANTINE
    return SliceChunk(
        index,
        loss.from_offset,
        until_offset,
        Counts(quarantined=width) if quarantined else Counts(lost=width),
        leader=leader,
        loss=loss,
        taken_up=width if in_bytes else None,
        kept=kept if quarantined else None,
    )


class _UnconfirmedDamage(Exception):
    """A loss was seen, and is believed only after the leader has been read again."""


def _decoded(
    piece: FetchedPiece,
    piece_slice: Slice,
    dialect: Dialect,
    settings: ClusterSettings,
    gaps: GapExplainer,
) -> Iterator[SliceChunk]:
    """The piece to its end. If it is damaged and may come from a replica, or has an unexplained
    gap, the rest of it is read from the leader: only a second answer of the leader proves a
    loss."""
    position = piece.from_offset
    try:
        for chunk in _decode(piece, piece_slice, dialect, settings, gaps):
            position = chunk.until_offset
            yield replace(chunk, leader=piece.leader)
        return
    except _UnconfirmedDamage:
        pass
    except BadRecord:
        if not piece.is_doubtful:
            raise
    rest = replace(piece_slice, from_offset=position, until_offset=piece.until_offset, leader=None)
    at = piece.context.floor if position == piece.from_offset else position
    floor = EntryEnd(at, piece.leader, piece.epoch)
    with closing(_at_leader(rest, floor, dialect, settings, gaps)) as chunks:
        for chunk in chunks:
            if chunk.loss is None or chunk.loss.action is not Action.HOLD:
                yield chunk
                continue
            # The rest of the slice is held, not only that of the piece.
            loss = replace(chunk.loss, until_offset=piece_slice.until_offset)
            yield replace(chunk, loss=loss)
            return


def _at_leader(
    rest: Slice, floor: EntryEnd, dialect: Dialect, settings: ClusterSettings, gaps: GapExplainer
) -> Generator[SliceChunk, None, None]:
    patience = FetchLimits(no_progress_ms=settings.no_progress_ms)
    floors = {rest.index: floor}
    fetcher = FetchThread([rest], settings, patience, leader_only=True, floors=floors)
    fetcher.start()
    try:
        for piece in fetcher.pieces():
            if piece.loss is not None:
                yield _without_rows(piece, in_bytes=dialect.capabilities.offsets_are_bytes)
                continue
            sure = replace(piece, is_doubtful=False)
            for chunk in _decode(sure, rest, dialect, settings, gaps, is_confirmed=True):
                yield replace(chunk, leader=piece.leader)
    finally:
        fetcher.stop()


def _decode(
    piece: FetchedPiece,
    piece_slice: Slice,
    dialect: Dialect,
    settings: ClusterSettings,
    gaps: GapExplainer,
    *,
    is_confirmed: bool = False,
) -> Iterator[SliceChunk]:
    """The piece to its end. A batch that cannot be decoded ends the run, unless the policy says
    otherwise: then everything before it is decoded, and it is skipped or quarantined, or the
    slice ends there. Unexplained gaps are treated in the same way."""
    position, until_offset = piece.from_offset, piece.until_offset
    end_of_good = until_offset
    damage: Damage | None = None
    nature = dialect.capabilities
    in_bytes = nature.offsets_are_bytes
    while position < until_offset:
        # Where offsets are bytes, the first byte of the records is at the position.
        records = piece.records[position - piece.from_offset :] if in_bytes else piece.records
        good = replace(piece, from_offset=position, until_offset=end_of_good, records=records)
        try:
            for chunk in _chunks(good, piece_slice, dialect, settings, gaps, is_confirmed):
                yield chunk
                position = chunk.until_offset
                if _held(chunk):
                    return
            if end_of_good == until_offset:
                return
        except BadRecord as error:
            if piece.is_doubtful:
                raise
            bad = located(error, piece_slice.partition, piece.leader, nature)
            damage = bad.damage
            if damage is None:
                raise bad from error
            first = first_damaged(damage, position, end_of_good, until_offset)
            loss = damage_loss(bad, settings.policy, piece_slice, first, until_offset)
            if first > position and first < end_of_good:
                end_of_good = first
                continue
        if position < first:
            raise Bug(f"{piece_slice}: the records before offset {first} were not decoded")
        kept = None
        if loss.action is Action.QUARANTINE and damage is not None:
            kept = _kept(dialect, records, position, piece, damage)
        log_loss(loss)
        yield _lost(piece.index, loss, in_bytes=in_bytes, kept=kept)
        if loss.action is Action.HOLD:
            return
        position, end_of_good = loss.until_offset, until_offset


def _chunks(
    piece: FetchedPiece,
    piece_slice: Slice,
    dialect: Dialect,
    settings: ClusterSettings,
    gaps: GapExplainer,
    is_confirmed: bool,
) -> Iterator[SliceChunk]:
    """The content of a piece, and the gaps in it: compacted, or lost. Raises _UnconfirmedDamage at
    the first lost one, unless the leader has been read again for it."""
    position, topic = piece.from_offset, piece_slice.partition.topic
    in_bytes = dialect.capabilities.offsets_are_bytes
    is_unfinished = True
    while is_unfinished:
        is_unfinished = False
        are_explained = bool(settings.kept) or gaps.are_explained(topic)
        context = replace(piece.context, reports_gaps=not are_explained)
        for part in dialect.decode_chunks(
            piece.records,
            position,
            piece.until_offset,
            settings.isolation,
            piece.aborted,
            context,
        ):
            if isinstance(part, Gap):
                if gaps.explain(topic, _asked(piece)):
                    is_unfinished = True  # again from the gap on, with all gaps explained
                    break
                if not is_confirmed:
                    raise _UnconfirmedDamage
                loss = gaps.loss_of(piece_slice, position, part.next_offset)
                yield _lost(piece.index, loss, in_bytes=in_bytes)
            else:
                if settings.kept and part.counts.compacted == part.next_offset - position:
                    raise _misplaced(position, part.next_offset)
                taken_up = part.next_offset - position if in_bytes else None
                yield SliceChunk(
                    piece.index,
                    position,
                    part.next_offset,
                    part.counts,
                    part.batch,
                    taken_up=taken_up,
                )
            position = part.next_offset


def _asked(piece: FetchedPiece) -> tuple[Address, ...]:
    return (parse_address(piece.leader),) if piece.leader else ()


def _kept(
    dialect: Dialect,
    records: memoryview,
    position: int,
    piece: FetchedPiece,
    damage: Damage,
) -> QuarantinedBytes:
    """The bytes that cannot be decoded, and what is needed to decode them alone."""
    first, until = damage.base_offset, damage.next_offset
    if until is None:
        raise Bug(f"a batch at offset {first} is to be quarantined, and its end is unknown")
    stored = dialect.cut_out(records, position, first, until, piece.context)
    open_there = dialect.aborted_within(records, max(first, 0), until, piece.aborted)
    return QuarantinedBytes(bytes(stored), open_there, damage.reason)


def _misplaced(first: int, after: int) -> BadRecord:
    """The bytes that were quarantined for these offsets claim to be of others."""
    return BadRecord(
        f"the bytes quarantined for offsets {first} to {after - 1} contain none of them",
        why="the offset stored with them is wrong, and no checksum covers it",
        do="land the offsets from the log, if another replica has them intact",
        base_offset=first,
        next_offset=after,
    )
