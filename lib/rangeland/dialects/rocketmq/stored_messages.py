"""Finds the messages in the bytes of a pull, and makes the errors for damaged ones.

Complete messages follow each other, each with its own length and offset. Nothing is decoded here;
the walk goes from length to length, over batches as well as messages (``log_entries``).
"""

from __future__ import annotations

from typing import Any, Final

from rangeland.decode import rocketmq_decoder
from rangeland.decode.rocketmq.layout import MessageWalk, StoredFault, UndecodableMessage
from rangeland.dialects.fetch_values import NO_CONTEXT, FetchContext
from rangeland.dialects.rocketmq.log_entries import EntryTotals, walk_entries
from rangeland.dialects.rocketmq.offset_checks import (
    MisplacedMessage,
    misplaced_messages,
    response_runs,
)
from rangeland.dialects.rocketmq.pull_result import PullResult, pull_result_of
from rangeland.errors import BadRecord, Damage

LOOK: Final = (
    "look at it with mqadmin queryMsgByOffset, or go on without it with "
    "`policy: {corrupt: skip}`, which records what is lost"
)


def next_offset(
    records: memoryview, from_offset: int, context: FetchContext = NO_CONTEXT
) -> int | None:
    """The offset after the last complete message, or after all that the broker has accounted for,
    found without decoding anything; None if there is none. Raises BadRecord."""
    given = pull_result_of(records, context)
    if given.until_offset is not None:
        for one in misplaced_messages(given):
            if one.until_offset is None or one.until_offset > from_offset:
                raise misplaced_error(given, one, from_offset)
        return given.until_offset
    walked = rocketmq_decoder().walk_stored(given.messages)
    if walked.fault is StoredFault.INNER:
        walked = walk_entries(given.messages)
    if walked.fault is not None:
        raise walk_error(given, walked, from_offset)
    return walked.last_offset + 1 if walked.messages else None


def walk_error(given: PullResult, walked: MessageWalk, from_offset: int) -> BadRecord:
    """The error for the message at which a walk has ended."""
    assert walked.fault is not None
    return _fault_error(given, walked.fault, walked.end, max(from_offset, walked.last_offset + 1))


def misplaced_error(given: PullResult, one: MisplacedMessage, from_offset: int) -> BadRecord:
    """The error for a message that is not at its stored offset."""
    offset = max(one.offset, from_offset) if one.until_offset is None else one.offset
    facts: dict[str, Any] = {"position": given.start + one.start}
    if one.fault is StoredFault.UNKNOWN_MAGIC:
        facts["magic"] = bytes(given.messages[one.start + 4 : one.start + 8]).hex()
    return message_error(offset, one.why, one.until_offset, reason=one.why, **facts)


def decoded_message_error(
    given: PullResult, error: UndecodableMessage, from_offset: int, byte_index: int | None = None
) -> BadRecord:
    """The decoder's error, as one that names the message by its offset. ``byte_index``: that of the
    stored bytes, if the decoder was given others."""
    offset = error.offset if error.fault.is_inside else max(from_offset, error.offset + 1)
    byte_index = error.position if byte_index is None else byte_index
    return _fault_error(given, error.fault, byte_index, offset)


def _fault_error(given: PullResult, fault: StoredFault, byte_index: int, offset: int) -> BadRecord:
    facts: dict[str, Any] = {"reason": fault.reason, "position": given.start + byte_index}
    if fault is StoredFault.UNKNOWN_MAGIC:
        facts["magic"] = bytes(given.messages[byte_index + 4 : byte_index + 8]).hex()
    next_offset = offset + 1 if fault.is_inside else None
    return message_error(offset, fault.reason, next_offset, **facts)


def message_error(offset: int, why: str, next_offset: int | None = None, **facts: Any) -> BadRecord:
    """``next_offset`` is where reading can continue after the message; None if the end of the
    message is uncertain."""
    return BadRecord(
        f"the message at offset {offset} cannot be decoded",
        why=why,
        do=LOOK,
        damage=Damage(offset, next_offset),
        **facts,
    )


def cut_out(
    records: memoryview,
    from_offset: int,
    first: int,
    until: int,
    context: FetchContext = NO_CONTEXT,
) -> memoryview:
    """The raw bytes, for quarantine, of messages with offsets in ``[first, until)``, and of batches
    that contain one of them, up to the first bytes that cannot be walked over. The broker's
    response or the messages contain the offsets; ``from_offset`` is for dialects whose bytes do
    not."""
    given = pull_result_of(records, context)
    if not context.spans:
        return _walk(given.messages, first, until)
    for part in response_runs(given):
        if first < part.until_offset:
            return _walk(given.messages[part.start : part.end], first, until)
        one = part.misplaced
        if one is not None and (one.until_offset is None or first < one.until_offset):
            return given.messages[one.start : one.end]
    return given.messages[:0]


def _walk(messages: memoryview, first: int, until: int) -> memoryview:
    begins, ends = 0, 0
    for entry in EntryTotals(messages).entries(until):
        if entry.until_offset <= first:
            begins = entry.end
        ends = entry.end
    return messages[begins:ends]
