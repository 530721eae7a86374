"""The primitive types of Kafka's wire format as values: how each is read and written.

A reader is ``(buffer, offset) -> (value, new_offset)``, a writer ``(value, buffers) -> None``, and
a ``FieldCodec`` is a pair of the two. A ``WireType`` has the codecs for one declared type: legacy
or compact, nullable or not. A type that has only one form uses the same codec for all of them.

Whatever the bytes are, a reader returns a value or raises ``UnreadableBytes``. A length is checked
against the remaining bytes before that much memory is allocated. Offsets in errors count from the
start of the buffer. All integers are big-endian. This module knows no messages and no versions.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from rangeland.errors import Bug
from rangeland.wire.codec_errors import (
    BAD_LENGTH,
    BAD_TEXT,
    UnwritableValue,
    check_can_be_null,
    decode_error,
    take,
    underflow_error,
)

Buffer: TypeAlias = bytes | bytearray | memoryview
Reader: TypeAlias = Callable[[memoryview, int], tuple[Any, int]]
Writer: TypeAlias = Callable[[Any, list[Buffer]], None]

MAX_LEGACY_STRING_BYTES = 0x7FFF
MAX_LENGTH = 0x7FFFFFFF


@dataclass(frozen=True, slots=True)
class FieldCodec:
    """A reader and its writer. ``least_bytes``: the size of the shortest value on the wire.

    ``format`` is the ``struct`` letter of a type of fixed width, so that adjacent fields can be
    read together; it is empty for all other types.
    """

    read: Reader
    write: Writer
    least_bytes: int
    format: str = ""


@dataclass(frozen=True, slots=True)
class WireType:
    """All forms of one declared type. A nullable form is None if it does not exist in the
    protocol."""

    name: str
    legacy: FieldCodec
    compact: FieldCodec
    nullable_legacy: FieldCodec | None
    nullable_compact: FieldCodec | None

    def form(self, *, compact: bool, nullable: bool) -> FieldCodec:
        if not nullable:
            return self.compact if compact else self.legacy
        codec = self.nullable_compact if compact else self.nullable_legacy
        if codec is None:
            raise Bug(f"{self.name} has no null on the wire", do="declare the field without None")
        return codec


def require_length(length: int, limit: int, what: str) -> int:
    if length > limit:
        raise UnwritableValue(
            f"{what} is too long for the wire", why=f"{length} > {limit}", length=length
        )
    return length


# --- fixed width ------------------------------------------------------------------------


def _fixed_type(name: str, letter: str) -> WireType:
    packer = struct.Struct(">" + letter)
    unpack = packer.unpack_from
    size = packer.size

    def read(buffer: memoryview, offset: int) -> tuple[Any, int]:
        try:
            return unpack(buffer, offset)[0], offset + size
        except struct.error:
            raise underflow_error(buffer, offset, size) from None

    def write(value: Any, buffers: list[Buffer]) -> None:
        buffers.append(packer.pack(value))

    codec = FieldCodec(read, write, size, letter)
    return WireType(name, codec, codec, None, None)


INT8 = _fixed_type("int8", "b")
INT16 = _fixed_type("int16", "h")
INT32 = _fixed_type("int32", "i")
INT64 = _fixed_type("int64", "q")
BOOL = _fixed_type("bool", "?")


def _read_uuid(buffer: memoryview, offset: int) -> tuple[str | None, int]:
    end = take(buffer, offset, 16)
    digits = buffer[offset:end].hex()
    if digits == "0" * 32:
        return None, end
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:])), end


def _write_uuid(value: str | None, buffers: list[Buffer]) -> None:
    buffers.append(bytes(16) if value is None else uuid.UUID(value).bytes)


_UUID = FieldCodec(_read_uuid, _write_uuid, 16)
# 36 characters with hyphens. In Kafka, 16 zero bytes mean "no id", and are read as None.
UUID = WireType("uuid", _UUID, _UUID, _UUID, _UUID)


# --- variable width ---------------------------------------------------------------------


def read_uvarint(buffer: memoryview, offset: int) -> tuple[int, int]:
    """An unsigned number of at most 32 bits, in up to five bytes. A small number may take more
    bytes than it needs."""
    if offset < len(buffer) and (byte := buffer[offset]) < 0x80:
        return byte, offset + 1
    value = 0
    start = offset
    for shift in range(0, 35, 7):
        if offset >= len(buffer):
            raise underflow_error(buffer, len(buffer), 1)
        byte = buffer[offset]
        offset += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80 and value < 1 << 32:
            return value, offset
    why = f"a varint at byte {start} has more than 32 bits"
    raise decode_error(BAD_LENGTH, why, buffer, start)


def uvarint_bytes(value: int) -> bytes:
    if value < 0:
        raise UnwritableValue("an unsigned varint cannot be negative", value=value)
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


# --- lengths: legacy and compact ---------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Length:
    """How a length is encoded. ``read`` returns -1 for null."""

    read: Callable[[memoryview, int], tuple[int, int]]
    write: Callable[[int, list[Buffer]], None]
    limit: int
    least_bytes: int

    def write_null(self, what: str, nullable: bool, buffers: list[Buffer]) -> None:
        if not nullable:
            raise UnwritableValue(f"{what} must not be null")
        self.write(-1, buffers)


def _compact_length(buffer: memoryview, offset: int) -> tuple[int, int]:
    length_plus_1, end = read_uvarint(buffer, offset)
    return length_plus_1 - 1, end


_INT16_LENGTH = _Length(INT16.legacy.read, INT16.legacy.write, MAX_LEGACY_STRING_BYTES, 2)
INT32_LENGTH = _Length(INT32.legacy.read, INT32.legacy.write, MAX_LENGTH, 4)
# Encoded as n + 1, so that 0 means null.
COMPACT_LENGTH = _Length(
    _compact_length,
    lambda length, buffers: buffers.append(uvarint_bytes(length + 1)),
    MAX_LENGTH,
    1,
)


def _sized_codec(
    what: str,
    length: _Length,
    nullable: bool,
    of_bytes: Callable[[memoryview, int, int], Any],
    to_bytes: Callable[[Any], Buffer],
) -> FieldCodec:
    """A length and that many bytes. ``of_bytes`` is called with (buffer, start, end), which lie
    within the buffer."""
    read_length = length.read

    def read(buffer: memoryview, offset: int) -> tuple[Any, int]:
        size, start = read_length(buffer, offset)
        if size < 0:
            check_can_be_null(size, what, nullable, buffer, offset)
            return None, start
        end = start + size
        if end > len(buffer):
            raise underflow_error(buffer, start, size)
        return of_bytes(buffer, start, end), end

    def write(value: Any, buffers: list[Buffer]) -> None:
        if value is None:
            length.write_null(what, nullable, buffers)
            return
        data = to_bytes(value)
        length.write(require_length(len(data), length.limit, what), buffers)
        buffers.append(data)

    return FieldCodec(read, write, length.least_bytes)


def _text(buffer: memoryview, start: int, end: int) -> str:
    try:
        return str(buffer[start:end], "utf-8")
    except UnicodeDecodeError as error:
        why = f"a string at byte {start} is not UTF-8 ({error.reason})"
        raise decode_error(BAD_TEXT, why, buffer, start) from error


def _as_bytes(value: Buffer) -> Buffer:
    return memoryview(value).cast("B")


def _legacy_and_compact(
    name: str,
    legacy: _Length,
    of_bytes: Callable[[memoryview, int, int], Any],
    to_bytes: Callable[[Any], Buffer],
) -> WireType:
    def form(length: _Length, nullable: bool) -> FieldCodec:
        return _sized_codec(name, length, nullable, of_bytes, to_bytes)

    return WireType(
        name,
        form(legacy, False),
        form(COMPACT_LENGTH, False),
        form(legacy, True),
        form(COMPACT_LENGTH, True),
    )


STRING = _legacy_and_compact("string", _INT16_LENGTH, _text, str.encode)
BYTES = _legacy_and_compact(
    "bytes", INT32_LENGTH, lambda buffer, start, end: bytes(buffer[start:end]), _as_bytes
)
# A slice of the frame, never a copy: a fetch response contains tens of MiB of records.
RECORDS = _legacy_and_compact(
    "records", INT32_LENGTH, lambda buffer, start, end: buffer[start:end], _as_bytes
)
# The client id in a request header has a 16-bit length in every version.
LEGACY_STRING = replace(
    STRING, name="legacy string", compact=STRING.legacy, nullable_compact=STRING.nullable_legacy
)
