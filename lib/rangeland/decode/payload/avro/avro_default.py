"""Default values of Avro schemas, encoded as a writer would have written them."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from rangeland.decode.payload.avro.avro_schema import (
    NO_DEFAULT,
    AvroArray,
    AvroEnum,
    AvroFixed,
    AvroMap,
    AvroPrimitive,
    AvroRecord,
    AvroType,
    AvroUnion,
    shown_type,
)
from rangeland.decode.payload.payload_decoder import PayloadSchemaError
from rangeland.wire.primitives import uvarint_bytes


class _Unfit(ValueError):
    """The value does not belong to its type."""


def encode_default(kind: AvroType, value: Any, path: str) -> bytes:
    """A default, given as a JSON value, in binary. Raises PayloadSchemaError if it does not belong
    to the type."""
    try:
        return _encode(kind, value)
    except (_Unfit, UnicodeError, OverflowError):
        shown = repr(value)[:60]
        raise PayloadSchemaError(
            f"the default {shown} of {path} is not a value of {shown_type(kind)}"
        ) from None


def _encode(kind: AvroType, value: Any) -> bytes:
    match kind:
        case AvroPrimitive():
            return _PRIMITIVES[kind.name](value)
        case AvroFixed():
            data: bytes = _require(value, str).encode("latin-1")
            if len(data) != kind.size:
                raise _Unfit
            return data
        case AvroEnum():
            if value not in kind.symbols:
                raise _Unfit
            return _long(kind.symbols.index(value))
        case AvroArray():
            items = [_encode(kind.items, one) for one in _require(value, list)]
            return _block(items)
        case AvroMap():
            entries = _require(value, dict).items()
            return _block([_text(key) + _encode(kind.values, one) for key, one in entries])
        case AvroRecord():
            return _record(kind, _require(value, dict))
        case AvroUnion():
            return _union(kind, value)


def _record(kind: AvroRecord, value: dict[str, Any]) -> bytes:
    parts = []
    for field in kind.fields:
        field_value = value.get(field.name, field.default)
        if field_value is NO_DEFAULT:
            raise _Unfit
        parts.append(_encode(field.type, field_value))
    return b"".join(parts)


def _union(kind: AvroUnion, value: Any) -> bytes:
    """Encodes the value by the first branch, as the specification requires, or else by another
    branch that fits, as its successor allows."""
    for at, branch in enumerate(kind.branches):
        try:
            return _long(at) + _encode(branch, value)
        except (_Unfit, UnicodeError):
            continue
    raise _Unfit


def _require(value: Any, kind: type) -> Any:
    if type(value) is not kind:
        raise _Unfit
    return value


def _long(value: int, bits: int = 64) -> bytes:
    if not -1 << bits - 1 <= value < 1 << bits - 1:
        raise _Unfit
    return uvarint_bytes(value << 1 ^ value >> 63)


def _block(items: list[bytes]) -> bytes:
    return (_long(len(items)) + b"".join(items) if items else b"") + b"\0"


def _bytes(value: bytes) -> bytes:
    return _long(len(value)) + value


def _text(value: Any) -> bytes:
    return _bytes(_require(value, str).encode())


def _null(value: Any) -> bytes:
    if value is not None:
        raise _Unfit
    return b""


def _number(value: Any, form: str) -> bytes:
    if type(value) not in (int, float):
        raise _Unfit
    return struct.pack(form, value)


_PRIMITIVES: dict[str, Callable[[Any], bytes]] = {
    "null": _null,
    "boolean": lambda value: b"\1" if _require(value, bool) else b"\0",
    "int": lambda value: _long(_require(value, int), 32),
    "long": lambda value: _long(_require(value, int)),
    "float": lambda value: _number(value, "<f"),
    "double": lambda value: _number(value, "<d"),
    "bytes": lambda value: _bytes(_require(value, str).encode("latin-1")),
    "string": _text,
}
