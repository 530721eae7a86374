"""The kernel decodes the same JSON payloads as the standard library, to the same values."""

from __future__ import annotations

import json
import math
import random
import struct
from fractions import Fraction
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rangeland.decode.payload.json.json_kernel import JsonKernel
from rangeland.decode.payload.payload_decoder import DecodedPayloads, UnknownFields
from rangeland.decode.payload.schema_ddl import parse_ddl
from tests.property.json_strategies import HOSTILE, SCALARS, payloads, schemas
from tests.property.sanitizers import kernel_library, run_under_sanitizers
from tests.reference.json_payloads import JsonReference

LIBRARY = kernel_library()
EVERYTHING = parse_ddl(
    "a BOOLEAN, b TINYINT NOT NULL, id BIGINT, name STRING, f FLOAT, d DOUBLE, e DECIMAL(10,2), "
    "x BINARY, day DATE, t TIMESTAMP, n TIMESTAMP_NTZ, l ARRAY<STRUCT<a: INT, b: STRING>>, "
    "m MAP<STRING, ARRAY<DOUBLE>>, s STRUCT<a: STRUCT<b: INT>>"
)


def rescued(result: DecodedPayloads) -> list[object]:
    """Parsed, because the reference does not keep white space."""
    found = result.rescued.to_pylist() if result.rescued is not None else []
    return [
        kept and json.loads(kept, object_pairs_hook=list, parse_float=str, parse_int=str)
        for kept in found
    ]


def assert_same(
    schema: pa.StructType, given: list[bytes | None], unknown: UnknownFields
) -> DecodedPayloads:
    array = pa.array(given, pa.binary())
    fast = JsonKernel(LIBRARY, schema, unknown).decode(array)
    slow = JsonReference(schema, unknown).decode(array)
    bad = [fault.row for fault in fast.undecodable]
    assert bad == [fault.row for fault in slow.undecodable], [
        (given[fault.row], fault)
        for fault in (*fast.undecodable, *slow.undecodable)
        if (fault.row in bad) != (fault.row in [f.row for f in slow.undecodable])
    ]
    fast.values.validate(full=True)
    assert fast.values.type.equals(schema)
    assert bits(fast.values.to_pylist()) == bits(slow.values.to_pylist())
    assert rescued(fast) == rescued(slow)
    assert [row for row, value in enumerate(fast.values.to_pylist()) if value is None] == sorted(
        {*bad, *(row for row, payload in enumerate(given) if payload is None)}
    )
    return fast


