"""Protobuf payloads: presence, well-known types, framing, and what is refused and why."""

from __future__ import annotations

import datetime as dt
import json
import pickle
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2 as pb
from google.protobuf import duration_pb2, struct_pb2, timestamp_pb2, wrappers_pb2

from rangeland.decode.payload.payload_decoder import DecodedPayloads, PayloadSchemaError
from rangeland.decode.payload.protobuf.protobuf_format import ProtobufFormat
from rangeland.decode.payload.schema_ids.confluent_framing import encode_indexes
from rangeland.decode.payload.schema_ids.schema_catalogue import (
    RegisteredSchema,
    SchemaFormat,
    UnusableSchema,
)
from rangeland.decode.payload.schema_ids.subject_writers import SubjectWriters
from tests.fakes.schemas import decode_framed

F = pb.FieldDescriptorProto
OPTIONAL, REQUIRED, REPEATED = F.LABEL_OPTIONAL, F.LABEL_REQUIRED, F.LABEL_REPEATED


def descriptors(*types: pb.DescriptorProto, syntax: str = "proto3", **more: Any) -> bytes:
    file = pb.FileDescriptorProto(name="f.proto", package="p", syntax=syntax, **more)
    file.message_type.extend(types)
    whole = pb.FileDescriptorSet()
    for module in (timestamp_pb2, duration_pb2, wrappers_pb2):
        module.DESCRIPTOR.CopyToProto(whole.file.add())
    whole.file.append(file)
    return whole.SerializeToString()


def message(name: str, *fields: Any, **more: Any) -> pb.DescriptorProto:
    """Each field: its name, its type or type's name, and its label."""
    found = pb.DescriptorProto(name=name, **more)
    for number, (field, kind, *label) in enumerate(fields, 1):
        named = isinstance(kind, str)
        found.field.add(
            name=field,
            number=number,
            label=label[0] if label else OPTIONAL,
            type=F.TYPE_MESSAGE if named else kind,
            type_name=kind if named else None,
        )
    return found


def decode(schema: bytes, payloads: list[bytes | None], name: str = "") -> DecodedPayloads:
    form = ProtobufFormat(schema, name)
    return form.decoder().decode(pa.array(payloads, pa.binary()))


def reason(found: DecodedPayloads) -> str:
    assert [one.row for one in found.undecodable] == [0]
    return found.undecodable[0].reason


PAIR = descriptors(message("Pair", ("number", F.TYPE_INT32), ("text", F.TYPE_STRING)))


@pytest.mark.parametrize(
    ("payload", "words"),
    [
        (b"\x08", "it ends inside a value (byte 0, field number)"),
        (b"\x08" + b"\xff" * 10, "a number has too many bytes"),
        (b"\x12\x05ab", "a length or a count exceeds the payload (byte 0, field text)"),
        (b"\x12\x02\xc3\x28", "a string is not valid UTF-8"),
        (b"\x00\x01", "a field has an impossible number or wire type"),
        (b"\x0e\x01", "a field has an impossible number or wire type"),
        (b"\x80\x80\x80\x80\x80\x01\x01", "a field has an impossible number or wire type"),
        (b"\x1c", "a group does not end where it should"),
        (b"\x1b\x24", "a group does not end where it should"),
        (b"\x1b" * 200, "groups or values are nested too deeply"),
    ],
)
def test_what_is_wrong_with_a_payload_is_its_reason(payload: bytes, words: str) -> None:
    found = decode(PAIR, [payload])
    assert words in reason(found)
    assert found.values.to_pylist() == [None]


def test_unknown_fields_are_passed_over() -> None:
    unknown = b"\x1b\x08\x01\x1c" + b"\x25\1\2\3\4" + b"\x29\1\2\3\4\5\6\7\x08" + b"\x32\x01x"
    [row] = decode(PAIR, [unknown + b"\x08\x07"]).values.to_pylist()
    assert row == {"number": 7, "text": ""}


@pytest.mark.parametrize(
    ("payload", "field"),
    [(b"\x0a\x01x", "number"), (b"\x09" + bytes(8), "number"), (b"\x10\x05", "text")],
)
def test_a_field_that_was_written_as_another_type_is_the_reason(payload: bytes, field: str) -> None:
    words = f"a field was written with a different type from the schema's (byte 0, field {field})"
    assert words in reason(decode(PAIR, [payload]))


