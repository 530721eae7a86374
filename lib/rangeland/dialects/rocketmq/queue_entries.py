"""The entries of a queue as a pull returns them: messages, and batches stored as one message.

In topics that are configured for it (`queue.type=BatchCQ`), brokers store batches as one message.
Such an entry stores its first offset where a message stores its own, and a property says how many
messages it contains, each of which takes one offset. A pull from inside a batch returns the whole
batch.

Nothing is decompressed here. The kernel walks over messages only and stops at the first batch; this
walk covers everything from there on. It must agree with the kernel: the same faults at the same
bytes, and no fault for incomplete bytes at the end.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from rangeland.decode.rocketmq.layout import (
    BORN_V6,
    INNER_BATCH,
    MAGIC_1,
    MAGIC_2,
    SMALLEST,
    STORE_V6,
    MessageWalk,
    StoredFault,
)

NUMBER: Final = b"INNER_NUM"
MAX_BATCH_MESSAGES: Final = (1 << 15) - 1
"""Brokers store the number as a short, so no batch in a queue is larger."""
MAX_DIGITS: Final = len(str(MAX_BATCH_MESSAGES))
MAX_OFFSET: Final = (1 << 63) - 1
"""No entry has this offset, because the offset after it could not be represented."""

_HEAD: Final = struct.Struct(">iI12xq8xI")
_LENGTH: Final = struct.Struct(">i")
_SHORT: Final = struct.Struct(">h")
_TO_BORN_HOST: Final = 48
_TO_BODY: Final = SMALLEST - 4 - 1 - 2
"""The number of bytes from an entry's start to the length of its body, with hosts of four bytes."""


class QueueEntry(NamedTuple):
    """Offsets ``[offset, until_offset)`` at bytes ``[start, end)``."""

    start: int
    end: int
    offset: int
    until_offset: int
    is_batch: bool


class MessageFields(NamedTuple):
    """The byte indexes of an entry's last fields: its body at ``[body, body_end)``, preceded by its
    length, then the topic preceded by its length, then the properties from ``properties`` to the
    end."""

    body: int
    body_end: int
    properties: int


def first_offset(body: Any) -> int | None:
    """The offset of the first entry in a pull's body; None if there is none."""
    if len(body) < _HEAD.size:
        return None
    return int(_HEAD.unpack_from(body)[2])


def is_batch(body: Any) -> bool:
    """Whether the first entry of a pull's body is a batch."""
    return len(body) >= _HEAD.size and bool(_HEAD.unpack_from(body)[3] & INNER_BATCH)


def begins_at(body: Any, offset: int) -> int | None:
    """The offset at which a pull from ``offset`` begins for its reader: ``offset`` itself if the
    first entry is a batch that contains it; otherwise the first entry's offset. A batch whose end
    is unknown may contain it: opening the batch will show. None if nothing was returned."""
    first_at = first_offset(body)
    if first_at is None or first_at >= offset or not is_batch(body):
        return first_at
    entry = next(iter(EntryTotals(body).entries()), None)
    return offset if entry is None or entry.until_offset > offset else first_at


def stored_ms(body: Any) -> int | None:
    """The time at which the broker stored the first entry of a pull's body; None if there is
    none."""
    if len(body) < SMALLEST:
        return None
    at = _TO_BORN_HOST + (20 if _HEAD.unpack_from(body)[3] & BORN_V6 else 8)
    return int.from_bytes(body[at : at + 8], "big", signed=True)


class EntryTotals:
    """Walks from entry to entry, up to the first incomplete one. Afterwards, ``end`` is where the
    walk ended, ``last_offset`` the offset of the last message before that, and ``fault`` the
    reason, if it ended at damaged bytes. A batch with an unknown number of messages is such a
    fault."""

    def __init__(self, messages: Any) -> None:
        self._data = messages
        self.end = self.count = 0
        self.last_offset = -1
        self.fault: StoredFault | None = None

    def entries(self, until_offset: int | None = None) -> Iterator[QueueEntry]:
        """The entries that begin before ``until_offset``."""
        while (entry := self._entry()) is not None:
            if until_offset is not None and entry.offset >= until_offset:
                return
            if entry.until_offset <= entry.offset:
                self.fault = StoredFault.INNER
                return
            yield entry
            self.end = entry.end
            self.count += 1
            self.last_offset = entry.until_offset - 1

    def _entry(self) -> QueueEntry | None:
        """The next entry; None if there is none: then ``fault`` says whether it is damaged."""
        entry = entry_at(self._data, self.end)
        if entry is StoredFault.CUT_SHORT:
            return None
        if isinstance(entry, StoredFault):
            self.fault = entry
            return None
        if entry.offset <= self.last_offset:
            self.fault = StoredFault.ORDER
            return None
        return entry if entry.offset < MAX_OFFSET else None

    def as_walk(self) -> MessageWalk:
        return MessageWalk(self.count, self.end, self.last_offset, self.fault)


def entry_at(data: Any, start: int) -> QueueEntry | StoredFault:
    """The entry that begins at this byte, or the reason why there is none. If a batch does not
    declare how many messages it has, ``until_offset`` equals ``offset``."""
    if len(data) - start < _LENGTH.size:
        return StoredFault.CUT_SHORT
    (length,) = _LENGTH.unpack_from(data, start)
    if length < SMALLEST:
        return StoredFault.TOO_SHORT
    if length > len(data) - start:
        return StoredFault.CUT_SHORT
    _, magic, offset, flags = _HEAD.unpack_from(data, start)
    if magic not in (MAGIC_1, MAGIC_2):
        return StoredFault.UNKNOWN_MAGIC
    is_inner_batch = bool(flags & INNER_BATCH)
    number = _number(data[start : start + length]) if is_inner_batch else 1
    return QueueEntry(start, start + length, offset, offset + number, is_inner_batch)


def walk_entries(messages: Any) -> MessageWalk:
    """Walks over all entries without opening any."""
    walk = EntryTotals(messages)
    for _ in walk.entries():
        pass
    return walk.as_walk()


def fields_of(entry: Any) -> MessageFields | None:
    """Finds the last fields of an entry; None if they do not fit in it or do not fill it."""
    _, magic, _, flags = _HEAD.unpack_from(entry)
    start = _TO_BODY + sum(12 for bit in (BORN_V6, STORE_V6) if flags & bit)
    try:
        (length,) = _LENGTH.unpack_from(entry, start)
        body = start + _LENGTH.size
        body_end = body + length
        if length < 0:
            return None
        if magic == MAGIC_1:
            width = 1
            topic = entry[body_end]
        else:
            width, (topic,) = 2, _SHORT.unpack_from(entry, body_end)
        end = body_end + width + topic
        (size,) = _SHORT.unpack_from(entry, end)
    except (struct.error, IndexError):
        return None
    end += _SHORT.size
    fits = topic >= 0 and size >= 0 and end + size == len(entry)
    return MessageFields(body, body_end, end) if fits else None


def _number(entry: Any) -> int:
    """The number of messages that a batch declares; 0 if it cannot be read."""
    fields = fields_of(entry)
    if fields is None:
        return 0
    values = [b""]
    for part in bytes(entry[fields.properties :]).split(b"\x02"):
        name, _, value = part.partition(b"\x01")
        if name == NUMBER:
            values.append(value)
    text = values[-1]
    if not text.isdigit() or len(text) > MAX_DIGITS:
        return 0
    number = int(text)
    return number if number <= MAX_BATCH_MESSAGES else 0
