"""Single chunks of a Kafka log, as tests look at them: of any size, and without a context."""

from __future__ import annotations

from collections.abc import Sequence

from rangeland.dialects.fetch_values import DecodedChunk, FetchedRecords
from rangeland.dialects.kafka.aborted_transactions import Aborted
from rangeland.dialects.kafka.records import MAX_CHUNK_BYTES, walk_from


def decode_chunk(
    records: memoryview,
    from_offset: int,
    until_offset: int,
    aborted: Sequence[Aborted] = (),
    *,
    max_bytes: int = MAX_CHUNK_BYTES,
) -> DecodedChunk:
    """The offsets from ``from_offset`` on that the complete batches of ``records`` account for, up
    to ``until_offset`` or until ``max_bytes`` are decompressed. ``next_offset`` of the result is
    ``from_offset`` if no offset is accounted for."""
    fetched = FetchedRecords(records, from_offset, tuple(aborted))
    walk = walk_from(fetched, from_offset, until_offset)
    return walk.fill_chunk(max_bytes).finish(walk.next_offset)
