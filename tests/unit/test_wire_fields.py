"""Primitives: known bytes both ways, limits, and refusals by reason."""

from __future__ import annotations

from typing import Any

import pytest

from rangeland.errors import LocalProtocolError, RemoteProtocolError
from rangeland.wire import arrays, codec_errors, primitives, tagged_fields
from rangeland.wire.primitives import Buffer, FieldCodec
from tests.contract.readers import read_three_ways


def written(codec: FieldCodec, value: Any) -> bytes:
    parts: list[Buffer] = []
    codec.write(value, parts)
    return b"".join(parts)


def refused(codec: FieldCodec, data: bytes) -> RemoteProtocolError:
    with pytest.raises(RemoteProtocolError) as caught:
        codec.read(memoryview(data), 0)
    return caught.value


A_UUID = "00112233-4455-6677-8899-aabbccddeeff"
COMPACT_INTS = arrays.array(primitives.INT32.compact, compact=True, nullable=True)
LEGACY_INTS = arrays.array(primitives.INT32.legacy, compact=False, nullable=True)
STRINGS = arrays.array(primitives.STRING.legacy, compact=False, nullable=False)
UVARINT = FieldCodec(
    primitives.read_uvarint, lambda value, parts: parts.append(primitives.uvarint_bytes(value)), 1
)

KNOWN = [
    (primitives.INT8.legacy, -128, "80"),
    (primitives.INT16.legacy, 258, "0102"),
    (primitives.INT32.legacy, -2, "fffffffe"),
    (primitives.INT64.legacy, 2**63 - 1, "7fffffffffffffff"),
    (primitives.BOOL.legacy, True, "01"),
    (UVARINT, 0, "00"),
    (UVARINT, 127, "7f"),
    (UVARINT, 300, "ac02"),
    (UVARINT, 2**32 - 1, "ffffffff0f"),
    (primitives.UUID.legacy, A_UUID, "00112233445566778899aabbccddeeff"),
    (primitives.UUID.legacy, None, "00" * 16),
    (primitives.STRING.legacy, "é", "0002c3a9"),
    (primitives.STRING.compact, "é", "03c3a9"),
    (primitives.STRING.legacy, "", "0000"),
    (primitives.STRING.compact, "", "01"),
    (primitives.STRING.nullable_legacy, None, "ffff"),
    (primitives.STRING.nullable_compact, None, "00"),
    (primitives.BYTES.legacy, b"ab", "000000026162"),
    (primitives.BYTES.compact, b"ab", "036162"),
    (primitives.BYTES.nullable_legacy, None, "ffffffff"),
    (primitives.RECORDS.nullable_compact, None, "00"),
    (primitives.RECORDS.legacy, b"ab", "000000026162"),
    (LEGACY_INTS, (1, 2), "000000020000000100000002"),
    (LEGACY_INTS, None, "ffffffff"),
    (COMPACT_INTS, (1,), "0200000001"),
    (COMPACT_INTS, (), "01"),
    (COMPACT_INTS, None, "00"),
    (STRINGS, ("a", "b"), "00000002000161000162"),
]


@pytest.mark.parametrize(("codec", "value", "data"), KNOWN)
def test_known_bytes_are_read_and_written(codec: FieldCodec, value: Any, data: str) -> None:
    assert read_three_ways(codec.read, bytes.fromhex(data)) == value
    assert written(codec, value) == bytes.fromhex(data)


def test_any_byte_but_zero_is_true() -> None:
    assert primitives.BOOL.legacy.read(memoryview(b"\x07"), 0) == (True, 1)


def test_an_unsigned_varint_may_be_spelled_longer_than_needed() -> None:
    assert primitives.read_uvarint(memoryview(b"\x81\x80\x00"), 0) == (1, 3)


@pytest.mark.parametrize("data", ["ffffffff1f", "ffffffffff01", "808080808000"])
def test_a_varint_beyond_its_bits_is_refused(data: str) -> None:
    assert refused(UVARINT, bytes.fromhex(data)).facts["reason"] == codec_errors.BAD_LENGTH


