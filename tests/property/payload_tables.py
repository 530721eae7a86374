"""The tables of a schema for each payload decoder, as C, and payloads to begin with."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable
from decimal import Decimal
from typing import Any

import fastavro

from rangeland.decode.native import native_library
from rangeland.decode.payload.avro.avro_resolution import AvroCompiler
from rangeland.decode.payload.avro.avro_schema import parse_avro_schema
from rangeland.decode.payload.json import json_kernel
from rangeland.decode.payload.json.json_kernel import JsonKernel
from rangeland.decode.payload.payload_decoder import UnknownFields
from rangeland.decode.payload.protobuf.protobuf_columns import ProtobufCompiler
from rangeland.decode.payload.protobuf.protobuf_descriptors import parse_descriptor_set
from rangeland.decode.payload.schema_ddl import parse_ddl
from tests.unit.test_protobuf_decoder import OPTIONAL, REPEATED, F, descriptors, message

_AVRO: dict[str, Any] = json.loads(
    """{"type": "record", "name": "R", "fields": [
    {"name": "i", "type": "int"}, {"name": "t", "type": ["null", "string"]},
    {"name": "m", "type": {"type": "map", "values": ["null", "long", "bytes"]}},
    {"name": "a", "type": {"type": "array", "items": {"type": "record", "name": "I", "fields": [
        {"name": "e", "type": {"type": "enum", "name": "E", "symbols": ["A", "B"]}},
        {"name": "d", "type": {"type": "bytes", "logicalType": "decimal", "precision": 20}}]}}},
    {"name": "n", "type": {"type": "array", "items": "null"}},
    {"name": "f", "type": {"type": "fixed", "name": "F", "size": 16, "logicalType": "uuid"}},
    {"name": "x", "type": "double"}, {"name": "b", "type": "boolean"},
    {"name": "s", "type": {"type": "array", "items": {"type": "map", "values": "float"}}}]}"""
)
_VALUE: dict[str, Any] = {
    "i": -5,
    "t": "text",
    "m": {"k": None, "l": 1 << 40, "b": b"\xff"},
    "a": [{"e": "A", "d": Decimal(12345)}, {"e": "B", "d": Decimal(-1)}],
    "n": [None] * 9,
    "f": b"0123456789abcdef",
    "x": 0.1,
    "b": True,
    "s": [{"a": 1.5}, {}],
}
_DDL = (
    "i INT, l BIGINT, d DOUBLE, f FLOAT, n DECIMAL(20,3), s STRING, b BINARY, y DATE, t TIMESTAMP, "
    "z TIMESTAMP_NTZ, o BOOLEAN, a ARRAY<STRUCT<x: INT, y: ARRAY<STRING>>>, "
    "m MAP<STRING, STRUCT<p: STRING>>"
)
JSON_PAYLOAD = (
    b'{"i":1,"l":-9223372036854775808,"d":1.7976931348623157e308,"f":1e-45,"n":"12.345",'
    b'"s":"\\ud83d\\ude00\xc3\xa9","b":"AP8=","y":"2024-02-29","t":"2024-05-06T07:08:09.5+02:30",'
    b'"z":"2024-05-06 07:08","o":true,"u":{"v":[1,{"w":null}]},"a":[{"x":1,"q":[]},null,'
    b'{"y":["a",null]}],"m":{"a":{"p":"x"},"b":{"r":0}}}'
)
PROTOBUF_PAYLOAD = (
    b"\x08\x01\x12\x02hi\x1a\x05\x08\x01\x12\x01x\x1a\x02\x08\x02\x22\x02\x08\x05\x22\x00"
    b"\x2a\x03\x01\x02\x03\x28\x04\x35\0\0\x80\x3f\x39\0\0\0\0\0\0\0\0\x42\x05\x0a\x01k\x10\x07"
    b"\x4a\x04\x08\x01\x10\x02\x52\x03\x0a\x01z"
)


def _avro_payload() -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(_AVRO), _VALUE)
    return out.getvalue()


AVRO_PAYLOAD = _avro_payload()


def _array(name: str, numbers: Iterable[int], kind: str = "int64_t") -> str:
    suffix = "u" if kind.startswith("u") else ""
    shown = ", ".join("INT64_MIN" if n == -(1 << 63) else f"{n}{suffix}" for n in numbers)
    return f"static const {kind} {name}[] = {{{shown}}};\n"


def _flat(table: Any) -> list[int]:
    found: list[int] = table.reshape(-1).tolist()
    return found


def as_c() -> str:
    avro = AvroCompiler(parse_avro_schema(json.dumps(_AVRO)))
    root, _ = avro.add_writer(avro.reader)
    walk = avro.nodes.program()
    item = message("I", ("r", F.TYPE_INT32, OPTIONAL), ("s", F.TYPE_STRING))
    moment = ".google.protobuf.Timestamp"
    whole = message(
        "M",
        ("i", F.TYPE_INT64),
        ("s", F.TYPE_STRING),
        ("m", ".p.I"),
        ("l", ".p.I", REPEATED),
        ("n", F.TYPE_SINT32, REPEATED),
        ("f", F.TYPE_FLOAT),
        ("d", F.TYPE_FIXED64),
        ("e", ".p.I", REPEATED),
        ("t", moment),
        ("w", ".google.protobuf.StringValue"),
    )
    proto = ProtobufCompiler(parse_descriptor_set(descriptors(item, whole)), "p.M")
    fields = proto.program()
    kernel = JsonKernel(native_library.load_library(), parse_ddl(_DDL), UnknownFields.KEEP)
    table = kernel._table
    return "".join(
        [
            f"#define AVRO_ROOT {root}\n#define PROTO_FIELD_COUNT {len(fields.fields)}\n",
            f"#define PROTO_ONEOF_COUNT {fields.oneofs}\n",
            _array("avro_nodes", _flat(walk.nodes)),
            _array("avro_children", _flat(walk.children)),
            _array("avro_constants", walk.constants, "uint8_t"),
            _array("avro_columns", _flat(avro.columns._template)),
            _array("proto_messages", _flat(fields.messages)),
            _array("proto_fields", _flat(fields.fields)),
            _array("proto_children", _flat(fields.children)),
            _array("proto_columns", _flat(proto.columns._template)),
            _array("json_nodes", _flat(table.numbers)),
            _array("json_names", table.names, "uint8_t"),
            _array("json_slots", _flat(table.slots), "int32_t"),
            _array("json_powers", _flat(json_kernel._powers()), "uint64_t"),
        ]
    )
