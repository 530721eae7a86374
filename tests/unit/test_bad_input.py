"""Bad input, for each format: one counted record with a reason, whose neighbours land; or a value
that is exactly what was written."""

from __future__ import annotations

import gzip
import json
import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2 as pb
from google.protobuf import struct_pb2

from rangeland.decode.payload.avro.avro_format import AvroFormat
from rangeland.decode.payload.json.json_format import JsonFormat
from rangeland.decode.payload.json.json_schema import parse_json_schema
from rangeland.decode.payload.payload_decoder import PayloadFormat, PayloadSchemaError
from rangeland.decode.payload.protobuf.protobuf_format import ProtobufFormat
from rangeland.decode.payload.row_format import RowFormat
from rangeland.decode.payload.schema_ddl import parse_ddl
from rangeland.decode.payload.schema_ids.schema_catalogue import (
    AskSchemas,
    FoundSchema,
    RegisteredSchema,
    SchemaFormat,
    UnusableSchema,
)
from rangeland.decode.payload.schema_ids.subject_writers import SubjectWriters
from rangeland.decode.payload.string_format import StringFormat
from rangeland.fetch.receipt_builder import ReceiptBuilder
from rangeland.fetch.slice_chunks import ReadChunk
from rangeland.fetch.typed_chunks import TypedChunks
from rangeland.loss import Action
from rangeland.model import Counts
from rangeland.planning.policy import Policy
from tests.unit.test_avro_decoder import encode, record
from tests.unit.test_protobuf_decoder import REPEATED, F, descriptors, message
from tests.unit.test_typed_chunks import PIECE, rows

AVRO = record(
    ("x", "double"), ("text", "string"), ("l", {"type": "array", "items": ["null", "long"]})
)
CYCLE = record(("next", ["null", "R"]))
PROTO = """
syntax = "proto3";
package p;
message M { double x = 1; string text = 2; repeated int64 l = 3; }
"""
FIELDS = (("x", F.TYPE_DOUBLE), ("text", F.TYPE_STRING), ("l", F.TYPE_INT64, REPEATED))
VALUE = {"x": 1.5, "text": "ok", "l": [1]}


class Schemas:
    """What a registry says of ids."""

    def of_id(self, schema_id: int) -> FoundSchema:
        known: dict[int, RegisteredSchema | UnusableSchema] = {
            5: RegisteredSchema(SchemaFormat.AVRO, json.dumps(AVRO)),
            6: RegisteredSchema(SchemaFormat.JSON, "{}"),
            7: RegisteredSchema(SchemaFormat.PROTOBUF, PROTO),
            8: UnusableSchema("the schema with id 8 is of another subject"),
            9: RegisteredSchema(SchemaFormat.AVRO, json.dumps(CYCLE)),
        }
        missing = UnusableSchema(f"there is no schema with id {schema_id}")
        return FoundSchema(known.get(schema_id, missing))


@dataclass(frozen=True)
class Known:
    """A format with a good payload. ``frame`` is what the bytes of an unframed one begin with."""

    form: PayloadFormat
    good: bytes
    value: Any = None
    frame: bytes = b""


_json = JsonFormat(parse_ddl("x DOUBLE, text STRING, l ARRAY<BIGINT>"))
_descriptors = descriptors(message("M", *FIELDS))
_avro_good = encode(AVRO, VALUE)
_json_good = json.dumps(VALUE).encode()
_proto_good = b"\x09" + struct.pack("<d", 1.5) + b"\x12\x02ok" + b"\x1a\x01\x01"
_avro_id, _json_id, _proto_id = (b"\0\0\0\0" + bytes([n]) for n in (5, 6, 7))
FORMATS = {
    "string": Known(StringFormat(), b"ok", "ok"),
    "json": Known(_json, _json_good, VALUE),
    "avro": Known(AvroFormat(json.dumps(AVRO)), _avro_good, VALUE),
    "protobuf": Known(ProtobufFormat(_descriptors), _proto_good, VALUE),
    "framed json": Known(
        replace(_json, writers=SubjectWriters()), _json_id + _json_good, VALUE, _json_id
    ),
    "framed avro": Known(
        AvroFormat(json.dumps(AVRO), SubjectWriters()), _avro_id + _avro_good, VALUE, _avro_id
    ),
    "framed protobuf": Known(
        ProtobufFormat(_descriptors, "p.M", SubjectWriters()),
        _proto_id + b"\0" + _proto_good,
        VALUE,
        _proto_id + b"\0",
    ),
}
PLAIN = ("string", "json", "avro", "protobuf")
FRAMED = ("framed json", "framed avro", "framed protobuf")