def test_a_required_field_that_is_missing_is_the_reason() -> None:
    inner = message("Inner", ("must", F.TYPE_INT32, REQUIRED))
    schema = descriptors(inner, message("Outer", ("in", ".p.Inner")), syntax="proto2")
    found = decode(schema, [b"\x0a\x00", b"", b"\x0a\x02\x08\x05"], "p.Outer")
    assert "a required field is missing" in reason(found)
    assert "field in.must" in reason(found)
    assert found.values.to_pylist() == [None, {"in": None}, {"in": {"must": 5}}]


def test_moments_beyond_their_range_are_reasons() -> None:
    schema = descriptors(
        message("M", ("at", ".google.protobuf.Timestamp"), ("for", ".google.protobuf.Duration"))
    )
    body = timestamp_pb2.Timestamp(seconds=5, nanos=1_500_000).SerializeToString()
    length = bytes([len(body)])
    [row] = decode(schema, [b"\x0a" + length + body + b"\x12\0"], "p.M").values.to_pylist()
    assert row["at"] == dt.datetime(1970, 1, 1, 0, 0, 5, 1500, tzinfo=dt.UTC)
    assert row["for"] == 0
    far = timestamp_pb2.Timestamp(seconds=1 << 60).SerializeToString()
    assert "out of range" in reason(decode(schema, [b"\x0a" + bytes([len(far)]) + far], "p.M"))
    odd = timestamp_pb2.Timestamp(nanos=-1).SerializeToString()
    assert "out of range" in reason(decode(schema, [b"\x0a" + bytes([len(odd)]) + odd], "p.M"))


def test_a_type_that_only_has_the_name_of_a_well_known_one_is_an_ordinary_one() -> None:
    odd = pb.FileDescriptorProto(name="g.proto", package="google.protobuf", syntax="proto3")
    odd.message_type.add(name="Timestamp")
    odd.message_type.add(name="Int64Value").field.add(
        name="value", number=1, label=OPTIONAL, type=F.TYPE_STRING
    )
    use = message("M", ("t", ".google.protobuf.Timestamp"), ("w", ".google.protobuf.Int64Value"))
    file = pb.FileDescriptorProto(name="f.proto", package="p", syntax="proto3", message_type=[use])
    schema = pb.FileDescriptorSet(file=[odd, file]).SerializeToString()
    found = decode(schema, [b"\x0a\x00\x12\x03\x0a\x01x"])
    assert found.values.to_pylist() == [{"t": True, "w": {"value": "x"}}]


def test_a_message_in_too_many_parts_is_the_reason() -> None:
    schema = descriptors(message("I", ("r", F.TYPE_INT32, REPEATED)), message("M", ("i", ".p.I")))
    part = b"\x0a\x02\x08\x01"
    found = decode(schema, [part * 1000, part * 3], "p.M")
    assert "one message is split into too many parts" in reason(found)
    assert found.values.to_pylist()[1] == {"i": {"r": [1, 1, 1]}}


def test_parts_of_a_message_are_joined_whatever_payloads_are_beside_it() -> None:
    schema = descriptors(message("I", ("r", F.TYPE_INT32, REPEATED)), message("M", ("i", ".p.I")))
    parts = b"\x0a\x02\x08\x01" * 50
    alone = decode(schema, [parts], "p.M")
    beside = decode(schema, [parts, bytes([0x12, 0xFF, 0x7F]) + bytes(0x3FFF)], "p.M")
    assert reason(alone) == reason(beside)


