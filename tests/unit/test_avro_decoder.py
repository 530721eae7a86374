"""Avro payloads: types, schema ids, later versions of schemas, and what is refused and why."""

from __future__ import annotations

import io
import json
import pickle
from decimal import Decimal
from typing import Any
from uuid import UUID

import fastavro
import pyarrow as pa
import pytest

from rangeland.decode.payload.avro.avro_format import AvroFormat, unreadable_fields
from rangeland.decode.payload.payload_decoder import DecodedPayloads, PayloadSchemaError
from rangeland.decode.payload.schema_ids.schema_catalogue import (
    RegisteredSchema,
    SchemaFormat,
    UnusableSchema,
)
from rangeland.decode.payload.schema_ids.subject_writers import SubjectWriters
from tests.fakes.schemas import decode_framed


def record(*fields: Any, name: str = "R") -> dict[str, Any]:
    return {
        "type": "record",
        "name": name,
        "fields": [dict(zip(("name", "type", "default"), one, strict=False)) for one in fields],
    }


def encode(schema: Any, value: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return out.getvalue()


def decode(schema: Any, payloads: list[bytes | None], writer: Any = None) -> DecodedPayloads:
    form = AvroFormat(json.dumps(schema), writer_schema=json.dumps(writer) if writer else "")
    return form.decoder().decode(pa.array(payloads, pa.binary()))


def reasons(found: DecodedPayloads) -> list[str]:
    return [one.reason for one in found.undecodable]


class Registry:
    """Schemas by id, with a count of look-ups."""

    def __init__(self, **schemas: Any) -> None:
        self.schemas = {int(name[1:]): schema for name, schema in schemas.items()}
        self.asked: list[int] = []

    def of_id(self, schema_id: int) -> RegisteredSchema | UnusableSchema:
        self.asked.append(schema_id)
        found = self.schemas.get(schema_id)
        if found is None:
            return UnusableSchema(f"the schema registry has no schema with id {schema_id}")
        if isinstance(found, RegisteredSchema):
            return found
        return RegisteredSchema(SchemaFormat.AVRO, json.dumps(found))


def framed(schema_id: int, body: bytes) -> bytes:
    return b"\0" + schema_id.to_bytes(4, "big") + body


OLD = record(("id", "int"), ("name", "string"), ("gone", {"type": "array", "items": "double"}))
NEW = record(("name", ["null", "string"]), ("id", "long"), ("added", "string", "none"))


def test_payloads_of_several_schemas_keep_their_order() -> None:
    registry = Registry(_1=OLD, _2=NEW, _3=record(("id", "string"), ("name", "string")))
    old = encode(OLD, {"id": 1, "name": "a", "gone": [1.5, 2]})
    new = encode(NEW, {"id": 1 << 40, "name": None, "added": "x"})
    bad = encode(registry.schemas[3], {"id": "7", "name": "b"})
    payloads = [framed(2, new), None, framed(1, old), framed(3, bad), framed(4, b""), b"{}", b""]
    decoder = AvroFormat(json.dumps(NEW), SubjectWriters()).decoder()
    found = decode_framed(decoder, pa.array(payloads, pa.binary()), registry)
    assert found.values.to_pylist()[:3] == [
        {"name": None, "id": 1 << 40, "added": "x"},
        None,
        {"name": "a", "id": 1, "added": "none"},
    ]
    assert [(one.row, one.schema_id) for one in found.undecodable] == [
        (3, 3),
        (4, 4),
        (5, None),
        (6, None),
    ]
    assert reasons(found) == [
        "string cannot be read as long (byte 5, field id)",
        "the schema registry has no schema with id 4",
        "it does not begin with the magic byte 0 of a registry's format",
        "it is too short for a magic byte and a schema id",
    ]
    assert found.schema_ids == {1: 1, 2: 1, 3: 1, 4: 1}
    again = decoder.decode(pa.array(payloads, pa.binary()))
    assert isinstance(again, DecodedPayloads)
    assert again.values.equals(found.values)
    assert registry.asked == [1, 2, 3, 4]


def test_a_schema_of_another_format_or_a_broken_one_is_the_records_reason() -> None:
    registry = Registry(_1=RegisteredSchema(SchemaFormat.JSON, "{}"), _2={"type": "recrod"})
    decoder = AvroFormat(json.dumps(OLD), SubjectWriters()).decoder()
    payloads = pa.array([framed(1, b"x"), framed(2, b"x")], pa.binary())
    found = decode_framed(decoder, payloads, registry)
    assert reasons(found) == [
        "the schema with id 1 is not Avro but JSON",
        "the schema with id 2 cannot be used: the type 'recrod' is not defined",
    ]


def test_logical_types() -> None:
    schema = record(
        ("d", {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 2}),
        ("u", {"type": "fixed", "name": "U", "size": 16, "logicalType": "uuid"}),
        ("t", {"type": "int", "logicalType": "time-millis"}),
        ("ms", {"type": "long", "logicalType": "timestamp-millis"}),
        ("ntz", {"type": "long", "logicalType": "local-timestamp-millis"}),
        ("odd", {"type": "string", "logicalType": "no-such-type"}),
    )
    kinds = [f.type for f in AvroFormat(json.dumps(schema)).arrow_type]
    assert kinds == [
        pa.decimal128(38, 2),
        pa.string(),
        pa.int32(),
        pa.timestamp("us", "UTC"),
        pa.timestamp("us"),
        pa.string(),
    ]
    number = UUID("00112233-4455-6677-8899-aabbccddeeff")
    body = b"\x02\x85" + number.bytes + b"\x02" + b"\x02" + b"\x01" + b"\x00"
    [row] = (
        decode(schema, [body])
        .values.cast(pa.struct([*list(AvroFormat(json.dumps(schema)).arrow_type)]))
        .to_pylist()
    )
    assert (row["d"], row["u"], row["t"]) == (Decimal("-1.23"), str(number), 1)
    assert row["ms"].timestamp() == 0.001
    assert (row["ntz"].microsecond, row["odd"]) == (999000, "")


LONG_TEXT = "\u00e9" * 40


@pytest.mark.parametrize(
    ("kind", "body", "reason"),
    [
        ("boolean", b"\2", "a boolean is neither 0 nor 1"),
        ("int", b"\x80\x80\x80\x80\x10", "a number is out of range"),
        ("long", b"\xff" * 10 + b"\1", "a number has too many bytes"),
        ("string", b"\1", "a length is negative"),
        ("string", b"\x7e", "a length or a count exceeds the payload"),
        ("string", b"\x04\xc3\x28", "a string is not valid UTF-8"),
        ("string", b"\x06\xed\xa0\x80", "a string is not valid UTF-8"),
        ("string", b"\x04\xc0\x80", "a string is not valid UTF-8"),
        ("string", b"\x08\xf4\x90\x80\x80", "a string is not valid UTF-8"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, b"\2", "an enum's number has no symbol"),
        (["null", "int"], b"\4", "a union's number has no branch"),
        (["null", "int"], b"\1", "a union's number has no branch"),
        ({"type": "array", "items": "int"}, b"\xfe\xff\xff\xff\x0f", "a length or a count exceeds"),
        ({"type": "array", "items": "int"}, b"\1\4\2\0", "a block of items does not have the size"),
        ({"type": "array", "items": "null"}, b"\x82\x10\0", "too many items that take no bytes"),
        ({"type": "array", "items": "null"}, b"\xff" * 9 + b"\1", "a number is out of range"),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 2, "scale": 0},
            b"\2\x64",
            "a decimal has more digits than its type",
        ),
        (
            {"type": "long", "logicalType": "timestamp-millis"},
            b"\xfe" + b"\xff" * 8 + b"\1",
            "a number is out of range",
        ),
    ],
)
def test_what_is_wrong_with_a_payload_is_its_reason(kind: Any, body: bytes, reason: str) -> None:
    found = decode(record(("f", kind)), [body])
    assert [(one.row, one.schema_id) for one in found.undecodable] == [(0, None)]
    assert reason in reasons(found)[0]
    assert ", field f" in reasons(found)[0]
    assert found.values.to_pylist() == [None]


