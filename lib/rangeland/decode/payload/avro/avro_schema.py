"""Avro schemas as values, and the Arrow type of each.

Names are replaced by the types that they stand for, so a recursive schema cannot be a value: it is
refused, since no table has columns for it. Logical types that are unknown or do not fit their type
are ignored, as the specification requires. Timestamps of every unit become columns of microseconds;
for nanoseconds, the last three digits are cut off, rounding down. Everything is nullable in Arrow:
that a field may not be null is a rule for payloads, not for the table, since its other rows may
come from other schemas.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import pyarrow as pa

from rangeland.decode.payload.column_buffers import (
    EMPTY_STRUCT,
    MAX_COLUMNS,
    MAX_DEPTH,
    decimal_type,
    list_type,
    struct_type,
)
from rangeland.decode.payload.payload_decoder import PayloadSchemaError
from rangeland.untrusted import Unreadable, parse_json

PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
NO_DEFAULT = object()
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*")
_UTC = pa.timestamp("us", "UTC")
_PLAIN = {
    "null": EMPTY_STRUCT,
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
}
_LOGICAL = {
    ("int", "date"): pa.date32(),
    ("long", "timestamp-millis"): _UTC,
    ("long", "timestamp-micros"): _UTC,
    ("long", "timestamp-nanos"): _UTC,
    ("long", "local-timestamp-millis"): pa.timestamp("us"),
    ("long", "local-timestamp-micros"): pa.timestamp("us"),
    ("long", "local-timestamp-nanos"): pa.timestamp("us"),
    ("string", "uuid"): pa.string(),
}
MAX_TYPES = 100_000


@dataclass(frozen=True)
class AvroPrimitive:
    name: str
    logical: str = ""
    precision: int = 0
    scale: int = 0


@dataclass(frozen=True)
class AvroFixed:
    name: str
    size: int
    logical: str = ""
    precision: int = 0
    scale: int = 0
    aliases: tuple[str, ...] = ()


@dataclass(frozen=True)
class AvroEnum:
    name: str
    symbols: tuple[str, ...]
    default: str | None = None
    aliases: tuple[str, ...] = ()


@dataclass(frozen=True)
class AvroArray:
    items: AvroType


@dataclass(frozen=True)
class AvroMap:
    values: AvroType


@dataclass(frozen=True)
class AvroUnion:
    branches: tuple[AvroType, ...]


@dataclass(frozen=True)
class AvroField:
    name: str
    type: AvroType
    default: Any = field(default=NO_DEFAULT, compare=False)
    aliases: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class AvroRecord:
    name: str
    fields: tuple[AvroField, ...]
    aliases: tuple[str, ...] = ()


AvroType: TypeAlias = (
    AvroPrimitive | AvroFixed | AvroEnum | AvroArray | AvroMap | AvroUnion | AvroRecord
)


def parse_avro_schema(text: str) -> AvroType:
    """The type that a schema's JSON text describes. Raises PayloadSchemaError."""
    try:
        value = parse_json(text)
    except Unreadable as error:
        if not _NAME.fullmatch(text.strip()):  # often just the bare name of a primitive type
            raise PayloadSchemaError(str(error)) from None
        value = text.strip()
    return _SchemaParser().parse(value, "", 0)


def shown_type(kind: AvroType) -> str:
    """A type in a few words, for messages."""
    match kind:
        case AvroPrimitive() | AvroFixed() if kind.logical == "decimal":
            return f"decimal({kind.precision},{kind.scale})"
        case AvroPrimitive():
            return kind.logical or kind.name
        case AvroFixed():
            return f"fixed {kind.name} of {kind.size} bytes"
        case AvroEnum():
            return f"enum {kind.name}"
        case AvroRecord():
            return f"record {kind.name}"
        case AvroArray():
            return f"array of {shown_type(kind.items)}"
        case AvroMap():
            return f"map of {shown_type(kind.values)}"
        case AvroUnion():
            return f"[{', '.join(map(shown_type, kind.branches))}]"


def types_inside(kind: AvroType) -> tuple[AvroType, ...]:
    """The types of a type's fields, branches, items or values."""
    match kind:
        case AvroRecord():
            return tuple(one.type for one in kind.fields)
        case AvroUnion():
            return kind.branches
        case AvroArray():
            return (kind.items,)
        case AvroMap():
            return (kind.values,)
    return ()


def value_branches(kind: AvroType) -> tuple[AvroType, ...]:
    """The branches of a type, except null."""
    branches = kind.branches if isinstance(kind, AvroUnion) else (kind,)
    return tuple(one for one in branches if not is_null(one))


