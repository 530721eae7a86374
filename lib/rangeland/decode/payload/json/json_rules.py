"""The rules by which a schema decodes JSON payloads. Both decoders follow them.

**A record is undecodable** unless it is exactly one JSON object (RFC 8259, UTF-8, no byte order
mark) with the schema's shape. No value is ever turned into null or rounded to make it fit:

| type | accepted values |
|---|---|
| BOOLEAN | ``true``, ``false`` |
| TINYINT ... BIGINT | a number in range, written without point and exponent |
| FLOAT, DOUBLE | any number; the nearest value is taken, a number beyond the largest is refused |
| DECIMAL(p,s) | a number, or a string that consists of one, that fits exactly |
| STRING | a string; unpaired surrogates are refused |
| BINARY | a string in Base64, padded |
| DATE | ``"YYYY-MM-DD"``, years 0001 to 9999 |
| TIMESTAMP | ``"YYYY-MM-DDThh:mm[:ss[.f]]"`` and an offset: ``Z``, ``+hh``, ``+hhmm``, ``+hh:mm`` |
| TIMESTAMP_NTZ | the same without an offset |
| ARRAY, STRUCT, MAP<STRING, ...> | an array, an object |

A space may take the place of the ``T``. Digits after the microsecond are cut off, as in Spark. A
time without an offset is not an instant, so TIMESTAMP refuses it, and TIMESTAMP_NTZ refuses a time
with an offset. Names are compared exactly.

``null`` and a missing field both become null; in a NOT NULL field either makes the record
undecodable. So does a field of the schema, or a key of a map, that occurs twice. Fields that the
schema lacks must still be valid JSON, but may be repeated. Nothing may be nested deeper than
``MAX_DEPTH``, and arrays may not have more than ``MAX_CELLS_PER_BYTE`` values for each byte of the
record, or more than ``MAX_CELLS`` in all.

``UnknownFields.KEEP``: ``rescued`` is a JSON object that contains the fields that the schema lacks,
as they were written, inside the fields where they were found:
``{"a": 1, "customer": {"vip": true}}``. In arrays, elements before one that has something to rescue
are ``{}``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pyarrow as pa

from rangeland.decode.payload.column_buffers import children_of
from rangeland.decode.payload.payload_decoder import PayloadSchemaError
from rangeland.decode.payload.schema_ddl import MAX_SCHEMA_DEPTH, TYPE_NAMES

MAX_DEPTH: Final = 64
"""How deeply arrays and objects may be nested in a payload; the payload's own object is the first
level."""

MAX_CELLS_PER_BYTE: Final = 8
FREE_CELLS: Final = 20_000
"""A small text can become a huge table: ``[{},{},...]`` as an array of structs with a thousand
fields. So the elements of all arrays and maps in a record may have only a certain number of values
for each byte of the record, plus this many whatever its length."""

MAX_CELLS: Final = 1 << 24
"""The limit for records of any length: the values then take up to 256 MiB."""

MAX_SCHEMA_FIELDS: Final = 10_000


def check_schema_fits_json(schema: pa.DataType) -> None:
    """Raises PayloadSchemaError for a schema that JSON cannot fulfil."""
    if not pa.types.is_struct(schema):
        raise PayloadSchemaError(f"a JSON payload is an object, not {schema}")
    count = sum(1 for _ in _decodable_fields(pa.field("", schema), "", 1))
    if count > MAX_SCHEMA_FIELDS:
        raise PayloadSchemaError(
            f"the schema has {count:,} fields; {MAX_SCHEMA_FIELDS:,} are allowed"
        )


def most_cells(length: int) -> int:
    """The most values that arrays and maps may have in a record of this many bytes."""
    return min(FREE_CELLS + MAX_CELLS_PER_BYTE * length, MAX_CELLS)


def cells_of(kind: pa.DataType) -> int:
    """The number of values that a null of this type takes in Arrow's columns."""
    if not pa.types.is_struct(kind):
        return 1
    return 1 + sum(cells_of(child.type) for child in children_of(kind))


def _decodable_fields(field: pa.Field, path: str, depth: int) -> Iterator[pa.Field]:
    """The field and all fields in it, each of a type that can be decoded."""
    kind = field.type
    if depth > MAX_SCHEMA_DEPTH + 1:
        raise PayloadSchemaError(f"types are nested more than {MAX_SCHEMA_DEPTH} deep")
    if pa.types.is_map(kind) and kind.key_type != pa.string():
        raise PayloadSchemaError(f"the keys of the map {path} must be STRING, as they are in JSON")
    yield field
    children = children_of(kind)
    if pa.types.is_struct(kind) and not children:
        raise PayloadSchemaError(f"{path or 'the schema'} has no fields")
    if pa.types.is_struct(kind) and len({child.name for child in children}) < len(children):
        raise PayloadSchemaError(f"a field occurs twice in {path or 'the schema'}")
    if not children and not (pa.types.is_decimal128(kind) or kind in TYPE_NAMES):
        raise PayloadSchemaError(f"the field {path} is of type {kind}, which JSON does not have")
    for child in children:
        yield from _decodable_fields(
            child, f"{path}.{child.name}" if path else child.name, depth + 1
        )
