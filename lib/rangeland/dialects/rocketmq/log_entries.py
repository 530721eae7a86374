"""Finds the messages in the bytes of a pull, and makes the errors for damaged ones.

Complete messages follow one another, each with its own length and offset. Nothing is decoded here;
the walk goes from length to length, over batches as well as messages (``queue_entries``).
"""

from __future__ import annotations

from typing import Any, Final

from rangeland.decode import rocketmq_decoder
from rangeland.decode.rocketmq.layout import MessageWalk, StoredFault, UndecodableMessage
from rangeland.dialects.fetch_values import FetchedRecords, Scan
from rangeland.dialects.rocketmq.offset_checks import (
    MisplacedMessage,
    misplaced_messages,
    placed_messages,
)
from rangeland.dialects.rocketmq.pull_result import PullResult, pull_result_of
from rangeland.dialects.rocketmq.queue_entries import EntryTotals, walk_entries
from rangeland.errors import BadRecord, Damage

LOOK: Final = (
    "look at it with mqadmin queryMsgByOffset, or go on without it with "
    "`policy: {corrupt: skip}`, which records what is lost"
)


def scan(fetched: FetchedRecords) -> Scan:
    """The end of the complete messages, or of everything that the broker has accounted for, found
    without decoding anything. Raises BadRecord."""
    result = pull_result_of(fetched)
    from_offset = fetched.from_offset
    if result.until_offset is not None:
        for message in misplaced_messages(result):
            if message.until_offset is None or message.until_offset > from_offset:
                raise misplaced_error(result, message, from_offset)
        return Scan(result.until_offset)
    walk = rocketmq_decoder().walk_stored(result.messages)
    if walk.fault is StoredFault.INNER:
        walk = walk_entries(result.messages)
    if walk.fault is not None:
        raise walk_error(result, walk, from_offset)
    return Scan(walk.last_offset + 1 if walk.messages else None)


def walk_error(result: PullResult, walk: MessageWalk, from_offset: int) -> BadRecord:
    """The error for the message at which a walk ended."""
    assert walk.fault is not None
    return _fault_error(result, walk.fault, walk.end, max(from_offset, walk.last_offset + 1))


def misplaced_error(result: PullResult, message: MisplacedMessage, from_offset: int) -> BadRecord:
    """The error for a message that is not at the offset stored in it."""
    offset = max(message.offset, from_offset) if message.until_offset is None else message.offset
    facts = _facts_of(result, message.fault, message.start)
    return message_error(offset, message.why, message.until_offset, reason=message.why, **facts)


def decoded_message_error(
    result: PullResult, error: UndecodableMessage, from_offset: int, byte_index: int | None = None
) -> BadRecord:
    """Turns the decoder's error into one that names the message by its offset. ``byte_index``: its
    place in the stored bytes, if the decoder was given different bytes."""
    offset = error.offset if error.fault.is_inside else max(from_offset, error.offset + 1)
    byte_index = error.byte_index if byte_index is None else byte_index
    return _fault_error(result, error.fault, byte_index, offset)


def _fault_error(result: PullResult, fault: StoredFault, byte_index: int, offset: int) -> BadRecord:
    next_offset = offset + 1 if fault.is_inside else None
    facts = _facts_of(result, fault, byte_index)
    return message_error(offset, fault.reason, next_offset, reason=fault.reason, **facts)


def _facts_of(result: PullResult, fault: StoredFault | None, byte_index: int) -> dict[str, Any]:
    facts: dict[str, Any] = {"byte_index": result.start + byte_index}
    if fault is StoredFault.UNKNOWN_MAGIC:
        facts["magic"] = bytes(result.messages[byte_index + 4 : byte_index + 8]).hex()
    return facts


def message_error(offset: int, why: str, next_offset: int | None = None, **facts: Any) -> BadRecord:
    """The error for a message. ``next_offset`` is where reading can continue after it; None if its
    end is uncertain."""
    return BadRecord(
        f"the message at offset {offset} cannot be decoded",
        why=why,
        do=LOOK,
        damage=Damage(offset, next_offset),
        **facts,
    )


def cut_out(fetched: FetchedRecords, from_offset: int, until_offset: int) -> memoryview:
    """The raw bytes, for quarantine, of messages with offsets in ``[from_offset, until_offset)``
    and of batches that contain any of these offsets, up to the first bytes that cannot be walked
    over."""
    result = pull_result_of(fetched)
    if not fetched.context.spans:
        return _walk(result.messages, from_offset, until_offset)
    for placed in placed_messages(result):
        if from_offset < placed.until_offset:
            return _walk(result.messages[placed.start : placed.end], from_offset, until_offset)
        message = placed.misplaced
        if message is None:
            continue
        if message.until_offset is None or from_offset < message.until_offset:
            return result.messages[message.start : message.end]
    return result.messages[:0]


def _walk(messages: memoryview, from_offset: int, until_offset: int) -> memoryview:
    begins, ends = 0, 0
    for entry in EntryTotals(messages).entries(until_offset):
        if entry.until_offset <= from_offset:
            begins = entry.end
        ends = entry.end
    return messages[begins:ends]