def test_enums_are_their_symbols_and_open_ones_keep_unknown_numbers() -> None:
    enum = pb.EnumDescriptorProto(name="E")
    enum.value.add(name="A", number=0)
    enum.value.add(name="B", number=-1)
    kind = message("M")
    kind.field.add(name="e", number=1, label=REPEATED, type=F.TYPE_ENUM, type_name=".p.E")
    payload = b"\x08\x00\x08" + b"\xff" * 9 + b"\x01" + b"\x0a\x02\x07\x00"
    for syntax, expected in (("proto3", ["A", "B", "7", "A"]), ("proto2", ["A", "B", "A"])):
        schema = descriptors(kind, syntax=syntax, enum_type=[enum])
        assert decode(schema, [payload]).values.to_pylist() == [{"e": expected}]
    kind = message("M")
    entry = kind.nested_type.add(name="CEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, label=OPTIONAL, type=F.TYPE_STRING)
    entry.field.add(name="value", number=2, label=OPTIONAL, type=F.TYPE_ENUM, type_name=".p.E")
    kind.field.add(name="c", number=1, label=REPEATED, type=F.TYPE_MESSAGE, type_name=".p.M.CEntry")
    entries = ["0a016b1007", "0a016c1000", "0a016d10071000", "0a016e"]
    payload = b"".join(bytes([10, len(one) // 2]) + bytes.fromhex(one) for one in entries)
    for syntax, expected in (
        ("proto3", [("k", "7"), ("l", "A"), ("m", "A"), ("n", "A")]),
        (
            "proto2",
            [("l", "A"), ("n", "A")],
        ),  # an entry with an unknown symbol is left out as a whole
    ):
        schema = descriptors(kind, syntax=syntax, enum_type=[enum])
        found = decode(schema, [payload, bytes.fromhex("0a050a016b1007")])
        assert not found.undecodable
        rest = [("k", "7")] if syntax == "proto3" else []
        assert found.values.to_pylist() == [{"c": expected}, {"c": rest}]
    damaged = decode(schema, [bytes.fromhex("0a0710070a056b")])
    assert "a length or a count exceeds the payload" in reason(damaged)


@pytest.mark.parametrize(
    ("schema", "name", "words"),
    [
        (descriptors(message("R", ("next", ".p.R"))), "", "p.R contains itself"),
        (descriptors(message("A"), message("B")), "", "2 messages, and none is chosen: p.A, p.B"),
        (PAIR, "p.Other", "the message p.Other is not defined"),
        (descriptors(message("M", ("x", ".p.No"))), "", "the message p.No is not defined"),
        (descriptors(message("M", ("a", 5), ("A", 5))), "", "a and A would be the same column"),
        (b"\xff\xff", "", "not a descriptor set"),
        (b"", "", "has no messages"),
        (PAIR[:-3], "", "not a descriptor set"),
        (descriptors(message("M"), syntax="editions"), "", "use proto2 or proto3"),
    ],
)
def test_a_schema_that_cannot_be_used_is_refused(schema: bytes, name: str, words: str) -> None:
    with pytest.raises(PayloadSchemaError, match=words):
        ProtobufFormat(schema, name)


def test_types_that_grow_with_every_level_are_refused() -> None:
    types = [message("T0", ("x", F.TYPE_INT32))]
    for at in range(20):
        types.append(message(f"T{at + 1}", ("a", f".p.T{at}"), ("b", f".p.T{at}")))
    with pytest.raises(PayloadSchemaError, match="more than 10000"):
        ProtobufFormat(descriptors(*types), "p.T20")


TEXT = """
syntax = "proto3"; // message Comment {
package p;
/* message Other { */
option x = "message Text {";
message First { message Inner { enum E { A = 0; } } oneof o { int32 message = 1; } Inner i = 2; }
enum Between { Z = 0; }
message Pair { int32 number = 1; string text = 2; }
"""


class Registry:
    def of_id(self, schema_id: int) -> RegisteredSchema | UnusableSchema:
        match schema_id:
            case 1:
                return RegisteredSchema(SchemaFormat.PROTOBUF, TEXT)
            case 2:
                return RegisteredSchema(SchemaFormat.AVRO, '"int"')
            case 3:
                return RegisteredSchema(SchemaFormat.PROTOBUF, "message Pair {}")
        return UnusableSchema("no such schema")


def test_framed_payloads_name_their_schema_and_message() -> None:
    def framed(schema_id: int, indexes: list[int], body: bytes = b"\x08\x07") -> bytes:
        return b"\0" + schema_id.to_bytes(4, "big") + encode_indexes(indexes) + body

    payloads = [
        framed(1, [1]),
        framed(1, [0]),
        framed(2, [0]),
        framed(3, [0]),
        framed(4, [0]),
        b"\0\0\0\0\1",
        framed(1, [1], b"\x08"),
        None,
    ]
    form = ProtobufFormat(PAIR, "p.Pair", SubjectWriters())
    found = decode_framed(form.decoder(), pa.array(payloads, pa.binary()), Registry())
    assert found.values.to_pylist() == [{"number": 7, "text": ""}, *[None] * 7]
    assert [(one.row, one.reason, one.schema_id) for one in found.undecodable] == [
        (1, "its message indexes name another message", 1),
        (2, "the schema with id 2 is not Protobuf but AVRO", 2),
        (3, "the schema with id 3 has no message p.Pair", 3),
        (4, "no such schema", 4),
        (5, "the message indexes after its schema id are damaged", 1),
        (6, "it ends inside a value (byte 7, field number)", 1),
    ]
    assert found.schema_ids == {1: 4, 2: 1, 3: 1, 4: 1}


NESTED = """
syntax = "proto3";
package p;
message Order {
  map<string, int32> counts = 1;
  message Line { int32 number = 1; }
  message Note { int32 length = 1; }
}
"""


class NestedRegistry:
    def of_id(self, schema_id: int) -> RegisteredSchema:
        return RegisteredSchema(SchemaFormat.PROTOBUF, NESTED)


def test_a_nested_message_beside_a_map_is_decoded_only_where_its_indexes_mean_no_other() -> None:
    order = message("Order")
    order.nested_type.append(message("Line", ("number", F.TYPE_INT32)))
    order.nested_type.append(message("Note", ("length", F.TYPE_INT32)))
    frame, body = "0000000001", "0807"
    indexes = ["040000", "040002", "040004", "040006", "0400ff"]
    payloads = [bytes.fromhex(f"{frame}{one}{body}") for one in indexes]

    def decoded(name: str) -> DecodedPayloads:
        form = ProtobufFormat(descriptors(order), name, SubjectWriters())
        return decode_framed(form.decoder(), pa.array(payloads, pa.binary()), NestedRegistry())

    ambiguous = (
        "its message indexes are ambiguous, as not all serializers count map entries and groups: "
        "declare it at the top of its file, or land the bytes; [0, 1] is p.Order.Line or "
        "p.Order.Note"
    )
    other = "its message indexes name another message"
    damaged = "the message indexes after its schema id are damaged"
    found = decoded("p.Order.Line")
    assert found.values.to_pylist() == [{"number": 7}, None, None, None, None]
    assert [(one.row, one.reason) for one in found.undecodable] == [
        (1, ambiguous),
        (2, other),
        (3, other),
        (4, damaged),
    ]
    found = decoded("p.Order.Note")
    assert found.values.to_pylist() == [None, None, {"length": 7}, None, None]
    assert [(one.row, one.reason) for one in found.undecodable] == [
        (0, other),
        (1, ambiguous),
        (3, other),
        (4, damaged),
    ]


def test_structs_are_json_text() -> None:
    file = pb.FileDescriptorSet()
    struct_pb2.DESCRIPTOR.CopyToProto(file.file.add())
    schema = file.SerializeToString()
    value = struct_pb2.Value(number_value=float("nan"))
    whole = struct_pb2.Struct(fields={"a": value, "b": struct_pb2.Value(number_value=3)})
    again = struct_pb2.Struct(fields={"a": struct_pb2.Value(bool_value=True)})
    payload = whole.SerializeToString(deterministic=True)
    found = decode(
        schema, [payload, payload + again.SerializeToString(), b""], "google.protobuf.Struct"
    )
    texts = ['{"a":"NaN","b":3}', '{"a":true,"b":3}', "{}"]
    assert [json.loads(one) for one in found.values.to_pylist()] == [*map(json.loads, texts)]
    deep = b""
    for _ in range(60):
        inner = b"\x0a" + encode_length(deep) + deep
        deep = b"\x32" + encode_length(inner) + inner
    found = decode(schema, [deep, b"\x0b\x0c"], "google.protobuf.Value")
    assert [one.reason for one in found.undecodable] == [
        "groups or values are nested too deeply (byte 0)",
        "a group does not end where it should (byte 0)",
    ]


def encode_length(data: bytes) -> bytes:
    size, found = len(data), b""
    while size > 0x7F:
        found += bytes([size & 0x7F | 0x80])
        size >>= 7
    return found + bytes([size])


def test_many_parts_of_a_json_value_take_linear_time() -> None:
    file = pb.FileDescriptorSet()
    struct_pb2.DESCRIPTOR.CopyToProto(file.file.add())
    part = struct_pb2.Value(list_value=struct_pb2.ListValue(values=[struct_pb2.Value()]))
    payload = part.SerializeToString() * 100_000
    found = decode(file.SerializeToString(), [payload], "google.protobuf.Value")
    assert len(json.loads(found.values[0].as_py())) == 100_000


def test_a_format_is_a_value() -> None:
    form = ProtobufFormat(PAIR)
    again = pickle.loads(pickle.dumps(form))
    assert again == form
    assert hash(again) == hash(form)
    assert again.arrow_type == pa.struct([("number", pa.int32()), ("text", pa.string())])
