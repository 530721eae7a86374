"""What a JSON payload becomes, value by value, in both decoders."""

from __future__ import annotations

import json
import pickle
import time
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from rangeland.decode.payload.json.json_format import JsonFormat
from rangeland.decode.payload.payload_decoder import (
    DecodedPayloads,
    PayloadSchemaError,
    UnknownFields,
)
from rangeland.decode.payload.schema_ddl import parse_ddl
from tests.reference.json_payloads import JsonReference

Decode = Callable[..., DecodedPayloads]


@pytest.fixture(params=["kernel", "reference"])
def decode(request: pytest.FixtureRequest) -> Decode:
    def run(
        ddl: str, *payloads: bytes | None, unknown: UnknownFields = UnknownFields.DROP
    ) -> DecodedPayloads:
        made = JsonFormat(parse_ddl(ddl), unknown)
        slow = JsonReference(made.schema, unknown)
        decoder = pickle.loads(pickle.dumps(made)).decoder()
        assert type(decoder) is not type(slow)
        chosen = slow if request.param == "reference" else decoder
        return chosen.decode(pa.array(payloads, pa.binary()))

    return run


AT_0438 = datetime(2024, 5, 6, 4, 38, 9, 123456, UTC)
GOOD = [
    ("BOOLEAN", "true", True),
    ("TINYINT", "-128", -128),
    ("SMALLINT", "32767", 32767),
    ("INT", "-0", 0),
    ("BIGINT", "-9223372036854775808", -(2**63)),
    ("FLOAT", "0.1", 0.10000000149011612),
    ("DOUBLE", "1e-5", 1e-5),
    ("DOUBLE", "9007199254740993", 9007199254740992.0),
    ("DECIMAL(10,2)", "-1.50", Decimal("-1.50")),
    ("DECIMAL(10,2)", '"99999999.99"', Decimal("99999999.99")),
    ("DECIMAL(38,0)", "9" * 38, Decimal("9" * 38)),
    ("DECIMAL(5,2)", "1.2300", Decimal("1.23")),
    ("DECIMAL(5,2)", "12e1", Decimal("120.00")),
    ("STRING", '"Z\\u00fcrich \\ud83d\\ude00 \\/\\n\\u0000"', "Zürich \U0001f600 /\n\0"),
    ("STRING", '""', ""),
    ("BINARY", '"AP8="', b"\x00\xff"),
    ("DATE", '"2024-02-29"', date(2024, 2, 29)),
    ("TIMESTAMP", '"2024-05-06T07:08:09.123456789+02:30"', AT_0438),
    ("TIMESTAMP", '"1969-12-31 23:59z"', datetime(1969, 12, 31, 23, 59, tzinfo=UTC)),
    ("TIMESTAMP_NTZ", '"2024-05-06T07:08:09.5"', datetime(2024, 5, 6, 7, 8, 9, 500000)),
    ("ARRAY<INT>", "[1, null, 3]", [1, None, 3]),
    ("MAP<STRING, INT>", '{"b": 1, "": null}', [("b", 1), ("", None)]),
    ("STRUCT<x: INT, y: STRING>", '{"y": "s"}', {"x": None, "y": "s"}),
    ("INT", "null", None),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "text", "value"), GOOD)
def test_a_value_that_fits_is_exactly_what_was_written(
    decode: Decode, kind: str, text: str, value: Any
) -> None:
    result = decode(f"v {kind}", f' {{ "v" :\n{text}\t}} '.encode())
    assert result.undecodable == ()
    assert result.values.to_pylist() == [{"v": value}]


HALF = "1.000000059604644775390625"  # between 1 and the float after it
NEXT = 1.0000001192092896
LARGEST = 3.4028234663852886e38
BETWEEN_FLOATS = [
    (HALF, 1.0),
    (f"{HALF}000001", NEXT),
    (f"-{HALF}000001", -NEXT),
    (f"{HALF}{'0' * 5_000}1", NEXT),
    (f"1000000059604644775390625{'0' * 5_000}1e-5025", NEXT),
    ("1.000000059604644775390624999999", 1.0),
    ("1.000000178813934326171875", 1.0000002384185791),
    ("1.000000178813934326171874999999", NEXT),
    ("16777217", 16777216.0),
    ("16777217.0000000000000000000001", 16777218.0),
    ("16777219", 16777220.0),
    ("8388608.5", 8388608.0),
    ("8388609.5", 8388610.0),
    ("7.00649232162408535461864791644958e-46", 0.0),  # a little less than half the smallest
    ("7.0064923216240853546186479164495806564013097093825788587853e-46", 0.0),
    ("7.00649232162408535461864791644959e-46", 1.401298464324817e-45),
    ("-7.00649232162408535461864791644959e-46", -1.401298464324817e-45),
    ("2.10194769648722560638559437493e-45", 1.401298464324817e-45),
    ("2.10194769648722560638559437494e-45", 2.802596928649634e-45),
    ("340282346638528859811704183484516925440", LARGEST),
    ("340282356779733661637539395458142568447.9999", LARGEST),
    ("-340282356779733661637539395458142568447", -LARGEST),
]


