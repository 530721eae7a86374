"""Reads slices: slices in, decoded chunks out. Drives the loop with real connections.

``FetchThread`` fetches ahead; decoding happens in the caller's thread. An error in either ends
both, and is raised to the caller. ``piece_decoder`` decides what damage or a gap means, and
``typed_chunks`` turns records into typed rows. This module does the I/O that they require: it asks
how a topic is cleaned, reads from the leader again, or looks up the schemas that records name.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import replace
from typing import assert_never

from rangeland.decode.columns import with_partition
from rangeland.decode.payload.row_format import RowFormat
from rangeland.dialects.dialect import Dialect, load_dialect
from rangeland.errors import Bug
from rangeland.fetch.fetch_size import FetchLimits
from rangeland.fetch.fetch_thread import FetchThread
from rangeland.fetch.fetched_pieces import FetchedPiece, Piece
from rangeland.fetch.leader_lookup import ask_cleanup_policy
from rangeland.fetch.log_lines import log_loss
from rangeland.fetch.piece_decoder import AskCleanup, PieceDecoder, ReadAtLeader
from rangeland.fetch.quarantine_reading import quarantined_pieces, quarantined_rows
from rangeland.fetch.read_settings import ReadSettings
from rangeland.fetch.replica_choice import Sender
from rangeland.fetch.slice_chunks import LostChunk, ReadChunk, SliceChunk
from rangeland.fetch.slice_state import Fail
from rangeland.fetch.typed_chunks import TypedChunks
from rangeland.model import Slice
from rangeland.schema_registry.executor_schemas import ExecutorSchemas
from rangeland.untrusted import parse_address


def read_slices(
    slices: Sequence[Slice], settings: ReadSettings, limits: FetchLimits | None = None
) -> Generator[SliceChunk, None, None]:
    """Chunks of all slices, interleaved; each slice's chunks are in order and without a gap. A
    chunk whose loss is held is the last of its slice.

    Rows have the columns of ``decode.columns`` with topic and partition added, typed if the
    settings have a row format. Never ends early: raises RangeLost or BadRecord for a loss,
    Unreachable if no broker serves a slice now, AccessDenied, MissingRequirement or JobFileError if
    brokers refuse, and RemoteProtocolError for an invalid response."""
    if settings.quarantined_bytes:
        reader = SliceReader(slices, settings, load_dialect(settings.dialect))
        for chunk in quarantined_rows(slices, settings):
            yield from reader.type_rows(chunk)
        yield from reader.read(quarantined_pieces(slices, settings))
        return
    limits = limits or FetchLimits(no_progress_ms=settings.cluster.no_progress_ms)
    fetcher = FetchThread(slices, settings, limits)
    fetcher.start()
    try:
        reader = SliceReader(slices, settings, fetcher.brokers.dialect)
        yield from reader.read(fetcher.pieces())
    finally:
        fetcher.stop()


class SliceReader:
    """Turns the pieces of one task's slices into chunks, and answers the decoders' questions."""

    def __init__(self, slices: Sequence[Slice], settings: ReadSettings, dialect: Dialect) -> None:
        self._partitions = {s.index: s.partition for s in slices}
        self._settings = settings
        self._decoder = PieceDecoder(slices, settings, dialect)
        row_format = settings.row_format or RowFormat()
        self._types_rows = settings.row_format is not None or bool(settings.omitted)
        self._typing = TypedChunks(row_format, settings.policy, slices, settings.omitted)
        self._schemas = ExecutorSchemas(row_format.catalogue, settings.registry, settings.written)

    def read(self, pieces: Iterator[Piece]) -> Iterator[SliceChunk]:
        held_slices: set[int] = set()
        for piece in pieces:
            if piece.index in held_slices:  # fetched before the loss was known
                continue
            for chunk in self._chunks_of(piece):
                yield chunk
                if chunk.is_held:
                    held_slices.add(chunk.slice_index)
                    break

    def _chunks_of(self, piece: Piece) -> Iterator[SliceChunk]:
        size = len(piece.records) if isinstance(piece, FetchedPiece) else 0
        for chunk in self._decode(piece):
            chunk = replace(chunk, bytes_read=size)
            size = 0
            if isinstance(chunk, LostChunk) or chunk.rows is None:
                yield chunk
                continue
            chunk = replace(chunk, rows=with_partition(chunk.rows, self._partitions[piece.index]))
            yield from self.type_rows(chunk)

    def type_rows(self, chunk: ReadChunk) -> Iterator[SliceChunk]:
        """The chunk with typed rows; unchanged if keys and values stay bytes and no record is left
        out."""
        if not self._types_rows:
            yield chunk
            return
        results = self._typing.type_rows(chunk)
        typed: Iterator[SliceChunk] = self._schemas.answer(results, self._typing.add_schema)
        for one in typed:
            for lost in one.lost_offsets:
                log_loss(lost.loss)
            yield one

    def _decode(self, piece: Piece) -> Iterator[SliceChunk]:
        for result in self._decoder.decode(piece):
            match result:
                case ReadChunk():
                    yield result
                case LostChunk(loss=loss, is_unlogged=is_unlogged):
                    if is_unlogged:
                        log_loss(loss)
                    yield result
                case AskCleanup(topic, address):
                    seeds = (parse_address(address),) if address else ()
                    answer = ask_cleanup_policy(self._settings.cluster, topic, seeds)
                    self._decoder.on_cleanup(topic, answer)
                case ReadAtLeader():
                    yield from self._read_at_leader(result)
                case Fail(error):
                    raise error
                case _:
                    assert_never(result)

    def _read_at_leader(self, ask: ReadAtLeader) -> Iterator[SliceChunk]:
        """The chunks of the rest of a piece, read only from the leader that metadata names."""
        limits = FetchLimits(no_progress_ms=self._settings.cluster.no_progress_ms)
        floors = {} if ask.floor is None else {ask.rest.index: ask.floor}
        fetcher = FetchThread([ask.rest], self._settings, limits, leader_only=True, floors=floors)
        fetcher.start()
        try:
            for piece in fetcher.pieces():
                if isinstance(piece, FetchedPiece) and piece.sender is not Sender.LEADER_AGAIN:
                    raise Bug(f"{ask.rest}: the broker read as its leader is {piece.sender.value}")
                yield from self._decode(piece)
        finally:
            fetcher.stop()
