"""The error of all readers, with the reason as a word and the position as numbers.

The facts are ``reason, offset, size``; ``encoding`` adds ``message, version, field``. A reader
raises nothing else, for any bytes.
"""

from __future__ import annotations

from rangeland.errors import RemoteProtocolError

UNDERFLOW = "underflow"
BAD_LENGTH = "bad length"
BAD_TEXT = "bad text"
BAD_TAGS = "bad tags"
NOT_NULLABLE = "not nullable"
LEFT_OVER = "left over"


def decode_error(reason: str, why: str, buffer: memoryview, offset: int) -> RemoteProtocolError:
    """The error of every reader. ``encoding.decode`` adds the message and the field."""
    return RemoteProtocolError(
        "bytes do not fit their type", why=why, reason=reason, offset=offset, size=len(buffer)
    )


def underflow_error(buffer: memoryview, offset: int, length: int) -> RemoteProtocolError:
    remaining = max(0, len(buffer) - offset)
    why = f"{length} bytes wanted at byte {offset} of {len(buffer)}, {remaining} left"
    return decode_error(UNDERFLOW, why, buffer, offset)


def take(buffer: memoryview, offset: int, length: int) -> int:
    """The end of ``length`` bytes at ``offset``; an error if the buffer ends before it."""
    end = offset + length
    if end > len(buffer):
        raise underflow_error(buffer, offset, length)
    return end


def negative_length_error(
    length: int, what: str, buffer: memoryview, offset: int
) -> RemoteProtocolError:
    return decode_error(BAD_LENGTH, f"{what} of length {length} at byte {offset}", buffer, offset)


def check_can_be_null(
    length: int, what: str, nullable: bool, buffer: memoryview, offset: int
) -> None:
    """Raises unless a negative ``length`` is the -1 of a value that may be null."""
    if length != -1:
        raise negative_length_error(length, what, buffer, offset)
    if not nullable:
        why = f"{what} at byte {offset} is null and must not be"
        raise decode_error(NOT_NULLABLE, why, buffer, offset)
