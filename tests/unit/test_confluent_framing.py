"""The magic byte, the schema id and the message indexes before a payload's body."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rangeland.decode.payload.payload_bytes import PayloadBytes, PayloadFault, payload_bytes
from rangeland.decode.payload.schema_ids.confluent_framing import (
    count_schema_ids,
    encode_indexes,
    read_schema_ids,
    skip_message_indexes,
)


def framed(schema_id: int, body: bytes = b"") -> bytes:
    return b"\0" + schema_id.to_bytes(4, "big", signed=True) + body


def bodies(found: PayloadBytes) -> list[bytes]:
    data = bytes(found.data)
    return [data[a:b] for a, b in zip(found.starts, found.ends, strict=True)]


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary()])
def test_ids_and_bodies_are_found_in_slices_of_arrays(kind: pa.DataType) -> None:
    payloads = pa.array([b"x", framed(1, b"a"), None, framed(1 << 30, b""), framed(7, b"bc")], kind)
    found = payload_bytes(payloads.slice(1))
    assert read_schema_ids(found).tolist() == [1, 0, 1 << 30, 7]
    assert found.faults.tolist() == [0, PayloadFault.NULL_PAYLOAD, 0, 0]
    assert [bodies(found)[at] for at in (0, 2, 3)] == [b"a", b"", b"bc"]


@pytest.mark.parametrize(
    ("payload", "fault"),
    [
        (b"", PayloadFault.FRAME_TOO_SHORT),
        (b"\0", PayloadFault.FRAME_TOO_SHORT),
        (b"\0\0\0\0", PayloadFault.FRAME_TOO_SHORT),
        (b"{", PayloadFault.NOT_FRAMED),
        (b"\1\0\0\0\1body", PayloadFault.NOT_FRAMED),
        (framed(0, b"body"), PayloadFault.SCHEMA_ID_NOT_POSITIVE),
        (framed(-1, b"body"), PayloadFault.SCHEMA_ID_NOT_POSITIVE),
        (framed(-(1 << 31), b"body"), PayloadFault.SCHEMA_ID_NOT_POSITIVE),
    ],
)
def test_a_payload_that_is_not_framed_has_a_fault_of_its_own(
    payload: bytes, fault: PayloadFault
) -> None:
    found = payload_bytes(pa.array([framed(3), payload, framed(4)], pa.binary()))
    assert read_schema_ids(found).tolist() == [3, 0, 4]
    assert found.faults.tolist() == [0, fault, 0]
    assert found.undecodable_rows(3) == [1]
    assert found.reason(1)


def test_schema_ids_are_counted_where_a_payload_names_one() -> None:
    payloads = [framed(3), None, framed(3, b"x"), b"text", framed(9), b""]
    assert count_schema_ids(pa.array(payloads, pa.binary())) == {3: 2, 9: 1}
    assert count_schema_ids(pa.array([], pa.binary())) == {}
    assert count_schema_ids(pa.nulls(3, pa.binary())) == {}


@given(st.lists(st.one_of(st.none(), st.binary(max_size=12))))
def test_any_bytes_have_an_id_or_a_fault(payloads: list[bytes | None]) -> None:
    found = payload_bytes(pa.array(payloads, pa.binary()))
    ids = read_schema_ids(found)
    assert ((ids > 0) == (found.faults == 0)).all()
    for payload, number, body in zip(payloads, ids.tolist(), bodies(found), strict=True):
        if number:
            assert framed(number, body) == payload


def indexed(bodies_: list[bytes], indexes: list[int]) -> PayloadBytes:
    found = payload_bytes(pa.array(bodies_, pa.binary()))

    def fault_of(numbers: Sequence[int]) -> PayloadFault | None:
        return None if list(numbers) == indexes else PayloadFault.OTHER_MESSAGE

    skip_message_indexes(found, np.arange(len(bodies_)), [indexes], fault_of)
    return found


def test_the_first_message_is_a_single_byte_or_written_in_full() -> None:
    found = indexed([b"\0abc", b"\2\0abc", b"\2\x80\0abc"], [0])
    assert bodies(found) == [b"abc"] * 3
    assert encode_indexes([0]) == b"\0"


def test_indexes_that_are_not_likely_are_skipped_as_well() -> None:
    found = payload_bytes(pa.array([b"\2\2a", b"\2\4b", b"\2\6c"], pa.binary()))

    def fault_of(numbers: Sequence[int]) -> PayloadFault | None:
        return None if numbers[0] < 3 else PayloadFault.AMBIGUOUS_MESSAGE

    skip_message_indexes(found, np.arange(3), [[1], [3]], fault_of)
    assert bodies(found) == [b"a", b"b", b"\2\6c"]
    assert found.faults.tolist() == [0, 0, PayloadFault.AMBIGUOUS_MESSAGE]


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=5), st.binary(max_size=5))
def test_indexes_are_skipped(indexes: list[int], body: bytes) -> None:
    found = indexed([encode_indexes(indexes) + body], indexes)
    assert (bodies(found), found.faults.tolist()) == ([body], [0])


@pytest.mark.parametrize("damaged", [b"", b"\2", b"\x80", b"\1", b"\xff" * 9, b"\xfe\xff\x03"])
def test_damaged_indexes_and_those_of_another_message_are_faults(damaged: bytes) -> None:
    found = indexed([damaged, encode_indexes([1, 2]), encode_indexes([2, 1])], [1, 2])
    assert found.faults.tolist() == [
        PayloadFault.DAMAGED_MESSAGE_INDEXES,
        0,
        PayloadFault.OTHER_MESSAGE,
    ]
