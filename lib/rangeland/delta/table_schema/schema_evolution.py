"""Adapts a table's schema to its rows: new fields become nullable columns, and types are widened if
the table allows it. Pure.

Schemas are Delta's JSON. Names match regardless of case; the table's fields stay as they are, even
if the rows no longer have them. Any other change of type is a misfit, and is never made.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

import pyarrow as pa
import pyarrow.types as pt

from rangeland.delta.table_metadata import TableMetadata
from rangeland.delta.table_schema.arrow_schema import decimal_of, fields_of, schema_json
from rangeland.delta.table_schema.column_mapping import PARTS, identity_of, map_columns

Fields = Sequence[Mapping[str, Any]]
WIDENING_PROPERTY = "delta.enableTypeWidening"
TYPE_CHANGES = "delta.typeChanges"
_INTEGERS = ("byte", "short", "integer", "long")


class Evolution(StrEnum):
    """What to do about fields that the rows have and the table lacks."""

    ADD = "add"
    FAIL = "fail"
    IGNORE = "ignore"


@dataclass(frozen=True, slots=True)
class Misfit:
    """A field whose values the table cannot take. ``new`` is None if a struct of the table has a
    NOT NULL field that the rows lack; both types are the same if only the field's number or its
    name in files differs from the table's."""

    field: str
    old: Any
    new: Any

    @property
    def is_widening(self) -> bool:
        """Whether the table could take the values after its type is widened."""
        return takes(self.new, self.old)


@dataclass(slots=True)
class SchemaChange:
    """The change to a table's schema that rows require. ``schema_json`` is the resulting schema;
    the text stays the same if nothing changes. Fields are named ``a``, or ``value.a`` if nested;
    ``added`` maps them to their types."""

    schema_json: str = ""
    added: dict[str, Any] = field(default_factory=dict)
    widened: list[str] = field(default_factory=list)
    misfits: list[Misfit] = field(default_factory=list)

    @property
    def is_any(self) -> bool:
        return bool(self.added or self.widened)


def takes(table_type: Any, row_type: Any) -> bool:
    """Whether every value of the rows' plain type is also a value of the table's type. If so, Delta
    can itself widen the rows' type to the table's when a schema evolves."""
    if table_type == row_type or (table_type, row_type) == ("double", "float"):
        return True
    if table_type in _INTEGERS and row_type in _INTEGERS:
        return _INTEGERS.index(row_type) <= _INTEGERS.index(table_type)
    wide, narrow = decimal_of(table_type), decimal_of(row_type)
    if wide is None or narrow is None:
        return False
    return wide.scale >= narrow.scale and wide.whole_digits >= narrow.whole_digits


def allows_widening(metadata: TableMetadata) -> bool:
    """Whether the table's owner has allowed wider types. A landing does not turn the feature on,
    because that would lock out readers that do not know it. The preview of the feature has another
    format and does not count."""
    is_on = metadata.configuration.get(WIDENING_PROPERTY, "").lower() == "true"
    return is_on and "typeWidening" in metadata.features


def evolve_schema(
    table: str,
    row_schema: str,
    *,
    widens: bool = False,
    keeping: Collection[str] = (),
    are_written: bool = False,
    highest_id: int | None = None,
) -> SchemaChange:
    """The change that these rows make to a table's schema. ``widens``: types may be widened, except
    in the columns in ``keeping``, which partition the table. ``are_written``: the rows are already
    in files, so narrower types can no longer be converted to the table's. ``highest_id``: the
    highest column number in the table, 0 without column mapping; added columns whose numbers do not
    continue from it are misfits."""
    kept_columns = frozenset(name.lower() for name in keeping)
    merge = _Merge(SchemaChange(table), widens, kept_columns, are_written, highest_id)
    fields = merge.fields(fields_of(table), fields_of(row_schema), "")
    if merge.change.is_any:
        merge.change.schema_json = json.dumps({"type": "struct", "fields": fields})
    return merge.change


def as_written(table: str, row_schema: str) -> str:
    """The schema of these rows in the table's files: with the table's types where those are
    wider."""
    fields = _in_types_of(fields_of(table), fields_of(row_schema))
    return json.dumps({"type": "struct", "fields": fields})


def _in_types_of(table_fields: Fields, row_fields: Fields) -> list[Mapping[str, Any]]:
    types = {field_json["name"].lower(): field_json["type"] for field_json in table_fields}
    return [
        {**field_json, "type": _in_type(types.get(field_json["name"].lower()), field_json["type"])}
        for field_json in row_fields
    ]


def _in_type(table_type: Any, row_type: Any) -> Any:
    if isinstance(table_type, str) and isinstance(row_type, str):
        return table_type if takes(table_type, row_type) else row_type
    if not isinstance(table_type, Mapping) or not isinstance(row_type, Mapping):
        return row_type
    if table_type["type"] != row_type["type"]:
        return row_type
    if row_type["type"] == "struct":
        return {**row_type, "fields": _in_types_of(table_type["fields"], row_type["fields"])}
    return {
        **row_type,
        **{k: _in_type(table_type[k], row_type[k]) for k in PARTS[row_type["type"]].values()},
    }


def compare_column(column: Mapping[str, Any], row_field: Mapping[str, Any]) -> SchemaChange:
    """The change that a field of rows would make to a column of the same name."""
    merge = _Merge(SchemaChange(), widens=False, keeping=frozenset())
    merge.fields([column], [row_field], "")
    return merge.change