def test_text_of_every_length_of_character_is_kept() -> None:
    text = "aé€\U0001f600" * 5 + LONG_TEXT
    assert decode("string", [encode("string", text)]).values.to_pylist() == [text]


def test_few_bytes_cannot_claim_much_memory() -> None:
    wide = record(*((f"f{at}", "long") for at in range(3000)), name="Wide")
    schema = record(("rows", {"type": "array", "items": ["null", wide]}))
    claim = encode(schema, {"rows": [None] * 100})
    found = decode(schema, [claim, encode(schema, {"rows": []})])
    assert "far more memory than its length" in reasons(found)[0]
    assert found.values.to_pylist() == [None, {"rows": []}]


def test_defaults_of_many_items_cannot_take_much_memory() -> None:
    old = record(("a", "boolean"), name="Item")
    new = record(("a", "boolean"), ("text", "string", "x" * 60_000), name="Item")
    reader = record(("items", {"type": "array", "items": new}))
    writer = record(("items", {"type": "array", "items": old}))
    payloads = [encode(writer, {"items": [{"a": True}] * count}) for count in (1, 100_000)]
    found = decode(reader, payloads, writer)
    assert [one.row for one in found.undecodable] == [1]
    assert "far more memory than its length" in reasons(found)[0]
    assert len(found.values[0].as_py()["items"][0]["text"]) == 60_000