@pytest.mark.parametrize(("text", "value"), BETWEEN_FLOATS)
def test_a_float_is_the_one_nearest_to_the_text_and_not_to_a_double(
    decode: Decode, text: str, value: float
) -> None:
    result = decode("f FLOAT", b'{"f":%s}' % text.encode())
    assert result.undecodable == ()
    assert result.values.to_pylist() == [{"f": value}]


def test_halfway_past_the_largest_float_is_out_of_range(decode: Decode) -> None:
    for text in (b"340282356779733661637539395458142568448", b"3.40282357e38"):
        [fault] = decode("f FLOAT", b'{"f":%s}' % text).undecodable
        assert "out of range" in fault.reason or "not of type" in fault.reason


BAD = [
    ("BOOLEAN", ["1", '"true"', "True", "truex", "0"]),
    ("TINYINT", ["128", "-129", "1.0", "1e0", '"1"', "true", "01", "--1", "[1]", "NaN"]),
    ("BIGINT", ["9223372036854775808", "-9223372036854775809", "1" * 5000]),
    ("FLOAT", ["3.5e38", "NaN", "Infinity", "1e", ".5", "5.", '"1"']),
    ("DOUBLE", ["1e309", "-1e309", "1.7976931348623159e308", "0x10", "1_0"]),
    ("DECIMAL(5,2)", ["1.234", "1000", "1e3", '"1,5"', '""', '" 1"', "1e-3", "true"]),
    ("STRING", ["1", "true", "{}", "[]", '"\\x"', '"\\ud800"', '"\\udc00\\ud800"', '"a\nb"', '"a']),
    ("BINARY", ['"A"', '"AP8"', '"AP9="', '"A-_="', '"AP8=\\n"', "1"]),
    ("DATE", ['"2023-02-29"', '"2024-13-01"', '"24-01-01"', '"2024-01-01T00:00:00Z"', "19000"]),
    ("TIMESTAMP", ['"2024-01-01T00:00:00"', '"2024-01-01"', "1700000000"]),
    ("TIMESTAMP", ['"2024-01-01T25:00:00Z"', '"2024-01-01T00:60:00Z"', '"2024-01-01T00:00:60Z"']),
    ("TIMESTAMP", ['"2024-01-01T00:00:00+19:00"', '"0001-01-01T00:00:00+01:00"', '"now"', '"5Z"']),
    ("TIMESTAMP_NTZ", ['"2024-01-01T00:00:00Z"', '"2024-01-01"']),
    ("ARRAY<INT>", ["1", "{}", "[1,]", "[,1]", "[1 2]", "[1", '["1"]', "[1.5]"]),
    ("MAP<STRING, INT>", ["[]", '{"a":1,"a":1}', '{"a":1,"\\u0061":2}', "{a:1}", '{"a":"x"}']),
    ("STRUCT<x: INT>", ["1", "[]", '{"x":1,"x":1}', '{"x":"1"}', '{"x"}', '{"x":1,}']),
    ("STRUCT<x: INT NOT NULL>", ["{}", '{"x":null}']),
    ("INT NOT NULL", ["null"]),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "texts"), BAD)
def test_a_value_that_does_not_fit_is_never_null(
    decode: Decode, kind: str, texts: list[str]
) -> None:
    payloads = [b'{"v":%s}' % text.encode() for text in texts]
    result = decode(f"v {kind}", *payloads)
    assert [fault.row for fault in result.undecodable] == list(range(len(texts)))
    assert result.values.null_count == len(texts)


WHOLE = [b"", b" ", b"null", b"1", b"[]", b'"x"', b"{", b"}", b'{"a":1', b'{"a":1}}', b'{"a":1}{}']
WHOLE += [b'{"a":1},{"a":2}', b"\xef\xbb\xbf{}", b'{"a":1}\x00', b'{"\xff":1}', b"{'a':1}", b"\xff"]
WHOLE += [b'{"a":1}//', b'{"z":01}', b'{"z":"\\ud800"}', b'{"z":nul}', b'{"z":[}', b'{"z":{"a"}}']


def test_a_payload_must_be_one_json_object(decode: Decode) -> None:
    result = decode("a INT", *WHOLE, b"{}", None)
    assert [fault.row for fault in result.undecodable] == list(range(len(WHOLE)))
    assert result.values.to_pylist()[-2:] == [{"a": None}, None]


def test_an_injection_adds_no_row(decode: Decode) -> None:
    result = decode("a INT", b'{"a":1}\n{"a":2}', b'{"a":3}')
    assert result.values.to_pylist() == [None, {"a": 3}]


