"""What a schema refers to: fetched through other subjects, in the order in which it is needed.

Bounded in number; a cycle is refused. Avro types are put into the schema that refers to them.
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
FetchVersion = Callable[[SubjectVersion], SchemaResponse | None]


class _Unresolvable(Exception):
    """The reason for an ``UnusableSchema``."""


def resolve_references(
    schema: SchemaResponse, fetch: FetchVersion
) -> RegisteredSchema | UnusableSchema:
    """The schema with all that it refers to. ``fetch`` gives None for what does not exist."""
    found: dict[str, ReferencedSchema] = {}
    try:
        for one in _walk(schema, fetch, (), {}):
            if found.setdefault(one.name, one).text != one.text:
                raise _Unresolvable(f"it refers to two different schemas as {one.name}")
        references = tuple(found.values())
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
    """Depth first, each after those that it needs. ``path``: those that lead here."""
    for reference in schema.references:
        if reference.at in path:
            named = " -> ".join(_show(at) for at in (*path, reference.at))
            raise _Unresolvable(f"its references form a cycle: {named}")
        if reference.at not in seen:
            if len(seen) == MAX_REFERENCES:
                raise _Unresolvable(f"it refers to more than {MAX_REFERENCES} schemas")
            response = fetch(reference.at)
            if response is None:
                raise _Unresolvable(
                    f"it refers to {_show(reference.at)}, which the registry does not have"
                )
            seen[reference.at] = response
            yield from _walk(response, fetch, (*path, reference.at), seen)
        yield ReferencedSchema(reference.name, seen[reference.at].text)


def _show(at: SubjectVersion) -> str:
    return f"version {at.version} of {at.subject}"


# --- Avro: one schema that contains all its types ---------------------------------------


def _inline(text: str, references: tuple[ReferencedSchema, ...]) -> str:
    """Each type is defined where it is used first."""
    definitions: dict[str, tuple[Any, str]] = {}
    for one in references:
        _collect(parse_json(one.text), "", definitions)
    return json.dumps(_with_types(parse_json(text), "", definitions, set()))


def _collect(schema: Any, namespace: str, found: dict[str, tuple[Any, str]]) -> None:
    """All named types of a schema, with the namespace that surrounds each."""
    if isinstance(schema, list):
        for one in schema:
            _collect(one, namespace, found)
    elif isinstance(schema, dict):
        inner = namespace
        if schema.get("type") in NAMED_TYPES:
            inner, full = _full_name(schema, namespace)
            found.setdefault(full, (schema, namespace))
        for part in _parts(schema):
            _collect(part, inner, found)


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
        return [_with_types(one, namespace, definitions, defined) for one in schema]
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
            {**one, "type": _with_types(one.get("type"), inner, definitions, defined)}
            if isinstance(one, dict)
            else one
            for one in result["fields"]
        ]
    return result


def _parts(schema: dict[str, Any]) -> Iterator[Any]:
    yield from (schema[key] for key in ("type", "items", "values") if key in schema)
    fields = schema.get("fields")
    for one in fields if isinstance(fields, list) else ():
        if isinstance(one, dict):
            yield one.get("type")


def _full_name(schema: dict[str, Any], namespace: str) -> tuple[str, str]:
    """The namespace within a named type, and its full name."""
    name, own = str(schema.get("name", "")), schema.get("namespace", namespace)
    if "." in name:
        return name.rpartition(".")[0], name
    inner = own if isinstance(own, str) else ""
    return inner, f"{inner}.{name}" if inner else name
