"""The result of a fetch: messages, and the broker's account of them.

A broker finds messages in its own index and reports which offsets its response accounts for. So if
no offset is missing, the offset of each message is certain, whatever offset is stored in it; if
messages are missing, the others must still be within the response. None of this is in the bytes of
the messages, and no checksum covers their stored offsets (``offset_checks``).
"""

from __future__ import annotations

import struct
from dataclasses import replace
from typing import Any, Final, NamedTuple

from rangeland.dialects.fetch_values import (
    NO_CONTEXT,
    FetchContext,
    FetchedRecords,
    ResponseSpan,
)
from rangeland.wire.memory_budget import MAX_BATCH_BYTES

_OLD_HEAD: Final = struct.Struct(">8sqi")
_OLD_MARK: Final = b"\xff\xff\xff\xffTAGS"
_BETWEEN: Final = b"\x02"
_LENGTH_AND_OFFSET: Final = struct.Struct(">i16xq")


class PullResult(NamedTuple):
    """The ``messages`` that a pull returned, which begin at byte ``start`` of the fetched bytes,
    and their context."""

    messages: memoryview
    context: FetchContext = NO_CONTEXT
    start: int = 0
    ends_at: int | None = None
    """The messages account for all offsets before this one; None: only up to the last message."""
    max_batch_bytes: int = MAX_BATCH_BYTES
    """How much memory one message or batch may take."""

    def end_after(self, last_offset: int) -> int:
        """The end of the offsets that are accounted for, if the last message read is at
        ``last_offset``."""
        return last_offset + 1 if self.ends_at is None else self.ends_at

    @property
    def tags(self) -> tuple[bytes, ...]:
        return self.context.tags

    @property
    def until_offset(self) -> int | None:
        """The broker has accounted for all offsets before this one; None if that is unknown."""
        spans = self.context.spans
        return spans[-1].until_offset if spans else None


def pull_result_of(fetched: FetchedRecords) -> PullResult:
    """The messages and their context. Earlier releases stored the tags in front of bytes in
    quarantine, after a length that no message has; only bytes from quarantine are checked for
    this."""
    records = fetched.data
    context = fetched.context
    max_bytes = fetched.max_batch_bytes
    if not context.from_quarantine or bytes(records[: len(_OLD_MARK)]) != _OLD_MARK:
        return PullResult(records, context, max_batch_bytes=max_bytes)
    _, _, length = _OLD_HEAD.unpack_from(records)
    start = _OLD_HEAD.size + length
    tags = tuple(bytes(records[_OLD_HEAD.size : start]).split(_BETWEEN))
    spans = tuple(ResponseSpan(span.end - start, *span[1:]) for span in context.spans)
    own_context = replace(context, spans=spans, tags=tags)
    return PullResult(records[start:], own_context, start, max_batch_bytes=max_bytes)


def messages_from(body: Any, offset: int) -> Any:
    """A pull's body without the messages before ``offset``, which another pull has returned.
    Damaged bytes are kept as they are: the decoder reports them."""
    byte_index = 0
    while byte_index + _LENGTH_AND_OFFSET.size <= len(body):
        length, stored_offset = _LENGTH_AND_OFFSET.unpack_from(body, byte_index)
        if stored_offset >= offset or length <= 0:
            break
        byte_index += length
    return body[byte_index:]