def bits(value: object) -> object:
    """-0.0 and 0.0 are told apart."""
    if isinstance(value, float):
        return struct.pack(">d", value)
    if isinstance(value, dict):
        return {key: bits(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [bits(item) for item in value]
    return value


@settings(deadline=None)
@given(st.data())
def test_records_of_random_schemas_are_the_same(data: st.DataObject) -> None:
    schema = data.draw(schemas())
    rows = data.draw(st.lists(payloads(schema), max_size=12))
    assert_same(schema, rows, data.draw(st.sampled_from(UnknownFields)))


@settings(deadline=None)
@given(st.lists(st.binary(max_size=40) | payloads(EVERYTHING), max_size=20))
def test_damaged_records_are_the_same(rows: list[bytes | None]) -> None:
    assert_same(EVERYTHING, rows, UnknownFields.KEEP)


@pytest.mark.parametrize("kind", SCALARS, ids=str)
def test_hostile_values_of_each_type_are_the_same(kind: pa.DataType) -> None:
    texts = [text.encode("utf-8", "surrogatepass") for text in HOSTILE]
    rows = [b'{"v":' + text + b"}" for text in texts] + [b'{"u":' + text + b"}" for text in texts]
    schema = pa.struct([pa.field("v", kind)])
    for unknown in UnknownFields:
        result = assert_same(schema, [*rows], unknown)
        assert 0 < len(result.undecodable) < len(rows)


NESTED = [
    parse_ddl("v STRUCT<a: INT, x: STRUCT<x: INT>>"),
    parse_ddl("v MAP<STRING, INT>, u ARRAY<STRING>"),
    parse_ddl("v ARRAY<ARRAY<STRUCT<a: INT>>>"),
    parse_ddl("v MAP<STRING, MAP<STRING, STRUCT<a: INT>>>"),
]


@pytest.mark.parametrize("schema", NESTED, ids=str)
def test_hostile_values_inside_of_others_are_the_same(schema: pa.StructType) -> None:
    texts = [text.encode("utf-8", "surrogatepass") for text in HOSTILE]
    shapes = [b'{"v":%s}', b'{"v":{"a":%s}}', b'{"v":{"x":%s,"a":1,"y":[{}]}}', b'{"v":[%s]}']
    shapes += [b'{"v":[[null,{},{"z":1},{"a":%s},{"z":[2]}],[{"z":3}]]}', b'{"v":{"k":{"k":%s}}}']
    shapes += [b'{"v":{"k":{"k":{"a":1,"z":%s}}}}']
    rows = [shape % text for text in texts for shape in shapes]
    for unknown in UnknownFields:
        result = assert_same(schema, [*rows], unknown)
        assert 0 < len(result.undecodable) < len(rows)


def test_floats_are_the_nearest() -> None:
    chance = random.Random(5)
    texts = ["1.7976931348623158e308", "1.7976931348623159e308", "2.4703282292062328e-324"]
    texts += [
        "179769313486231580793728971405303415079934132710037826936173778980444968292764750946"
    ]
    texts += ["9007199254740993", "9007199254740992.99999999999999999", "4.9406564584124654e-324"]
    texts += ["1.7976931348623158079372897140530341507993413271003782693617377898044e308"]
    for _ in range(30_000):
        double = struct.unpack(">d", chance.randbytes(8))[0]
        if math.isfinite(double):
            texts.append(chance.choice([repr(double), f"{double:.25e}", f"{double:.18e}"]))
    for _ in range(2_000):  # exactly between two doubles, and a little to each side
        double = abs(struct.unpack(">d", chance.randbytes(8))[0])
        if 1e-200 < double < 1e200:
            middle = (*double.as_integer_ratio(), *math.nextafter(double, 1e300).as_integer_ratio())
            number = (middle[0] * middle[3] + middle[2] * middle[1], 2 * middle[1] * middle[3])
            digits = number[0] * 10**1100 // number[1]
            texts += [f"{digits + more}e-1100" for more in (-1, 0, 1)]
    for kind in ("DOUBLE", "FLOAT"):
        rows: list[bytes | None] = [f'{{"v":{text}}}'.encode() for text in texts]
        assert_same(parse_ddl(f"v {kind}"), rows, UnknownFields.DROP)


def test_32_bit_floats_are_the_nearest() -> None:
    """Against exact fractions: all the texts lie between two floats, about halfway."""
    chance = random.Random(6)
    texts = []
    for _ in range(3_000):
        low, high = _neighbours(chance.randrange(0x7F7FFFFF))
        half = (low + high) / 2
        near = half + (high - low) * chance.choice([-1, 0, 1]) / 10 ** chance.randint(1, 40)
        texts.append(_digits(near, chance.choice([9, 19, 20, 30, 200])))
    for _ in range(3_000):  # a few digits, as people write them
        texts.append(f"{chance.randint(0, 1 << 26)}.{chance.choice(['5', '25', '75', '0', '125'])}")
    rows: list[bytes | None] = [f'{{"v":{text}}}'.encode() for text in texts]
    result = assert_same(parse_ddl("v FLOAT"), rows, UnknownFields.DROP)
    for text, row in zip(texts, result.values.to_pylist(), strict=True):
        found = struct.unpack(">I", struct.pack(">f", row["v"]))[0]
        exact = Fraction(text)
        errors = {bits: abs(_float_of(bits) - exact) for bits in (found - 1, found, found + 1)}
        least = min(errors.values())
        assert errors[found] == least, text
        assert found % 2 == 0 or list(errors.values()).count(least) == 1, text


def _float_of(bits: int) -> Fraction:
    if bits < 0 or bits >= 0x7F800000:
        return Fraction(1 << 200)
    return Fraction(struct.unpack(">f", struct.pack(">I", bits))[0])


def _neighbours(bits: int) -> tuple[Fraction, Fraction]:
    return _float_of(bits), _float_of(bits + 1)


def _digits(value: Fraction, count: int) -> str:
    """The number with this many digits, cut off."""
    power = 0
    while value < 1:
        value *= 10
        power -= 1
    while value >= 10:
        value /= 10
        power += 1
    whole = str(int(value * 10 ** (count - 1)))
    return f"{whole[0]}.{whole[1:]}e{power}"


def test_columns_grow_as_often_as_it_takes() -> None:
    schema = parse_ddl("l ARRAY<STRUCT<a: STRING, b: MAP<STRING, INT>>>, d DOUBLE")
    cut = "0.5000000000000000277555756156289135105907917022705078125"
    long = {"l": [{"a": "x" * i, "b": {str(k): k for k in range(i % 50)}} for i in range(300)]}
    rows: list[bytes | None] = [json.dumps(long).encode(), b"{", None] * 4
    rows += [b'{"d":%s}' % cut.encode()] * 200 + [json.dumps(long).encode()[:-1]]
    result = assert_same(schema, rows, UnknownFields.KEEP)
    assert len(result.undecodable) == 5


def test_a_sliced_array_and_large_offsets_are_the_same() -> None:
    rows = [b'{"a":1}', b'{"a":2}', None, b"[", b'{"a":5}']
    kernel = JsonKernel(LIBRARY, parse_ddl("a INT"), UnknownFields.DROP)
    for kind in (pa.binary(), pa.large_binary()):
        result = kernel.decode(pa.array(rows, kind).slice(1, 3))
        assert result.values.to_pylist() == [{"a": 2}, None, None]
        assert [fault.row for fault in result.undecodable] == [2]
        assert kernel.decode(pa.array([], kind)).values.to_pylist() == []
        assert kernel.decode(pa.array([None], kind)).values.to_pylist() == [None]


def test_keys_of_a_large_map_are_compared_in_linear_time() -> None:
    schema = parse_ddl("m MAP<STRING, INT>")
    pairs = ",".join(f'"{key}":1' for key in range(200_000))
    kernel = JsonKernel(LIBRARY, schema, UnknownFields.DROP)
    rows = [f'{{"m":{{{pairs}}}}}'.encode(), f'{{"m":{{{pairs},"17":2}}}}'.encode()]
    result = kernel.decode(pa.array(rows))
    assert len(result.values[0]["m"]) == 200_000
    assert [fault.row for fault in result.undecodable] == [1]


@pytest.mark.slow
def test_the_kernel_touches_only_its_own_memory(tmp_path: Path) -> None:
    run_under_sanitizers(__file__, tmp_path)
