"""What a fetch has brought: messages, and what is known about them without reading them.

A broker finds messages by its own index and says how far its answer reaches. So where offsets
follow each other without a gap, the place of each message is certain, whatever offset is stored
in it; and where messages are left out, what is there must still lie within the answer. None of
this is in the bytes of messages, whose stored offsets are covered by no checksum (``places``).
"""

from __future__ import annotations

import struct
from dataclasses import replace
from typing import Any, Final, NamedTuple

from rangeland.dialects.fetch_values import NO_CONTEXT, AnsweredSpan, FetchContext

_OLD_HEAD: Final = struct.Struct(">8sqi")
_OLD_MARK: Final = b"\xff\xff\xff\xffTAGS"
_BETWEEN: Final = b"\x02"
_LENGTH_AND_OFFSET: Final = struct.Struct(">i16xq")


class PullResult(NamedTuple):
    """``messages`` and what is known of them. They begin at byte ``start`` of what came."""

    messages: memoryview
    context: FetchContext = NO_CONTEXT
    start: int = 0
    ends_at: int | None = None
    """The offset that these messages account for everything before; None: up to the last one."""

    def end_behind(self, last_offset: int) -> int:
        """The offset up to which it is known what became of offsets, where the last message that
        was read is at ``last_offset``."""
        return last_offset + 1 if self.ends_at is None else self.ends_at

    @property
    def tags(self) -> tuple[bytes, ...]:
        return self.context.tags

    @property
    def until_offset(self) -> int | None:
        """The broker has accounted for all offsets before this one; None where it was not asked."""
        spans = self.context.spans
        return spans[-1].until_offset if spans else None


def given_of(records: memoryview, context: FetchContext) -> PullResult:
    """Earlier releases wrote the tags in front of what they put into quarantine, behind a length
    that no message has. That is looked for in bytes from quarantine only."""
    if not context.from_quarantine or bytes(records[: len(_OLD_MARK)]) != _OLD_MARK:
        return PullResult(records, context)
    _, _, length = _OLD_HEAD.unpack_from(records)
    start = _OLD_HEAD.size + length
    tags = tuple(bytes(records[_OLD_HEAD.size : start]).split(_BETWEEN))
    spans = tuple(AnsweredSpan(span.end - start, *span[1:]) for span in context.spans)
    known = replace(context, spans=spans, tags=tags)
    return PullResult(records[start:], known, start)


def messages_from(body: Any, offset: int) -> Any:
    """A pull's body without the messages before ``offset``, which another pull has brought.
    What is damaged is kept as it is: the decoder will tell."""
    place = 0
    while place + _LENGTH_AND_OFFSET.size <= len(body):
        length, found = _LENGTH_AND_OFFSET.unpack_from(body, place)
        if found >= offset or length <= 0:
            break
        place += length
    return body[place:]
