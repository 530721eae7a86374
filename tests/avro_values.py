"""Random Avro schemas, values of them, later versions of them, and what a decoder makes of values.

Unions hold branches that Python can distinguish, because fastavro chooses a branch by the value.
"""

from __future__ import annotations

import datetime as dt
import decimal
import io
import itertools
import struct
import uuid
from typing import Any

import fastavro
from hypothesis import strategies as st

UTC = dt.UTC
EPOCH = dt.datetime(1970, 1, 1, tzinfo=UTC)
_names = (f"T{number}" for number in itertools.count())

PLAIN = ["boolean", "int", "long", "float", "double", "bytes", "string"]
LOGICAL = [
    {"type": "int", "logicalType": "date"},
    {"type": "long", "logicalType": "timestamp-millis"},
    {"type": "long", "logicalType": "timestamp-micros"},
    {"type": "long", "logicalType": "local-timestamp-micros"},
    {"type": "string", "logicalType": "uuid"},
    {"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": 3},
]
INT = st.integers(-(1 << 31), (1 << 31) - 1)
LONG = st.integers(-(1 << 63), (1 << 63) - 1)
TEXT = st.text(max_size=12)
MOMENT = st.datetimes(dt.datetime(1700, 1, 1), dt.datetime(2300, 1, 1))


@st.composite
def types(draw: Any, depth: int = 3, *, logical: bool = True) -> Any:
    """A schema that is no union."""
    kinds = ["plain", "enum", "fixed"] + (["logical"] if logical else [])
    kinds += ["record", "array", "map"] if depth else []
    match draw(st.sampled_from(kinds)):
        case "plain":
            return draw(st.sampled_from(PLAIN))
        case "logical":
            return draw(st.sampled_from([*LOGICAL, fixed_decimal()]))
        case "enum":
            symbols = draw(st.lists(st.sampled_from("ABCDEF"), min_size=1, unique=True))
            return {"type": "enum", "name": next(_names), "symbols": symbols}
        case "fixed":
            return {"type": "fixed", "name": next(_names), "size": draw(st.integers(0, 20))}
        case "array":
            return {"type": "array", "items": draw(schemas(depth - 1, logical=logical))}
        case "map":
            return {"type": "map", "values": draw(schemas(depth - 1, logical=logical))}
    return draw(records(depth - 1, logical=logical))


@st.composite
def records(draw: Any, depth: int = 3, *, logical: bool = True) -> Any:
    kinds = draw(st.lists(schemas(depth, logical=logical), max_size=5))
    fields = [{"name": f"f{at}", "type": kind} for at, kind in enumerate(kinds)]
    return {"type": "record", "name": next(_names), "fields": fields}


@st.composite
def schemas(draw: Any, depth: int = 3, *, logical: bool = True) -> Any:
    match draw(st.integers(0, 5)):
        case 0 | 1:
            inner = draw(types(depth, logical=logical))
            return draw(st.permutations(["null", inner]))
        case 2:
            text = draw(st.sampled_from(["string", "bytes"]))  # fastavro reads each as the other
            branches = st.sampled_from(["null", text, "long", "boolean"])
            return draw(st.lists(branches, min_size=1, unique=True))
    return draw(types(depth, logical=logical))


def fixed_decimal() -> Any:
    return {
        "type": "fixed",
        "name": next(_names),
        "size": 9,
        "logicalType": "decimal",
        "precision": 20,
        "scale": 3,
    }