def typed(known: Known, payload: bytes) -> tuple[Counts, list[str], list[Any]]:
    """What becomes of a record between two good ones: counts, reasons and the values that land."""
    batch = rows({100: known.good, 101: payload, 102: known.good})
    chunk = ReadChunk(0, 100, 120, Counts(landed=3, compacted=17), batch)
    chunks = TypedChunks(RowFormat(value=known.form), Policy(undecodable=Action.SKIP), [PIECE])
    receipts, found = ReceiptBuilder([PIECE]), []
    for one in chunks.type_rows(chunk):
        if isinstance(one, AskSchemas):
            for schema_id in one.ids:
                chunks.add_schema(one.topic_field, schema_id, Schemas().of_id(schema_id))
            continue
        found.append(one)
        receipts.add(one)
    (receipt,) = receipts.receipts()
    batches = [one.rows for one in found if isinstance(one, ReadChunk)]
    values = [v for batch in batches for v in batch.column("value").to_pylist()]
    return receipt.counts, [one.evidence for one in receipt.losses], values


def refused(known: Known, payload: bytes, reason: str) -> None:
    counts, losses, values = typed(known, payload)
    assert counts == Counts(landed=2, compacted=17, lost=1)
    assert len(losses) == 1
    assert reason in losses[0]
    assert values == [known.value] * 2


def landed(known: Known, payload: bytes) -> Any:
    counts, losses, (before, value, after) = typed(known, payload)
    assert (counts, losses) == (Counts(landed=3, compacted=17), [])
    assert before == after == known.value
    return value


GZIP = b"\x1f\x8b\x08\0\0\0\0\0\0\x03" + b"\xff" * 20
BAD = [
    # --- truncated ---
    ("json", b"", "the JSON ends too early"),
    ("json", _json_good[:-1], "the JSON ends too early"),
    ("json", _json_good[:9], "the JSON ends too early"),
    ("avro", b"", "it ends inside a value"),
    ("avro", _avro_good[:-1], "it ends inside a value"),
    ("avro", _avro_good[:10], "a length or a count exceeds the payload"),
    ("protobuf", _proto_good[:5], "it ends inside a value"),
    ("protobuf", _proto_good[:12], "a length or a count exceeds the payload"),
    # --- more than there should be ---
    ("json", _json_good + b"{}", "there is more after the end"),
    ("avro", _avro_good + b"\0", "there are more bytes after its last value"),
    ("protobuf", _proto_good + b"\0", "a field has an impossible number or wire type"),
    # --- lengths and counts that are not true ---
    ("avro", _avro_good[:8] + b"\xfe\xff\xff\xff\xff\x7f", "a length or a count exceeds"),
    ("avro", _avro_good[:8] + b"\1", "a length is negative"),
    ("avro", _avro_good[:8] + b"\0" + b"\xfe\xff\xff\xff\x0f", "a length or a count exceeds"),
    ("protobuf", b"\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\1", "a length or a count exceeds"),
    ("protobuf", b"\x12" + b"\xff" * 11, "a number has too many bytes"),
    # --- nested deeply ---
    ("json", b'{"z":' + b"[" * 1_000_000, "nested more than 64 deep"),
    ("json", b'{"z":' * 100 + b"1" + b"}" * 100, "nested more than 64 deep"),
    ("protobuf", b"\x23" * 1_000_000, "nested too deeply"),
    # --- numbers that are none ---
    ("json", b'{"x":NaN}', "the field x must be a number"),
    ("json", b'{"x":Infinity}', "the field x must be a number"),
    ("json", b'{"x":-Infinity}', "it is not valid JSON"),
    ("json", b'{"x":1e999}', "the field x is out of range for DOUBLE"),
    ("json", b'{"z":NaN}', "it is not valid JSON"),
    # --- duplicate keys ---
    ("json", b'{"x":1,"x":1}', "the field x occurs twice"),
    # --- invalid UTF-8 ---
    ("string", b"ok\xff", "it is not UTF-8: invalid start byte at byte 2"),
    ("string", b"\xed\xa0\x80", "it is not UTF-8"),
    ("json", b'{"text":"\xff"}', "a string is not UTF-8"),
    ("json", b'{"text":"\\ud800"}', "half of a surrogate pair"),
    ("json", b'{"\xc3(":1}', "a string is not UTF-8"),
    ("avro", _avro_good[:8] + b"\4\xc3(\0", "a string is not valid UTF-8"),
    ("protobuf", b"\x12\2\xc3(", "a string is not valid UTF-8"),
    # --- another format ---
    ("json", GZIP, "the payload must be an object"),
    ("avro", GZIP, "a number has too many bytes"),
    ("protobuf", GZIP, "a field has an impossible number or wire type"),
    ("string", GZIP, "it is not UTF-8"),
]


