"""SimpleConsumer: slices in, decoded chunks out. Drives the loop with real connections.

A thread fetches ahead: it peeks where an answer ends, sends the next request at once, and
only then hands the answer over, so the broker works while this side decodes. What is
fetched and not yet decoded is bounded in bytes. Decoding happens in the caller's thread.
Whatever goes wrong in either ends both, and the caller gets the error.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from rangeland.errors import BadRecord, Bug
from rangeland.fetch.fetcher import Fetcher, Piece, located
from rangeland.fetch.pool import Brokers
from rangeland.fetch.settings import ClusterSettings
from rangeland.fetch.steps import (
    Patience,
)
from rangeland.fetch.tally import Chunk
from rangeland.model import (
    Counts,
    Slice,
)
from rangeland.planning.policy import Action, Loss
from rangeland.planning.policy import Verdict as LossVerdict


def read_slices(
    slices: Sequence[Slice], settings: ClusterSettings, patience: Patience | None = None
) -> Iterator[Chunk]:
    """Chunks of all slices, each slice's in order and without a gap, slices interleaved.

    Batches have the columns of ``decode.columns`` with topic and partition added. Raises
    RangeLost, BadRecord, Unreachable, RemoteProtocolError; never ends short."""
    from rangeland.decode.columns import with_partition

    patience = patience or Patience(no_progress_ms=settings.no_progress_ms)
    by_index = {s.index: s for s in slices}
    fetcher = Fetcher(slices, settings, patience)
    fetcher.start()
    try:
        for piece in fetcher.pieces():
            piece_slice = by_index[piece.index]
            if piece.loss is not None or not len(piece.records):
                in_bytes = fetcher.brokers.dialect.NATURE.offsets_are_bytes
                yield _without_rows(piece, in_bytes=in_bytes)
                continue
            size = len(piece.records)
            for chunk in _decode(piece, piece_slice, fetcher.brokers, settings):
                batch = chunk.batch
                if batch is not None:
                    batch = with_partition(batch, piece_slice.partition)
                yield replace(chunk, batch=batch, leader=piece.leader, bytes_read=size)
                size = 0
    finally:
        fetcher.stop()


def _without_rows(piece: Piece, *, in_bytes: bool) -> Chunk:
    width = piece.until_offset - piece.from_offset
    counts = Counts(lost=width) if piece.loss is not None else Counts(compacted=width)
    return Chunk(
        piece.index,
        piece.from_offset,
        piece.until_offset,
        counts,
        leader=piece.leader,
        loss=piece.loss,
        taken_up=width if in_bytes else None,
    )


def _decode(
    piece: Piece, piece_slice: Slice, brokers: Brokers, settings: ClusterSettings
) -> Iterator[Chunk]:
    """The piece to its end. A batch that cannot be decoded ends the run, unless the policy
    skips it: then what stands before it is decoded, and its own offsets are counted lost."""
    position, until_offset = piece.from_offset, piece.until_offset
    end_of_good = until_offset
    in_bytes = brokers.dialect.NATURE.offsets_are_bytes
    while position < until_offset:
        # Where offsets are bytes, the first byte of the records is at the position.
        records = piece.records[position - piece.from_offset :] if in_bytes else piece.records
        try:
            for part in brokers.dialect.decode_chunks(
                records, position, end_of_good, settings.isolation, piece.aborted
            ):
                taken_up = part.next_offset - position if in_bytes else None
                yield Chunk(
                    piece.index,
                    position,
                    part.next_offset,
                    part.counts,
                    part.batch,
                    taken_up=taken_up,
                )
                position = part.next_offset
            if end_of_good == until_offset:
                return
        except BadRecord as error:
            bad = _skipped(located(error, piece_slice.partition, piece.leader), settings, position)
            first = max(position, bad.facts["base_offset"])
            last = min(until_offset, bad.facts["next_offset"])
            if first > position and first < end_of_good:
                end_of_good = first
                continue
        if position < first:
            raise Bug(f"{piece_slice}: what stands before offset {first} was not decoded")
        loss = Loss(piece_slice.partition, first, last, LossVerdict.CORRUPT, bad.what)
        counts = Counts(lost=last - first)
        taken_up = last - first if in_bytes else None
        yield Chunk(piece.index, first, last, counts, loss=loss, taken_up=taken_up)
        position, end_of_good = last, until_offset


def _skipped(error: BadRecord, settings: ClusterSettings, position: int) -> BadRecord:
    """The error itself, if the policy goes on behind the batch and its end is known."""
    after = error.facts.get("next_offset")
    skips = settings.policy.of(LossVerdict.CORRUPT) is Action.SKIP
    if not skips or "base_offset" not in error.facts or after is None or after <= position:
        raise error
    return error