def test_of_entries_with_one_key_the_last_one_counts() -> None:
    schema = record(("m", {"type": "map", "values": "int"}))
    body = b"\x06\x02a\x02\x02b\x04\x02a\x06\x00"
    found = decode(schema, [body, b"\0", None, body])
    twice = {"m": [("b", 2), ("a", 3)]}
    assert found.values.to_pylist() == [twice, {"m": []}, None, twice]


def test_a_union_of_several_types_is_a_struct_with_a_member_for_each() -> None:
    schema = record(("u", ["int", "null", "string"]))
    payloads = [encode(schema, {"u": value}) for value in (5, None, "x")]
    assert [row["u"] for row in decode(schema, payloads).values.to_pylist()] == [
        {"member0": 5, "member1": None},
        None,
        {"member0": None, "member1": "x"},
    ]
    writer = record(("u", "int"))
    [row] = decode(schema, [encode(writer, {"u": 3})], writer).values.to_pylist()
    assert row["u"] == {"member0": 3, "member1": None}


def test_types_without_fields_say_that_they_are_there() -> None:
    schema = record(("e", ["null", record(name="E")]))
    found = decode(schema, [b"\0", b"\2"])
    assert found.values.to_pylist() == [{"e": None}, {"e": True}]


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ("{", "it is not JSON: .* at line 1, column 2"),
        ("[]", "a union has no branches"),
        ('["int", "int"]', "two branches of one type"),
        ('["int", ["string"]]', "another union"),
        ('{"type": "no"}', "the type 'no' is not defined"),
        ('{"type": "record", "name": "R"}', "has no fields"),
        ('{"type": "fixed", "name": "F", "size": -1}', "is not a size"),
        ('{"type": "array"}', "has no items"),
        ('{"type": "enum", "symbols": ["A"]}', "a type 'enum' has no name"),
        (json.dumps(record(("next", ["null", "R"]))), "the type R contains itself"),
        (json.dumps(record(("a", "int"), ("A", "int"))), "a and A would be the same column"),
        (json.dumps(record(("a", "int"), ("a", "int"))), "has the field a twice"),
        (
            json.dumps({"type": "bytes", "logicalType": "decimal", "precision": 39, "scale": 0}),
            "tables take up to 38 digits",
        ),
        (json.dumps("int") + " x", "it is not JSON"),
    ],
)
def test_a_schema_that_cannot_be_used_is_refused(schema: str, reason: str) -> None:
    with pytest.raises(PayloadSchemaError, match=reason):
        AvroFormat(schema)