def ids(cases: Sequence[tuple[str, bytes, str]]) -> list[str]:
    return [f"{name}: {reason}" for name, _, reason in cases]


@pytest.mark.parametrize(("name", "payload", "reason"), BAD, ids=ids(BAD))
def test_a_bad_record_is_counted_and_its_neighbours_land(
    name: str, payload: bytes, reason: str
) -> None:
    refused(FORMATS[name], payload, reason)


FRAMED_TWINS = {name.removeprefix("framed "): name for name in FRAMED}


FRAMED_BAD = [one for one in BAD if one[0] != "string"]


@pytest.mark.parametrize(("name", "payload", "reason"), FRAMED_BAD, ids=ids(FRAMED_BAD))
def test_after_a_schema_id_it_is_the_same(name: str, payload: bytes, reason: str) -> None:
    known = FORMATS[FRAMED_TWINS[name]]
    refused(known, known.frame + payload, reason)


BAD_FRAMES = [
    (b"", "it is too short for a magic byte and a schema id"),
    (b"\0", "it is too short for a magic byte and a schema id"),
    (b"\0\0\0\0", "it is too short for a magic byte and a schema id"),
    (b"\1\0\0\0\5", "it does not begin with the magic byte 0"),
    (b"{}", "it does not begin with the magic byte 0"),
    (b"\0\0\0\0\0", "its schema id is not positive"),
    (b"\0\xff\xff\xff\xff", "its schema id is not positive"),
    (b"\0\x80\0\0\0", "its schema id is not positive"),
    (b"\0\x7f\xff\xff\xff", "there is no schema with id 2147483647"),
    (b"\0\0\0\0\x08", "the schema with id 8 is of another subject"),
]


@pytest.mark.parametrize(("frame", "reason"), BAD_FRAMES)
@pytest.mark.parametrize("name", FRAMED)
def test_a_bad_frame_is_counted(name: str, frame: bytes, reason: str) -> None:
    refused(FORMATS[name], frame, reason)
    if len(frame) == 5:
        refused(FORMATS[name], frame + FORMATS[name].good[5:], reason)


@pytest.mark.parametrize("name", FRAMED)
@pytest.mark.parametrize("schema_id", [5, 6, 7])
def test_an_id_of_another_format_is_counted(name: str, schema_id: int) -> None:
    known = FORMATS[name]
    if known.frame[4] != schema_id:
        payload = b"\0\0\0\0" + bytes([schema_id]) + known.good[5:]
        refused(known, payload, f"the schema with id {schema_id} is not ")


def test_an_id_of_a_schema_that_contains_itself_is_counted() -> None:
    refused(FORMATS["framed avro"], b"\0\0\0\0\x09\0", "the type R contains itself")


def test_indexes_of_another_message_or_damaged_ones_are_counted() -> None:
    known = FORMATS["framed protobuf"]
    refused(known, _proto_id + b"\2\2" + _proto_good, "name another message")
    for damaged in (b"", b"\1", b"\x80", b"\xfe\xff\xff\xff\x0f", b"\2"):
        refused(known, _proto_id + damaged, "the message indexes after its schema id are damaged")


