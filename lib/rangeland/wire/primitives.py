"""The primitives of the wire as values: how an integer, a string or an array is read and written.

A reader is ``(buffer, offset) -> (value, new_offset)``, a writer ``(value, parts) -> None``;
a ``FieldCodec`` is the pair. A ``WireType`` holds the codecs of one declared type: legacy or
compact, nullable or not. What has only one form has the same codec in every place.

The rule of this file: whatever the bytes are, a reader gives a value or raises
``RemoteProtocolError``, nothing else. A length is checked against the bytes that are left
before anything of that length is made. Offsets in errors count from the start of the buffer.
No message, no version and no dialect is known here; all integers are big endian.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from rangeland.errors import Bug, LocalProtocolError
from rangeland.wire.malformed import (
    BAD_LENGTH,
    BAD_TAGS,
    BAD_TEXT,
    UNDERFLOW,
    negative,
    null,
    refusal,
    take,
    underflow,
)

Part: TypeAlias = bytes | bytearray | memoryview
Reader: TypeAlias = Callable[[memoryview, int], tuple[Any, int]]
Writer: TypeAlias = Callable[[Any, list[Part]], None]

MAX_LEGACY_STRING_BYTES = 0x7FFF
MAX_LENGTH = 0x7FFFFFFF


@dataclass(frozen=True, slots=True)
class FieldCodec:
    """A reader and its writer. ``least_bytes``: no value is shorter on the wire.

    ``format`` is the ``struct`` letter of a fixed width, so that neighbours can be read at once;
    empty for all others."""

    read: Reader
    write: Writer
    least_bytes: int
    format: str = ""


@dataclass(frozen=True, slots=True)
class WireType:
    """All forms of one declared type. ``zero`` is its value where nothing was declared;
    None in a nullable place means that the protocol has no such form."""

    name: str
    legacy: FieldCodec
    compact: FieldCodec
    nullable_legacy: FieldCodec | None
    nullable_compact: FieldCodec | None
    zero: Any

    def form(self, *, compact: bool, nullable: bool) -> FieldCodec:
        if not nullable:
            return self.compact if compact else self.legacy
        codec = self.nullable_compact if compact else self.nullable_legacy
        if codec is None:
            raise Bug(f"{self.name} has no null on the wire", do="Declare the field without None")
        return codec


def _checked_length(length: int, limit: int, what: str) -> int:
    if length > limit:
        raise LocalProtocolError(
            f"{what} is too long for the wire", why=f"{length} > {limit}", length=length
        )
    return length


# --- fixed width ------------------------------------------------------------------------


def _fixed(name: str, letter: str, zero: Any = 0) -> WireType:
    packer = struct.Struct(">" + letter)
    unpack, size = packer.unpack_from, packer.size

    def read(buffer: memoryview, offset: int) -> tuple[Any, int]:
        try:
            return unpack(buffer, offset)[0], offset + size
        except struct.error:
            raise underflow(buffer, offset, size) from None

    def write(value: Any, parts: list[Part]) -> None:
        parts.append(packer.pack(value))

    codec = FieldCodec(read, write, size, letter)
    return WireType(name, codec, codec, None, None, zero)


INT8 = _fixed("int8", "b")
INT16 = _fixed("int16", "h")
INT32 = _fixed("int32", "i")
INT64 = _fixed("int64", "q")
UINT16 = _fixed("uint16", "H")
UINT32 = _fixed("uint32", "I")
BOOL = _fixed("bool", "?", False)


def _read_uuid(buffer: memoryview, offset: int) -> tuple[str | None, int]:
    end = take(buffer, offset, 16)
    digits = buffer[offset:end].hex()
    if digits == "0" * 32:
        return None, end
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:])), end


def _write_uuid(value: str | None, parts: list[Part]) -> None:
    parts.append(bytes(16) if value is None else uuid.UUID(value).bytes)


_UUID = FieldCodec(_read_uuid, _write_uuid, 16)
# 36 characters with hyphens. All zero bytes mean "no id" in Kafka, and read as None.
UUID = WireType("uuid", _UUID, _UUID, _UUID, _UUID, None)


# --- variable width ---------------------------------------------------------------------


def _read_bits(buffer: memoryview, offset: int, bits: int) -> tuple[int, int]:
    value, shift, start, end = 0, 0, offset, len(buffer)
    while offset < end:
        byte = buffer[offset]
        offset += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value >> bits:
                break
            return value, offset
        shift += 7
        if shift >= bits:
            break
    else:
        raise underflow(buffer, end, 1)
    why = f"a varint at byte {start} has more than {bits} bits"
    raise refusal(BAD_LENGTH, why, buffer, start)


def read_uvarint(buffer: memoryview, offset: int) -> tuple[int, int]:
    """Unsigned, at most 32 bits in five bytes. Longer spellings of a small number are taken."""
    if offset < len(buffer) and (byte := buffer[offset]) < 0x80:
        return byte, offset + 1
    return _read_bits(buffer, offset, 32)


def read_varint(buffer: memoryview, offset: int) -> tuple[int, int]:
    """Zigzag, 32 bits: 0, -1, 1, -2 are sent as 0, 1, 2, 3."""
    raw, offset = _read_bits(buffer, offset, 32)
    return (raw >> 1) ^ -(raw & 1), offset


def read_varlong(buffer: memoryview, offset: int) -> tuple[int, int]:
    """Zigzag, 64 bits."""
    raw, offset = _read_bits(buffer, offset, 64)
    return (raw >> 1) ^ -(raw & 1), offset


def uvarint_bytes(value: int) -> bytes:
    if value < 0:
        raise LocalProtocolError("an unsigned varint cannot be negative", value=value)
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _varint_writer(low: int, high: int, zigzag_bits: int) -> Writer:
    def write(value: int, parts: list[Part]) -> None:
        if not low <= value <= high:
            raise LocalProtocolError(
                "a varint is out of range", why=f"{value} is not in [{low}, {high}]", value=value
            )
        raw = (value << 1) ^ (value >> zigzag_bits) if zigzag_bits else value
        parts.append(uvarint_bytes(raw))

    return write


def _varint(name: str, read: Reader, write: Writer) -> WireType:
    codec = FieldCodec(read, write, 1)
    return WireType(name, codec, codec, None, None, 0)


UVARINT = _varint("uvarint", read_uvarint, _varint_writer(0, 2**32 - 1, 0))
VARINT = _varint("varint", read_varint, _varint_writer(-(2**31), 2**31 - 1, 31))
VARLONG = _varint("varlong", read_varlong, _varint_writer(-(2**63), 2**63 - 1, 63))


# --- lengths: two eras -------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Length:
    """How a length is sent. ``read`` gives -1 for null."""

    read: Callable[[memoryview, int], tuple[int, int]]
    write: Callable[[int, list[Part]], None]
    limit: int
    least_bytes: int


def _compact_length(buffer: memoryview, offset: int) -> tuple[int, int]:
    raised, end = read_uvarint(buffer, offset)
    return raised - 1, end


_LENGTH16 = _Length(INT16.legacy.read, INT16.legacy.write, MAX_LEGACY_STRING_BYTES, 2)
_LENGTH32 = _Length(INT32.legacy.read, INT32.legacy.write, MAX_LENGTH, 4)
# Sent as n + 1, so that 0 is null.
_COMPACT = _Length(
    _compact_length, lambda length, parts: parts.append(uvarint_bytes(length + 1)), MAX_LENGTH, 1
)


def _sized(
    what: str,
    length: _Length,
    nullable: bool,
    of_bytes: Callable[[memoryview, int, int], Any],
    to_bytes: Callable[[Any], Part],
) -> FieldCodec:
    """A length and that many bytes. ``of_bytes`` gets (buffer, start, end), within the buffer."""
    read_length = length.read

    def read(buffer: memoryview, offset: int) -> tuple[Any, int]:
        size, start = read_length(buffer, offset)
        if size < 0:
            if size != -1:
                raise negative(size, what, buffer, offset)
            if not nullable:
                raise null(what, buffer, offset)
            return None, start
        end = start + size
        if end > len(buffer):
            raise underflow(buffer, start, size)
        return of_bytes(buffer, start, end), end

    def write(value: Any, parts: list[Part]) -> None:
        if value is None:
            if not nullable:
                raise LocalProtocolError(f"{what} must not be null")
            length.write(-1, parts)
            return
        data = to_bytes(value)
        length.write(_checked_length(len(data), length.limit, what), parts)
        parts.append(data)

    return FieldCodec(read, write, length.least_bytes)


def _text(buffer: memoryview, start: int, end: int) -> str:
    try:
        return str(buffer[start:end], "utf-8")
    except UnicodeDecodeError as error:
        why = f"a string at byte {start} is not UTF-8 ({error.reason})"
        raise refusal(BAD_TEXT, why, buffer, start) from error


def _encoded(value: str) -> bytes:
    return value.encode("utf-8")


def _copy(buffer: memoryview, start: int, end: int) -> bytes:
    return bytes(buffer[start:end])


def _view(buffer: memoryview, start: int, end: int) -> memoryview:
    return buffer[start:end]


def _same(value: Part) -> Part:
    return memoryview(value).cast("B")


def _eras(
    name: str,
    legacy: _Length,
    of_bytes: Callable[[memoryview, int, int], Any],
    to_bytes: Callable[[Any], Part],
    zero: Any,
) -> WireType:
    def form(length: _Length, nullable: bool) -> FieldCodec:
        return _sized(name, length, nullable, of_bytes, to_bytes)

    return WireType(
        name,
        form(legacy, False),
        form(_COMPACT, False),
        form(legacy, True),
        form(_COMPACT, True),
        zero,
    )


STRING = _eras("string", _LENGTH16, _text, _encoded, "")
BYTES = _eras("bytes", _LENGTH32, _copy, _same, b"")
# A slice of the frame, never a copy: a fetch answer holds tens of MiB of it.
RECORDS = _eras("records", _LENGTH32, _view, _same, memoryview(b""))
# The client id of a request header keeps its 16-bit length in every version.
LEGACY_STRING = WireType(
    "legacy string",
    STRING.legacy,
    STRING.legacy,
    STRING.nullable_legacy,
    STRING.nullable_legacy,
    "",
)


# --- arrays and tags ---------------------------------------------------------------------


def array(element: FieldCodec, *, compact: bool, nullable: bool) -> FieldCodec:
    """An array as a tuple. A count that the bytes left cannot hold is refused before any
    element is read, so a hostile count costs nothing."""
    length = _COMPACT if compact else _LENGTH32
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
        length.write(_checked_length(len(value), length.limit, "array"), parts)
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
    """The tagged fields at the end of a struct: those of ``known`` by tag, others are skipped.

    A tag comes at most once and in rising order, and a known one fills its size exactly."""
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
            # The slice ends with the tag and begins with the buffer: offsets stay the same.
            values[tag], used = codec.read(buffer[:end], offset)
            if used != end:
                why = f"tag {tag} at byte {start} has {end - used} bytes too many"
                raise refusal(BAD_TAGS, why, buffer, start)
        offset = end
    return values, offset


def write_tags(tagged: list[tuple[int, FieldCodec, Any]], parts: list[Part]) -> None:
    """``tagged`` in rising order of tag; an empty list is one zero byte."""
    parts.append(uvarint_bytes(len(tagged)))
    for tag, codec, value in tagged:
        inner: list[Part] = []
        codec.write(value, inner)
        data = b"".join(inner)
        parts.append(uvarint_bytes(tag) + uvarint_bytes(len(data)))
        parts.append(data)
