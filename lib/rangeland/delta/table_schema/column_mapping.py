"""Column mapping: tables in which columns have other names in files than in SQL. Pure.

In such a table every field has a number and a physical name, both kept in its metadata. Files,
their statistics and partition values use the physical names, so that a column can be renamed or
dropped without rewriting files. Parquet files also contain the numbers: if columns are mapped by
id, readers find them by number alone. Schemas are Delta's JSON.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.types as pt

from rangeland.delta.table_metadata import TableMetadata
from rangeland.delta.table_schema.arrow_schema import all_fields, fields_of

MODE_PROPERTY = "delta.columnMapping.mode"
HIGHEST_ID_PROPERTY = "delta.columnMapping.maxColumnId"
ID = "delta.columnMapping.id"
PHYSICAL_NAME = "delta.columnMapping.physicalName"
NESTED_IDS = "delta.columnMapping.nested.ids"
"""The property for the numbers of array elements, map keys and map values, which are not fields."""
PARQUET_ID = b"PARQUET:field_id"
ICEBERG_FEATURES = ("icebergCompatV2", "icebergCompatV3")
"""The features of tables that Iceberg can read as well; it also finds elements, keys and values by
number."""
PARTS = {"array": {"element": "elementType"}, "map": {"key": "keyType", "value": "valueType"}}

Field = Mapping[str, Any]


def mapping_mode(metadata: TableMetadata) -> str | None:
    """The mode of column mapping, ``name`` or ``id``; None for a table without column mapping."""
    mode = metadata.configuration.get(MODE_PROPERTY, "none").lower()
    return None if mode == "none" else mode


def identity_of(field: Field) -> tuple[Any, Any] | None:
    """What identifies a mapped field in files; None for a field that is not mapped."""
    metadata = field.get("metadata", {})
    return (metadata.get(ID), metadata[PHYSICAL_NAME]) if PHYSICAL_NAME in metadata else None


def stored_name(field: Field) -> str:
    """The name of a field in files."""
    name: str = field.get("metadata", {}).get(PHYSICAL_NAME, field["name"])
    return name


def stored_column(schema_text: str, name: str) -> str:
    """The name of a top-level column in files, statistics and partition values."""
    field = _find_field(fields_of(schema_text), name)
    return name if field is None else stored_name(field)


# --- numbers and names of new fields ------------------------------------------------------------


def map_columns(metadata: TableMetadata, schema_json: str) -> str:
    """A schema of rows, with the numbers and physical names of a table's fields; fields that the
    table lacks get new ones. Returned unchanged if the table has no column mapping.

    New names are derived from the table's state, so that several drivers choose the same ones. A
    number is never used twice, so a dropped column does not come back with its old values.
    """
    if mapping_mode(metadata) is None:
        return schema_json
    nested = any(feature in metadata.features for feature in ICEBERG_FEATURES)
    numbers = _Numbers(metadata, nested)
    table_fields = fields_of(metadata.schema_json)
    fields = [
        numbers.field(f, _find_field(table_fields, f["name"]), "") for f in fields_of(schema_json)
    ]
    return json.dumps({"type": "struct", "fields": fields})


def _find_field(fields: list[dict[str, Any]], name: str) -> Field | None:
    return next((f for f in fields if f["name"].lower() == name.lower()), None)


def highest_id(schema_text: str) -> int:
    """The highest number of a field in a schema; 0 if no field has one."""
    all_metadata = [field.get("metadata", {}) for field in all_fields(json.loads(schema_text))]
    own = (int(metadata[ID]) for metadata in all_metadata if ID in metadata)
    nested = (n for metadata in all_metadata for n in metadata.get(NESTED_IDS, {}).values())
    return max([*own, *nested], default=0)


class _Numbers:
    """Assigns numbers and names to the fields of one schema."""

    def __init__(self, metadata: TableMetadata, with_nested: bool) -> None:
        property_value = int(metadata.configuration.get(HIGHEST_ID_PROPERTY, 0))
        self._last = max(property_value, highest_id(metadata.schema_json))
        self._seed = f"{metadata.table_id} {self._last}"
        self._with_nested = with_nested

    def _next(self) -> int:
        self._last += 1
        return self._last

    def field(self, row_field: Field, table_field: Field | None, path: str) -> dict[str, Any]:
        path = f"{path}/{row_field['name'].lower()}"
        metadata = dict(row_field.get("metadata", {}))
        if table_field is None:
            name = f"col-{uuid.uuid5(uuid.NAMESPACE_OID, self._seed + path)}"
            metadata |= {ID: self._next(), PHYSICAL_NAME: name}
        else:
            known = table_field.get("metadata", {})
            metadata |= {key: known[key] for key in (ID, PHYSICAL_NAME, NESTED_IDS) if key in known}
        nested = dict(metadata.get(NESTED_IDS, {}))
        old = None if table_field is None else table_field["type"]
        kind = self._type(row_field["type"], old, path, metadata[PHYSICAL_NAME], nested)
        if nested:
            metadata[NESTED_IDS] = nested
        return {**row_field, "type": kind, "metadata": metadata}

    def _type(
        self, row_type: Any, table_type: Any, path: str, name: str, nested: dict[str, int]
    ) -> Any:
        if not isinstance(row_type, dict):
            return row_type
        is_same = isinstance(table_type, dict) and table_type["type"] == row_type["type"]
        old = table_type if is_same else {}
        if row_type["type"] == "struct":
            fields = [
                self.field(f, _find_field(old.get("fields", []), f["name"]), path)
                for f in row_type["fields"]
            ]
            return {**row_type, "fields": fields}
        numbered = dict(row_type)
        for part, key in PARTS[row_type["type"]].items():
            inner = f"{name}.{part}"
            if self._with_nested and inner not in nested:
                nested[inner] = self._next()
            numbered[key] = self._type(row_type[key], old.get(key), f"{path}/{part}", inner, nested)
        return numbered


# --- schemas of files ---------------------------------------------------------------------------


def stored_schema(schema_text: str) -> str:
    """A schema as it appears in files: with physical names and without metadata."""
    return json.dumps(_rename(json.loads(schema_text), stored_name))


def shown_schema(schema_text: str) -> str:
    """The same schema without metadata, with the names that SQL shows."""
    return json.dumps(_rename(json.loads(schema_text), lambda field: field["name"]))


def _rename(kind: Any, name_of: Callable[[Field], str]) -> Any:
    if not isinstance(kind, dict):
        return kind
    if kind["type"] == "struct":
        fields = [
            {**f, "name": name_of(f), "type": _rename(f["type"], name_of), "metadata": {}}
            for f in kind["fields"]
        ]
        return {**kind, "fields": fields}
    parts = PARTS[kind["type"]].values()
    return {**kind, **{key: _rename(kind[key], name_of) for key in parts}}


def stored_fields(row_schema: pa.Schema, schema_text: str) -> pa.Schema:
    """The Arrow schema of files: physical names, and the numbers as Parquet's field ids.
    ``row_schema`` consists of columns of the table with this schema, in the table's spelling."""
    by_name = {field["name"]: field for field in fields_of(schema_text)}
    return pa.schema([_stored_field(f, by_name.get(f.name)) for f in row_schema])