def test_cyclic_schemas_are_refused_before_anything_is_read() -> None:
    with pytest.raises(PayloadSchemaError, match="the type R contains itself"):
        AvroFormat(json.dumps(CYCLE))
    with pytest.raises(PayloadSchemaError, match="leads back to itself"):
        parse_json_schema('{"type": "object", "properties": {"next": {"$ref": "#"}}}')
    with pytest.raises(PayloadSchemaError, match=r"the message p\.Node contains itself"):
        ProtobufFormat(descriptors(message("Node", ("next", ".p.Node"))))
    first = message("First", ("second", ".p.Second"))
    second = message("Second", ("first", ".p.First", REPEATED))
    with pytest.raises(PayloadSchemaError, match="contains itself"):
        ProtobufFormat(descriptors(first, second), "p.First")


def sized(tag: bytes, content: bytes) -> bytes:
    """A field of Protobuf with its length."""
    size, length = b"", len(content)
    while length > 0x7F:
        size, length = size + bytes([length & 0x7F | 0x80]), length >> 7
    return tag + size + bytes([length]) + content


def test_values_that_contain_themselves_have_a_limit() -> None:
    """The only recursive types that have columns: JSON in Protobuf."""
    whole = pb.FileDescriptorSet.FromString(
        descriptors(message("M", ("v", ".google.protobuf.Value")))
    )
    struct_pb2.DESCRIPTOR.CopyToProto(whole.file.add())
    form = ProtobufFormat(whole.SerializeToString(), "p.M")

    def nested(levels: int) -> bytes:
        value = b"\x08\0"  # null
        for _ in range(levels):
            value = sized(b"\x32", sized(b"\x0a", value))  # a list of one value
        return sized(b"\x0a", value)

    found = form.decoder().decode(pa.array([nested(40), nested(90)], pa.binary()))
    assert [one.row for one in found.undecodable] == [1]
    assert "nested too deeply" in found.undecodable[0].reason
    assert found.values[0]["v"].as_py() == "[" * 40 + "null" + "]" * 40


TEXT = "\u00e4\n" * 5_000_000
"""15 MB in UTF-8."""


@pytest.mark.parametrize("name", FORMATS)
def test_more_than_ten_megabytes_in_one_field_are_a_value(name: str) -> None:
    known = FORMATS[name]
    payload = {
        "string": lambda: TEXT.encode(),
        "json": lambda: json.dumps({"text": TEXT}).encode(),
        "avro": lambda: encode(AVRO, VALUE | {"text": TEXT}),
        "protobuf": lambda: sized(b"\x12", TEXT.encode()),
    }[name.removeprefix("framed ")]()
    value = landed(known, known.frame + payload)
    assert (value if name == "string" else value["text"]) == TEXT


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf"), -0.0, 5e-324])
@pytest.mark.parametrize("name", ["avro", "protobuf", "framed avro", "framed protobuf"])
def test_numbers_that_a_format_has_are_values(name: str, number: float) -> None:
    known, bits = FORMATS[name], struct.pack("<d", number)
    body = b"\x09" + bits if name.endswith("protobuf") else bits + b"\0\0"
    value = landed(known, known.frame + body)
    assert struct.pack("<d", value["x"]) == bits


def test_what_a_format_says_of_repeated_fields_holds() -> None:
    known = FORMATS["protobuf"]
    value = landed(known, b"\x12\1a" + b"\x18\1" + b"\x12\1b" + b"\x18\2")
    assert value == {"x": 0.0, "text": "b", "l": [1, 2]}
    assert landed(FORMATS["json"], b'{"z":1,"z":2}') == {"x": None, "text": None, "l": None}


def test_compressed_bytes_inside_of_a_value_stay_compressed() -> None:
    bomb = gzip.compress(bytes(50_000_000))
    schema = record(("data", "bytes"))
    form = AvroFormat(json.dumps(schema))
    found = form.decoder().decode(pa.array([encode(schema, {"data": bomb})], pa.binary()))
    assert found.values.to_pylist() == [{"data": bomb}]
    assert found.values.nbytes < 2 * len(bomb)
