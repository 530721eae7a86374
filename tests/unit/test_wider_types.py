"""Payloads that were written with narrower types than the table has: their values are the same
there, or they are refused. Nothing is cut off."""

from __future__ import annotations

import json
import struct
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from rangeland.decode.payload.avro.avro_format import AvroFormat, unreadable_fields
from rangeland.decode.payload.json.json_format import JsonFormat
from rangeland.decode.payload.protobuf.protobuf_format import ProtobufFormat
from rangeland.decode.payload.schema_ddl import parse_ddl
from tests.unit.test_avro_decoder import encode, record
from tests.unit.test_protobuf_decoder import F, descriptors, message


def decimal(precision: int, scale: int) -> dict[str, Any]:
    kind = {"type": "bytes", "logicalType": "decimal"}
    return kind | {"precision": precision, "scale": scale}


NARROW_FLOAT = struct.unpack("<f", struct.pack("<f", 0.1))[0]
AVRO = [
    ("int", "long", pa.int64(), [-(1 << 31), (1 << 31) - 1]),
    ("int", "double", pa.float64(), [-(1 << 31), (1 << 31) - 1]),
    ("float", "double", pa.float64(), [NARROW_FLOAT, float("inf"), -0.0]),
    (decimal(4, 2), decimal(20, 2), pa.decimal128(20, 2), [Decimal("-12.34"), Decimal("99.99")]),
    (["null", "int"], ["null", "long"], pa.int64(), [None, 7]),
    ("int", ["null", "long"], pa.int64(), [7]),
]


@pytest.mark.parametrize(("writer", "reader", "kind", "values"), AVRO)
def test_avro_is_read_as_the_wider_type(
    writer: Any, reader: Any, kind: pa.DataType, values: list[Any]
) -> None:
    theirs = record(("a", writer), ("l", {"type": "array", "items": writer}))
    ours = record(("a", reader), ("l", {"type": "array", "items": reader}))
    form = AvroFormat(json.dumps(ours), writer_schema=json.dumps(theirs))
    assert (form.arrow_type["a"].type, form.arrow_type["l"].type.value_type) == (kind, kind)
    payloads = [encode(theirs, {"a": value, "l": [value, value]}) for value in values]
    found = form.decoder().decode(pa.array(payloads, pa.binary()))
    assert not found.undecodable
    assert found.values.to_pylist() == [{"a": one, "l": [one, one]} for one in values]


@pytest.mark.parametrize(
    ("writer", "reader"),
    [
        ("long", "int"),
        ("double", "float"),
        (decimal(20, 2), decimal(4, 2)),
        (decimal(4, 2), decimal(6, 4)),  # a decimal's scale is not in its bytes
        (
            {"type": "int", "logicalType": "date"},
            {"type": "long", "logicalType": "timestamp-millis"},
        ),
        ("string", "int"),
    ],
)
def test_other_types_of_avro_are_refused_by_name(writer: Any, reader: Any) -> None:
    (found,) = unreadable_fields(
        json.dumps(record(("a", writer))), json.dumps(record(("a", reader)))
    )
    assert found.path == "a"


NUMBERS = [-(1 << 31), -1, 0, 1, (1 << 31) - 1]
PROTOBUF = [
    (F.TYPE_INT32, F.TYPE_INT64, pa.int64(), NUMBERS),
    (F.TYPE_SINT32, F.TYPE_SINT64, pa.int64(), NUMBERS),
    (F.TYPE_UINT32, F.TYPE_INT64, pa.int64(), [0, (1 << 32) - 1]),
    (F.TYPE_UINT32, F.TYPE_UINT64, pa.decimal128(20, 0), [0, (1 << 32) - 1]),
    (F.TYPE_BOOL, F.TYPE_INT32, pa.int32(), [False, True]),
    (F.TYPE_INT64, F.TYPE_INT32, pa.int32(), NUMBERS),
    (F.TYPE_UINT64, F.TYPE_UINT32, pa.int64(), [0, (1 << 32) - 1]),
]
REFUSED = [
    (F.TYPE_INT64, F.TYPE_INT32, 1 << 32, "a number is out of range"),
    (F.TYPE_INT64, F.TYPE_INT32, -(1 << 31) - 1, "a number is out of range"),
    (F.TYPE_INT64, F.TYPE_UINT32, -1, "a number is out of range"),
    (F.TYPE_UINT64, F.TYPE_UINT32, 1 << 32, "a number is out of range"),
    (F.TYPE_SINT64, F.TYPE_SINT32, 1 << 31, "a number is out of range"),
    (F.TYPE_FLOAT, F.TYPE_DOUBLE, 1.5, "was written with a different type"),
    (F.TYPE_DOUBLE, F.TYPE_FLOAT, 1.5, "was written with a different type"),
    (F.TYPE_FIXED32, F.TYPE_FIXED64, 7, "was written with a different type"),
    (F.TYPE_STRING, F.TYPE_INT64, "7", "was written with a different type"),
]


def written(kind: int, value: Any) -> bytes:
    """A message whose only field is of this type, as Google's library writes it."""
    pool = descriptor_pool.DescriptorPool()
    described = descriptors(message("M", ("a", kind)))
    for file in descriptor_pb2.FileDescriptorSet.FromString(described).file:
        pool.Add(file)
    made = message_factory.GetMessageClass(pool.FindMessageTypeByName("p.M"))
    payload: bytes = made(a=value).SerializeToString()
    return payload


@pytest.mark.parametrize(("writer", "reader", "kind", "values"), PROTOBUF)
def test_protobuf_is_read_as_the_wider_type(
    writer: int, reader: int, kind: pa.DataType, values: list[Any]
) -> None:
    form = ProtobufFormat(descriptors(message("M", ("a", reader))), "p.M")
    assert form.arrow_type["a"].type == kind
    payloads = [written(writer, value) for value in values]
    found = form.decoder().decode(pa.array(payloads, pa.binary()))
    assert not found.undecodable
    assert [row["a"] for row in found.values.to_pylist()] == values


@pytest.mark.parametrize(("writer", "reader", "value", "reason"), REFUSED)
def test_what_protobuf_cannot_read_as_the_tables_type_is_never_another_value(
    writer: int, reader: int, value: Any, reason: str
) -> None:
    form = ProtobufFormat(descriptors(message("M", ("a", reader))), "p.M")
    found = form.decoder().decode(pa.array([written(writer, value), b""], pa.binary()))
    assert [one.row for one in found.undecodable] == [0]
    assert reason in found.undecodable[0].reason
    assert "field a" in found.undecodable[0].reason


@pytest.mark.parametrize(
    ("kinds", "text", "value"),
    [
        (("TINYINT", "SMALLINT", "INT", "BIGINT"), "-128", -128),
        (("SMALLINT", "INT", "BIGINT"), "-32768", -32768),
        (("FLOAT", "DOUBLE"), "0.5", 0.5),
        (("INT", "DOUBLE"), "2147483647", 2147483647),
        (("DECIMAL(4,2)", "DECIMAL(10,2)", "DECIMAL(20,6)"), "12.34", Decimal("12.34")),
        (("INT", "DECIMAL(10,0)"), "2147483647", 2147483647),
    ],
)
def test_json_has_the_same_value_in_each_wider_type(
    kinds: tuple[str, ...], text: str, value: Any
) -> None:
    for kind in kinds:
        form = JsonFormat(parse_ddl(f"a {kind}"))
        found = form.decoder().decode(pa.array([f'{{"a":{text}}}'.encode()], pa.binary()))
        assert found.values.to_pylist() == [{"a": value}]
