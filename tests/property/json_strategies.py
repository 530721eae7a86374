"""Random schemas, JSON records that fit them, and damage to these."""

from __future__ import annotations

import base64
import json
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from rangeland.decode.payload.column_buffers import children_of
from rangeland.decode.payload.schema_ddl import INSTANT, LOCAL_TIME

NAMES = ["a", "b", "id", "name", "field_with_a_long_name", "ä", 'q"', "back\\slash", "", "\n"]
SCALARS = [
    pa.bool_(),
    pa.int8(),
    pa.int16(),
    pa.int32(),
    pa.int64(),
    pa.float32(),
    pa.float64(),
    pa.decimal128(10, 2),
    pa.decimal128(38, 0),
    pa.decimal128(38, 38),
    pa.string(),
    pa.binary(),
    pa.date32(),
    INSTANT,
    LOCAL_TIME,
]
HOSTILE = [
    *['"1900-02-29"', '"2000-02-29"', '"2100-02-29"', '"\\ud83d\\ue000"', '"\\ud83d\\ud83d"'],
    *['{"a":1,"b":2,"a":3}', '{"":1,"":2}', '{"x":{"x":1,"x":2}}', '"2024-01-01T00:00+18:30"'],
    *["NaN", "-Infinity", "1e999", "-1e999", "1e-999", "01", "1.", ".5", "-", "+1", "1e"],
    *["0x1", "-0", "1.0", "1e2", "127", "128", "-128", "-129", "2147483648"],
    *["9223372036854775808", "1e38", "-9223372036854775808", "-9223372036854775809"],
    *["3.4028236e38", "3.4028235e38", "4e38", "1.7976931348623157e308"],
    *["1.7976931348623159e308", "5e-324", "2e-324", "0.001", "99999999.99", "100000000"],
    *["1E+2", "0e99999999999999999999", "1e99999999999999999999", "0.10", "12345e-2"],
    *["123456789012345678901234567890123456789", "0." + "0" * 37 + "1", "0." + "3" * 50],
    *['"2024-02-30"', '"2024-02-29"', '"2023-02-29"', '"0000-01-01"', '"9999-12-31"', '"1.50"'],
    *['"2024-01-01T00:00:00Z"', '"2024-01-01T00:00:00"'],
    *['"2024-01-01 23:59:59.999999999+18:00"', '"0001-01-01T00:00:00+00:01"'],
    *['"9999-12-31T23:59:59-00:01"', '"2024-01-01T24:00:00Z"', '"2024-01-01T00:00:60Z"'],
    *['"2024-01-01T00:00+0530"', '"2024-01-01T00:00-05"', '"1969-12-31T23:59:59.1Z"'],
    *['"2024-01-01T00:00:00.1234567890Z"', '"2024-01-01T00:00:00.Z"'],
    *['"2024-01-01T00:00+18:01"', '"QQ=="', '"QR=="', '"QUI="', '"QUJD"', '"QQ"', '"Q==="'],
    *['"A-_="', '"\\u0051Q=="', '"\\/\\/8="', '"\\ud83d\\ude00"', '"\\ud83d"', '"\\ude00"'],
    *['"\\ud83dx"', '"\\u00zz"', '"\\x"', '"\\', '"a\tb"', '"\ud83d\ude00"', '"\u0000"'],
    *["null", "true", "tru", "nulls", "[]", "{}", "[1,]", "{,}", '{"a"}', '{"a":1,"a":2}'],
    *['{"a":{"b":[1,{"c":null}]}}', "[[[[]]]]", "[" * 63 + "]" * 63, "[" * 64, "//"],
    *['"\\u0061"', "  1  ", '{"\\u0061":null}', '{"a":[{"zz":1}]}', "\ufeff1", "[" * 3000],
]  # fmt: skip


def schemas(leaves: int = 8) -> st.SearchStrategy[pa.StructType]:
    kinds = st.recursive(st.sampled_from(SCALARS), nested, max_leaves=leaves)
    return structs(kinds)


def nested(kinds: st.SearchStrategy[pa.DataType]) -> st.SearchStrategy[pa.DataType]:
    lists = st.builds(lambda k, n: pa.list_(pa.field("element", k, n)), kinds, st.booleans())
    maps = st.builds(
        lambda k, n: pa.map_(pa.string(), pa.field("value", k, n)), kinds, st.booleans()
    )
    return lists | maps | structs(kinds)


