"""The faults that a payload can have.

Numbers from 64 on are the same as in ``payload_columns.h``.
"""

from __future__ import annotations

from rangeland.decode.kernel_fault import KernelFault


class PayloadFault(KernelFault):
    """A reason why a payload has no value."""

    NULL_PAYLOAD = 1
    """Not an error: the payload is null."""
    NOT_FRAMED = 2, "it does not begin with the magic byte 0 of a registry's format"
    FRAME_TOO_SHORT = 3, "it is too short for a magic byte and a schema id"
    SCHEMA_ID_NOT_POSITIVE = 4, "its schema id is not positive"
    UNKNOWN_SCHEMA_ID = 5, "its schema id is unknown"
    DAMAGED_MESSAGE_INDEXES = 6, "the message indexes after its schema id are damaged"
    OTHER_MESSAGE = 7, "its message indexes name another message"
    AMBIGUOUS_MESSAGE = 8, "its message indexes may mean another message as well"
    PAYLOAD_ENDS = 64, "it ends inside a value"
    PAYLOAD_TRAILING = 65, "there are more bytes after its last value"
    NUMBER_TOO_LONG = 66, "a number has too many bytes"
    NUMBER_RANGE = 67, "a number is out of range"
    LENGTH_NEGATIVE = 68, "a length is negative"
    LENGTH_PAST_END = 69, "a length or a count exceeds the payload"
    NOT_UTF8 = 70, "a string is not valid UTF-8"
    NOT_BOOLEAN = 71, "a boolean is neither 0 nor 1"
    NO_SUCH_SYMBOL = 72, "an enum's number has no symbol in its schema"
    NO_SUCH_BRANCH = 73, "a union's number has no branch in its schema"
    BLOCK_SIZE_WRONG = 74, "a block of items does not have the size that it names"
    TOO_MANY_EMPTY = 75, "it claims too many items that take no bytes"
    TOO_MUCH_MEMORY = 76, "it would take far more memory than its length allows for"
    DECIMAL_RANGE = 77, "a decimal has more digits than its type"
    UNRESOLVED = 78, "its schema cannot be read as the table's"
    IMPOSSIBLE_TAG = 79, "a field has an impossible number or wire type"
    MISPLACED_GROUP = 80, "a group does not end where it should"
    REQUIRED_MISSING = 81, "a required field is missing"
    TOO_DEEP = 82, "groups or values are nested too deeply"
    MERGE_TOO_LARGE = 83, "one message is split into too many parts"
    PAYLOAD_TOO_LARGE = 84, "it would take more than 256 MiB of memory"
    OTHER_WIRE_TYPE = 85, "a field was written with a different type from the schema's"


def fault_reason(fault: int, byte_index: int = -1, place: str = "", detail: str = "") -> str:
    """The reason on one line. ``place``: the path of the field; ``detail`` replaces the general
    wording."""
    words = detail or PayloadFault(fault).reason
    where = [f"byte {byte_index}"] if byte_index >= 0 else []
    where += [f"field {place}"] if place else []
    return f"{words} ({', '.join(where)})" if where else words
