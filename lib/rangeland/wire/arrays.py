"""Arrays and tagged fields: the primitives that contain others.

As in ``primitives``: whatever the bytes are, a reader returns a value or raises
``RemoteProtocolError``, and a length is checked before memory of that length is allocated.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from rangeland.errors import LocalProtocolError
from rangeland.wire.malformed import BAD_TAGS, UNDERFLOW, negative, null, refusal, take
from rangeland.wire.primitives import (
    COMPACT_LENGTH,
    INT32_LENGTH,
    FieldCodec,
    Part,
    Reader,
    checked_length,
    read_uvarint,
    uvarint_bytes,
)


def array(element: FieldCodec, *, compact: bool, nullable: bool) -> FieldCodec:
    """An array as a tuple. A count that the remaining bytes cannot hold is refused before any
    element is read, so a hostile count costs nothing."""
    length = COMPACT_LENGTH if compact else INT32_LENGTH
    least = max(1, element.least_bytes)
    read_all = _run_reader(element) if element.format else _each_reader(element.read)

    def read(buffer: memoryview, offset: int) -> tuple[tuple[Any, ...] | None, int]:
        count, start = length.read(buffer, offset)
        if count < 0:
            if count != -1:
                raise negative(count, "array", buffer, offset)
            if not nullable:
                raise null("array", buffer, offset)
            return None, start
        if count * least > len(buffer) - start:
            left = len(buffer) - start
            why = f"{count} elements of {least} bytes or more at byte {start}, {left} bytes left"
            raise refusal(UNDERFLOW, why, buffer, start)
        return read_all(buffer, start, count)

    def write(value: tuple[Any, ...] | None, parts: list[Part]) -> None:
        if value is None:
            if not nullable:
                raise LocalProtocolError("array must not be null")
            length.write(-1, parts)
            return
        length.write(checked_length(len(value), length.limit, "array"), parts)
        for item in value:
            element.write(item, parts)

    return FieldCodec(read, write, length.least_bytes)


_ReadAll: TypeAlias = Callable[[memoryview, int, int], tuple[tuple[Any, ...], int]]


def _run_reader(element: FieldCodec) -> _ReadAll:
    letter, width = element.format, element.least_bytes

    def read_all(buffer: memoryview, offset: int, count: int) -> tuple[tuple[Any, ...], int]:
        return struct.unpack_from(f">{count}{letter}", buffer, offset), offset + count * width

    return read_all


def _each_reader(read_one: Reader) -> _ReadAll:
    def read_all(buffer: memoryview, offset: int, count: int) -> tuple[tuple[Any, ...], int]:
        values = []
        for _ in range(count):
            value, offset = read_one(buffer, offset)
            values.append(value)
        return tuple(values), offset

    return read_all


def read_tags(
    buffer: memoryview, offset: int, known: Mapping[int, FieldCodec]
) -> tuple[dict[int, Any], int]:
    """The tagged fields at the end of a struct: those in ``known`` by tag; others are skipped.

    Tags rise, so none occurs twice, and a known field fills its size exactly."""
    count, offset = read_uvarint(buffer, offset)
    values: dict[int, Any] = {}
    last = -1
    for _ in range(count):
        start = offset
        tag, offset = read_uvarint(buffer, offset)
        if tag <= last:
            why = f"tag {tag} at byte {start} follows tag {last}"
            raise refusal(BAD_TAGS, why, buffer, start)
        last = tag
        size, offset = read_uvarint(buffer, offset)
        end = take(buffer, offset, size)
        if codec := known.get(tag):
            # The slice begins where the buffer begins, so offsets in errors stay the same.
            values[tag], used = codec.read(buffer[:end], offset)
            if used != end:
                why = f"tag {tag} at byte {start} has {end - used} bytes too many"
                raise refusal(BAD_TAGS, why, buffer, start)
        offset = end
    return values, offset


def write_tags(tagged: list[tuple[int, FieldCodec, Any]], parts: list[Part]) -> None:
    """``tagged`` is in rising order of tags; an empty list is one zero byte."""
    parts.append(uvarint_bytes(len(tagged)))
    for tag, codec, value in tagged:
        inner: list[Part] = []
        codec.write(value, inner)
        data = b"".join(inner)
        parts.append(uvarint_bytes(tag) + uvarint_bytes(len(data)))
        parts.append(data)
