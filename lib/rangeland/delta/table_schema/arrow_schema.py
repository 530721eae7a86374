"""Translates Arrow schemas to Delta's and back. Pure.

Delta's schema text is Spark's ``StructType`` as JSON. Arrow has types that Delta lacks (unsigned
integers, times of day): they are refused by name. The types of everything that executors write come
from here, so that the files agree with the log.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.types as pt

from rangeland.errors import TableRefused
from rangeland.untrusted import Unreadable, parse_json

UTC_MICROS = pa.timestamp("us", "UTC")

_PLAIN: dict[str, pa.DataType] = {
    "byte": pa.int8(),
    "short": pa.int16(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": UTC_MICROS,
    "timestamp_ntz": pa.timestamp("us"),
}
_BY_ARROW = {kind: name for name, kind in _PLAIN.items()}
_SQL = {"byte": "TINYINT", "short": "SMALLINT", "integer": "INT", "long": "BIGINT"}
_DECIMAL = re.compile(r"decimal\((\d+),\s*(-?\d+)\)")


def delta_type(kind: pa.DataType) -> Any:
    """Delta's JSON value for an Arrow type; raises TableRefused if Delta has none."""
    if pt.is_dictionary(kind):
        return delta_type(kind.value_type)
    if kind in _BY_ARROW:
        return _BY_ARROW[kind]
    if pt.is_timestamp(kind):
        return "timestamp_ntz" if kind.tz is None else "timestamp"
    if pt.is_large_string(kind):
        return "string"
    if pt.is_large_binary(kind) or pt.is_fixed_size_binary(kind):
        return "binary"
    if pt.is_decimal(kind) and kind.precision <= 38:
        return f"decimal({kind.precision},{kind.scale})"
    if pt.is_map(kind):
        return {
            "type": "map",
            "keyType": delta_type(kind.key_type),
            "valueType": delta_type(kind.item_type),
            "valueContainsNull": kind.item_field.nullable,
        }
    if pt.is_list(kind) or pt.is_large_list(kind) or pt.is_fixed_size_list(kind):
        return {
            "type": "array",
            "elementType": delta_type(kind.value_type),
            "containsNull": kind.value_field.nullable,
        }
    if pt.is_struct(kind):
        return {"type": "struct", "fields": [delta_field(f) for f in kind]}
    raise TableRefused(
        f"a column of type {kind} cannot be in a Delta table",
        do="cast it in the transform",
        type=str(kind),
    )


def delta_field(field: pa.Field) -> dict[str, Any]:
    return {
        "name": field.name,
        "type": delta_type(field.type),
        "nullable": field.nullable,
        "metadata": {},
    }


def schema_json(schema: pa.Schema) -> str:
    """Delta's ``schemaString`` for rows of this Arrow schema."""
    return json.dumps({"type": "struct", "fields": [delta_field(f) for f in schema]})


def arrow_type(delta: Any) -> pa.DataType | None:
    """The Arrow type in files for a Delta type; None for types that this library cannot write
    (variant, geometry, intervals)."""
    if isinstance(delta, str):
        if match := _DECIMAL.fullmatch(delta):
            return pa.decimal128(int(match[1]), int(match[2]))
        return _PLAIN.get(delta)
    parts = {"array": _array, "map": _map, "struct": _struct}
    return parts[delta["type"]](delta) if delta["type"] in parts else None


def _array(delta: Mapping[str, Any]) -> pa.DataType | None:
    inner = arrow_type(delta["elementType"])
    return inner and pa.list_(pa.field("element", inner, nullable=delta["containsNull"]))


def _map(delta: Mapping[str, Any]) -> pa.DataType | None:
    key = arrow_type(delta["keyType"])
    item = arrow_type(delta["valueType"])
    if key is None or item is None:
        return None
    return pa.map_(key, pa.field("value", item, nullable=delta["valueContainsNull"]))


def _struct(delta: Mapping[str, Any]) -> pa.DataType | None:
    fields = []
    for field in delta["fields"]:
        kind = arrow_type(field["type"])
        if kind is None:
            return None
        fields.append(pa.field(field["name"], kind, nullable=field["nullable"]))
    return pa.struct(fields)


def sql_type(delta: Any) -> str:
    """A Delta type in SQL, for statements such as ALTER TABLE."""
    if isinstance(delta, str):
        return _SQL.get(delta, delta.upper())
    if delta["type"] == "array":
        return f"ARRAY<{sql_type(delta['elementType'])}>"
    if delta["type"] == "map":
        return f"MAP<{sql_type(delta['keyType'])}, {sql_type(delta['valueType'])}>"
    if delta["type"] == "struct":
        inner = ", ".join(f"{f['name']}: {sql_type(f['type'])}" for f in delta["fields"])
        return f"STRUCT<{inner}>"
    return str(delta.get("type", delta))


class DecimalType(NamedTuple):
    """How many digits a decimal number has before and after the point."""

    whole_digits: int
    scale: int


def decimal_of(delta: Any) -> DecimalType | None:
    """The decimal type with this name in Delta; None for any other type."""
    match = _DECIMAL.fullmatch(delta) if isinstance(delta, str) else None
    return match and DecimalType(int(match[1]) - int(match[2]), int(match[2]))


def names_in(schema_text: str) -> frozenset[str]:
    """The names of the top-level columns of a Delta schema."""
    return frozenset(field["name"] for field in fields_of(schema_text))


def fields_of(schema_text: str) -> list[dict[str, Any]]:
    """The top-level fields of a Delta schema."""
    fields: list[dict[str, Any]] = json.loads(schema_text)["fields"]
    return fields


def all_fields(kind: Any) -> Iterator[dict[str, Any]]:
    """The fields of a Delta type; each field comes before those inside it."""
    if not isinstance(kind, dict):
        return
    for field in kind.get("fields", ()):
        yield field
        yield from all_fields(field["type"])
    for part in ("elementType", "keyType", "valueType"):
        yield from all_fields(kind.get(part))


def require_schema(schema_text: str) -> str:
    """The text of a schema that another program may have written. Raises Unreadable if the text is
    not a schema."""
    try:
        if arrow_type(parse_json(schema_text)) is not None:
            return schema_text
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise Unreadable(f"columns is not a schema: {error}") from error
    raise Unreadable("columns has a type that cannot be written")