def test_schemas_that_grow_with_every_level_are_refused() -> None:
    inner: Any = "int"
    for depth in range(20):
        half = {**record(name=f"D{depth}"), "fields": [{"name": "a", "type": inner}]}
        inner = {**half, "fields": [*half["fields"], {"name": "b", "type": f"D{depth - 1}"}]}
        if depth == 0:
            inner = half
    with pytest.raises(PayloadSchemaError, match="more than 10000 columns"):
        AvroFormat(json.dumps(inner))


def test_fields_that_cannot_be_read_are_named_before_anything_is_read() -> None:
    reader = record(("id", "int"), ("b", "string"), ("day", {"type": "int", "logicalType": "date"}))
    writer = record(("id", "long"), ("day", {"type": "long", "logicalType": "timestamp-millis"}))
    found = unreadable_fields(json.dumps(writer), json.dumps(reader))
    assert [(one.path, one.writer_type, one.reader_type) for one in found] == [
        ("id", "long", "int"),
        ("day", "timestamp-millis", "date"),
        ("b", "no field", "string without a default"),
    ]
    assert unreadable_fields(json.dumps(OLD), json.dumps(NEW)) == ()


def test_a_symbol_that_the_reader_lacks_becomes_its_default_or_an_error() -> None:
    def enum(*symbols: str, **more: str) -> Any:
        return {"type": "enum", "name": "E", "symbols": list(symbols), **more}

    payloads = [b"\0", b"\2", b"\4"]
    found = decode(enum("C", "A", default="A"), payloads, enum("A", "B", "C"))
    assert found.values.to_pylist() == ["A", "A", "C"]
    found = decode(enum("C", "A"), payloads, enum("A", "B", "C"))
    assert found.values.to_pylist() == ["A", None, "C"]
    assert "with B cannot be read as an enum without B" in reasons(found)[0]


@pytest.mark.parametrize(("kind", "default"), [("int", "x"), ("string", None), ("int", 1 << 31)])
def test_a_default_of_another_type_is_refused(kind: str, default: Any) -> None:
    with pytest.raises(PayloadSchemaError, match="is not a value of"):
        AvroFormat(json.dumps(record(("a", kind, default))), writer_schema=json.dumps(record()))


def test_a_format_is_a_value() -> None:
    form = AvroFormat(json.dumps(OLD))
    again = pickle.loads(pickle.dumps(form))
    assert again == form
    assert hash(again) == hash(form)
    assert again.arrow_type == form.arrow_type == form.decoder().arrow_type


def test_no_payloads_are_an_empty_array() -> None:
    found = decode(OLD, [])
    assert (len(found.values), found.values.type) == (0, AvroFormat(json.dumps(OLD)).arrow_type)
    assert decode(OLD, [None, None]).values.null_count == 2


def test_a_field_of_countless_empty_records_is_skipped_at_once() -> None:
    """Each level has the one before it twice: 2**60 empty records, in no bytes."""
    empty: list[Any] = [("f0", record(name="E0"))]
    for level in range(1, 60):
        inner = record(("a", f"E{level - 1}"), ("b", f"E{level - 1}"), name=f"E{level}")
        empty.append((f"f{level}", inner))
    items = ("items", {"type": "array", "items": "E59"})
    writer = record(*empty, items, ("kept", "int"))
    one, thousand = b"\x02\x00\x0e", b"\xd0\x0f\x00\x0e"
    found = decode(record(("kept", "int")), [one, thousand], writer)
    assert not found.undecodable
    assert found.values.to_pylist() == [{"kept": 7}, {"kept": 7}]


CREATED = record(("order_id", "string"), ("note", ["null", "string"], None), name="OrderCreated")
CANCELLED = record(("order_id", "string"), ("why", ["null", "string"], None), name="OrderCancelled")
SHIPPED = record(("order_id", "string"), ("carrier", "string"), name="OrderShipped")
SHIPPED_O1 = b"\x04\x04o1\x06DHL"


def fixed(name: str, **more: Any) -> dict[str, Any]:
    return {"type": "fixed", "name": name, "size": 2, **more}


