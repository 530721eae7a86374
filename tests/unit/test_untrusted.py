"""JSON, numbers and addresses from outside: a value of the right type, or one named refusal."""

from __future__ import annotations

import time
from typing import Any

import pytest

from rangeland.model import Address
from rangeland.untrusted import (
    MAX_INT64,
    MAX_JSON_DEPTH,
    JsonFields,
    Unreadable,
    decimal,
    parse_address,
    parse_json,
    whole,
)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "not JSON"),
        ("{", "not JSON"),
        ('{"a": NaN}', "NaN"),
        ("[Infinity]", "Infinity"),
        ("[-Infinity]", "-Infinity"),
        ("1e999", "too large"),
        ("9" * 5_000, "thousands of digits"),
        ("[" * 100_000, "nested"),
        ("[" * 900 + "]" * 900, "nested"),
        ("[" * (MAX_JSON_DEPTH + 1) + "]" * (MAX_JSON_DEPTH + 1), "nested"),
        ('{"a":' * 70 + "1" + "}" * 70, "nested"),
        (r'"\ud800"', "surrogate"),
        (r'{"\uDFFF": 1}', "surrogate"),
        ("\udcff", "UTF-8"),
        (b"\xff", "UTF-8"),
    ],
)
def test_json_that_is_not_taken_is_refused_by_name(text: str | bytes, why: str) -> None:
    with pytest.raises(Unreadable, match=why):
        parse_json(text)


def test_json_as_deep_as_allowed_is_taken() -> None:
    text = "[" * MAX_JSON_DEPTH + "]" * MAX_JSON_DEPTH
    assert parse_json(text) is not None
    assert parse_json(rb'"\ud83d\ude00"') == "\U0001f600"


def test_json_larger_than_the_limit_is_not_read() -> None:
    with pytest.raises(Unreadable, match="longer than 10 bytes"):
        parse_json('"1234567890"', max_bytes=10)


def test_a_repeated_key_is_refused_where_keys_have_to_be_unique() -> None:
    assert parse_json('{"a": 1, "a": 2}') == {"a": 2}
    with pytest.raises(Unreadable, match="duplicate key"):
        parse_json('{"a": 1, "a": 2}', unique_keys=True)


def test_the_error_of_a_document_does_not_repeat_it() -> None:
    for text in ("{hunter2", '{"hunter2": NaN}', '"hunter2\\ud800"', "[hunter2]"):
        with pytest.raises(Unreadable) as caught:
            parse_json(text)
        assert "hunter2" not in repr(caught.value)
        assert caught.value.__cause__ is None


@pytest.mark.parametrize("value", [True, None, 1.0, "1", [], -1, MAX_INT64 + 1, 10**400])
def test_what_is_not_a_whole_number_in_range_is_refused(value: Any) -> None:
    with pytest.raises(Unreadable, match="a count: expected a whole number"):
        whole(value, "a count")


@pytest.mark.parametrize("text", ["", "x", "1.0", " 1", "1_0", "²", "٣", "9" * 20, "9" * 5_000])
def test_what_is_not_a_decimal_number_is_refused(text: str) -> None:
    with pytest.raises(Unreadable, match="a count"):
        decimal(text, "a count")


def test_decimal_numbers_are_read_to_their_bounds() -> None:
    assert decimal("-9223372036854775808", "an offset") == -(2**63)
    assert decimal("9223372036854775807", "an offset") == MAX_INT64
    with pytest.raises(Unreadable):
        decimal("9223372036854775808", "an offset")


@pytest.mark.parametrize(
    "text", ["", "h", "h:", ":1", "[]:1", "h:0", "h:99999", "h:-1", "h:" + "9" * 5_000]
)
def test_what_is_not_an_address_is_refused(text: str) -> None:
    with pytest.raises(Unreadable):
        parse_address(text)


def test_an_address_is_read_as_it_is_written() -> None:
    assert parse_address("[::1]:9092") == Address("::1", 9092)


def test_fields_are_read_by_type() -> None:
    fields = JsonFields.parse('{"n": 1, "t": "x", "f": true, "o": {}, "l": ["a"], "z": null}')
    assert (fields.number("n"), fields.text("t"), fields.flag("f")) == (1, "x", True)
    assert fields.texts("l") == ("a",)
    assert (fields.number("z", default=7), fields.text("none", "d")) == (7, "d")
    for read in (
        lambda: fields.number("t"),
        lambda: fields.number("f"),
        lambda: fields.text("n"),
        lambda: fields.flag("n"),
        lambda: fields.fields("l"),
        lambda: fields.each("l"),
        lambda: fields.texts("o"),
        lambda: fields.text("missing"),
        lambda: fields.number("missing"),
        lambda: fields.number("z"),
        lambda: JsonFields([]),
    ):
        with pytest.raises(Unreadable):
            read()


def test_the_cost_is_bounded_by_the_size() -> None:
    started = time.process_time()
    for text in ("[" * 1_000_000, '"' + "\\" * 1_000_001, "9" * 1_000_000, '{"a":' * 200_000):
        with pytest.raises(Unreadable):
            parse_json(text)
    assert time.process_time() - started < 5
