"""The Avro decoder against fastavro: any schema, any value, any later version, and any bytes."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from rangeland.decode.payload.avro import avro_format
from rangeland.decode.payload.avro.avro_format import AvroFormat, unreadable_fields
from rangeland.decode.payload.payload_decoder import DecodedPayloads
from rangeland.decode.payload.payload_kernel import PayloadKernel
from tests.avro_values import as_row, encoded, later_versions, records, schemas, sorted_maps, values
from tests.property.sanitizers import kernel_library, run_under_sanitizers


@pytest.fixture(autouse=True, scope="module")
def _kernel_under_test() -> Any:
    patch = pytest.MonkeyPatch()
    patch.setattr(avro_format, "PayloadKernel", lambda: PayloadKernel(kernel_library()))
    yield
    patch.undo()


def decode(reader: Any, payloads: list[bytes | None], writer: Any = None) -> DecodedPayloads:
    form = AvroFormat(json.dumps(reader), writer_schema=json.dumps(writer) if writer else "")
    found = form.decoder().decode(pa.array(payloads, pa.binary()))
    found.values.validate(full=True)
    assert found.values.type == form.arrow_type
    assert len(found.values) == len(payloads)
    return found


def rows(schema: Any, found: DecodedPayloads) -> list[Any]:
    return [sorted_maps(schema, row) for row in found.values.to_pylist()]


@settings(deadline=None)
@given(st.data())
def test_values_are_those_that_were_written(data: Any) -> None:
    schema = data.draw(st.one_of(records(), schemas()))
    written = data.draw(st.lists(values(schema), max_size=8))
    found = decode(schema, [encoded(schema, value) for value in written])
    assert not found.undecodable
    assert rows(schema, found) == [as_row(schema, value) for value in written]


@settings(deadline=None)
@given(st.data())
def test_a_payload_must_end_where_its_last_value_ends(data: Any) -> None:
    schema = data.draw(records())
    whole = encoded(schema, data.draw(values(schema)))
    neighbour = encoded(schema, data.draw(values(schema)))
    assume(whole and neighbour)
    cuts = data.draw(st.lists(st.integers(0, len(whole) - 1), max_size=5))
    longer = [whole + b"\0", whole + neighbour, whole + data.draw(st.binary(min_size=1))]
    payloads = [whole, None, *(whole[:cut] for cut in cuts), *longer, neighbour]
    found = decode(schema, payloads)
    bad = range(2, 2 + len(cuts) + len(longer))
    assert [one.row for one in found.undecodable] == list(bad)
    assert all(found.values.is_valid().to_pylist()[at] is (at not in (1, *bad)) for at in bad)
    good = decode(schema, [whole, neighbour]).values
    assert found.values.take(pa.array([0, len(payloads) - 1])).equals(good)


@settings(deadline=None)
@given(st.data())
def test_other_schemas_are_resolved_as_fastavro_does(data: Any) -> None:
    writer = data.draw(records(logical=False))
    reader = data.draw(later_versions(writer))
    written = data.draw(st.lists(values(writer), max_size=6))
    payloads = [encoded(writer, value) for value in written]
    found = decode(reader, payloads, writer)
    bad = {one.row for one in found.undecodable}
    unreadable = unreadable_fields(json.dumps(writer), json.dumps(reader))
    if bad:
        assert unreadable or any("UTF-8" in one.reason for one in found.undecodable)
    parsed = fastavro.parse_schema(writer), fastavro.parse_schema(reader)
    for row, payload, got in zip(range(len(payloads)), payloads, rows(reader, found), strict=True):
        try:
            expected = fastavro.schemaless_reader(io.BytesIO(payload), *parsed)
        except fastavro.read.SchemaResolutionError:
            # fastavro looks at the items' type even where there are no items.
            assert row in bad or (unreadable and _has_empty_container(written[row]))
        except UnicodeDecodeError:
            assert row in bad
        else:
            assert row not in bad, found.undecodable
            assert got == as_row(reader, expected)


def _has_empty_container(value: Any) -> bool:
    if isinstance(value, dict):
        return not value or any(map(_has_empty_container, value.values()))
    return isinstance(value, list) and (not value or any(map(_has_empty_container, value)))


@settings(deadline=None)
@given(st.data())
def test_any_bytes_are_decoded_as_fastavro_does_or_refused(data: Any) -> None:
    schema = data.draw(records(logical=False))
    whole = encoded(schema, data.draw(values(schema)))
    damaged = bytearray(whole)
    for _ in range(data.draw(st.integers(0, 3)) if whole else 0):
        damaged[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    payloads = [bytes(damaged), data.draw(st.binary(max_size=60)), b"\xff" * 12]
    found = decode(schema, payloads)
    bad = {one.row for one in found.undecodable}
    parsed = fastavro.parse_schema(schema)
    for row, payload, got in zip(range(3), payloads, rows(schema, found), strict=True):
        if row not in bad:
            stream = io.BytesIO(payload)
            expected = fastavro.schemaless_reader(stream, parsed, None)
            assert stream.tell() == len(payload)
            assert repr(got) == repr(as_row(schema, expected))


@pytest.mark.slow
def test_the_kernel_is_clean_under_sanitizers(tmp_path: Path) -> None:
    run_under_sanitizers(__file__, tmp_path)
