"""Messages of some tags only, and up to where everything else was left out.

A broker leaves out by the hashes of tags and may give nothing at all of hundreds of offsets,
so messages alone do not say how far it has looked. What is pulled by tags therefore has a
head of ours before the messages: the tags, and the offset up to which there is nothing else.
Whoever walks or decodes the messages takes it off, and keeps only what has one of the tags
to the letter.

Layout, behind a length that no message has: ``TAGS | int64 until_offset | int32 length | tags``,
which stand apart by the byte that ends a property.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

NO_LENGTH: Final = b"\xff\xff\xff\xff"
MARK: Final = NO_LENGTH + b"TAGS"
_FIXED: Final = struct.Struct(">8sqi")
_LENGTH_AND_OFFSET: Final = struct.Struct(">i16xq")
_BETWEEN: Final = b"\x02"
"""Properties of messages are set apart by it, so no tag has it."""


class Given(NamedTuple):
    """What a fetch has brought. ``until_offset``: there is nothing else of the ``tags`` before
    it; None where all messages were asked for. They begin at byte ``start`` of the records."""

    messages: memoryview
    tags: tuple[bytes, ...] = ()
    until_offset: int | None = None
    start: int = 0

    @property
    def by_tags(self) -> bool:
        return self.until_offset is not None

    def told_until(self, end: int, last_offset: int, until_offset: int) -> int:
        """Up to where the records say what became of offsets, for a walk that went up to
        ``until_offset`` and ended at byte ``end``, behind ``last_offset``."""
        rest = self.messages[end:]
        if not rest and self.until_offset is not None:
            return self.until_offset
        # What lies behind the range ends the walk before it: then the range is told of to its end.
        is_whole = len(rest) >= 4 and int.from_bytes(rest[:4], "big") <= len(rest)
        return until_offset if is_whole else last_offset + 1


def with_head(tags: Sequence[bytes], until_offset: int, bodies: Iterable[Any]) -> memoryview:
    """The records of a fetch by tags, of the bodies of its pulls."""
    names = _BETWEEN.join(tags)
    return memoryview(b"".join((_FIXED.pack(MARK, until_offset, len(names)), names, *bodies)))


def take_head(records: memoryview) -> Given:
    """The records of a fetch apart, whether it was by tags or not."""
    if len(records) < _FIXED.size or records[: len(MARK)] != MARK:
        return Given(records)
    _, until_offset, length = _FIXED.unpack_from(records)
    start = _FIXED.size + length
    if not _FIXED.size <= start <= len(records):
        return Given(records)
    tags = tuple(bytes(records[_FIXED.size : start]).split(_BETWEEN))
    return Given(records[start:], tags, until_offset, start)


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