def structs(kinds: st.SearchStrategy[pa.DataType]) -> st.SearchStrategy[pa.StructType]:
    mostly = st.sampled_from([True, True, True, False])
    fields = st.lists(st.tuples(st.sampled_from(NAMES), kinds, mostly), min_size=1, max_size=5)
    return fields.map(
        lambda found: pa.struct([pa.field(*f) for f in {f[0]: f for f in found}.values()])
    )


@st.composite
def values(draw: Any, kind: pa.DataType, nullable: bool = True) -> str:
    """The JSON text of a value that usually fits the type."""
    luck = draw(st.integers(0, 39))
    if luck == 0:
        return str(draw(st.sampled_from(HOSTILE)))
    if nullable and luck < 5:
        return "null"
    if pa.types.is_struct(kind):
        return draw(objects(kind))  # type: ignore[no-any-return]
    if pa.types.is_list(kind):
        item = kind.value_field
        found = draw(st.lists(values(item.type, item.nullable), max_size=4))
        return "[" + ",".join(found) + "]"
    if pa.types.is_map(kind):
        item = kind.item_field
        keys = draw(st.lists(st.text(max_size=3) | st.sampled_from(NAMES), max_size=20))
        pairs = (f"{_quoted(draw, k)}:{draw(values(item.type, item.nullable))}" for k in keys)
        return "{" + ", ".join(pairs) + "}"
    return str(draw(_scalar_text(kind)))


@st.composite
def objects(draw: Any, kind: pa.StructType) -> str:
    members = []
    for field in children_of(kind):
        if not field.nullable or draw(st.integers(0, 4)):
            members.append(
                f"{_quoted(draw, field.name)}:{draw(values(field.type, field.nullable))}"
            )
    if draw(st.integers(0, 3)) == 0:
        name = draw(st.sampled_from([*NAMES, "unknown", "other"]))
        members.append(f"{_quoted(draw, name)} : {draw(st.sampled_from([*HOSTILE, '1', '{}']))}")
    members = draw(st.permutations(members))
    space = draw(st.sampled_from(["", " ", "\n\t\r "]))
    return "{" + space + f"{space},{space}".join(members) + space + "}"


def _quoted(draw: Any, text: str) -> str:
    return json.dumps(text, ensure_ascii=draw(st.booleans()))


def _scalar_text(kind: pa.DataType) -> st.SearchStrategy[str]:
    if pa.types.is_boolean(kind):
        return st.sampled_from(["true", "false"])
    if pa.types.is_integer(kind):
        limit = 1 << kind.bit_width - 1
        return st.integers(-limit - (limit == 128), limit).map(str)
    if pa.types.is_floating(kind):
        digits = st.from_regex(r"\A-?[1-9][0-9]{0,30}\.[0-9]{1,30}(e-?[0-9]{1,2})?\Z")
        narrow = st.floats(width=32, allow_nan=False, allow_infinity=False)
        return narrow.map(repr) | digits | st.integers().map(str)
    if pa.types.is_decimal(kind):
        whole = st.integers(-(10 ** min(kind.precision, 8)), 10**kind.precision)
        texts = whole.map(lambda n: f"{n}e-{kind.scale}")
        return texts | texts.map(lambda text: f'"{text}"')
    if pa.types.is_date(kind):
        return st.dates().map(lambda day: f'"{day.isoformat()}"')
    if pa.types.is_timestamp(kind):
        zone = "" if kind.tz is None else "+02:00"
        return st.datetimes().map(lambda time: f'"{time.isoformat()}{zone}"')
    if pa.types.is_binary(kind):
        return st.binary(max_size=20).map(lambda b: f'"{base64.b64encode(b).decode()}"')
    return st.text(max_size=20).map(json.dumps) | st.text(max_size=20).map(
        lambda text: json.dumps(text, ensure_ascii=False)
    )


@st.composite
def payloads(draw: Any, schema: pa.StructType) -> bytes | None:
    """A record that fits, one that nearly does, or anything."""
    luck = draw(st.integers(0, 19))
    if luck == 0:
        return None
    if luck == 1:
        return bytes(draw(st.binary(max_size=30)))
    if luck == 2:
        return str(draw(st.sampled_from(HOSTILE))).encode("utf-8", "surrogatepass")
    found = draw(objects(schema)).encode("utf-8", "surrogatepass")
    if luck > 6 or not found:
        return bytes(found)
    at = draw(st.integers(0, len(found) - 1))
    cut = draw(st.integers(0, 3))
    more = draw(st.sampled_from([b"", b'"', b"\\", b",", b"}", b"\xc3", b"\xff", b"0", b"e", b" "]))
    return bytes(found[:at] + more + found[at + cut :])
