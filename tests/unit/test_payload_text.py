"""Payloads without a schema: text in UTF-8."""

from __future__ import annotations

import pickle

import pyarrow as pa
import pytest

from rangeland.decode.payload.payload_decoder import MAX_REASON, Undecodable
from rangeland.decode.payload.string_format import StringFormat

NOT_UTF8 = [
    b"\xff",
    b"\xc0\xaf",
    b"\xed\xa0\x80",
    b"\xf4\x90\x80\x80",
    b"a\xc3",
    b"\x80",
    b"\xe2\x82",
]


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary()], ids=str)
def test_text_that_is_not_utf8_is_undecodable(kind: pa.DataType) -> None:
    good = [b"", None, "Zürich \U0001f600".encode(), b"\x00"]
    given = [item for pair in zip(NOT_UTF8, good * 2, strict=False) for item in pair] * 3
    text = pickle.loads(pickle.dumps(StringFormat()))
    result = text.decoder().decode(pa.array(given, kind).slice(1))
    expected = [None if b is None or b in NOT_UTF8 else b.decode() for b in given[1:]]
    assert result.values.equals(pa.array(expected, pa.string()))
    bad = [row for row, payload in enumerate(given[1:]) if payload in NOT_UTF8]
    assert [fault.row for fault in result.undecodable] == bad
    assert result.undecodable[0].reason == "it is not UTF-8: invalid start byte at byte 0"


def test_good_text_is_all_there() -> None:
    result = StringFormat().decoder().decode(pa.array([b"a", None, b""]))
    assert result.values.to_pylist() == ["a", None, ""]
    assert result.undecodable == ()
    assert StringFormat().decoder().decode(pa.array([], pa.binary())).values.to_pylist() == []


def test_a_reason_is_one_short_printable_line() -> None:
    reason = Undecodable(0, "a\nb\x1b[31m" + "x" * 500).reason
    assert len(reason) == MAX_REASON
    assert reason.isprintable()
