"""Formats made from the schemas of a registry, and JSON payloads with a schema id in front."""

from __future__ import annotations

import json
import pickle
import struct
from dataclasses import dataclass

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rangeland.decode.payload.avro.avro_format import AvroFormat
from rangeland.decode.payload.json.json_format import JsonFormat
from rangeland.decode.payload.payload_decoder import PayloadSchemaError, UnknownFields
from rangeland.decode.payload.protobuf.protobuf_format import ProtobufFormat
from rangeland.decode.payload.schema_ddl import parse_ddl
from rangeland.decode.payload.schema_ids.schema_catalogue import (
    ReferencedSchema,
    RegisteredSchema,
    SchemaFormat,
    UnusableSchema,
)
from rangeland.decode.payload.schema_ids.subject_writers import SubjectWriters
from rangeland.schema_registry.table_formats import MAIN_FILE, registered_format
from tests.fakes.schemas import decode_framed

AVRO, JSON, PROTOBUF = SchemaFormat
ORDER = {
    "type": "object",
    "properties": {"id": {"type": "integer"}, "name": {"type": "string"}},
}


@dataclass(frozen=True)
class Known:
    """1 and 2 are JSON Schemas, 3 is Avro, others do not exist."""

    def of_id(self, schema_id: int) -> RegisteredSchema | UnusableSchema:
        if schema_id in (1, 2):
            return RegisteredSchema(JSON, "{}")
        if schema_id == 3:
            return RegisteredSchema(AVRO, '"int"')
        return UnusableSchema(f"there is no schema with id {schema_id}")


def framed(schema_id: int, body: bytes) -> bytes:
    return b"\0" + struct.pack(">i", schema_id) + body


PAYLOADS = [
    framed(1, b'{"id": 1}'),
    None,
    framed(2, b'{"id": 2, "name": "b", "more": true}'),
    framed(3, b'{"id": 3}'),
    framed(4, b'{"id": 4}'),
    b'{"id": 5}',
    b"\0\0\0",
    framed(1, b'{"id": '),
    framed(1, b""),
    framed(0, b'{"id": 6}'),
]


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary()])
def test_framed_json(kind: pa.DataType) -> None:
    form = JsonFormat(parse_ddl("id BIGINT, name STRING"), writers=SubjectWriters())
    form = pickle.loads(pickle.dumps(form))
    array = pa.array([b"not looked at", *PAYLOADS], kind)[1:]
    found = decode_framed(form.decoder(), array, Known())
    assert found.values.type == form.arrow_type
    assert found.values.to_pylist() == [
        {"id": 1, "name": None},
        None,
        {"id": 2, "name": "b"},
        *[None] * 7,
    ]
    assert [(one.row, one.schema_id) for one in found.undecodable] == [
        (3, 3),
        (4, 4),
        (5, None),
        (6, None),
        (7, 1),
        (8, 1),
        (9, None),
    ]
    reasons = [one.reason for one in found.undecodable]
    assert reasons[0] == "the schema with id 3 is not JSON Schema but AVRO"
    assert reasons[1] == "there is no schema with id 4"
    assert found.schema_ids == {1: 3, 2: 1, 3: 1, 4: 1}


def test_unknown_fields_of_framed_json_are_kept() -> None:
    form = JsonFormat(parse_ddl("id BIGINT, name STRING"), UnknownFields.KEEP, SubjectWriters())
    found = decode_framed(form.decoder(), pa.array(PAYLOADS, pa.binary()), Known())
    assert found.rescued is not None
    assert json.loads(found.rescued.to_pylist()[2]) == {"more": True}


ANY = st.none() | st.binary(max_size=12)
FRAMED = st.builds(framed, st.integers(-1, 5), st.sampled_from([b"", b"{}", b'{"id": 7}', b"\0"]))


@given(st.lists(ANY | FRAMED, max_size=8), st.integers(0, 3))
def test_any_bytes_are_decoded_or_named(payloads: list[bytes | None], start: int) -> None:
    form = JsonFormat(parse_ddl("id BIGINT"), writers=SubjectWriters())
    whole = pa.array(payloads, pa.binary())
    found = decode_framed(form.decoder(), whole[start:], Known())
    refused = {one.row for one in found.undecodable}
    for row, payload in enumerate(payloads[start:]):
        is_good = payload in [framed(n, b) for n in (1, 2) for b in (b"{}", b'{"id": 7}')]
        assert (found.values[row].as_py() is not None) == is_good
        assert (row in refused) == (payload is not None and not is_good)
    assert pa.array(payloads, pa.binary()) == whole


def test_no_payloads() -> None:
    form = JsonFormat(parse_ddl("id BIGINT"), writers=SubjectWriters())
    for array in (pa.array([], pa.binary()), pa.array([None, None], pa.binary())):
        found = decode_framed(form.decoder(), array, Known())
        assert found.values.to_pylist() == [None] * len(array)
        assert list(found.undecodable) == []


def test_json_of_a_registry() -> None:
    schema = RegisteredSchema(JSON, json.dumps(ORDER))
    form = registered_format(schema, SubjectWriters(), unknown_fields=UnknownFields.FAIL)
    assert isinstance(form, JsonFormat)
    assert form.unknown_fields is UnknownFields.FAIL
    found = decode_framed(form.decoder(), pa.array(PAYLOADS[:1], pa.binary()), Known())
    assert found.values.to_pylist() == [{"id": 1, "name": None}]


def test_avro_of_a_registry() -> None:
    record = {"type": "record", "name": "A", "fields": [{"name": "x", "type": "int"}]}
    form = registered_format(RegisteredSchema(AVRO, json.dumps(record)), SubjectWriters())
    assert form == AvroFormat(json.dumps(record), SubjectWriters())


def test_protobuf_of_a_registry() -> None:
    money = 'syntax = "proto3"; package shop; message Money { int64 units = 1; }'
    pay = (
        'syntax = "proto3"; package shop; import "a/money.proto";'
        "message Pay { Money m = 1; } message Other { int32 x = 1; }"
    )
    schema = RegisteredSchema(PROTOBUF, pay, (ReferencedSchema("a/money.proto", money),))
    form = registered_format(schema, SubjectWriters(), message="shop.Pay")
    assert isinstance(form, ProtobufFormat)
    assert form.arrow_type == pa.struct([("m", pa.struct([("units", pa.int64())]))])


REFERRING = {"type": "object", "properties": {"order": {"$ref": "b.json"}}}


def test_json_of_a_registry_that_refers_to_another_schema() -> None:
    order = ReferencedSchema("b.json", json.dumps(ORDER))
    form = registered_format(
        RegisteredSchema(JSON, json.dumps(REFERRING), (order,)), SubjectWriters()
    )
    assert form.arrow_type == pa.struct([("order", parse_ddl("id BIGINT, name STRING"))])


@pytest.mark.parametrize(
    "schema",
    [
        RegisteredSchema(AVRO, "{"),
        RegisteredSchema(JSON, "{"),
        RegisteredSchema(JSON, json.dumps(REFERRING), (ReferencedSchema("c.json", "{}"),)),
        RegisteredSchema(PROTOBUF, "message {"),
        RegisteredSchema(PROTOBUF, "", (ReferencedSchema(MAIN_FILE, ""),)),
        RegisteredSchema(PROTOBUF, "", (ReferencedSchema("../x.proto", ""),)),
    ],
)
def test_a_schema_that_cannot_be_used(schema: RegisteredSchema) -> None:
    with pytest.raises(PayloadSchemaError):
        registered_format(schema, SubjectWriters())
