"""What can be wrong with a payload, as numbers that the kernel shares, and in words.

Numbers from 64 on are those of ``payload_columns.h``.
"""

from __future__ import annotations

from enum import IntEnum


class PayloadFault(IntEnum):
    """Why a payload has no value."""

    NULL_PAYLOAD = 1
    """Not an error: there is no payload."""
    NOT_FRAMED = 2
    FRAME_TOO_SHORT = 3
    BAD_SCHEMA_ID = 4
    UNKNOWN_SCHEMA_ID = 5
    BAD_MESSAGE_INDEXES = 6
    OTHER_MESSAGE = 7
    PAYLOAD_ENDS = 64
    PAYLOAD_TRAILING = 65
    NUMBER_TOO_LONG = 66
    NUMBER_RANGE = 67
    LENGTH_NEGATIVE = 68
    LENGTH_PAST_END = 69
    NOT_UTF8 = 70
    NOT_BOOLEAN = 71
    NO_SUCH_SYMBOL = 72
    NO_SUCH_BRANCH = 73
    BLOCK_SIZE_WRONG = 74
    TOO_MANY_EMPTY = 75
    TOO_MUCH_MEMORY = 76
    DECIMAL_RANGE = 77
    UNRESOLVED = 78
    BAD_TAG = 79
    BAD_GROUP = 80
    REQUIRED_MISSING = 81
    TOO_DEEP = 82
    MERGE_TOO_LARGE = 83
    PAYLOAD_TOO_LARGE = 84
    OTHER_WIRE_TYPE = 85


_WORDS = {
    PayloadFault.NOT_FRAMED: "it does not begin with the magic byte 0 of a registry's format",
    PayloadFault.FRAME_TOO_SHORT: "it is too short for a magic byte and a schema id",
    PayloadFault.BAD_SCHEMA_ID: "its schema id is not positive",
    PayloadFault.UNKNOWN_SCHEMA_ID: "its schema id is unknown",
    PayloadFault.BAD_MESSAGE_INDEXES: "the message indexes after its schema id are damaged",
    PayloadFault.OTHER_MESSAGE: "its message indexes name another message",
    PayloadFault.PAYLOAD_ENDS: "it ends inside a value",
    PayloadFault.PAYLOAD_TRAILING: "there are more bytes after its last value",
    PayloadFault.NUMBER_TOO_LONG: "a number has too many bytes",
    PayloadFault.NUMBER_RANGE: "a number is out of range",
    PayloadFault.LENGTH_NEGATIVE: "a length is negative",
    PayloadFault.LENGTH_PAST_END: "a length or a count exceeds the payload",
    PayloadFault.NOT_UTF8: "a string is not valid UTF-8",
    PayloadFault.NOT_BOOLEAN: "a boolean is neither 0 nor 1",
    PayloadFault.NO_SUCH_SYMBOL: "an enum's number has no symbol in its schema",
    PayloadFault.NO_SUCH_BRANCH: "a union's number has no branch in its schema",
    PayloadFault.BLOCK_SIZE_WRONG: "a block of items does not have the size that it names",
    PayloadFault.TOO_MANY_EMPTY: "it claims too many items that take no bytes",
    PayloadFault.TOO_MUCH_MEMORY: "it would take far more memory than its length allows for",
    PayloadFault.DECIMAL_RANGE: "a decimal has more digits than its type",
    PayloadFault.UNRESOLVED: "its schema cannot be read as the table's",
    PayloadFault.BAD_TAG: "a field has an impossible number or wire type",
    PayloadFault.BAD_GROUP: "a group does not end where it should",
    PayloadFault.REQUIRED_MISSING: "a required field is missing",
    PayloadFault.TOO_DEEP: "groups or values are nested too deeply",
    PayloadFault.MERGE_TOO_LARGE: "one message is split into too many parts",
    PayloadFault.OTHER_WIRE_TYPE: "a field was written as another type than the schema's",
    PayloadFault.PAYLOAD_TOO_LARGE: "it would take more than 256 MiB of memory",
}


def fault_reason(fault: int, position: int = -1, place: str = "", detail: str = "") -> str:
    """One line. ``place``: the path of the field; ``detail`` replaces the general words."""
    words = detail or _WORDS[PayloadFault(fault)]
    where = [f"byte {position}"] if position >= 0 else []
    where += [f"field {place}"] if place else []
    return f"{words} ({', '.join(where)})" if where else words
