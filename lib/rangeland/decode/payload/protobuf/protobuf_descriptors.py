"""Descriptor sets, which Protobuf's compiler writes, as values.

A descriptor set is itself a Protobuf message, made of a few message types that do not change. So it
is read here, by field numbers, and executors need no library for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from rangeland.decode.payload.payload_decoder import PayloadSchemaError

MAX_TYPES_DEPTH = 64


@dataclass
class ProtoField:
    name: str
    number: int
    label: int
    type: int
    type_name: str
    """The full name of its message or enum, without the leading dot."""
    oneof: int | None
    is_optional: bool
    """Whether it was declared ``optional`` in a proto3 file."""


@dataclass
class ProtoType:
    """A message type."""

    name: str
    is_proto2: bool
    fields: list[ProtoField] = field(default_factory=list)
    is_map_entry: bool = False


@dataclass
class ProtoEnum:
    name: str
    is_closed: bool
    symbols: dict[int, str] = field(default_factory=dict)


@dataclass
class ProtoTypes:
    """Everything in a descriptor set, by full name."""

    messages: dict[str, ProtoType] = field(default_factory=dict)
    enums: dict[str, ProtoEnum] = field(default_factory=dict)
    main_messages: list[str] = field(default_factory=list)
    """The top-level messages of the last file, which is the one that was compiled."""


def parse_descriptor_set(data: bytes) -> ProtoTypes:
    """The types in a serialized descriptor set. Raises PayloadSchemaError."""
    types = ProtoTypes()
    try:
        for number, file in wire_fields(data):
            if number == 1:
                _read_file(as_bytes(file), types)
    except (ValueError, IndexError) as error:
        if isinstance(error, PayloadSchemaError):
            raise
        raise PayloadSchemaError(f"it is not a descriptor set: {error}") from None
    if not types.messages:
        raise PayloadSchemaError("the descriptor set has no messages")
    return types


def _read_file(data: bytes, found: ProtoTypes) -> None:
    parts = list(wire_fields(data))
    package = _text(parts, 2)
    syntax = _text(parts, 12) or "proto2"
    if syntax not in ("proto2", "proto3"):
        raise PayloadSchemaError(f"{_text(parts, 1)} has the syntax {syntax}: use proto2 or proto3")
    found.main_messages = []
    for number, value in parts:
        if number == 4:
            name = _read_message(as_bytes(value), package, syntax == "proto2", found, 0)
            found.main_messages.append(name)
        elif number == 5:
            _read_enum(as_bytes(value), package, syntax == "proto2", found)


def _read_message(data: bytes, outer: str, is_proto2: bool, found: ProtoTypes, depth: int) -> str:
    if depth > MAX_TYPES_DEPTH:
        raise PayloadSchemaError("message types are nested too deeply")
    parts = list(wire_fields(data))
    name = name_inside(outer, _text(parts, 1))
    message = found.messages[name] = ProtoType(name, is_proto2)
    for number, value in parts:
        if number == 2:
            message.fields.append(_field(as_bytes(value)))
        elif number == 3:
            _read_message(as_bytes(value), name, is_proto2, found, depth + 1)
        elif number == 4:
            _read_enum(as_bytes(value), name, is_proto2, found)
        elif number == 7:
            message.is_map_entry = any(n == 7 and v for n, v in wire_fields(as_bytes(value)))
    return name


def _field(data: bytes) -> ProtoField:
    parts = list(wire_fields(data))
    numbers = {number: value for number, value in parts if isinstance(value, int)}
    return ProtoField(
        name=_text(parts, 1),
        number=numbers.get(3, 0),
        label=numbers.get(4, 1),
        type=numbers.get(5, 0),
        type_name=_text(parts, 6).removeprefix("."),
        oneof=numbers.get(9),
        is_optional=bool(numbers.get(17, 0)),
    )


def _read_enum(data: bytes, outer: str, is_proto2: bool, found: ProtoTypes) -> None:
    parts = list(wire_fields(data))
    name = name_inside(outer, _text(parts, 1))
    enum = found.enums[name] = ProtoEnum(name, is_proto2)
    for number, value in parts:
        if number == 2:
            inner = list(wire_fields(as_bytes(value)))
            at = next((v for n, v in inner if n == 2 and isinstance(v, int)), 0)
            enum.symbols.setdefault(_int32(at), _text(inner, 1))  # the first of several names


def _int32(value: int) -> int:
    low = value & 0xFFFFFFFF
    return low - (1 << 32) if low >> 31 else low


def wire_fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Numbers and values of all fields, except those of fixed width. Raises ValueError or
    IndexError."""
    return ((number, value) for number, wire, value in wire_values(data) if wire in (0, 2))


def wire_values(data: bytes) -> Iterator[tuple[int, int, int | bytes]]:
    """Field numbers, wire types and values. Raises ValueError or IndexError."""
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        wire = tag & 7
        if wire == 0:
            value, at = _varint(data, at)
            yield tag >> 3, wire, value
            continue
        size = {1: 8, 5: 4}.get(wire, -1)
        if wire == 2:
            size, at = _varint(data, at)
        if not 0 <= size <= len(data) - at:
            raise ValueError(f"a field of wire type {wire} exceeds it")
        yield tag >> 3, wire, data[at : at + size]
        at += size


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at += 1
        shift += 7
        if byte < 0x80:
            return value, at
        if shift > 63:
            raise ValueError("a number is too long")


def as_bytes(value: int | bytes) -> bytes:
    if isinstance(value, int):
        raise ValueError("a number in place of a message")
    return value


def _text(parts: list[tuple[int, int | bytes]], number: int) -> str:
    return next((v.decode() for n, v in parts if n == number and isinstance(v, bytes)), "")


def name_inside(outer: str, name: str) -> str:
    return f"{outer}.{name}" if outer else name
