"""Converts a JSON Schema document to Arrow types, as far as both can express the same.

| JSON Schema | column |
|---|---|
| object with ``properties`` | STRUCT |
| object with a schema as ``additionalProperties`` | MAP<STRING, ...> |
| array with ``items`` | ARRAY |
| string; ``format`` date-time, date; ``contentEncoding`` base64 | STRING; TIMESTAMP, DATE; BINARY |
| integer; ``format`` int32 | BIGINT; INT |
| number; ``format`` float | DOUBLE; FLOAT |
| boolean | BOOLEAN |
| enum, const | the type that all their values have |

A field is NOT NULL if it is ``required`` and its type does not include ``null`` (in a list of
types, or as one of two in ``anyOf`` or ``oneOf``). ``$ref`` points to a place in the same document,
or in one that a registry provides for it; circular references are refused. Only the shape is used:
limits such as ``maximum`` and ``pattern``, the values of an enum and other formats (uuid, email)
are not checked.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, NoReturn

import pyarrow as pa

from rangeland.decode.payload.payload_decoder import PayloadSchemaError
from rangeland.decode.payload.schema_ddl import INSTANT, MAX_SCHEMA_DEPTH, MAX_SCHEMA_TEXT
from rangeland.untrusted import Unreadable, parse_json

_MAX_NODES: Final = 10_000
_FORMATS: Final[Mapping[tuple[str, str], pa.DataType]] = {
    ("string", "date-time"): INSTANT,
    ("string", "date"): pa.date32(),
    ("integer", "int32"): pa.int32(),
    ("number", "float"): pa.float32(),
}
_TYPES: Final[Mapping[str, pa.DataType]] = {
    "string": pa.string(),
    "integer": pa.int64(),
    "number": pa.float64(),
    "boolean": pa.bool_(),
}
_TYPES_OF_VALUES: Final = {bool: "boolean", int: "integer", float: "number", str: "string"}


def parse_json_schema(
    text: str | bytes, referenced: Mapping[str, str] = MappingProxyType({})
) -> pa.StructType:
    """The columns for the schema of an object. ``referenced``: other documents, by the names that
    references use for them. Raises PayloadSchemaError, which gives the place in the document as a
    JSON pointer."""
    document = _parse(text, "the JSON Schema")
    references = {name: _parse(source, f"the schema {name}") for name, source in referenced.items()}
    documents = _Documents({**_by_id(references), **references, "": document})
    kind, _ = documents.type_of(document, "#", ())
    if not pa.types.is_struct(kind):
        raise PayloadSchemaError("the JSON Schema must be one of an object with properties")
    return kind


def _parse(text: str | bytes, what: str) -> Any:
    try:
        return parse_json(text, max_bytes=MAX_SCHEMA_TEXT, unique_keys=True)
    except Unreadable as error:
        raise PayloadSchemaError(f"{what} cannot be read: {error}") from None


def _by_id(documents: Mapping[str, Any]) -> dict[str, Any]:
    """The documents by their own names, which references may use as well."""
    objects = [document for document in documents.values() if isinstance(document, dict)]
    return {one["$id"]: one for one in objects if isinstance(one.get("$id"), str)}


class _Documents:
    """The documents by name. The main one has no name, as in references within it; a path begins
    with the name of its document."""

    def __init__(self, roots: Mapping[str, Any]) -> None:
        self._roots = roots
        self._nodes = 0

    def type_of(self, node: Any, path: str, refs: tuple[str, ...]) -> tuple[pa.DataType, bool]:
        """The Arrow type, and whether it may be null. ``refs``: the references followed so far."""
        self._nodes += 1
        if self._nodes > _MAX_NODES:
            _fail(path, f"the schema has more than {_MAX_NODES:,} types")
        if path.partition("#")[2].count("/") > 4 * MAX_SCHEMA_DEPTH:
            _fail(path, f"types are nested more than {MAX_SCHEMA_DEPTH} deep")
        if not isinstance(node, dict):
            _fail(path, "a schema must be an object that names a type")
        if "$ref" in node:
            return self._reference(node["$ref"], path, refs)
        for word in ("anyOf", "oneOf", "allOf"):
            if word in node:
                return self._one_of(node[word], f"{path}/{word}", refs)
        names = _type_names(node, path)
        types = [name for name in names if name != "null"]
        if set(types) == {"integer", "number"}:
            types = ["number"]
        if len(types) != 1:
            alternatives = " and ".join(types) or "null alone"
            _fail(path, f"a column has one type besides null, not {alternatives}")
        return self._plain(node, types[0], path, refs), "null" in names

    def _plain(self, node: Any, name: str, path: str, refs: tuple[str, ...]) -> pa.DataType:
        if name == "object":
            return self._object(node, path, refs)
        if name == "array":
            if "items" not in node:
                _fail(path, "an array needs items")
            kind, nullable = self.type_of(node["items"], f"{path}/items", refs)
            return pa.list_(pa.field("element", kind, nullable))
        if name not in _TYPES:
            _fail(path, f"there is no type {name!r}")
        if name == "string" and node.get("contentEncoding") == "base64":
            return pa.binary()
        shape = node.get("format")
        return _FORMATS.get((name, shape) if isinstance(shape, str) else (name, ""), _TYPES[name])

    def _object(self, node: Any, path: str, refs: tuple[str, ...]) -> pa.DataType:
        properties = node.get("properties")
        more = node.get("additionalProperties")
        if properties:
            return self._struct(properties, node.get("required", []), path, refs)
        if not isinstance(more, dict):
            _fail(path, "an object needs properties, or a schema as additionalProperties")
        kind, nullable = self.type_of(more, f"{path}/additionalProperties", refs)
        return pa.map_(pa.string(), pa.field("value", kind, nullable))

    def _struct(
        self, properties: Any, required: Any, path: str, refs: tuple[str, ...]
    ) -> pa.StructType:
        if not isinstance(properties, dict) or not isinstance(required, list):
            _fail(path, "properties must be an object and required a list")
        unknown = [name for name in required if name not in properties]
        if unknown:
            _fail(path, f"the required field {unknown[0]!r} is not among the properties")
        if len({name.lower() for name in properties}) < len(properties):
            _fail(path, "two properties have names that differ only in case")
        fields = []
        for name, node in properties.items():
            inside = f"{path}/properties/{name.replace('~', '~0').replace('/', '~1')}"
            kind, nullable = self.type_of(node, inside, refs)
            fields.append(pa.field(name, kind, nullable or name not in required))
        return pa.struct(fields)

    def _one_of(self, parts: Any, path: str, refs: tuple[str, ...]) -> tuple[pa.DataType, bool]:
        if not isinstance(parts, list):
            _fail(path, "a list of schemas was expected")
        choices = [part for part in parts if part != {"type": "null"}]
        if len(choices) != 1:
            _fail(path, "a column has one type besides null; this is a choice of several")
        kind, nullable = self.type_of(choices[0], f"{path}/{parts.index(choices[0])}", refs)
        return kind, nullable or len(parts) > 1

    def _reference(self, target: Any, path: str, refs: tuple[str, ...]) -> tuple[pa.DataType, bool]:
        here, _, pointer = path.partition("#")
        name, _, place = target.partition("#") if isinstance(target, str) else ("", "", "?")
        name = name or here
        if place[:1] not in ("", "/") or name not in self._roots:
            _fail(path, f"$ref must lead to a place in this document (#/...), not {target!r:.80}")
        whole = f"{name}#{place}"
        if len(refs) > 4 * MAX_SCHEMA_DEPTH:
            _fail(path, f"more than {4 * MAX_SCHEMA_DEPTH} references follow one another")
        if whole == "#" or whole in refs:
            _fail(path, f"the reference {target} leads back to itself; a table has no such type")
        target_node = self._roots[name]
        for part in place.split("/")[1:]:
            key = part.replace("~1", "/").replace("~0", "~")
            if isinstance(target_node, dict) and key in target_node:
                target_node = target_node[key]
            elif (
                isinstance(target_node, list)
                and re.fullmatch("[0-9]{1,6}", key)
                and int(key) < len(target_node)
            ):
                target_node = target_node[int(key)]
            else:
                _fail(path, f"the reference {target} leads nowhere")
        return self.type_of(target_node, f"{name}#{pointer}", (*refs, whole))


def _type_names(node: Mapping[str, Any], path: str) -> Sequence[str]:
    """The names of the types that a value may have."""
    types = node.get("type")
    if isinstance(types, str):
        return [types]
    if isinstance(types, list) and types and all(isinstance(name, str) for name in types):
        return types
    if types is not None:
        _fail(path, "type must be a name or a list of names")
    if "properties" in node:
        return ["object"]
    values = [node["const"]] if "const" in node else node.get("enum")
    if not isinstance(values, list) or not values:
        _fail(path, "the schema names no type")
    names = {"null" if value is None else _TYPES_OF_VALUES.get(type(value), "") for value in values}
    if "" in names:
        _fail(path, "the values of an enum must be strings, numbers, true, false or null")
    return sorted(names)


def _fail(path: str, what: str) -> NoReturn:
    shown = path if len(path) <= 200 else f"{path[:200]}…"
    raise PayloadSchemaError(f"{shown}: {what}")
