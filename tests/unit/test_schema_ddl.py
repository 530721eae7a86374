"""Spark's DDL read into Arrow types and printed from them."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rangeland.decode.payload.payload_decoder import PayloadSchemaError
from rangeland.decode.payload.schema_ddl import INSTANT, LOCAL_TIME, parse_ddl, print_ddl
from tests.property.json_strategies import schemas


def test_every_type_is_read() -> None:
    text = """a BOOLEAN, b TINYINT, c byte, d SMALLINT, e short, f INT, g integer, h BIGINT,
      i Long, j FLOAT, k real, l DOUBLE, m STRING, n BINARY, o DATE, p TIMESTAMP, q TIMESTAMP_LTZ,
      r TIMESTAMP_NTZ, s DECIMAL, t DEC(5), u NUMERIC(38, 38)"""
    kinds = [pa.bool_(), pa.int8(), pa.int8(), pa.int16(), pa.int16(), pa.int32(), pa.int32()]
    kinds += [pa.int64(), pa.int64(), pa.float32(), pa.float32(), pa.float64(), pa.string()]
    kinds += [pa.binary(), pa.date32(), INSTANT, INSTANT, LOCAL_TIME, pa.decimal128(10, 0)]
    kinds += [pa.decimal128(5, 0), pa.decimal128(38, 38)]
    names = "abcdefghijklmnopqrstu"
    expected = pa.struct([pa.field(n, k) for n, k in zip(names, kinds, strict=True)])
    assert parse_ddl(text).equals(expected)


def test_nested_types_comments_and_quoted_names_are_read() -> None:
    found = parse_ddl(
        "id BIGINT NOT NULL COMMENT 'it''s \\'the\\' key',  -- a remark\n"
        "tags ARRAY<STRUCT<k: STRING NOT NULL, v DECIMAL(10,2)>>, /* more\n */ `a ``b``, c` INT,"
        "m MAP<STRING, ARRAY<INT>> NOT NULL, struct STRING, array INT"
    )
    tag = pa.struct([pa.field("k", pa.string(), False), pa.field("v", pa.decimal128(10, 2))])
    numbers = pa.list_(pa.field("element", pa.int32()))
    expected = pa.struct(
        [
            pa.field("id", pa.int64(), False),
            pa.field("tags", pa.list_(pa.field("element", tag))),
            pa.field("a `b`, c", pa.int32()),
            pa.field("m", pa.map_(pa.string(), pa.field("value", numbers)), False),
            pa.field("struct", pa.string()),
            pa.field("array", pa.int32()),
        ]
    )
    assert found.equals(expected)
    assert found.field("id").metadata == {b"comment": b"it's 'the' key"}
    assert parse_ddl("STRUCT<a: INT, b: STRING>").equals(parse_ddl("a INT, b STRING"))
    assert parse_ddl("struct INT").equals(pa.struct([pa.field("struct", pa.int32())]))


@pytest.mark.parametrize(
    ("text", "line", "column", "what"),
    [
        ("", 1, 1, "the schema has no fields"),
        ("a", 1, 2, "expected a type, found the end"),
        ("a INT,", 1, 7, "expected a field's name, found the end"),
        ("a INT,\n  b TEXT", 2, 5, "TEXT is not a type that can be decoded; use STRING"),
        ("a INT b INT", 1, 7, "expected a comma or the end, found b"),
        ("a ARRAY<INT", 1, 12, "expected '>', found the end"),
        ("a MAP<STRING>", 1, 13, "expected ',', found >"),
        ("a STRUCT<>", 1, 10, "a STRUCT needs a field"),
        ("a INT NOT b", 1, 11, "expected NULL after NOT, found b"),
        ("a INT COMMENT b", 1, 15, "expected a quoted text after COMMENT, found b"),
        ("`a INT", 1, 1, "this name has no closing back quote"),
        ("a INT COMMENT 'x", 1, 15, "this text has no closing quote"),
        ("a INT /* x", 1, 7, "this comment has no end"),
        ("`` INT", 1, 1, "a field's name is empty"),
        ("1a INT", 1, 1, "expected a field's name, found 1a"),
        ("ä INT", 1, 1, "'ä' was not expected; put names with other characters in back quotes"),
        ("a INT,\n A STRING", 2, 2, "the field 'A' occurs twice"),
        ("a DECIMAL(x)", 1, 11, "expected a number of digits, found x"),
        ("a DECIMAL(39)", 1, 10, "a DECIMAL has 1 to 38 digits"),
        ("a DECIMAL(2,3)", 1, 10, "a DECIMAL has 1 to 38 digits"),
        ("a " + "ARRAY<" * 33 + "INT" + ">" * 33, 1, 195, "types are nested more than 32 deep"),
        ("a " + "ARRAY<" * 100_000, 1, 195, "types are nested more than 32 deep"),
    ],
)
def test_a_mistake_is_named_with_its_place(text: str, line: int, column: int, what: str) -> None:
    with pytest.raises(PayloadSchemaError) as caught:
        parse_ddl(text)
    assert (caught.value.line, caught.value.column) == (line, column)
    assert caught.value.what.startswith(what)
    assert str(caught.value).startswith(f"line {line}, column {column}: ")


def test_a_text_of_megabytes_is_refused() -> None:
    with pytest.raises(PayloadSchemaError, match="1,048,576 are allowed"):
        parse_ddl(" " * (1 << 21))


@given(schemas())
def test_what_is_printed_is_read_as_the_same(schema: pa.StructType) -> None:
    named = pa.struct(
        [pa.field(f"{i}_{schema.field(i).name}", schema.field(i).type) for i in range(len(schema))]
    )
    printed = print_ddl(named)
    if "``:" in printed:  # an inner field without a name, which DDL cannot have
        return
    assert print_ddl(parse_ddl(printed)) == printed


@given(st.text())
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        parse_ddl(text)
    except PayloadSchemaError:
        return


def test_a_comment_survives_printing() -> None:
    text = "a INT NOT NULL COMMENT 'it\\'s \\\\ here\\n'"
    assert print_ddl(parse_ddl(text)) == text


def test_a_type_that_spark_does_not_have_is_refused() -> None:
    with pytest.raises(PayloadSchemaError, match="uint64"):
        print_ddl(pa.struct([pa.field("a", pa.uint64())]))