def is_null(kind: AvroType) -> bool:
    return isinstance(kind, AvroPrimitive) and kind.name == "null"


def arrow_type_of(kind: AvroType) -> pa.DataType:
    """The Arrow type of an Avro type. Raises PayloadSchemaError for types that no table can
    have."""
    if _count_columns(kind, {}) > MAX_COLUMNS:
        raise PayloadSchemaError(f"the schema has more than {MAX_COLUMNS} columns")
    return _arrow_type(kind)


def _count_columns(kind: AvroType, counts: dict[int, int]) -> int:
    """The number of columns of a type. A named type that is used in several places is counted once
    for each."""
    if id(kind) not in counts:
        counts[id(kind)] = 1 + sum(_count_columns(one, counts) for one in types_inside(kind))
    return counts[id(kind)]


def _arrow_type(kind: AvroType) -> pa.DataType:
    match kind:
        case AvroPrimitive() | AvroFixed() if kind.logical == "decimal":
            return decimal_type(kind.precision, kind.scale)
        case AvroPrimitive():
            return _LOGICAL.get((kind.name, kind.logical), _PLAIN[kind.name])
        case AvroFixed():
            return pa.string() if kind.logical == "uuid" else pa.binary()
        case AvroEnum():
            return pa.string()
        case AvroArray():
            return list_type(_arrow_type(kind.items))
        case AvroMap():
            return pa.map_(pa.string(), _arrow_type(kind.values))
        case AvroRecord():
            fields = [(one.name, _arrow_type(one.type)) for one in kind.fields]
            return struct_type(fields) if fields else EMPTY_STRUCT
        case AvroUnion():
            branches = value_branches(kind)
            if len(branches) > 1:
                members = [(f"member{i}", _arrow_type(one)) for i, one in enumerate(branches)]
                return struct_type(members)
            return _arrow_type(branches[0]) if branches else EMPTY_STRUCT


