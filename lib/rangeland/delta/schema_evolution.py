"""How a table's schema follows its rows: new fields become nullable columns. Pure.

Schemas are Delta's JSON. Names match ignoring case; what a table has stays as it is, also fields
that the rows no longer have. A change of type is never made here: ``schema_compatibility`` refuses
what does not fit.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from typing import Any

import pyarrow as pa
import pyarrow.types as pt

from rangeland.delta.arrow_schema import fields_of, schema_json
from rangeland.delta.table_metadata import TableMetadata

Fields = Sequence[Mapping[str, Any]]
_CHILDREN = {"array": ("elementType",), "map": ("keyType", "valueType")}


class Evolution(StrEnum):
    """What to do about fields of rows that a table lacks."""

    ADD = "add"
    FAIL = "fail"
    IGNORE = "ignore"


def evolved(table: str, rows: str) -> tuple[str, tuple[str, ...]]:
    """The table's schema with the fields that only the rows have, and their names: ``a``, or
    ``value.a`` for one inside. The same text if there are none."""
    added: list[str] = []
    fields = _merged(fields_of(table), fields_of(rows), "", added)
    made = json.dumps({"type": "struct", "fields": fields})
    return (made if added else table), tuple(added)


def follow(
    metadata: TableMetadata, rows: pa.Schema, evolution: Evolution, fixed: Collection[str]
) -> tuple[TableMetadata, pa.Schema, tuple[str, ...]]:
    """The table as it will be, the rows as they will be written, and the names of the fields that
    are added. ``fixed``: columns that are never added or left out, because the table is of another
    kind if it lacks them."""
    if evolution is Evolution.FAIL:
        return metadata, rows, ()
    names = {f["name"].lower() for f in fields_of(metadata.schema_json)}
    if any(name.lower() not in names for name in fixed if name in rows.names):
        return metadata, rows, ()
    schema, added = evolved(metadata.schema_json, schema_json(rows))
    if evolution is Evolution.IGNORE:
        return metadata, _without(rows, frozenset(added)), ()
    return replace(metadata, schema_json=schema), rows, added


def _merged(theirs: Fields, ours: Fields, prefix: str, added: list[str]) -> list[Mapping[str, Any]]:
    by_name = {field["name"].lower(): field for field in ours}
    fields = []
    for field in theirs:
        mine = by_name.pop(field["name"].lower(), None)
        if mine is not None:
            name = prefix + field["name"]
            field = {**field, "type": _merged_type(field["type"], mine["type"], name, added)}
        fields.append(field)
    for field in by_name.values():
        added.append(prefix + field["name"])
        fields.append({**field, "nullable": True})
    return fields


def _merged_type(theirs: Any, ours: Any, name: str, added: list[str]) -> Any:
    if not isinstance(theirs, Mapping) or not isinstance(ours, Mapping):
        return theirs
    if theirs["type"] != ours["type"]:
        return theirs
    if theirs["type"] == "struct":
        return {**theirs, "fields": _merged(theirs["fields"], ours["fields"], f"{name}.", added)}
    parts = _CHILDREN[theirs["type"]]
    inner = {part: _merged_type(theirs[part], ours[part], name, added) for part in parts}
    return {**theirs, **inner}


def _without(rows: pa.Schema, names: Collection[str]) -> pa.Schema:
    """The schema without these fields. What is empty then is left out, too: Delta has no struct
    without fields."""
    return pa.schema(_kept(list(rows), "", names))


def _kept(fields: list[pa.Field], prefix: str, names: Collection[str]) -> list[pa.Field]:
    kept = []
    for f in fields:
        name = prefix + f.name
        kind = None if name in names else _narrowed(f.type, name, names)
        if kind is not None:
            kept.append(f.with_type(kind))
    return kept


def _narrowed(kind: pa.DataType, name: str, names: Collection[str]) -> pa.DataType | None:
    if pt.is_struct(kind):
        inner = _kept(list(kind), f"{name}.", names)
        return pa.struct(inner) if inner else None
    if pt.is_map(kind):
        key, item = (_narrowed(one, name, names) for one in (kind.key_type, kind.item_type))
        return None if key is None or item is None else pa.map_(key, item)
    if pt.is_list(kind):
        element = _narrowed(kind.value_type, name, names)
        return None if element is None else pa.list_(pa.field("element", element))
    return kind
