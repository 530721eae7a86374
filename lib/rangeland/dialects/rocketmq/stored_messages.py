"""The messages that a pull brings, as bytes: finding them, and what is said of damaged ones.

They lie one behind the other, whole, each with its own length and offset. Nothing is decoded
here; the walk hops from length to length, over batches as over messages (see ``entries``).
"""

from __future__ import annotations

from typing import Any, Final

from rangeland.decode import stored_decoder
from rangeland.decode.rocketmq.layout import MessageWalk, StoredFault, UndecodableMessage
from rangeland.dialects.fetch_values import NO_CONTEXT, FetchContext
from rangeland.dialects.rocketmq.log_entries import walk_entries
from rangeland.dialects.rocketmq.placement import MisplacedMessage, misplaced
from rangeland.dialects.rocketmq.pull_result import PullResult, given_of
from rangeland.errors import BadRecord

LOOK: Final = (
    "look at it with mqadmin queryMsgByOffset, or go on without it with "
    "`policy: {corrupt: skip}`, which records what is lost"
)


def next_offset(
    records: memoryview, from_offset: int, context: FetchContext = NO_CONTEXT
) -> int | None:
    """The offset behind the last whole message, or behind all that the broker has accounted for,
    found without decoding anything; None if there is none. Raises BadRecord."""
    given = given_of(records, context)
    if given.until_offset is not None:
        for one in misplaced(given):
            if one.until_offset is None or one.until_offset > from_offset:
                raise bad_misplaced(given, one, from_offset)
        return given.until_offset
    walked = stored_decoder().walk_stored(given.messages)
    if walked.fault is StoredFault.INNER:
        walked = walk_entries(given.messages)
    if walked.fault is not None:
        raise bad_message(given, walked, from_offset)
    return walked.last_offset + 1 if walked.messages else None


def entry_around(records: memoryview, from_offset: int, target: int) -> tuple[int, int | None]:
    """Any offset may begin or end a range."""
    return target, target + 1


def bad_message(given: PullResult, walked: MessageWalk, from_offset: int) -> BadRecord:
    """The error for the message at which a walk has ended. Where that one ends is believed
    if the next one begins there, or nothing does."""
    assert walked.fault is not None
    return _bad(given, walked.fault, walked.end, max(from_offset, walked.last_offset + 1))


def bad_misplaced(given: PullResult, one: MisplacedMessage, from_offset: int) -> BadRecord:
    """The error for a message that is not where it says."""
    offset = max(one.offset, from_offset) if one.until_offset is None else one.offset
    facts: dict[str, Any] = {"position": given.start + one.start}
    if one.until_offset is not None:
        facts["next_offset"] = one.until_offset
    if one.fault is StoredFault.UNKNOWN_MAGIC:
        facts["magic"] = bytes(given.messages[one.start + 4 : one.start + 8]).hex()
    return bad_message_at(offset, one.why, reason=one.why, **facts)


def bad_decoded(
    given: PullResult, error: UndecodableMessage, from_offset: int, position: int | None = None
) -> BadRecord:
    """The decoder's error as people and policies know messages: by offset. ``position``: of the
    stored bytes, if the decoder was given others."""
    offset = error.offset if error.fault.is_inside else max(from_offset, error.offset + 1)
    position = error.position if position is None else position
    return _bad(given, error.fault, position, offset)


def _bad(given: PullResult, fault: StoredFault, place: int, offset: int) -> BadRecord:
    facts: dict[str, Any] = {"reason": fault.reason, "position": given.start + place}
    if fault.is_inside:
        facts["next_offset"] = offset + 1
    elif fault is StoredFault.UNKNOWN_MAGIC:
        facts["magic"] = bytes(given.messages[place + 4 : place + 8]).hex()
    return bad_message_at(offset, fault.reason, **facts)


def bad_message_at(offset: int, why: str, **facts: Any) -> BadRecord:
    """``next_offset`` among the facts is where reading could go on behind the message; it is
    not there where the end of the message is in doubt."""
    return BadRecord(
        f"the message at offset {offset} cannot be decoded",
        why=why,
        do=LOOK,
        base_offset=offset,
        **facts,
    )
