"""Google's Struct, Value and ListValue as JSON text, because they may contain each other, which
columns cannot.

The kernel has already checked the bytes. Numbers that JSON does not have become strings, as
elsewhere in Protobuf's own mapping to JSON. This is the only kind of value that is decoded one at a
time.
"""

from __future__ import annotations

import json
import math
import struct
from typing import Any

from rangeland.decode.payload.protobuf.protobuf_descriptors import as_bytes, wire_values

_STRUCT, _LIST = 5, 6
_WIRES = {1: 0, 2: 1, 3: 2, 4: 0, _STRUCT: 2, _LIST: 2}
"""The wire types of a value's fields: null, number, string, boolean, struct, list."""


def struct_text(data: bytes) -> str:
    return _text(_struct(data))


def value_text(data: bytes) -> str:
    return _text(_value(data))


def list_text(data: bytes) -> str:
    return _text(_list(data))


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def _struct(data: bytes) -> dict[str, Any]:
    fields = {}
    for entry in _parts(data, 1):
        keys = _parts(entry, 1)
        values = _parts(entry, 2)
        key = keys[-1].decode() if keys else ""
        fields[key] = _value(b"".join(values))
    return fields


def _list(data: bytes) -> list[Any]:
    return [_value(one) for one in _parts(data, 1)]


def _value(data: bytes) -> Any:
    """The last field counts; consecutive parts of one struct or list are joined."""
    kind = 0
    parts: list[Any] = []
    for number, wire, value in wire_values(data):
        if _WIRES.get(number) == wire:
            if number != kind or number not in (_STRUCT, _LIST):
                parts.clear()
            kind = number
            parts.append(value)
    match kind:
        case 2:
            return _number(struct.unpack("<d", parts[0])[0])
        case 3:
            return parts[0].decode()
        case 4:
            return bool(parts[0])
        case 5:
            return _struct(b"".join(parts))
        case 6:
            return _list(b"".join(parts))
    return None


def _parts(data: bytes, wanted: int) -> list[bytes]:
    return [
        as_bytes(one) for number, wire, one in wire_values(data) if (number, wire) == (wanted, 2)
    ]


def _number(value: float) -> float | int | str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return int(value) if value.is_integer() and abs(value) < 1 << 53 else value
