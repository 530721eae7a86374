"""The errors of all readers and writers, which know the path of the field in question.

A reader raises nothing but ``UnreadableBytes``, for any bytes; the facts of that error are the
reason as a word, ``offset`` and ``size``. ``encoding`` adds the message and its version.
"""

from __future__ import annotations

from typing import Any, Self

from rangeland.errors import LocalProtocolError, RangelandError, RemoteProtocolError

UNDERFLOW = "underflow"
BAD_LENGTH = "bad length"
BAD_TEXT = "bad text"
BAD_TAGS = "bad tags"
NOT_NULLABLE = "not nullable"
LEFT_OVER = "left over"


class _FieldError(RangelandError):
    """An error in ``field``: its path within the message, as far as it is known."""

    field = ""

    def in_field(self, name: str) -> Self:
        """The same error, seen from a message whose field ``name`` contains this error's field."""
        return self._copy(field=f"{name}.{self.field}" if self.field else name)

    @property
    def facts(self) -> dict[str, Any]:
        return super().facts | ({"field": self.field} if self.field else {})


class UnreadableBytes(_FieldError, RemoteProtocolError):
    """The bytes do not fit the type."""


class UnwritableValue(_FieldError, LocalProtocolError):
    """A value cannot be sent, or cannot be sent in this version."""


def decode_error(reason: str, why: str, buffer: memoryview, offset: int) -> UnreadableBytes:
    """The error that every reader raises."""
    return UnreadableBytes(
        "bytes do not fit their type", why=why, reason=reason, offset=offset, size=len(buffer)
    )


def underflow_error(buffer: memoryview, offset: int, length: int) -> UnreadableBytes:
    remaining = max(0, len(buffer) - offset)
    why = f"{length} bytes wanted at byte {offset} of {len(buffer)}, {remaining} left"
    return decode_error(UNDERFLOW, why, buffer, offset)


def take(buffer: memoryview, offset: int, length: int) -> int:
    """The end of ``length`` bytes at ``offset``; an error if the buffer ends before that."""
    end = offset + length
    if end > len(buffer):
        raise underflow_error(buffer, offset, length)
    return end


def negative_length_error(
    length: int, what: str, buffer: memoryview, offset: int
) -> UnreadableBytes:
    return decode_error(BAD_LENGTH, f"{what} of length {length} at byte {offset}", buffer, offset)


def check_can_be_null(
    length: int, what: str, nullable: bool, buffer: memoryview, offset: int
) -> None:
    """Raises an error unless a negative ``length`` is the -1 of a value that may be null."""
    if length != -1:
        raise negative_length_error(length, what, buffer, offset)
    if not nullable:
        why = f"{what} at byte {offset} is null but must not be"
        raise decode_error(NOT_NULLABLE, why, buffer, offset)