class _SchemaParser:
    def __init__(self) -> None:
        self._named: dict[str, AvroType | None] = {}  # None: not complete yet
        self._count = 0

    def parse(self, value: Any, namespace: str, depth: int) -> AvroType:
        self._count += 1
        if depth > MAX_DEPTH or self._count > MAX_TYPES:
            raise PayloadSchemaError("the schema is nested too deeply or too large")
        if isinstance(value, str):
            return self._by_name(value, namespace)
        if isinstance(value, list):
            return self._union(value, namespace, depth)
        if not isinstance(value, dict) or "type" not in value:
            raise PayloadSchemaError(f"{_short(value)} is not an Avro type")
        kind = value["type"]
        match kind:
            case "record" | "error":
                return self._record(value, namespace, depth)
            case "enum":
                return self._enum(value, namespace)
            case "fixed":
                return self._fixed(value, namespace)
            case "array":
                return AvroArray(self.parse(_part(value, "items"), namespace, depth + 1))
            case "map":
                return AvroMap(self.parse(_part(value, "values"), namespace, depth + 1))
            case str() if kind in PRIMITIVES:
                return _primitive(kind, value)
        return self.parse(kind, namespace, depth + 1)

    def _by_name(self, name: str, namespace: str) -> AvroType:
        if name in PRIMITIVES:
            return AvroPrimitive(name)
        for full in (_full(name, namespace), name):
            if full in self._named:
                kind = self._named[full]
                if kind is None:
                    raise PayloadSchemaError(
                        f"the type {full} contains itself, which no column of a table can represent"
                    )
                return kind
        raise PayloadSchemaError(f"the type {_short(name)} is not defined")

    def _define(self, value: Mapping[str, Any], namespace: str) -> str:
        name = value.get("name")
        if name is None:
            raise PayloadSchemaError(f"a type {_short(value.get('type'))} has no name")
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise PayloadSchemaError(f"{_short(name)} is not a name that a type can have")
        own = value.get("namespace", namespace)
        full = _full(name, own if isinstance(own, str) else "")
        if full in self._named:
            raise PayloadSchemaError(f"the type {full} is defined twice")
        self._named[full] = None
        return full

    def _record(self, value: Mapping[str, Any], namespace: str, depth: int) -> AvroRecord:
        full = self._define(value, namespace)
        inner = full.rpartition(".")[0]
        parts = _part(value, "fields")
        if not isinstance(parts, list):
            raise PayloadSchemaError(f"the fields of {full} are not a list")
        fields: dict[str, AvroField] = {}
        for part in parts:
            name = part.get("name") if isinstance(part, dict) else None
            if not isinstance(name, str) or not _NAME.fullmatch(name) or "." in name:
                raise PayloadSchemaError(f"{full} has a field without a proper name")
            if name in fields:
                raise PayloadSchemaError(f"{full} has the field {name} twice")
            kind = self.parse(_part(part, "type"), inner, depth + 1)
            default = part.get("default", NO_DEFAULT)
            fields[name] = AvroField(name, kind, default, _aliases(part))
        record = AvroRecord(full, tuple(fields.values()), _full_aliases(value, full))
        self._named[full] = record
        return record

    def _enum(self, value: Mapping[str, Any], namespace: str) -> AvroEnum:
        full = self._define(value, namespace)
        symbols = _part(value, "symbols")
        if not isinstance(symbols, list) or not all(isinstance(symbol, str) for symbol in symbols):
            raise PayloadSchemaError(f"the symbols of {full} are not a list of names")
        default = value.get("default")
        if default is not None and default not in symbols:
            raise PayloadSchemaError(f"the default of {full} is not one of its symbols")
        aliases = _full_aliases(value, full)
        enum = self._named[full] = AvroEnum(full, tuple(symbols), default, aliases)
        return enum

    def _fixed(self, value: Mapping[str, Any], namespace: str) -> AvroFixed:
        full = self._define(value, namespace)
        size = _part(value, "size")
        if isinstance(size, bool) or not isinstance(size, int) or not 0 <= size < 1 << 31:
            raise PayloadSchemaError(f"{_short(size)} is not a size that {full} can have")
        logical = value.get("logicalType")
        fixed = AvroFixed(full, size, aliases=_full_aliases(value, full))
        if logical == "decimal" and (digits := _digits(value)):
            precision, scale = digits
            fixed = replace(fixed, logical="decimal", precision=precision, scale=scale)
        elif logical == "uuid" and size == 16:
            fixed = replace(fixed, logical="uuid")
        self._named[full] = fixed
        return fixed

    def _union(self, value: list[Any], namespace: str, depth: int) -> AvroUnion:
        branches = tuple(self.parse(branch, namespace, depth + 1) for branch in value)
        if any(isinstance(branch, AvroUnion) for branch in branches) or not branches:
            raise PayloadSchemaError("a union has no branches, or another union as a branch")
        kinds = [branch_key(branch) for branch in branches]
        if len(set(kinds)) < len(kinds):
            raise PayloadSchemaError("a union has two branches of one type")
        return AvroUnion(branches)


def branch_key(kind: AvroType) -> str:
    """The key that distinguishes a branch of a union from the others."""
    if isinstance(kind, AvroArray | AvroMap):
        return type(kind).__name__
    assert not isinstance(kind, AvroUnion)
    return kind.name


def _primitive(name: str, value: Mapping[str, Any]) -> AvroPrimitive:
    logical = value.get("logicalType")
    if name == "bytes" and logical == "decimal" and (digits := _digits(value)):
        return AvroPrimitive(name, "decimal", *digits)
    if isinstance(logical, str) and (name, logical) in _LOGICAL:
        return AvroPrimitive(name, logical)
    return AvroPrimitive(name)


def _digits(value: Mapping[str, Any]) -> tuple[int, int] | None:
    """Precision and scale; None if they make no sense."""
    precision = value.get("precision")
    scale = value.get("scale", 0)
    numbers = (precision, scale)
    if any(isinstance(number, bool) or not isinstance(number, int) for number in numbers):
        return None
    if precision < 1 or not 0 <= scale <= precision:  # type: ignore[operator]
        return None
    return precision, scale  # type: ignore[return-value]


def _part(value: Mapping[str, Any], name: str) -> Any:
    if name not in value:
        raise PayloadSchemaError(f"{_short(value)} has no {name}")
    return value[name]


def _aliases(value: Mapping[str, Any]) -> tuple[str, ...]:
    aliases = value.get("aliases")
    return tuple(map(str, aliases)) if isinstance(aliases, list) else ()


def _full_aliases(value: Mapping[str, Any], full: str) -> tuple[str, ...]:
    """The aliases of a named type; they are in the namespace of its full name unless they have
    their own."""
    namespace = full.rpartition(".")[0]
    return tuple(_full(alias, namespace) for alias in _aliases(value))


def _full(name: str, namespace: str) -> str:
    return name if "." in name or not namespace else f"{namespace}.{name}"


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:59]}…"