def follow(
    metadata: TableMetadata, row_schema: pa.Schema, evolution: Evolution, fixed: Collection[str]
) -> tuple[TableMetadata, pa.Schema]:
    """The resulting table, and the rows as they will be written. ``fixed``: columns that are never
    added or left out, because a table without them is of another kind."""
    if evolution is Evolution.FAIL:
        return metadata, row_schema
    names = {f["name"].lower() for f in fields_of(metadata.schema_json)}
    if any(name.lower() not in names for name in fixed if name in row_schema.names):
        return metadata, row_schema
    change = evolve_schema(
        metadata.schema_json,
        map_columns(metadata, schema_json(row_schema)),
        widens=allows_widening(metadata),
        keeping=metadata.partition_columns,
    )
    if evolution is Evolution.IGNORE:
        return metadata, _without(row_schema, change.added)
    return replace(metadata, schema_json=change.schema_json), row_schema


@dataclass(frozen=True, slots=True)
class _Merge:
    """Merges the fields of rows into the fields of a table; ``change`` collects the changes."""

    change: SchemaChange
    widens: bool
    keeping: frozenset[str]
    are_written: bool = False
    highest_id: int | None = None

    def fields(
        self, table_fields: Fields, row_fields: Fields, prefix: str
    ) -> list[Mapping[str, Any]]:
        by_name = {field["name"].lower(): field for field in row_fields}
        merged = []
        for field_json in table_fields:
            row_field = by_name.pop(field_json["name"].lower(), None)
            name = prefix + field_json["name"]
            if row_field is not None:
                if identity_of(row_field) not in (None, identity_of(field_json)):
                    self.change.misfits.append(Misfit(name, field_json["type"], field_json["type"]))
                field_json = self._field(field_json, row_field, name)
            elif prefix and not field_json["nullable"]:
                self.change.misfits.append(Misfit(name, field_json["type"], None))
            merged.append(field_json)
        for field_json in by_name.values():
            if not self._is_free(field_json):
                self.change.misfits.append(
                    Misfit(prefix + field_json["name"], field_json["type"], None)
                )
            self.change.added[prefix + field_json["name"]] = field_json["type"]
            merged.append({**field_json, "nullable": True})
        return merged

    def _is_free(self, added: Mapping[str, Any]) -> bool:
        """Whether no field of the table has, or has had, the number of an added one."""
        if self.highest_id is None:
            return True
        identity = identity_of(added)
        if identity is None:
            return self.highest_id == 0
        return 0 < self.highest_id < int(identity[0])

    def _field(
        self, table_field: Mapping[str, Any], row_field: Mapping[str, Any], name: str
    ) -> Mapping[str, Any]:
        """The merged field. Widened types are listed in its metadata, as Delta's protocol
        requires."""
        kind = self._type(table_field["type"], row_field["type"], name)
        merged = {**table_field, "type": kind}
        if changes := _type_changes(table_field["type"], kind):
            metadata = table_field.get("metadata", {})
            earlier = metadata.get(TYPE_CHANGES, [])
            merged["metadata"] = {**metadata, TYPE_CHANGES: [*earlier, *changes]}
        return merged

    def _type(self, table_type: Any, row_type: Any, name: str) -> Any:
        if isinstance(table_type, str) or isinstance(row_type, str):
            return self._plain_type(table_type, row_type, name)
        if table_type["type"] != row_type["type"]:
            self.change.misfits.append(Misfit(name, table_type, row_type))
            return table_type
        if table_type["type"] == "struct":
            return {
                **table_type,
                "fields": self.fields(table_type["fields"], row_type["fields"], f"{name}."),
            }
        inner = {
            key: self._type(table_type[key], row_type[key], f"{name}.{part}")
            for part, key in PARTS[table_type["type"]].items()
        }
        return {**table_type, **inner}

    def _plain_type(self, table_type: Any, row_type: Any, name: str) -> Any:
        if table_type == row_type or (takes(table_type, row_type) and not self.are_written):
            return table_type
        misfit = Misfit(name, table_type, row_type)
        if not (self.widens and misfit.is_widening) or name.lower() in self.keeping:
            self.change.misfits.append(misfit)
            return table_type
        self.change.widened.append(name)
        return row_type


def _type_changes(old: Any, new: Any, path: tuple[str, ...] = ()) -> list[dict[str, str]]:
    """The type changes inside one field; the fields of a struct have lists of their own."""
    if old == new:
        return []
    if isinstance(old, str):
        where = {"fieldPath": ".".join(path)} if path else {}
        return [{"fromType": old, "toType": new, **where}]
    inner = {} if old["type"] == "struct" else PARTS[old["type"]]
    return [
        change
        for part, key in inner.items()
        for change in _type_changes(old[key], new[key], (*path, part))
    ]


def _without(row_schema: pa.Schema, names: Collection[str]) -> pa.Schema:
    """The schema without these fields, and without structs that are empty as a result: Delta does
    not allow those."""
    return pa.schema(_keep(list(row_schema), "", names))


def _keep(fields: list[pa.Field], prefix: str, names: Collection[str]) -> list[pa.Field]:
    kept_fields = []
    for f in fields:
        name = prefix + f.name
        kind = None if name in names else _narrow(f.type, name, names)
        if kind is not None:
            kept_fields.append(f.with_type(kind))
    return kept_fields


def _narrow(kind: pa.DataType, name: str, names: Collection[str]) -> pa.DataType | None:
    if pt.is_struct(kind):
        inner = _keep(list(kind), f"{name}.", names)
        return pa.struct(inner) if inner else None
    if pt.is_map(kind):
        parts = (("key", kind.key_type), ("value", kind.item_type))
        key, item = (_narrow(part_type, f"{name}.{part}", names) for part, part_type in parts)
        return None if key is None or item is None else pa.map_(key, item)
    if pt.is_list(kind):
        element = _narrow(kind.value_type, f"{name}.element", names)
        return None if element is None else pa.list_(pa.field("element", element))
    return kind
