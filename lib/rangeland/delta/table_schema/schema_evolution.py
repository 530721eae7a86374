"""How a table's schema follows its rows: new fields become nullable columns, and types are widened
where the table allows it. Pure.

Schemas are Delta's JSON. Names match ignoring case; what a table has stays as it is, including
fields that the rows no longer have. Any other change of type is a misfit, and never made.
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
    """The treatment of fields of rows that a table lacks."""

    ADD = "add"
    FAIL = "fail"
    IGNORE = "ignore"


@dataclass(frozen=True, slots=True)
class Misfit:
    """A field whose values the table cannot take. ``new`` is None if the rows lack a field that is
    NOT NULL in a struct of the table; both types are the same if files have the field by another
    number or name than the table."""

    field: str
    old: Any
    new: Any

    @property
    def is_widening(self) -> bool:
        """The table could take them if its type were widened."""
        return takes(self.new, self.old)


@dataclass(slots=True)
class SchemaChange:
    """The change of a table's schema that rows need. ``schema_json`` is the schema of the table
    afterwards, the same text if nothing changes. Fields are named ``a``, or ``value.a`` for one
    inside; ``added`` has their types."""

    schema_json: str = ""
    added: dict[str, Any] = field(default_factory=dict)
    widened: list[str] = field(default_factory=list)
    misfits: list[Misfit] = field(default_factory=list)

    @property
    def is_any(self) -> bool:
        return bool(self.added or self.widened)


def takes(theirs: Any, ours: Any) -> bool:
    """Whether each value of one plain type is a value of the other. From narrow to wide these are
    the changes of type that Delta makes by itself when a schema evolves."""
    if theirs == ours or (theirs, ours) == ("double", "float"):
        return True
    if theirs in _INTEGERS and ours in _INTEGERS:
        return _INTEGERS.index(ours) <= _INTEGERS.index(theirs)
    wide, narrow = decimal_of(theirs), decimal_of(ours)
    if wide is None or narrow is None:
        return False
    return wide.scale >= narrow.scale and wide.whole_digits >= narrow.whole_digits


def allows_widening(metadata: TableMetadata) -> bool:
    """Whether the table's owner has allowed wider types: a landing does not turn the feature on,
    which would lock out readers that do not know it. Its preview has another form and does not
    count."""
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
    """The change that these rows make to a table's schema. ``widens``: types may be widened, but
    not those of the columns ``keeping``, which partition it. ``are_written``: rows are in files, so
    that narrower ones can no longer be given the table's type. ``highest_id``: of columns that the
    table has numbered, 0 for a table without column mapping; added ones that do not fit are
    misfits."""
    kept = frozenset(name.lower() for name in keeping)
    merge = _Merge(SchemaChange(table), widens, kept, are_written, highest_id)
    fields = merge.fields(fields_of(table), fields_of(row_schema), "")
    if merge.change.is_any:
        merge.change.schema_json = json.dumps({"type": "struct", "fields": fields})
    return merge.change


def as_written(table: str, row_schema: str) -> str:
    """The schema of these rows in the table's files: with its types where these are wider."""
    fields = _in_types_of(fields_of(table), fields_of(row_schema))
    return json.dumps({"type": "struct", "fields": fields})


def _in_types_of(theirs: Fields, ours: Fields) -> list[Mapping[str, Any]]:
    types = {field_json["name"].lower(): field_json["type"] for field_json in theirs}
    return [
        {**field_json, "type": _in_type(types.get(field_json["name"].lower()), field_json["type"])}
        for field_json in ours
    ]


def _in_type(theirs: Any, ours: Any) -> Any:
    if isinstance(theirs, str) and isinstance(ours, str):
        return theirs if takes(theirs, ours) else ours
    if not isinstance(theirs, Mapping) or not isinstance(ours, Mapping):
        return ours
    if theirs["type"] != ours["type"]:
        return ours
    if ours["type"] == "struct":
        return {**ours, "fields": _in_types_of(theirs["fields"], ours["fields"])}
    return {**ours, **{k: _in_type(theirs[k], ours[k]) for k in PARTS[ours["type"]].values()}}


def compare_column(column: Mapping[str, Any], given: Mapping[str, Any]) -> SchemaChange:
    """The change that a field of rows would make to a column of the same name."""
    merge = _Merge(SchemaChange(), widens=False, keeping=frozenset())
    merge.fields([column], [given], "")
    return merge.change


