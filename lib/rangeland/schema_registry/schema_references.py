"""The schemas to which a schema refers, fetched from other subjects in the order in which they are
needed.

Their number is limited, and a cycle is refused. Avro types are inserted into the schema that refers
to them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any, Final

from rangeland.decode.payload.schema_ids.schema_catalogue import (
    ReferencedSchema,
    RegisteredSchema,
    SchemaFormat,
    SubjectVersion,
    UnusableSchema,
)
from rangeland.schema_registry.registry_responses import SchemaResponse
from rangeland.untrusted import Unreadable, parse_json

MAX_REFERENCES: Final = 200
NAMED_TYPES: Final = ("record", "error", "enum", "fixed")
FetchVersion = Callable[[SubjectVersion], SchemaResponse]


class _Unresolvable(Exception):
    """The reason for an ``UnusableSchema``."""


def resolve_references(
    schema: SchemaResponse, fetch: FetchVersion
) -> RegisteredSchema | UnusableSchema:
    """The schema with everything to which it refers, which a registry keeps for as long as the
    schema itself."""
    by_name: dict[str, ReferencedSchema] = {}
    try:
        for referenced in _walk(schema, fetch, (), {}):
            if by_name.setdefault(referenced.name, referenced).text != referenced.text:
                raise _Unresolvable(f"it refers to two different schemas as {referenced.name}")
        references = tuple(by_name.values())
        if schema.format is not SchemaFormat.AVRO or not references:
            return RegisteredSchema(schema.format, schema.text, references)
        return RegisteredSchema(schema.format, _inline(schema.text, references))
    except _Unresolvable as reason:
        return UnusableSchema(str(reason))
    except Unreadable as reason:
        return UnusableSchema(f"it, or a schema that it refers to, cannot be read: {reason}")
    except RecursionError:
        return UnusableSchema("its types are nested too deeply")


def _walk(
    schema: SchemaResponse,
    fetch: FetchVersion,
    path: tuple[SubjectVersion, ...],
    seen: dict[SubjectVersion, SchemaResponse],
) -> Iterator[ReferencedSchema]:
    """The referenced schemas, depth first. ``path``: the references that lead here."""
    for reference in schema.references:
        if reference.at in path:
            cycle = " -> ".join(_show(at) for at in (*path, reference.at))
            raise _Unresolvable(f"its references form a cycle: {cycle}")
        if reference.at not in seen:
            if len(seen) == MAX_REFERENCES:
                raise _Unresolvable(f"it refers to more than {MAX_REFERENCES} schemas")
            response = fetch(reference.at)
            seen[reference.at] = response
            yield from _walk(response, fetch, (*path, reference.at), seen)
        yield ReferencedSchema(reference.name, seen[reference.at].text)


def _show(at: SubjectVersion) -> str:
    return f"version {at.version} of {at.subject}"


# --- Avro: one schema that contains all its types ---------------------------------------


def _inline(text: str, references: tuple[ReferencedSchema, ...]) -> str:
    """One schema in which each type is defined where it is first used."""
    definitions: dict[str, tuple[Any, str]] = {}
    for reference in references:
        _collect(parse_json(reference.text), "", definitions)
    return json.dumps(_with_types(parse_json(text), "", definitions, set()))


def _collect(schema: Any, namespace: str, types: dict[str, tuple[Any, str]]) -> None:
    """Adds all named types of a schema, each with its enclosing namespace."""
    if isinstance(schema, list):
        for branch in schema:
            _collect(branch, namespace, types)
    elif isinstance(schema, dict):
        inner = namespace
        if schema.get("type") in NAMED_TYPES:
            inner, full = _full_name(schema, namespace)
            types.setdefault(full, (schema, namespace))
        for part in _parts(schema):
            _collect(part, inner, types)


def _with_types(
    schema: Any, namespace: str, definitions: dict[str, tuple[Any, str]], defined: set[str]
) -> Any:
    if isinstance(schema, str):
        full = schema if "." in schema or not namespace else f"{namespace}.{schema}"
        name = full if full in definitions or full in defined else schema
        if name in defined or name not in definitions:
            return schema if name == schema else name
        return _with_types(*definitions[name], definitions, defined)
    if isinstance(schema, list):
        return [_with_types(branch, namespace, definitions, defined) for branch in schema]
    if not isinstance(schema, dict):
        return schema
    result = dict(schema)
    inner = namespace
    if schema.get("type") in NAMED_TYPES:
        inner, full = _full_name(schema, namespace)
        if full in defined:
            return full
        defined.add(full)
        result |= {"name": full.rpartition(".")[2], "namespace": inner}
    for key in ("type", "items", "values"):
        if key in result and result[key] not in NAMED_TYPES:
            result[key] = _with_types(result[key], inner, definitions, defined)
    if isinstance(result.get("fields"), list):
        result["fields"] = [
            {**field, "type": _with_types(field.get("type"), inner, definitions, defined)}
            if isinstance(field, dict)
            else field
            for field in result["fields"]
        ]
    return result


def _parts(schema: dict[str, Any]) -> Iterator[Any]:
    yield from (schema[key] for key in ("type", "items", "values") if key in schema)
    fields = schema.get("fields")
    for field in fields if isinstance(fields, list) else ():
        if isinstance(field, dict):
            yield field.get("type")


def _full_name(schema: dict[str, Any], namespace: str) -> tuple[str, str]:
    """The namespace inside a named type, and the type's full name."""
    name = str(schema.get("name", ""))
    inner = schema.get("namespace", namespace)
    if "." in name:
        return name.rpartition(".")[0], name
    inner = inner if isinstance(inner, str) else ""
    return inner, f"{inner}.{name}" if inner else name
