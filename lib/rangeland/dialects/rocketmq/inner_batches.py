"""Splits batches that brokers store as one message into their messages.

The decoder knows only single messages. So each message of a batch is rewritten as if a broker had
stored it separately: with the times, hosts and log position of the batch, its own flag, body and
properties, and its own offset, counted from that of the batch. Upstream's clients do the same with
their objects. The body of the batch is compressed as a whole, and the checksum covers the body as
it is stored.

Only topics that store batches need this. Messages between batches are left unchanged. The result
comes in parts of bounded size, however large a decompressed batch is.
"""

from __future__ import annotations

import struct
import zlib
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final

from rangeland.decode.rocketmq.layout import (
    CODEC_BITS,
    INNER_BATCH,
    NEED_UNWRAP,
    NOT_PACKED,
    PACKED,
    StoredFault,
)
from rangeland.dialects.rocketmq.compression import MessageBodies
from rangeland.dialects.rocketmq.log_entries import message_error, walk_error
from rangeland.dialects.rocketmq.pull_result import PullResult
from rangeland.dialects.rocketmq.queue_entries import (
    EntryTotals,
    MessageFields,
    QueueEntry,
    fields_of,
)
from rangeland.errors import BadRecord
from rangeland.wire.bounded_decompression import NotDecompressible

PART_BYTES: Final = 64 << 20
"""A part ends after the entry that takes its messages past this size."""

_INNER: Final = struct.Struct(">iiiii")
"""Total length, two numbers that are always 0, flag, length of the body."""
_LENGTH: Final = struct.Struct(">i")
_SHORT: Final = struct.Struct(">h")
_SMALLEST: Final = _INNER.size + _SHORT.size
_CRC_AT, _FLAG_AT, _OFFSET_AT, _FLAGS_AT, _BORN_AT = 8, 16, 20, 36, 40


@dataclass(slots=True)
class InnerMessages:
    """Single ``messages``, which account for all offsets before ``until_offset``. ``places``: where
    each entry begins in them, and where it begins in the fetched bytes."""

    messages: bytearray = field(default_factory=bytearray)
    until_offset: int = 0
    places: list[tuple[int, int]] = field(default_factory=list)

    def place_of(self, byte_index: int) -> int:
        """The byte index, in the fetched bytes, at which a message that was not rewritten
        begins."""
        start, fetched_start = self.places[bisect_right(self.places, (byte_index, 1 << 62)) - 1]
        return fetched_start + byte_index - start


def unfold(result: PullResult, from_offset: int, until_offset: int) -> Iterator[InnerMessages]:
    """All messages of the range; those outside a batch may extend beyond it. Raises BadRecord for a
    damaged batch, and if the walk ends at damaged bytes."""
    walk = EntryTotals(result.messages)
    part = InnerMessages()
    for entry in walk.entries(until_offset):
        if entry.until_offset <= from_offset:
            continue
        part.places.append((len(part.messages), entry.start))
        if entry.is_batch:
            _put_batch(part.messages, result, entry, from_offset, until_offset)
        else:
            part.messages += result.messages[entry.start : entry.end]
        part.until_offset = entry.until_offset
        if len(part.messages) >= PART_BYTES:
            yield part
            part = InnerMessages()
    if walk.fault is not None:
        raise walk_error(result, walk.as_walk(), from_offset)
    part.until_offset = result.end_after(walk.last_offset)
    yield part


def _put_batch(
    to: bytearray, result: PullResult, entry: QueueEntry, from_offset: int, until_offset: int
) -> None:
    """Appends those of the batch's messages whose offsets are in the range, each as a stored
    message."""
    raw = result.messages[entry.start : entry.end]
    fields = fields_of(raw)
    assert fields is not None  # otherwise the number of messages would be unknown
    flags = int.from_bytes(raw[_FLAGS_AT:_BORN_AT], "big")
    number = entry.until_offset - entry.offset
    messages = _messages_of(_body(raw, flags, fields, entry, result), entry, result)
    inner = list(islice(messages, number + 1))
    if len(inner) != number:
        # Either number may be right, so it is not known where the batch ends.
        contents = f"{len(inner)} messages" if len(inner) < number else "more messages"
        why = f"it contains {contents}, but claims {number}"
        raise message_error(entry.offset, why, byte_index=result.start + entry.start)
    flags &= ~(INNER_BATCH | NEED_UNWRAP | PACKED | CODEC_BITS)
    magic = raw[4:_CRC_AT]
    queue = raw[_CRC_AT + 4 : _FLAG_AT]
    physical = raw[28:_FLAGS_AT]
    hosts = raw[_BORN_AT : fields.body - 4]
    topic = raw[fields.body_end : fields.properties - 2]
    fixed_bytes = fields.body + len(topic)  # everything except the body and the properties
    first = max(from_offset, entry.offset)
    selection = inner[first - entry.offset : until_offset - entry.offset]
    for offset, (flag, body, properties) in enumerate(selection, first):
        to += _LENGTH.pack(fixed_bytes + len(body) + len(properties))
        to += magic
        to += struct.pack(">I", zlib.crc32(body) & 0x7FFFFFFF)
        to += queue
        to += struct.pack(">iq", flag, offset)
        to += physical
        to += flags.to_bytes(4, "big")
        to += hosts
        to += _LENGTH.pack(len(body))
        to += body
        to += topic
        to += properties


def _body(
    raw: Any, flags: int, fields: MessageFields, entry: QueueEntry, result: PullResult
) -> memoryview:
    """A batch's decompressed body."""
    if not flags & NEED_UNWRAP:
        # Upstream's clients return it to their users as one message.
        raise _batch_error(entry, result, "it contains a batch that readers may not unpack")
    body = memoryview(raw)[fields.body : fields.body_end]
    if zlib.crc32(body) & 0x7FFFFFFF != int.from_bytes(raw[_CRC_AT : _CRC_AT + 4], "big"):
        raise _batch_error(entry, result, StoredFault.WRONG_CHECKSUM.reason)
    codec = flags >> 8 & 7 if flags & PACKED else NOT_PACKED
    if codec == NOT_PACKED:
        return body
    values = MessageBodies(result.max_batch_bytes)
    try:
        values.add(codec, body)
    except NotDecompressible as error:
        raise _batch_error(entry, result, str(error), codec=codec) from None
    return values.value()


def _messages_of(
    body: memoryview, entry: QueueEntry, result: PullResult
) -> Iterator[tuple[int, memoryview, memoryview]]:
    """The messages in a batch: flag, body, and properties preceded by their length. Producers write
    neither magic nor checksum, so neither is checked."""
    start = 0
    while start < len(body):
        length = body_length = size = -1
        if len(body) - start >= _SMALLEST:
            length, _, _, flag, body_length = _INNER.unpack_from(body, start)
        body_start = start + _INNER.size
        if 0 <= body_length <= len(body) - body_start - _SHORT.size:
            (size,) = _SHORT.unpack_from(body, body_start + body_length)
        if size < 0 or length != _SMALLEST + body_length + size or length > len(body) - start:
            raise _batch_error(entry, result, "a message in its batch is longer than the rest")
        yield (
            flag,
            body[body_start : body_start + body_length],
            body[body_start + body_length : start + length],
        )
        start += length


def _batch_error(entry: QueueEntry, result: PullResult, why: str, **facts: Any) -> BadRecord:
    """The error for a batch whose end is certain."""
    byte_index = result.start + entry.start
    return message_error(entry.offset, why, entry.until_offset, byte_index=byte_index, **facts)