def test_records_are_a_slice_of_the_buffer_and_not_a_copy() -> None:
    buffer = bytearray(b"\x00\x00\x00\x03abc")
    value, _ = primitives.RECORDS.legacy.read(memoryview(buffer), 0)
    buffer[4:] = b"xyz"
    assert bytes(value) == b"xyz"


@pytest.mark.parametrize(
    ("codec", "data", "reason"),
    [
        (primitives.STRING.legacy, "fffe", codec_errors.BAD_LENGTH),
        (primitives.STRING.legacy, "ffff", codec_errors.NOT_NULLABLE),
        (primitives.STRING.compact, "00", codec_errors.NOT_NULLABLE),
        (primitives.STRING.legacy, "0001ff", codec_errors.BAD_TEXT),
        (primitives.STRING.legacy, "0003eda080", codec_errors.BAD_TEXT),
        (primitives.BYTES.nullable_legacy, "fffffffe", codec_errors.BAD_LENGTH),
        (primitives.BYTES.legacy, "7fffffff00", codec_errors.UNDERFLOW),
        (primitives.BYTES.compact, "ffffffff0f00", codec_errors.UNDERFLOW),
        (LEGACY_INTS, "fffffffe", codec_errors.BAD_LENGTH),
        (LEGACY_INTS, "7fffffff" + "00" * 6, codec_errors.UNDERFLOW),
        (COMPACT_INTS, "ffffffff0f" + "00" * 6, codec_errors.UNDERFLOW),
        (STRINGS, "ffffffff", codec_errors.NOT_NULLABLE),
    ],
)
def test_bytes_that_cannot_be_are_refused_with_a_reason(
    codec: FieldCodec, data: str, reason: str
) -> None:
    error = refused(codec, bytes.fromhex(data))
    assert error.facts["reason"] == reason
    assert error.facts["size"] == len(data) // 2


def test_a_count_that_cannot_fit_is_refused_before_any_element_is_read() -> None:
    reads: list[int] = []

    def read(buffer: memoryview, offset: int) -> tuple[Any, int]:
        reads.append(offset)
        return None, offset + 1

    hostile = arrays.array(FieldCodec(read, lambda _v, _p: None, 1), compact=False, nullable=False)
    assert "2147483647 elements" in refused(hostile, b"\x7f\xff\xff\xff" + b"\x00" * 6).why
    assert reads == []


KNOWN_TAGS = {1: primitives.INT16.compact}


def test_unknown_tags_are_skipped_and_known_ones_read() -> None:
    data = bytes.fromhex("02 0102 0102 05 03 616263".replace(" ", ""))
    found = read_three_ways(lambda b, o: tagged_fields.read_tags(b, o, KNOWN_TAGS), data)
    assert found == {1: 258}


@pytest.mark.parametrize(
    "data",
    [
        "02 01020102 01020102",  # the same tag twice
        "02 0500 01020102",  # falling
        "01 0103010203",  # a byte too many inside the tag
    ],
)
def test_tags_out_of_order_or_too_long_are_refused(data: str) -> None:
    with pytest.raises(RemoteProtocolError) as caught:
        tagged_fields.read_tags(memoryview(bytes.fromhex(data.replace(" ", ""))), 0, KNOWN_TAGS)
    assert caught.value.facts["reason"] == codec_errors.BAD_TAGS


def test_a_tag_cannot_read_beyond_its_own_size() -> None:
    with pytest.raises(RemoteProtocolError) as caught:
        tagged_fields.read_tags(memoryview(bytes.fromhex("0101010102")), 0, KNOWN_TAGS)
    assert caught.value.facts["reason"] == codec_errors.UNDERFLOW


def test_strings_too_long_for_sixteen_bits_are_not_sent() -> None:
    assert len(written(primitives.STRING.legacy, "x" * 32767)) == 32769
    with pytest.raises(LocalProtocolError, match="too long"):
        written(primitives.STRING.legacy, "x" * 32768)


@pytest.mark.parametrize(
    ("codec", "value"),
    [
        (primitives.STRING.legacy, None),
        (STRINGS, None),
        (UVARINT, -1),
    ],
)
def test_values_that_the_type_cannot_hold_are_not_sent(codec: FieldCodec, value: Any) -> None:
    with pytest.raises(LocalProtocolError):
        written(codec, value)
