"""JSON Schema documents read into Arrow types."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rangeland.decode.payload.json.json_schema import parse_json_schema
from rangeland.decode.payload.payload_decoder import PayloadSchemaError
from rangeland.decode.payload.schema_ddl import print_ddl


def ddl(schema: Any) -> str:
    return print_ddl(parse_json_schema(json.dumps(schema)))


def columns(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


def test_types_and_formats_become_columns() -> None:
    schema = columns(
        s={"type": "string"},
        u={"type": "string", "format": "uuid"},
        t={"type": "string", "format": "date-time"},
        d={"type": "string", "format": "date"},
        b={"type": "string", "contentEncoding": "base64"},
        i={"type": "integer"},
        j={"type": "integer", "format": "int32"},
        n={"type": "number"},
        f={"type": "number", "format": "float"},
        o={"type": "boolean"},
        a={"type": "array", "items": {"type": ["integer", "null"]}},
        m={"type": "object", "additionalProperties": {"type": "number"}},
        e={"enum": ["red", "green", None]},
        c={"const": 5},
        p=columns(x={"type": ["number", "integer"]}),
    )
    assert ddl(schema) == (
        "s STRING, u STRING, t TIMESTAMP, d DATE, b BINARY, i BIGINT, j INT, n DOUBLE, f FLOAT, "
        "o BOOLEAN, a ARRAY<BIGINT>, m MAP<STRING, DOUBLE>, e STRING, c BIGINT, p STRUCT<x: DOUBLE>"
    )


def test_only_what_is_required_and_never_null_is_not_null() -> None:
    text = {"type": "string"}
    either = {"type": ["string", "null"]}
    choice = {"oneOf": [{"type": "null"}, text]}
    schema = columns(a=text, b=text, c=either, d=choice, e={"allOf": [text]})
    schema["required"] = ["a", "c", "d", "e"]
    assert ddl(schema) == "a STRING NOT NULL, b STRING, c STRING, d STRING, e STRING NOT NULL"
    items = parse_json_schema(json.dumps(columns(a={"type": "array", "items": text})))
    assert not items.field("a").type.value_field.nullable


def test_references_lead_to_a_place_in_the_document() -> None:
    schema = columns(a={"$ref": "#/$defs/a~1b"}, b={"$ref": "#/$defs/list/0"})
    schema["$defs"] = {"a/b": {"type": "integer"}, "list": [{"$ref": "#/$defs/a~1b"}]}
    assert ddl(schema) == "a BIGINT, b BIGINT"


def test_references_lead_to_other_documents_and_from_there() -> None:
    money = columns(cents={"$ref": "#/$defs/whole"}, of={"$ref": "http://shop/unit.json"})
    money["$defs"] = {"whole": {"type": "integer"}}
    unit = {"$id": "http://shop/unit.json", "type": "string"}
    others = {"money.json": json.dumps(money), "unit.json": json.dumps(unit)}
    schema = columns(a={"$ref": "money.json"}, b={"$ref": "money.json#/$defs/whole"})
    found = parse_json_schema(json.dumps(schema), others)
    assert print_ddl(found) == "a STRUCT<cents: BIGINT, of: STRING>, b BIGINT"
    with pytest.raises(PayloadSchemaError, match=r"the schema money\.json cannot be read"):
        parse_json_schema(json.dumps(schema), {"money.json": "{"})
    again = {"money.json": json.dumps(columns(a={"$ref": "#"}))}
    with pytest.raises(
        PayloadSchemaError, match=r"money\.json#/properties/a/properties/a: .* itself"
    ):
        parse_json_schema(json.dumps(columns(a={"$ref": "money.json"})), again)
    with pytest.raises(PayloadSchemaError, match=r"money\.json#/x leads nowhere"):
        parse_json_schema(json.dumps(columns(a={"$ref": "money.json#/x"})), again)


def test_a_long_way_of_references_is_refused() -> None:
    schema = columns(a={"$ref": "#/$defs/0"})
    schema["$defs"] = {str(i): {"$ref": f"#/$defs/{i + 1}"} for i in range(5000)}
    with pytest.raises(PayloadSchemaError, match="more than 128 references"):
        parse_json_schema(json.dumps(schema))


@pytest.mark.parametrize(
    ("schema", "what"),
    [
        ([], "#: a schema must be an object"),
        ({"type": "string"}, "must be one of an object with properties"),
        ({"type": "object"}, "#: an object needs properties"),
        (columns(a=True), "#/properties/a: a schema must be an object"),
        (columns(a={}), "#/properties/a: the schema names no type"),
        (columns(a={"type": 5}), "#/properties/a: type must be a name"),
        (columns(a={"type": "any"}), "#/properties/a: there is no type 'any'"),
        (columns(a={"type": ["string", "integer"]}), "not string and integer"),
        (columns(a={"type": "null"}), "not null alone"),
        (columns(a={"enum": ["a", 1]}), "not integer and string"),
        (columns(a={"enum": [[]]}), "#/properties/a: the values of an enum"),
        (columns(a={"type": "array"}), "#/properties/a: an array needs items"),
        (columns(a={"oneOf": [{"type": "string"}, {"type": "integer"}]}), "a choice of several"),
        (columns(a={"$ref": "other.json"}), "a place in this document"),
        (columns(a={"$ref": "#/x"}), "#/properties/a: the reference #/x leads nowhere"),
        (columns(a={"$ref": "#"}), "the reference # leads back to itself"),
        (columns(a={"$ref": "#/properties/a"}), "leads back to itself"),
        (columns(a={"$ref": "#/properties/b"}, b=columns(c={"$ref": "#/properties/a"})), "itself"),
        (columns(a={"type": "string"}, A={"type": "string"}), "#: two properties have names that"),
        ({**columns(a={"type": "string"}), "required": ["b"]}, "'b' is not among the properties"),
    ],
)
def test_what_a_table_cannot_have_is_refused_by_name(schema: Any, what: str) -> None:
    with pytest.raises(PayloadSchemaError) as caught:
        parse_json_schema(json.dumps(schema))
    assert what in str(caught.value)


@pytest.mark.parametrize(
    ("levels", "what"), [(100, "nested more than 32 deep"), (16, "more than 10,000 types")]
)
def test_a_document_that_doubles_with_each_reference_is_refused(levels: int, what: str) -> None:
    schema = columns(a={"$ref": "#/$defs/0"})
    schema["$defs"] = {
        str(i): columns(a={"$ref": f"#/$defs/{i + 1}"}, b={"$ref": f"#/$defs/{i + 1}"})
        for i in range(levels)
    } | {str(levels): {"type": "string"}}
    with pytest.raises(PayloadSchemaError, match=what):
        parse_json_schema(json.dumps(schema))


@pytest.mark.parametrize("text", ["", "{", '{"a":1,"a":2}', "[" * 5000, b"\xff"])
def test_what_is_not_json_is_refused(text: str | bytes) -> None:
    with pytest.raises(PayloadSchemaError, match="the JSON Schema cannot be read"):
        parse_json_schema(text)
