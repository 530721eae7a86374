"""The Protobuf decoder against Google's: any type, any value, messages in parts, and any bytes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2, struct_pb2
from google.protobuf.message import DecodeError
from hypothesis import given, settings
from hypothesis import strategies as st

from rangeland.decode.payload.payload_decoder import DecodedPayloads
from rangeland.decode.payload.payload_kernel import PayloadKernel
from rangeland.decode.payload.protobuf import protobuf_format
from rangeland.decode.payload.protobuf.protobuf_format import ProtobufFormat
from tests.property.sanitizers import kernel_library, run_under_sanitizers
from tests.protobuf_values import (
    as_row,
    files,
    keep_map_entries,
    map_of_doubles,
    messages,
    sorted_rows,
)


@pytest.fixture(autouse=True, scope="module")
def _kernel_under_test() -> Any:
    patch = pytest.MonkeyPatch()
    patch.setattr(protobuf_format, "PayloadKernel", lambda: PayloadKernel(kernel_library()))
    yield
    patch.undo()


def decode(file: tuple[bytes, Any], payloads: list[bytes | None]) -> DecodedPayloads:
    form = ProtobufFormat(file[0], file[1].DESCRIPTOR.full_name)
    found = form.decoder().decode(pa.array(payloads, pa.binary()))
    found.values.validate(full=True)
    assert found.values.type == form.arrow_type
    assert len(found.values) == len(payloads)
    return found


def rows(found: DecodedPayloads) -> list[Any]:
    return [sorted_rows(row) for row in found.values.to_pylist()]


@settings(deadline=None)
@given(st.data())
def test_values_are_those_that_were_written(data: Any) -> None:
    file = data.draw(files())
    written = data.draw(st.lists(messages(file[1]), max_size=5))
    found = decode(file, [one.SerializeToString() for one in written])
    assert not found.undecodable
    assert rows(found) == [as_row(one) for one in written]


@settings(deadline=None)
@given(st.data())
def test_parts_of_messages_are_merged_as_google_does(data: Any) -> None:
    file = data.draw(files())
    parts = data.draw(st.lists(messages(file[1]), min_size=1, max_size=4))
    payload = b"".join(one.SerializeToString() for one in parts)
    found = decode(file, [payload])
    assert rows(found) == [as_row(file[1].FromString(payload))]


@settings(deadline=None)
@given(st.data())
def test_any_bytes_are_decoded_as_google_does_or_refused(data: Any) -> None:
    file = data.draw(files())
    whole = data.draw(messages(file[1])).SerializeToString()
    damaged = bytearray(whole)
    for _ in range(data.draw(st.integers(1, 3)) if whole else 0):
        damaged[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    cut = whole[: data.draw(st.integers(0, len(whole)))]
    payloads = [bytes(damaged), cut, data.draw(st.binary(max_size=40)), None, whole]
    found = decode(file, payloads)
    bad = {one.row for one in found.undecodable}
    assert not bad & {3, 4}
    for row, (payload, got) in enumerate(zip(payloads, rows(found), strict=True)):
        try:
            expected = None if payload is None else file[1].FromString(payload)
        except DecodeError:
            assert row in bad
            continue
        if row not in bad and expected is not None:
            keep_map_entries(expected)
            try:
                wanted = as_row(expected)
            except (ValueError, OverflowError):  # a timestamp that Python does not have
                continue
            assert got == wanted or repr(got) == repr(wanted)  # NaN does not equal itself


@pytest.mark.parametrize(
    ("entry", "kept"),
    [
        (bytes.fromhex("4800 11 000000000000f03f"), {"f": [(0, 1.0)]}),
        (bytes.fromhex("0803 4800"), {"f": [(3, 0.0)]}),
        (b"", {"f": [(0, 0.0)]}),
    ],
)
def test_an_entry_of_a_map_is_kept_with_a_field_that_the_schema_lacks(
    entry: bytes, kept: dict[str, Any]
) -> None:
    file = map_of_doubles()
    payload = b"\x0a" + bytes([len(entry)]) + entry
    assert rows(decode(file, [payload])) == [kept]
    expected = file[1].FromString(payload)
    keep_map_entries(expected)
    assert as_row(expected) == kept


@settings(deadline=None)
@given(st.data(), st.sampled_from(["Struct", "Value", "ListValue"]))
def test_any_bytes_in_a_json_value_are_decoded_as_google_does_or_refused(
    data: Any, name: str
) -> None:
    kind = getattr(struct_pb2, name)
    whole = bytearray(data.draw(messages(kind)).SerializeToString())
    for _ in range(data.draw(st.integers(0, 3)) if whole else 0):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    schema = descriptor_pb2.FileDescriptorSet()
    struct_pb2.DESCRIPTOR.CopyToProto(schema.file.add())
    payloads: list[bytes | None] = [bytes(whole), bytes(whole) * 2, data.draw(st.binary())]
    found = decode((schema.SerializeToString(), kind), payloads)
    bad = {one.row for one in found.undecodable}
    for row, (payload, got) in enumerate(zip(payloads, rows(found), strict=True)):
        try:
            expected = kind.FromString(payload)
        except DecodeError:
            assert row in bad
        else:
            keep_map_entries(expected)
            assert row in bad or as_row(expected) == got


@pytest.mark.slow
def test_the_kernel_is_clean_under_sanitizers(tmp_path: Path) -> None:
    run_under_sanitizers(__file__, tmp_path)
