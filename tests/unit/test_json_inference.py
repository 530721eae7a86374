"""The schema of a sample of JSON payloads."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from rangeland.decode.payload.json.json_format import JsonFormat
from rangeland.decode.payload.json.json_inference import InferredSchema, infer_json_schema
from rangeland.decode.payload.schema_ddl import parse_ddl


def inferred(*records: Any) -> InferredSchema:
    return infer_json_schema([json.dumps(record).encode() for record in records])


def test_each_type_is_found() -> None:
    found = inferred(
        {"i": 1, "f": 1, "d": "2024-01-01", "t": "2024-01-01T00:00:00Z", "s": "x", "b": True},
        {"i": -5, "f": 0.5, "n": "2024-01-01T00:00:00", "s": "2024-01-01", "big": 10**20, "e": []},
        {"a": [1, None], "o": {"p": None}, "z": {}, "l": [{"k": 1}, {"v": "x"}], "exp": 1e3},
    )
    assert found.ddl == (
        "i BIGINT, f DOUBLE, d DATE, t TIMESTAMP, s STRING, b BOOLEAN, n TIMESTAMP_NTZ, "
        "big DECIMAL(38,0), e ARRAY<STRING>, a ARRAY<BIGINT>, o STRUCT<p: STRING>, "
        "z MAP<STRING, STRING>, l ARRAY<STRUCT<k: BIGINT, v: STRING>>, exp DOUBLE"
    )


def test_how_often_a_field_was_there_and_what_it_was() -> None:
    found = inferred({"a": 1}, {"a": None}, {"a": 1.5, "l": [{"b": "x"}, {}]}, {})
    assert found.records == 4
    a, items, inner = found.fields
    assert (a.path, a.present, a.parents, a.nulls) == ("a", 3, 4, 1)
    assert a.types == {"integer": 1, "null": 1, "number": 1}
    assert a.column == "DOUBLE"
    assert (items.path, items.present) == ("l", 1)
    assert (inner.path, inner.present, inner.parents) == ("l[].b", 1, 2)


def test_a_field_of_two_types_is_reported_and_has_no_column() -> None:
    found = inferred({"a": 1, "b": 2, "B": 3}, {"a": "x"})
    assert found.ddl == "b BIGINT"
    assert [(field.path, field.column) for field in found.fields] == [
        ("a", None),
        ("b", "BIGINT"),
        ("B", None),
    ]
    assert found.fields[0].types == {"integer": 1, "string": 1}


def test_an_object_with_many_names_is_a_map() -> None:
    found = inferred({"m": {f"key-{i}": i for i in range(200)}})
    assert found.ddl == "m MAP<STRING, BIGINT>"
    assert [field.path for field in found.fields] == ["m"]


def test_what_is_no_json_object_does_not_count() -> None:
    found = infer_json_schema([b"", b"[]", b"1", b"\xff", None, b'{"a":1}', b'{"a":1} x'])
    assert (found.records, found.ddl) == (1, "a BIGINT")
    nothing = infer_json_schema([b"x"])
    assert (nothing.schema, nothing.ddl, nothing.fields) == (None, "", ())


def test_a_flood_of_fields_is_bounded() -> None:
    found = inferred({f"f{i}": 1 for i in range(10_000)})
    assert len(found.fields) == 2_000


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**20), 10**20)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5)
    | st.datetimes().map(lambda time: time.isoformat())
    | st.dates().map(lambda day: day.isoformat()),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=6,
)


@settings(deadline=None)
@given(st.lists(st.dictionaries(st.sampled_from("abcd"), json_values, max_size=4), max_size=4))
def test_the_inferred_schema_decodes_the_sample(records: list[Any]) -> None:
    payloads = [json.dumps(record).encode() for record in records]
    found = infer_json_schema(payloads)
    if found.schema is not None:
        assert parse_ddl(found.ddl).equals(found.schema)
        result = JsonFormat(found.schema).decoder().decode(pa.array(payloads, pa.binary()))
        assert [fault.reason for fault in result.undecodable] == []
