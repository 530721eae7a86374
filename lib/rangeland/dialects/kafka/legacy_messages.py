"""Log formats 0 and 1, which have no batches: messages, and messages that contain other messages.

Consecutive plain messages count as one entry, so that Python does not have to touch each of them. A
*wrapper* is a message whose value consists of such messages, compressed. It has the offset of its
last message, and a broker returns the whole wrapper for any offset inside it, so its first offset
is known only once it is opened. In format 0 the messages inside have their own offsets; in format 1
their offsets count from the wrapper's first offset, which is the wrapper's offset minus that of its
last message. If a wrapper is damaged, all offsets that may be in it are lost with it.

Pure functions of bytes. The messages themselves are decoded by the decoder.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any, Final, NamedTuple

from rangeland.decode import kafka_decoder
from rangeland.decode.kafka.entry_layouts import (
    BATCH_PREFIX,
    MESSAGE_V0,
    MESSAGE_V1,
    MessageV0,
    MessageV1,
)
from rangeland.decode.kafka.layout import MessageWalk, Payload, RecordFormat, UndecodableRecord
from rangeland.dialects.kafka.compression import (
    CODEC_MASK,
    CODECS,
    codec_name,
    decompress,
    mend_lz4,
)
from rangeland.errors import BadRecord, Damage
from rangeland.wire.bounded_decompression import Codec, NotDecompressible
from rangeland.wire.fixed_layouts import StructLayout
from rangeland.wire.memory_budget import MAX_BATCH_BYTES, beyond

MAX_JOINED_BYTES: Final = 8 << 20
"""Consecutive messages form one entry, up to and including the message that takes it past this
size."""

_MAGIC = MESSAGE_V0.byte_index_of("magic")
_ATTRIBUTES = MESSAGE_V0.byte_index_of("attributes")
_LAYOUTS: Final[dict[int, StructLayout[Any]]] = {0: MESSAGE_V0, 1: MESSAGE_V1}
_LOG_APPEND = 0x08
_VALUE_LENGTH_BYTES = 4
_ENTIRE = 1 << 62


def batch_error(
    base_offset: int, why: str, next_offset: int | None = None, **facts: Any
) -> BadRecord:
    """The error for a batch. ``next_offset`` is where reading can continue after it; None if its
    end is uncertain."""
    return BadRecord(
        f"the batch at offset {base_offset} cannot be decoded",
        why=why,
        do="restore the log from a good replica, or go on without the batch with "
        "`policy: {corrupt: skip}`, which records what is lost",
        damage=Damage(base_offset, next_offset),
        **facts,
    )


def is_plain(records: memoryview, byte_index: int) -> bool:
    """Whether the entry at ``byte_index`` is a message of format 0 or 1 that contains no other
    messages."""
    if byte_index + _ATTRIBUTES >= len(records) or records[byte_index + _MAGIC] not in _LAYOUTS:
        return False
    return not records[byte_index + _ATTRIBUTES] & CODEC_MASK


def read_messages(stored: memoryview, floor: int) -> StoredMessages | Wrapper:
    """The entry that fills ``stored``. ``floor`` is the offset after the previous entry. Raises
    BadRecord."""
    layout = _LAYOUTS[stored[_MAGIC]]
    if len(stored) < layout.size + _VALUE_LENGTH_BYTES:
        offset, length = BATCH_PREFIX.read(stored)
        raise batch_error(offset, f"its length is {length}", length=length)
    if not is_plain(stored, 0):
        return Wrapper(layout.read(stored), stored, floor)
    walk = kafka_decoder().walk_messages(stored, _ENTIRE)
    if walk.messages == 0 or walk.end != len(stored):
        offset = layout.read(stored).offset
        raise batch_error(offset, "its offsets are impossible")
    return StoredMessages(stored, walk.first_offset, walk.last_offset, walk.messages)


class StoredMessages(NamedTuple):
    """Consecutive plain messages; a ``LogEntry``. Each has its own checksum, which the decoder
    verifies."""

    stored: memoryview
    base_offset: int
    last_offset: int
    record_count: int
    producer_id: int = -1
    transactional: bool = False
    control: bool = False
    next_offset: int | None = None
    """The beginning of the next entry, if that is known and does not directly follow the last
    message."""

    def check(self) -> None:
        kafka_decoder().decode_records([self.payload()], self.base_offset, self.last_offset + 1)

    def messages(self) -> Iterator[StoredMessages]:
        """Yields each message as an entry of its own."""
        byte_index = 0
        while byte_index < len(self.stored):
            message = kafka_decoder().walk_messages(self.stored[byte_index:], 1)
            end = byte_index + message.end
            yield StoredMessages(
                self.stored[byte_index:end], message.first_offset, message.last_offset, 1
            )
            byte_index = end

    def payload(self, max_bytes: int = MAX_BATCH_BYTES) -> Payload:
        width = self.last_offset - self.base_offset
        return Payload(
            self.stored, self.base_offset, 0, None, self.record_count, width, RecordFormat.PLAIN
        )


def split_messages(entry: StoredMessages, until_offset: int) -> list[StoredMessages]:
    """The messages before ``until_offset``, and the first one from there on as an entry of its own:
    if offsets are missing before it, nothing else accounts for them, so it must be verified.
    Messages without gaps stay together."""
    if entry.last_offset < until_offset:
        return [entry]
    if entry.base_offset < until_offset and entry.record_count == _width(entry):
        return [entry]
    byte_index = count = 0
    last = entry.base_offset
    while True:
        offset, length = BATCH_PREFIX.unpack_from(entry.stored, byte_index)
        end = byte_index + BATCH_PREFIX.size + length
        if offset >= until_offset:
            break
        byte_index = end
        count += 1
        last = offset
    before = (
        [StoredMessages(entry.stored[:byte_index], entry.base_offset, last, count)] if count else []
    )
    return [*before, StoredMessages(entry.stored[byte_index:end], offset, offset, 1)]


def _width(entry: StoredMessages) -> int:
    return entry.last_offset + 1 - entry.base_offset


class Wrapper:
    """A message that contains other messages; a ``LogEntry``. ``floor`` is the first offset that
    may be in it; if the wrapper cannot be opened, nothing else is known about its beginning.

    ``next_from`` finds where the first entry after the wrapper begins, at or after a given offset;
    None if that is unknown. Only that entry proves where a damaged wrapper ends, because no
    checksum covers the wrapper's own offset.
    """

    producer_id = -1
    transactional = False
    control = False

    def __init__(self, header: MessageV0 | MessageV1, stored: memoryview, floor: int) -> None:
        if header.offset < 0:
            raise batch_error(header.offset, "its offsets are impossible")
        self.last_offset = header.offset
        self._header = header
        self._stored = stored
        self._floor = floor
        self.max_bytes = MAX_BATCH_BYTES
        self.next_from: Callable[[int], int | None] = lambda _: None

    @property
    def base_offset(self) -> int:
        return self._walk.first_offset + self._shift

    @property
    def record_count(self) -> int:
        return self._walk.messages

    def check(self) -> None:
        crc = zlib.crc32(self._stored[_MAGIC:])
        if crc != self._header.crc:
            raise self._wrapper_error(
                f"its checksum is wrong (codec {codec_name(self._codec)})",
                expected_crc=self._header.crc,
                found_crc=crc,
                codec=self._codec,
            )

    def payload(self, max_bytes: int = MAX_BATCH_BYTES) -> Payload:
        """The payload, limited by the wrapper's own ``max_bytes`` instead of the argument."""
        header = self._header
        stamp = None
        if isinstance(header, MessageV1) and header.attributes & _LOG_APPEND:
            stamp = header.timestamp_ms
        base = self.base_offset
        return Payload(
            self._unpacked_messages,
            base,
            0,
            stamp,
            self._walk.messages,
            self.last_offset - base,
            RecordFormat.PACKED,
            self._shift,
        )

    @property
    def _codec(self) -> int:
        return self._header.attributes & CODEC_MASK

    @property
    def _shift(self) -> int:
        """The difference between offsets in the log and those inside the wrapper."""
        return self.last_offset - self._walk.last_offset if self._header.magic else 0

    @cached_property
    def _unpacked_messages(self) -> Any:
        """The messages in the wrapper, decompressed. Raises BadRecord."""
        self.check()
        value = self._value()
        try:
            if self._header.magic == 0 and CODECS.get(self._codec) is Codec.LZ4:
                value = mend_lz4(value)
            return decompress(self._codec, value, self.max_bytes)
        except NotDecompressible as error:
            raise self._wrapper_error(str(error), codec=self._codec) from None

    @cached_property
    def _walk(self) -> MessageWalk:
        """A walk over the contents: plain messages that fill the wrapper and whose offsets are
        possible."""
        data = self._unpacked_messages
        walk = kafka_decoder().walk_messages(data, _ENTIRE)
        size = memoryview(data).nbytes
        if walk.end != size:
            raise self._wrapper_error(
                f"its contents have no plain message at byte {walk.end} of {size}",
                codec=self._codec,
            )
        if walk.messages == 0:
            raise self._wrapper_error("it is empty", codec=self._codec)
        if (why := beyond(self.max_bytes, size, walk.messages)) is not None:
            raise self._wrapper_error(why, codec=self._codec)
        shift = self.last_offset - walk.last_offset if self._header.magic else 0
        if walk.first_offset + shift < self._floor or walk.last_offset + shift > self.last_offset:
            # They conflict with the offsets of the previous entry, so neither is believed.
            raise self._misplaced_error(
                f"it contains offsets {walk.first_offset + shift} to {walk.last_offset + shift}, "
                f"but only {self._floor} to {self.last_offset} are possible there",
                max(0, min(walk.first_offset + shift, self._floor)),
            )
        # In format 0 too, brokers and cleaners give a wrapper the offset of its last message.
        if walk.last_offset + shift != self.last_offset:
            raise self._misplaced_error(
                f"it is at offset {self.last_offset}, but its last message at {walk.last_offset}",
                min(self._floor, self.last_offset),
            )
        return walk

    def _value(self) -> memoryview:
        """The value, which consists of the compressed messages and must fill the rest of the
        wrapper."""
        layout = _LAYOUTS[self._header.magic]
        byte_index = layout.size + max(self._header.key_length, 0)
        end = byte_index + _VALUE_LENGTH_BYTES
        length = int.from_bytes(self._stored[byte_index:end], "big", signed=True)
        if end + length != len(self._stored) or length < 0:
            raise self._wrapper_error(
                f"its packed value has a length of {length}", codec=self._codec
            )
        return self._stored[end:]

    def _wrapper_error(self, why: str, **facts: Any) -> BadRecord:
        own_end = self.last_offset + 1
        following = self.next_from(own_end)
        next_offset = own_end if following is None else following
        return batch_error(min(self._floor, self.last_offset), why, next_offset, **facts)

    def _misplaced_error(self, why: str, from_offset: int) -> BadRecord:
        """The error for a wrapper whose own offset is wrong and therefore does not say where it
        ends."""
        next_offset = self.next_from(self._floor)
        return batch_error(from_offset, why, next_offset, codec=self._codec)


def message_error(
    error: UndecodableRecord, payload: Payload, next_offset: int | None = None
) -> BadRecord:
    """Turns the decoder's error about plain messages into one about the damaged message among them.
    If it is the last one, its true length may have been greater: ``next_offset`` is where the next
    entry begins."""
    facts = {name: value for name, value in error.facts.items() if name != "payload"}
    offset = _offset_of(payload, error.record)
    why = f"it is one message, and {error.fault.reason}"
    is_last = error.record + 1 == payload.record_count
    following = next_offset if is_last and next_offset is not None else offset + 1
    return batch_error(offset, why, next_offset=following, **facts)


def _offset_of(payload: Payload, record: int) -> int:
    data = memoryview(payload.data)
    byte_index = 0
    for _ in range(record):
        byte_index += kafka_decoder().walk_messages(data[byte_index:], 1).end
    return kafka_decoder().walk_messages(data[byte_index:], 1).first_offset