def test_unknown_fields_are_dropped_refused_or_kept(decode: Decode) -> None:
    ddl = "a INT, s STRUCT<x: INT>, l ARRAY<STRUCT<x: INT>>, m MAP<STRING, STRUCT<x: INT>>"
    record = b"""{"z": 1.50, "a": 1, "s": {"x": 1, "y": [1, {"q": 2}]},
        "l": [{}, null, {"y": 3}, {}], "m": {"k": {"x": 1}, "n": {"y": null}}, "z": 2}"""
    plain = b'{"a": 2, "s": {"x": 1}}'
    dropped = decode(ddl, record, plain)
    assert dropped.rescued is None
    assert dropped.values[0].as_py()["a"] == 1
    refused = decode(ddl, record, plain, unknown=UnknownFields.FAIL)
    assert [fault.row for fault in refused.undecodable] == [0]
    kept = decode(ddl, record, plain, b"[", unknown=UnknownFields.KEEP)
    assert kept.values.to_pylist()[:2] == dropped.values.to_pylist()
    first, *others = kept.rescued.to_pylist()
    assert others == [None, None]
    assert json.loads(first) == {
        "z": 2,
        "s": {"y": [1, {"q": 2}]},
        "l": [{}, {}, {"y": 3}],
        "m": {"n": {"y": None}},
    }
    assert '"z":1.50' in first


def test_nesting_has_a_limit_that_is_the_same_everywhere(decode: Decode) -> None:
    def nested(depth: int) -> bytes:
        return b'{"z":' + b"[" * depth + b"]" * depth + b"}"

    result = decode("a INT", nested(63), nested(64), nested(100_000), b'{"z":' + b'{"a":' * 10_000)
    assert [fault.row for fault in result.undecodable] == [1, 2, 3]


def test_a_small_text_does_not_become_a_huge_table(decode: Decode) -> None:
    fields = ", ".join(f"f{i}: BIGINT" for i in range(1_000))
    ddl = f"l ARRAY<STRUCT<{fields}>>"
    few, many = b'{"l":[{}]}', b'{"l":[' + b",".join([b"{}"] * 2_000) + b"]}"
    result = decode(ddl, few, many)
    assert [fault.row for fault in result.undecodable] == [1]


def test_ten_megabytes_in_one_field_are_a_value(decode: Decode) -> None:
    text = "ä\\n" * 3_000_000
    result = decode("a STRING, b INT", f'{{"a":"{text}","b":1}}'.encode(), b'{"a":"x"}')
    assert result.undecodable == ()
    assert result.values[0]["a"].as_py() == text.replace("\\n", "\n")
    assert result.values[1].as_py() == {"a": "x", "b": None}


def test_a_reason_names_the_field_and_the_byte() -> None:
    decoder = JsonFormat(
        parse_ddl("id BIGINT NOT NULL, c STRUCT<tags: ARRAY<DECIMAL(4,1)>>"), UnknownFields.FAIL
    ).decoder()
    bad = [
        b'{"id":"1"}',
        b"{}",
        b'{"id":1,"c":{"tags":[1.25]}}',
        b'{"id":1,"c":{"new\\"name":1}}',
        b'{"id":9999999999999999999}',
        b'{"id":1,"id":1}',
        b'{"id":1',
    ]
    assert [fault.reason for fault in decoder.decode(pa.array(bad)).undecodable] == [
        "the field id must be a whole number (byte 6)",
        "the field id is missing (byte 1)",
        "the field c.tags[] is not a number that fits DECIMAL(4,1) exactly (byte 25)",
        'it has a field that the schema lacks: new\\"name (byte 13)',
        "the field id is out of range for BIGINT (byte 25)",
        "the field id occurs twice, or has a key that does (byte 8)",
        "the JSON ends too early (byte 7)",
    ]


def test_a_batch_of_nothing_but_damage_takes_no_longer_than_a_good_one() -> None:
    decoder = JsonFormat(parse_ddl("a INT, b STRING")).decoder()
    count = 20_000
    good = pa.array([b'{"a":1,"b":"x"}'] * count)
    bad = pa.array([b'{"a":1,"b":"x"'] * count)
    decoder.decode(good)
    begin = time.process_time()
    assert len(decoder.decode(bad).undecodable) == count
    assert time.process_time() - begin < 5


@pytest.mark.parametrize(
    ("schema", "what"),
    [
        (pa.string(), "a JSON payload is an object"),
        (pa.struct([pa.field("a", pa.map_(pa.int32(), pa.string()))]), "map a must be STRING"),
        (pa.struct([pa.field("a", pa.uint8())]), "field a is of type uint8"),
        (pa.struct([pa.field("a", pa.struct([]))]), "a has no fields"),
        (pa.struct([pa.field("a", pa.int8())] * 2), "twice in the schema"),
        (pa.struct([pa.field(f"f{i}", pa.int8()) for i in range(10_001)]), "10,000 are allowed"),
    ],
)
def test_a_schema_that_json_cannot_have_is_refused(schema: pa.DataType, what: str) -> None:
    with pytest.raises(PayloadSchemaError, match=what):
        JsonFormat(schema)


def test_a_payload_with_several_numbers_out_of_range_is_undecodable_once(decode: Decode) -> None:
    """Numbers between the largest one and infinity, of which 19 digits decide nothing."""
    large = b"%d" % ((2**54 - 1) * 2**970)
    payload = b'{"a": %b, "b": [%b, %b]}' % (large, large, large)
    found = decode("a DOUBLE, b ARRAY<DOUBLE>", payload, b'{"a": 1}', payload)
    assert [one.row for one in found.undecodable] == [0, 2]
    assert found.values.to_pylist()[1] == {"a": 1.0, "b": None}
