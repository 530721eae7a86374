"""The messages that a pull brings, as bytes: finding them, and what is said of damaged ones.

They lie one behind the other, whole, each with its own length and offset. Nothing is decoded
here; the walk hops from length to length.
"""

from __future__ import annotations

import struct
from typing import Any, Final

from rangeland.decode import stored_decoder
from rangeland.decode.stored import StoredFault, Walked
from rangeland.errors import BadRecord

_OFFSET: Final = struct.Struct(">q")
_OFFSET_AT: Final = 20


def first_offset(body: Any) -> int | None:
    """Of the first message in a pull's body. None where there is none."""
    if len(body) < _OFFSET_AT + _OFFSET.size:
        return None
    (offset,) = _OFFSET.unpack_from(body, _OFFSET_AT)
    return int(offset)


def next_offset(records: memoryview, from_offset: int) -> int | None:
    """The offset behind the last whole message, found without decoding anything; None if
    there is none. Raises BadRecord."""
    walked = stored_decoder().walk_stored(records)
    if walked.fault is not None:
        raise bad_message(records, walked, from_offset)
    return walked.last_offset + 1 if walked.messages else None


def entry_around(records: memoryview, from_offset: int, target: int) -> tuple[int, int | None]:
    """Any offset may begin or end a range."""
    return target, target + 1


def bad_message(records: memoryview, walked: Walked, from_offset: int) -> BadRecord:
    """The error for the message at which a walk has ended. Where that one ends is believed
    if the next one begins there, or nothing does."""
    assert walked.fault is not None
    return _bad(records, walked.fault, walked.end, max(from_offset, walked.last_offset + 1))


def bad_decoded(records: memoryview, error: BadRecord, from_offset: int) -> BadRecord:
    """The decoder's error as people and policies know messages: by offset."""
    fault, told = StoredFault(error.facts["fault"]), error.facts["offset"]
    offset = told if fault.is_inside else max(from_offset, told + 1)
    return _bad(records, fault, error.facts["position"], offset)


def _bad(records: memoryview, fault: StoredFault, place: int, offset: int) -> BadRecord:
    facts: dict[str, Any] = {"reason": fault.reason, "position": place}
    if fault.is_inside:
        facts["next_offset"] = offset + 1
    elif fault is StoredFault.UNKNOWN_MAGIC:
        facts["magic"] = bytes(records[place + 4 : place + 8]).hex()
    return bad_message_at(offset, fault.reason, **facts)


def bad_message_at(offset: int, why: str, **facts: Any) -> BadRecord:
    """``next_offset`` among the facts is where reading could go on behind the message; it is
    not there where the end of the message is in doubt."""
    return BadRecord(
        f"the message at offset {offset} cannot be decoded",
        why=why,
        do="look at it with mqadmin queryMsgByOffset, or go on without it with "
        "`policy: {corrupt: skip}`, which records what is lost",
        base_offset=offset,
        **facts,
    )