def follow(
    metadata: TableMetadata, row_schema: pa.Schema, evolution: Evolution, fixed: Collection[str]
) -> tuple[TableMetadata, pa.Schema]:
    """The table as it will be, and the rows as they will be written. ``fixed``: columns that are
    never added or left out, because the table is of another kind if it lacks them."""
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
    """Collects in ``change`` what it finds."""

    change: SchemaChange
    widens: bool
    keeping: frozenset[str]
    are_written: bool = False
    highest_id: int | None = None

    def fields(self, theirs: Fields, ours: Fields, prefix: str) -> list[Mapping[str, Any]]:
        by_name = {field["name"].lower(): field for field in ours}
        made = []
        for field_json in theirs:
            mine = by_name.pop(field_json["name"].lower(), None)
            name = prefix + field_json["name"]
            if mine is not None:
                if identity_of(mine) not in (None, identity_of(field_json)):
                    self.change.misfits.append(Misfit(name, field_json["type"], field_json["type"]))
                field_json = self._field(field_json, mine, name)
            elif prefix and not field_json["nullable"]:
                self.change.misfits.append(Misfit(name, field_json["type"], None))
            made.append(field_json)
        for field_json in by_name.values():
            if not self._is_free(field_json):
                self.change.misfits.append(
                    Misfit(prefix + field_json["name"], field_json["type"], None)
                )
            self.change.added[prefix + field_json["name"]] = field_json["type"]
            made.append({**field_json, "nullable": True})
        return made

    def _is_free(self, added: Mapping[str, Any]) -> bool:
        """Whether no field of the table has, or has had, the number of an added one."""
        if self.highest_id is None:
            return True
        identity = identity_of(added)
        if identity is None:
            return self.highest_id == 0
        return 0 < self.highest_id < int(identity[0])

    def _field(
        self, theirs: Mapping[str, Any], ours: Mapping[str, Any], name: str
    ) -> Mapping[str, Any]:
        """What was widened in a field is listed in its metadata, as Delta's protocol asks for."""
        kind = self._type(theirs["type"], ours["type"], name)
        made = {**theirs, "type": kind}
        if changes := _type_changes(theirs["type"], kind):
            metadata = theirs.get("metadata", {})
            before = metadata.get(TYPE_CHANGES, [])
            made["metadata"] = {**metadata, TYPE_CHANGES: [*before, *changes]}
        return made

    def _type(self, theirs: Any, ours: Any, name: str) -> Any:
        if isinstance(theirs, str) or isinstance(ours, str):
            return self._plain_type(theirs, ours, name)
        if theirs["type"] != ours["type"]:
            self.change.misfits.append(Misfit(name, theirs, ours))
            return theirs
        if theirs["type"] == "struct":
            return {**theirs, "fields": self.fields(theirs["fields"], ours["fields"], f"{name}.")}
        inner = {
            key: self._type(theirs[key], ours[key], f"{name}.{part}")
            for part, key in PARTS[theirs["type"]].items()
        }
        return {**theirs, **inner}

    def _plain_type(self, theirs: Any, ours: Any, name: str) -> Any:
        if theirs == ours or (takes(theirs, ours) and not self.are_written):
            return theirs
        found = Misfit(name, theirs, ours)
        if not (self.widens and found.is_widening) or name.lower() in self.keeping:
            self.change.misfits.append(found)
            return theirs
        self.change.widened.append(name)
        return ours


def _type_changes(old: Any, new: Any, path: tuple[str, ...] = ()) -> list[dict[str, str]]:
    """What was widened in the type of one field; the fields of a struct have lists of their own."""
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
    """The schema without these fields. What is empty then is left out, too: Delta has no struct
    without fields."""
    return pa.schema(_keep(list(row_schema), "", names))


def _keep(fields: list[pa.Field], prefix: str, names: Collection[str]) -> list[pa.Field]:
    kept = []
    for f in fields:
        name = prefix + f.name
        kind = None if name in names else _narrow(f.type, name, names)
        if kind is not None:
            kept.append(f.with_type(kind))
    return kept


def _narrow(kind: pa.DataType, name: str, names: Collection[str]) -> pa.DataType | None:
    if pt.is_struct(kind):
        inner = _keep(list(kind), f"{name}.", names)
        return pa.struct(inner) if inner else None
    if pt.is_map(kind):
        parts = (("key", kind.key_type), ("value", kind.item_type))
        key, item = (_narrow(one, f"{name}.{part}", names) for part, one in parts)
        return None if key is None or item is None else pa.map_(key, item)
    if pt.is_list(kind):
        element = _narrow(kind.value_type, f"{name}.element", names)
        return None if element is None else pa.list_(pa.field("element", element))
    return kind