def values(schema: Any) -> st.SearchStrategy[Any]:
    if isinstance(schema, list):
        return st.one_of([values(branch) for branch in schema])
    kind = schema["type"] if isinstance(schema, dict) else schema
    logical = schema.get("logicalType", "") if isinstance(schema, dict) else ""
    if logical == "decimal":
        bound = 10**20 - 1
        return st.integers(-bound, bound).map(lambda n: decimal.Decimal(n).scaleb(-3, WIDE))
    if logical:
        return {
            "date": st.dates(dt.date(1800, 1, 1), dt.date(2200, 1, 1)),
            "timestamp-millis": MOMENT.map(
                lambda at: at.replace(microsecond=at.microsecond // 1000 * 1000, tzinfo=UTC)
            ),
            "timestamp-micros": MOMENT.map(lambda at: at.replace(tzinfo=UTC)),
            "local-timestamp-micros": MOMENT,
            "uuid": st.uuids(),
        }[logical]
    match kind:
        case "record":
            return st.fixed_dictionaries(
                {one["name"]: values(one["type"]) for one in schema["fields"]}
            )
        case "array":
            return st.lists(values(schema["items"]), max_size=4)
        case "map":
            return st.dictionaries(TEXT, values(schema["values"]), max_size=4)
        case "enum":
            return st.sampled_from(schema["symbols"])
        case "fixed":
            return st.binary(min_size=schema["size"], max_size=schema["size"])
    return {
        "null": st.none(),
        "boolean": st.booleans(),
        "int": INT,
        "long": LONG,
        "float": st.floats(width=32, allow_nan=False),
        "double": st.floats(allow_nan=False),
        "bytes": st.binary(max_size=12),
        "string": TEXT,
    }[kind]


WIDE = decimal.Context(prec=60)


@st.composite
def later_versions(draw: Any, schema: Any, *, in_union: bool = False) -> Any:
    """A reader's schema for payloads of ``schema``; sometimes one that cannot read them."""
    if isinstance(schema, list):
        versions = [draw(later_versions(one, in_union=True)) for one in schema]
        if any(versions.count(one) > 1 for one in versions):
            return schema
        kept = [one for one in versions if one != "null"]
        return versions if draw(st.integers(0, 3)) or not kept else kept
    if not in_union and draw(st.integers(0, 4)) == 0:
        return ["null", draw(later_versions(schema, in_union=True))]
    if in_union and schema != "long":
        return schema
    if isinstance(schema, str):
        choices = {
            "int": ["int", "long", "float", "double"],
            "long": ["long", "double", "int"],  # fastavro rounds twice on the way to a float
            "float": ["float", "double"],
            "string": ["string", "bytes"],
            "bytes": ["bytes", "string", "int"],
        }
        return draw(st.sampled_from(choices.get(schema, [schema])))
    match schema["type"]:
        case "record":
            return draw(_later_record(schema))
        case "array":
            return schema | {"items": draw(later_versions(schema["items"]))}
        case "map":
            return schema | {"values": draw(later_versions(schema["values"]))}
        case "enum":
            kept = [one for one in schema["symbols"] if draw(st.integers(0, 5))]
            symbols = draw(st.permutations(["Z", *kept]))
            default = {"default": "Z"} if draw(st.booleans()) else {}
            return schema | {"symbols": symbols} | default
    return schema


@st.composite
def _later_record(draw: Any, schema: Any) -> Any:
    fields = []
    for one in schema["fields"]:
        match draw(st.integers(0, 5)):
            case 0:
                continue
            case 1:
                name = f"{one['name']}_renamed"
                found = one | {"name": name, "aliases": [one["name"]]}
            case _:
                found = dict(one)
        fields.append(found | {"type": draw(later_versions(one["type"]))})
    added = [
        ("a", "long", 7),
        ("b", ["null", "string"], None),
        ("c", {"type": "array", "items": "string"}, ["x", "é"]),
        ("d", "bytes", "\u00ff"),
        ("e", ["string", "null"], "text"),
        ("f", {"type": "map", "values": "double"}, {"k": 1.5}),
    ]
    for name, kind, default in draw(st.lists(st.sampled_from(added), unique_by=lambda a: a[0])):
        fields.append({"name": name, "type": kind, "default": default})
    return schema | {"fields": draw(st.permutations(fields))}


def encoded(schema: Any, value: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return out.getvalue()


def as_row(schema: Any, value: Any) -> Any:
    """A value as Arrow's ``to_pylist`` gives it."""
    if value is None:
        return None
    if isinstance(schema, list):
        branches = [one for one in schema if one != "null"]
        if len(branches) < 2:
            return as_row(branches[0], value)
        names = {str: ("string",), int: ("long", "int"), bool: ("boolean",), bytes: ("bytes",)}
        chosen = names.get(type(value), ("double", "float"))
        row = {}
        for at, one in enumerate(branches):
            row[f"member{at}"] = as_row(one, value) if one in chosen else None
        return row
    kind = schema["type"] if isinstance(schema, dict) else schema
    match kind:
        case "record":
            row = {one["name"]: as_row(one["type"], value[one["name"]]) for one in schema["fields"]}
            return row or True
        case "array":
            return [as_row(schema["items"], one) for one in value]
        case "map":
            return sorted((key, as_row(schema["values"], one)) for key, one in value.items())
        case "float":
            return struct.unpack("<f", struct.pack("<f", value))[0]
    if kind == "bytes" and isinstance(value, str):  # a default, which fastavro leaves as it is
        return value.encode("latin-1")
    return str(value) if isinstance(value, uuid.UUID) else value


def sorted_maps(schema: Any, row: Any) -> Any:
    """A row of a decoder, with the entries of its maps in the order of ``as_row``."""
    if row is None or isinstance(schema, str):
        return row
    if isinstance(schema, list):
        branches = [one for one in schema if one != "null"]
        return row if len(branches) != 1 else sorted_maps(branches[0], row)
    match schema["type"]:
        case "record" if isinstance(row, dict):
            kinds = {one["name"]: one["type"] for one in schema["fields"]}
            return {name: sorted_maps(kinds[name], one) for name, one in row.items()}
        case "array":
            return [sorted_maps(schema["items"], one) for one in row]
        case "map":
            return sorted((key, sorted_maps(schema["values"], one)) for key, one in row)
    return row
