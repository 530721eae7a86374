"""Arrays of any wire type.

As in ``primitives``: whatever the bytes are, a reader returns a value or raises
``UnreadableBytes``, and a length is checked before that much memory is allocated.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, TypeAlias

from rangeland.wire.codec_errors import UNDERFLOW, check_can_be_null, decode_error
from rangeland.wire.primitives import (
    COMPACT_LENGTH,
    INT32_LENGTH,
    Buffer,
    FieldCodec,
    Reader,
    require_length,
)


def array(element: FieldCodec, *, compact: bool, nullable: bool) -> FieldCodec:
    """An array, read as a tuple. A count too large for the remaining bytes is refused before any
    element is read, so a hostile count costs nothing."""
    length = COMPACT_LENGTH if compact else INT32_LENGTH
    least = max(1, element.least_bytes)
    read_all = _run_reader(element) if element.format else _each_reader(element.read)

    def read(buffer: memoryview, offset: int) -> tuple[tuple[Any, ...] | None, int]:
        count, start = length.read(buffer, offset)
        if count < 0:
            check_can_be_null(count, "array", nullable, buffer, offset)
            return None, start
        if count * least > len(buffer) - start:
            remaining = len(buffer) - start
            why = (
                f"{count} elements of {least} bytes or more at byte {start}, {remaining} bytes left"
            )
            raise decode_error(UNDERFLOW, why, buffer, start)
        return read_all(buffer, start, count)

    def write(value: tuple[Any, ...] | None, buffers: list[Buffer]) -> None:
        if value is None:
            length.write_null("array", nullable, buffers)
            return
        length.write(require_length(len(value), length.limit, "array"), buffers)
        for item in value:
            element.write(item, buffers)

    return FieldCodec(read, write, length.least_bytes)


_ReadAll: TypeAlias = Callable[[memoryview, int, int], tuple[tuple[Any, ...], int]]


def _run_reader(element: FieldCodec) -> _ReadAll:
    letter = element.format
    width = element.least_bytes

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