def enum_of(name: str, *symbols: str, **more: Any) -> dict[str, Any]:
    return {"type": "enum", "name": name, "symbols": list(symbols), **more}


@pytest.mark.parametrize(
    ("reader", "writer", "body"),
    [
        ([CREATED, CANCELLED], [CREATED, CANCELLED, SHIPPED], SHIPPED_O1),
        ([CREATED, CANCELLED], SHIPPED, SHIPPED_O1[1:]),
        (["null", CREATED], ["null", CREATED, SHIPPED], SHIPPED_O1),
        (CREATED, [CREATED, SHIPPED], b"\x02" + SHIPPED_O1[1:]),
        ([fixed("A"), fixed("B")], [fixed("A"), fixed("B"), fixed("C")], b"\x04xy"),
        (["null", fixed("A")], ["null", fixed("A"), fixed("C")], b"\x04xy"),
        (
            [enum_of("A", "X", "Y"), enum_of("B", "Y")],
            [enum_of("A", "X", "Y"), enum_of("B", "Y"), enum_of("C", "Y")],
            b"\x04\x00",
        ),
    ],
)
@pytest.mark.parametrize("around", ["field", "array", "map"])
def test_a_branch_of_another_name_is_not_read_as_one_of_the_tables(
    reader: Any, writer: Any, body: bytes, around: str
) -> None:
    def inside(kind: Any) -> Any:
        items = {"array": {"type": "array", "items": kind}, "map": {"type": "map", "values": kind}}
        return record(("event", items.get(around, kind)), name="Event")

    whole = {"field": body, "array": b"\2" + body + b"\0", "map": b"\2\2k" + body + b"\0"}[around]
    found = decode(inside(reader), [whole], inside(writer))
    assert found.values.to_pylist() == [None]
    [reason] = reasons(found)
    [mismatch] = unreadable_fields(json.dumps(inside(writer)), json.dumps(inside(reader)))
    assert reason.startswith(str(mismatch))
    assert mismatch.path == {"field": "event", "array": "event[]", "map": "event{}"}[around]
    assert mismatch.is_of_some is (isinstance(writer, list))


def test_the_other_branches_of_such_a_writer_are_read_by_their_names() -> None:
    writer = record(("event", [SHIPPED, CANCELLED, CREATED]), name="Event")
    reader = record(("event", [CREATED, CANCELLED]), name="Event")
    found = decode(reader, [b"\4\4o1\0", b"\2\4o2\2\4no"], writer)
    assert not found.undecodable
    assert [row["event"] for row in found.values.to_pylist()] == [
        {"member0": {"order_id": "o1", "note": None}, "member1": None},
        {"member0": None, "member1": {"order_id": "o2", "why": "no"}},
    ]


def test_the_branch_of_the_writers_name_is_taken_before_others_that_could_take_its_value() -> None:
    needs_more = record(("order_id", "string"), ("weight", "int"), name="Parcel")
    reader = record(("event", [needs_more, SHIPPED]), name="Event")
    found = decode(reader, [SHIPPED_O1[1:]], record(("event", SHIPPED), name="Event"))
    [row] = found.values.to_pylist()
    assert row["event"] == {"member0": None, "member1": {"order_id": "o1", "carrier": "DHL"}}


