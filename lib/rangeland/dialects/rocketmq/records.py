"""Turns pulled bytes into rows, and gives every offset on the way a class.

The decoder makes rows of all messages of the range, or of those with the requested tags; compressed
values are decompressed here. Batches that are stored as one message are split first
(``inner_batches``). An offset without a message counts as compacted, since brokers compact topics
that are configured so. With tags it counts as filtered, because a broker does not say whether there
is a message at an offset that it leaves out.

Transactions need no handling: a broker keeps uncommitted messages in another topic, and a message
gets its offset in the queue only when it is committed.

Pure: no I/O, no state between calls.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa

from rangeland.decode import columns, rocketmq_decoder
from rangeland.decode.rocketmq.layout import (
    DecodedMessages,
    StoredFault,
    UndecodableMessage,
)
from rangeland.dialects.fetch_values import DecodedChunk, FetchedRecords, miscount_error
from rangeland.dialects.rocketmq.compression import MessageBodies
from rangeland.dialects.rocketmq.inner_batches import unfold
from rangeland.dialects.rocketmq.log_entries import (
    decoded_message_error,
    message_error,
    misplaced_error,
)
from rangeland.dialects.rocketmq.offset_checks import placed_messages
from rangeland.dialects.rocketmq.pull_result import PullResult, pull_result_of
from rangeland.model import Counts
from rangeland.wire.bounded_decompression import NotDecompressible

MAX_CHUNK_BYTES: Final = 64 << 20
"""A chunk ends after the message that takes its decompressed values past this size."""


def decode_chunks(
    fetched: FetchedRecords, from_offset: int, until_offset: int, *, reports_gaps: bool = False
) -> Iterator[DecodedChunk]:
    """All of one response; if messages are compressed, in chunks of bounded memory. Each chunk
    continues where the previous one ends; the last ends at ``until_offset`` or after the last
    complete message. No gaps are reported: brokers say what is compacted.

    Raises BadRecord, which says what is damaged and, if known, where reading can resume.
    """
    if from_offset >= until_offset or not (len(fetched) or fetched.context.spans):
        return
    result = pull_result_of(fetched)
    if result.until_offset is None:
        yield from _decode(result, from_offset, until_offset)
        return
    for placed in placed_messages(result):
        end = min(placed.until_offset, until_offset)
        if from_offset < end:
            messages = result.messages[placed.start : placed.end]
            start = result.start + placed.start
            part = result._replace(messages=messages, start=start, ends_at=end)
            for chunk in _decode(part, from_offset, end):
                yield chunk
                from_offset = chunk.next_offset
        message = placed.misplaced
        if message is None or message.offset >= until_offset:
            return
        if message.until_offset is None or message.until_offset > from_offset:
            raise misplaced_error(result, message, from_offset)


def _decode(result: PullResult, from_offset: int, until_offset: int) -> Iterator[DecodedChunk]:
    """The chunks of a result. Batches in it are split first."""
    try:
        decoded = rocketmq_decoder().decode_stored(
            result.messages, from_offset, until_offset, result.tags
        )
    except UndecodableMessage as error:
        if error.fault is not StoredFault.INNER:
            raise decoded_message_error(result, error, from_offset) from None
        yield from _chunks_of_batches(result, from_offset, until_offset)
        return
    end = min(result.end_after(decoded.walked.last_offset), until_offset)
    yield from _chunks(decoded, from_offset, end, result)


def _chunks_of_batches(
    result: PullResult, from_offset: int, until_offset: int
) -> Iterator[DecodedChunk]:
    """The chunks of a result with batches, for one part of its messages at a time."""
    for part in unfold(result, from_offset, until_offset):
        try:
            decoded = rocketmq_decoder().decode_stored(
                part.messages, from_offset, until_offset, result.tags
            )
        except UndecodableMessage as error:
            byte_index = part.place_of(error.byte_index)
            raise decoded_message_error(result, error, from_offset, byte_index) from None
        end = min(part.until_offset, until_offset)
        yield from _chunks(decoded, from_offset, end, result)
        from_offset = max(from_offset, end)


def _chunks(
    decoded: DecodedMessages, from_offset: int, until_offset: int, result: PullResult
) -> Iterator[DecodedChunk]:
    """The chunks of decoded messages, the last of which ends at ``until_offset``."""
    if until_offset <= from_offset:
        return
    if decoded.codecs is None:
        yield _chunk(decoded.batch, from_offset, until_offset, result)
    else:
        yield from _unpacked_chunks(
            decoded.batch, decoded.codecs, from_offset, until_offset, result
        )


def _chunk(
    batch: pa.RecordBatch, from_offset: int, next_offset: int, result: PullResult
) -> DecodedChunk:
    """The chunk of these rows. An offset without a row is filtered or compacted. Raises ProofFailed
    if there are more rows than offsets."""
    rows = batch.num_rows
    remaining = next_offset - from_offset - rows
    counts = Counts(landed=rows, **{"filtered" if result.tags else "compacted": remaining})
    if remaining < 0:
        raise miscount_error(from_offset, next_offset, rows, f"{rows} rows")
    return DecodedChunk(next_offset, batch if rows else None, counts)


def _unpacked_chunks(
    batch: pa.RecordBatch,
    codecs: Any,
    from_offset: int,
    until_offset: int,
    result: PullResult,
) -> Iterator[DecodedChunk]:
    """The chunks of messages, some of which are compressed; each takes a bounded amount of
    memory."""
    offsets = batch.column(columns.OFFSET.name).to_numpy()
    values = batch.column(columns.VALUE.name)
    _, ends_buffer, data_buffer = values.buffers()
    ends = np.frombuffer(ends_buffer, np.int32, len(values) + 1, 4 * values.offset).tolist()
    data = memoryview(data_buffer).cast("B")
    first = 0
    bodies = MessageBodies(result.max_batch_bytes)
    for row, codec in enumerate(codecs.tolist()):
        try:
            bodies.add(codec, data[ends[row] : ends[row + 1]])
        except NotDecompressible as error:
            offset = int(offsets[row])
            raise message_error(offset, str(error), next_offset=offset + 1, codec=codec) from None
        if bodies.size >= MAX_CHUNK_BYTES and row + 1 < len(codecs):
            next_offset = int(offsets[row]) + 1
            yield _chunk(_with_values(batch, first, bodies), from_offset, next_offset, result)
            first = row + 1
            bodies = MessageBodies(result.max_batch_bytes)
            from_offset = next_offset
    yield _chunk(_with_values(batch, first, bodies), from_offset, until_offset, result)


def _with_values(batch: pa.RecordBatch, first: int, values: MessageBodies) -> pa.RecordBatch:
    column = values.column()
    part = batch.slice(first, len(column))
    index = part.schema.get_field_index(columns.VALUE.name)
    return part.set_column(index, columns.VALUE, column)