def _stored_field(field: pa.Field, column: Field | None) -> pa.Field:
    identity = None if column is None else identity_of(column)
    if column is None or identity is None:
        return field
    nested = column["metadata"].get(NESTED_IDS, {})
    kind = _stored_type(field.type, column["type"], identity[1], nested)
    return _with_number(pa.field(identity[1], kind, nullable=field.nullable), identity[0])


def _stored_type(
    kind: pa.DataType, delta: Any, path: str, nested: Mapping[str, int]
) -> pa.DataType:
    """The type of a column in files. ``path`` is the key for its element, key or value in
    ``nested``."""

    def inner(field: pa.Field, part: str) -> pa.Field:
        where = f"{path}.{part}"
        typed = _stored_type(field.type, delta[PARTS[delta["type"]][part]], where, nested)
        return _with_number(field.with_type(typed), nested.get(where))

    if pt.is_struct(kind):
        by_name = {field["name"].lower(): field for field in delta["fields"]}
        return pa.struct([_stored_field(f, by_name.get(f.name.lower())) for f in kind])
    if pt.is_map(kind):
        return pa.map_(inner(kind.key_field, "key"), inner(kind.item_field, "value"))
    if pt.is_list(kind):
        return pa.list_(inner(kind.value_field, "element"))
    return kind


def lacked_field(schema_text: str, file_schema: pa.Schema) -> pa.Field | None:
    """The first field of a file that the table with this schema lacks, or has elsewhere, by its
    name in the file (``a.b`` if nested); None if the table has all of them."""
    return _lacked(json.loads(schema_text), pa.struct(list(file_schema)), "")


def _lacked(delta: Any, kind: pa.DataType, path: str) -> pa.Field | None:
    for name, inner in _fields_inside(kind):
        where = f"{path}.{name}" if path else name
        types = _types_inside(delta)
        if name not in types:
            return pa.field(where, inner)
        if (found := _lacked(types[name], inner, where)) is not None:
            return found
    return None


def _fields_inside(kind: pa.DataType) -> list[tuple[str, pa.DataType]]:
    """The types inside a type of a file. Elements, keys and values go by Delta's names."""
    if pt.is_struct(kind):
        return [(field.name, field.type) for field in kind]
    if pt.is_map(kind):
        return [("key", kind.key_type), ("value", kind.item_type)]
    return [("element", kind.value_type)] if pt.is_list(kind) else []


def _types_inside(delta: Any) -> dict[str, Any]:
    """The types inside one of Delta's types, by their names in files."""
    if not isinstance(delta, dict):
        return {}
    if delta["type"] == "struct":
        return {stored_name(field): field["type"] for field in delta["fields"]}
    return {part: delta[key] for part, key in PARTS[delta["type"]].items()}


def _with_number(field: pa.Field, number: object) -> pa.Field:
    if number is None:
        return field
    return field.with_metadata({PARQUET_ID: str(number).encode()})


class _Relabelled:
    """Exposes the data of a batch under another schema of the same types."""

    def __init__(self, batch: pa.RecordBatch, schema: pa.Schema) -> None:
        self._batch = batch
        self._schema = schema

    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[object, object]:
        return self._schema.__arrow_c_schema__(), self._batch.__arrow_c_array__()[1]


def relabel_columns(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The batch with the names of ``schema`` at all levels. Nothing is copied."""
    return pa.record_batch(_Relabelled(batch, schema))