@pytest.mark.parametrize(
    ("writer", "reader_name", "aliases", "at"),
    [
        ("shop.Shipped", "shop.Shipped", [], 1),
        ("shop.Shipped", "store.Shipped", [], 1),  # short names are enough
        ("shop.Shipped", "shop.Sent", ["Shipped"], 1),  # in the namespace of its own name
        ("shop.Shipped", "store.Sent", ["shop.Shipped"], 1),
        ("shop.Shipped", "store.Sent", ["Shipped"], 1),
        ("shop.Other", "shop.Sent", ["Shipped"], None),
        ("shop.First", "shop.Sent", ["First"], 0),  # the name of one comes before another's alias
    ],
)
@pytest.mark.parametrize("kind", ["record", "fixed", "enum"])
def test_names_and_aliases_choose_the_branch(
    writer: str, reader_name: str, aliases: list[str], at: int | None, kind: str
) -> None:
    def named(name: str, **more: Any) -> Any:
        if kind == "fixed":
            return fixed(name, **more)
        if kind == "enum":
            return enum_of(name, "X", **more)
        return {**record(("a", "int"), name=name), **more}

    body = {"record": b"\2", "fixed": b"xy", "enum": b"\0"}[kind]
    value = {"record": {"a": 1}, "fixed": b"xy", "enum": "X"}[kind]
    reader = [named("shop.First"), named(reader_name, aliases=aliases)]
    [row] = decode(reader, [body], named(writer)).values.to_pylist()
    expected = {"member0": None, "member1": None, f"member{at}": value}
    assert row == (None if at is None else expected)


def test_one_type_of_another_name_is_still_read_as_the_tables_one() -> None:
    """Names distinguish the branches of a union. A rename of the only type is harmless."""
    for reader, writer, body in [
        (CREATED, CANCELLED, b"\4o1\0"),
        (["null", CREATED], ["null", CANCELLED], b"\2\4o1\0"),
        (["null", CREATED], CANCELLED, b"\4o1\0"),
    ]:
        found = decode(reader, [body], writer)
        assert found.values.to_pylist() == [{"order_id": "o1", "note": None}]


NOW_NANOS = 1_700_000_000_123_456_789


@pytest.mark.parametrize("local", ["", "local-"])
@pytest.mark.parametrize(
    ("reader", "writer", "number", "micros"),
    [
        ("micros", "nanos", NOW_NANOS, NOW_NANOS // 1000),
        ("millis", "nanos", NOW_NANOS, NOW_NANOS // 1000),
        ("nanos", "nanos", NOW_NANOS, NOW_NANOS // 1000),
        ("nanos", "", NOW_NANOS, NOW_NANOS // 1000),
        ("nanos", "micros", 5, 5),
        ("nanos", "millis", 5, 5000),
        ("micros", "nanos", 999, 0),
        ("micros", "nanos", -1, -1),  # to the microsecond before, not towards 1970
        ("micros", "nanos", -1000, -1),
        ("micros", "nanos", -1001, -2),
        ("micros", "nanos", (1 << 63) - 1, ((1 << 63) - 1) // 1000),
        ("micros", "nanos", -(1 << 63), -(1 << 63) // 1000),
    ],
)
def test_a_timestamp_is_the_same_moment_in_every_unit(
    local: str, reader: str, writer: str, number: int, micros: int
) -> None:
    def schema(unit: str) -> Any:
        logical = {"logicalType": f"{local}timestamp-{unit}"} if unit else {}
        return record(("t", {"type": "long"} | logical))

    found = decode(schema(reader), [encode(record(("t", "long")), {"t": number})], schema(writer))
    column = found.values.field("t")
    assert not found.undecodable
    assert column.type == pa.timestamp("us", None if local else "UTC")
    assert column.cast(pa.int64()).to_pylist() == [micros]


def test_nanoseconds_are_read_as_a_plain_number_and_as_no_other_kind_of_time() -> None:
    def unreadable(writer: str, reader: Any) -> tuple[str, ...]:
        theirs = record(("t", {"type": "long", "logicalType": writer}))
        fields = unreadable_fields(json.dumps(theirs), json.dumps(record(("t", reader))))
        return tuple(one.path for one in fields)

    local = {"type": "long", "logicalType": "local-timestamp-nanos"}
    assert unreadable("timestamp-nanos", local) == ("t",)
    assert unreadable("timestamp-nanos", {"type": "int", "logicalType": "date"}) == ("t",)
    assert unreadable("timestamp-nanos", "long") == ()


def test_a_default_of_nanoseconds_is_cut_as_a_value_is() -> None:
    reader = record(("t", {"type": "long", "logicalType": "timestamp-nanos"}, 1999))
    found = decode(reader, [b""], record())
    assert found.values.field("t").cast(pa.int64()).to_pylist() == [1]
