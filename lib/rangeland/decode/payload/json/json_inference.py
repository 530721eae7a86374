"""Describes a sample of JSON payloads, and infers the schema that would decode all of it.

Nothing is NOT NULL, because a sample cannot prove that. Whole numbers become BIGINT, or
DECIMAL(38,0) if some do not fit; if there are fractions among them, DOUBLE. Strings become DATE,
TIMESTAMP or TIMESTAMP_NTZ if all of them have that form. A field that was always null or empty
becomes STRING. Objects with many different names become MAPs. A field whose values fit no single
type, or whose name differs from another's only in case, is reported but gets no column.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa

from rangeland.decode.payload.json.json_parser import (
    JsonMismatch,
    JsonNumber,
    JsonObject,
    parse_payload,
)
from rangeland.decode.payload.json.json_scalars import read_scalar
from rangeland.decode.payload.schema_ddl import (
    INSTANT,
    LOCAL_TIME,
    MAX_SCHEMA_DEPTH,
    print_ddl,
    print_type,
)

MANY_NAMES: Final = 100
"""An object with more different names than this, all of one type, is treated as a map."""

MAX_FIELDS: Final = 2_000
"""How many fields are examined. The values of any further fields are not recorded."""

_WHOLE: Final = pa.decimal128(38, 0)
_STRING_TYPES: Final = (pa.date32(), INSTANT, LOCAL_TIME)
_NUMBER_TYPES: Final = (pa.int64(), _WHOLE, pa.float64())


@dataclass(frozen=True)
class InferredField:
    """One field of the sample. ``path`` has the form ``customer.tags[].name``."""

    path: str
    present: int
    """How many of the objects have the field."""
    parents: int
    """How many objects there were that could have had the field."""
    nulls: int
    types: Mapping[str, int]
    """How many of its values were null, boolean, integer, number, string, date, timestamp, array or
    object."""
    column: str | None
    """The type in DDL; None if no type fits all values."""


@dataclass(frozen=True)
class InferredSchema:
    records: int
    """How many of the payloads are JSON objects."""
    fields: Sequence[InferredField]
    schema: pa.StructType | None
    """The inferred schema; None if there is no field that could be a column."""

    @property
    def ddl(self) -> str:
        return "" if self.schema is None else print_ddl(self.schema)


def infer_json_schema(payloads: Iterable[bytes | None]) -> InferredSchema:
    """The schema of the payloads that are JSON objects. Null payloads do not count."""
    root = _Seen()
    budget = _Budget(MAX_FIELDS)
    records = 0
    for payload in payloads:
        if payload is None:
            continue
        try:
            value = parse_payload(payload)
        except JsonMismatch:
            value = None
        if isinstance(value, JsonObject):
            records += 1
            root.add(value, budget)
    kind = root.column(1) if root.fields else None
    schema = kind if kind is not None and pa.types.is_struct(kind) else None
    return InferredSchema(records, tuple(root.describe_fields("", 1)), schema)


@dataclass
class _Budget:
    fields: int


@dataclass
class _Seen:
    """All values of one field that have been seen."""

    types: Counter[str] = field(default_factory=Counter)
    fits: Counter[pa.DataType] = field(default_factory=Counter)
    """For each type that a scalar may have, how many values fit it."""
    fields: dict[str, _Seen] = field(default_factory=dict)
    item: _Seen | None = None

    @property
    def count(self) -> int:
        return sum(self.types.values())

    def add(self, value: Any, budget: _Budget) -> None:
        self.types[self._name(value)] += 1
        if isinstance(value, JsonObject):
            for key, inner in dict(value).items():
                if key not in self.fields:
                    if budget.fields == 0:
                        continue
                    budget.fields -= 1
                    self.fields[key] = _Seen()
                self.fields[key].add(inner, budget)
        elif isinstance(value, list):
            self.item = self.item or _Seen()
            for inner in value:
                self.item.add(inner, budget)

    def _name(self, value: Any) -> str:
        """Counts the types that a value fits, and returns what reports call the value."""
        if isinstance(value, JsonNumber):
            fitting = self._count_fits(value, _NUMBER_TYPES)
            whole = value.text.lstrip("-").isdigit()
            return "integer" if whole and fitting != [pa.float64()] else "number"
        if isinstance(value, str):
            fitting = self._count_fits(value, _STRING_TYPES)
            names = {pa.date32(): "date", INSTANT: "timestamp", LOCAL_TIME: "timestamp"}
            return names[fitting[0]] if fitting else "string"
        if value is None or isinstance(value, bool):
            return "null" if value is None else "boolean"
        return "object" if isinstance(value, JsonObject) else "array"

    def _count_fits(self, value: Any, kinds: Sequence[pa.DataType]) -> list[pa.DataType]:
        fitting = [kind for kind in kinds if read_scalar(value, kind) is not None]
        self.fits.update(fitting)
        return fitting

    def column(self, depth: int) -> pa.DataType | None:
        """The type that decodes all values; None if there is none."""
        names = set(self.types) - {"null"}
        if not names:
            return pa.string()
        if depth > MAX_SCHEMA_DEPTH:
            return None
        if names == {"object"}:
            return self._object(depth)
        if names == {"array"}:
            kind = self.item.column(depth + 1) if self.item else pa.string()
            return None if kind is None else pa.list_(pa.field("element", kind))
        if names == {"boolean"}:
            return pa.bool_()
        values = self.count - self.types["null"]
        if names <= {"integer", "number"}:
            kinds = _NUMBER_TYPES if names == {"integer"} else _NUMBER_TYPES[-1:]
            return next((kind for kind in kinds if self.fits[kind] == values), None)
        if names <= {"string", "date", "timestamp"}:
            fitting = (kind for kind in _STRING_TYPES if self.fits[kind] == values)
            return next(fitting, pa.string())
        return None

    def _object(self, depth: int) -> pa.DataType | None:
        if not self.fields:
            return pa.map_(pa.string(), pa.field("value", pa.string()))
        if len(self.fields) > MANY_NAMES and depth > 1:
            kind = self._values().column(depth + 1)
            if kind is not None:
                return pa.map_(pa.string(), pa.field("value", kind))
        fields = [pa.field(name, kind) for name, kind in self._columns(depth) if kind is not None]
        return pa.struct(fields) if fields else None

    def _values(self) -> _Seen:
        """The values of all fields together, as if they belonged to one field."""
        merged = _Seen()
        for child in self.fields.values():
            merged.merge(child)
        return merged

    def merge(self, other: _Seen) -> None:
        self.types.update(other.types)
        self.fits.update(other.fits)
        for name, child in other.fields.items():
            self.fields.setdefault(name, _Seen()).merge(child)
        if other.item:
            self.item = self.item or _Seen()
            self.item.merge(other.item)

    def _columns(self, depth: int) -> Iterator[tuple[str, pa.DataType | None]]:
        """The type of each field; if names differ only in case, only the first has a type."""
        names: set[str] = set()
        for name, child in self.fields.items():
            is_usable = bool(name) and name.lower() not in names
            names.add(name.lower())
            yield name, child.column(depth + 1) if is_usable else None

    def describe_fields(self, path: str, depth: int) -> Iterator[InferredField]:
        """All fields inside it, at any depth."""
        kind = self.column(depth)
        if self.item:
            yield from self.item.describe_fields(f"{path}[]", depth + 1)
        if kind is not None and pa.types.is_map(kind):
            yield from self._values().describe_fields(f"{path}[]", depth + 1)
            return
        for name, column in self._columns(depth):
            child = self.fields[name]
            inside = f"{path}.{name}" if path else name
            yield InferredField(
                inside,
                child.count,
                self.types["object"],
                child.types["null"],
                dict(child.types.most_common()),
                None if column is None else print_type(column),
            )
            yield from child.describe_fields(inside, depth + 1)
