"""What a sample of values says about them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from rangeland.cli.query_commands import write_schema
from rangeland.cluster_settings import ClusterSettings
from rangeland.decode.payload.json.json_format import JsonFormat
from rangeland.decode.payload.row_format import RowFormat
from rangeland.decode.payload.schema_ddl import parse_ddl
from rangeland.decode.payload.schema_ids.schema_catalogue import SchemaCatalogue
from rangeland.errors import UsageError
from rangeland.fetch.read_settings import ReadSettings
from rangeland.fetch.slice_chunks import ReadChunk, SliceChunk
from rangeland.model import Address, Counts, Leader, LogState, Partition, Slice
from rangeland.queries import payload_sample
from rangeland.queries.payload_sample import newest_records, shown_rows
from rangeland.query_results import SampleResult
from rangeland.render.sample_view import render_sample
from rangeland.schema_registry.executor_schemas import ExecutorSchemas
from tests.unit.test_render import rendered

JSON = [b'{"id": 1, "name": "a"}', b'{"id": 2}']
FRAMED = b"\0\0\0\0\x07body"


def batch(values: list[bytes | None]) -> pa.RecordBatch:
    """Rows of one topic, without the columns that a sample does not need."""
    topics = pa.array(["t"] * len(values))
    return pa.record_batch(
        {
            "key": pa.nulls(len(values), pa.binary()),
            "value": pa.array(values, pa.binary()),
            "topic": topics,
        }
    )


def described(values: list[bytes | None], row_format: RowFormat | None = None) -> SampleResult:
    schemas = ExecutorSchemas(SchemaCatalogue())
    return payload_sample.describe_rows([batch(values)] if values else [], schemas, row_format)


def values_of(rows: list[pa.RecordBatch]) -> list[Any]:
    return [value for one in rows for value in one.column("value").to_pylist()]


def test_values_are_counted_by_what_they_are() -> None:
    found = described([*JSON, FRAMED, FRAMED, b"plain", b"\xff", b"\0", None])
    assert found.to_json() == {
        "records": 8,
        "formats": {"json": 2, "framed": 2, "text": 1, "bytes": 2, "null": 1},
        "schemas": [{"id": 7, "subject": None, "records": 2}],
        "schema": "id BIGINT, name STRING",
    }
    assert [field.path for field in found.fields] == ["id", "name"]


def test_logs_are_read_together_unless_their_newest_records_cannot_be_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[list[tuple[int, int]]] = []

    def read(slices: list[Slice], settings: ReadSettings) -> Iterator[SliceChunk]:
        asked.append([(one.from_offset, one.until_offset) for one in slices])
        for one in slices:
            values = [b"%d" % n for n in range(one.from_offset, min(one.until_offset, 20))]
            counts = Counts(landed=len(values))
            yield ReadChunk(one.index, one.from_offset, one.until_offset, counts, batch(values))

    monkeypatch.setattr(payload_sample, "read_slices", read)
    leader = Leader(Address("b", 1))
    whole = [LogState(Partition("t", n), leader, n, 10 * n) for n in range(3)]
    cut = [replace(log, borders=(log.start_offset,)) for log in whole]
    settings = ReadSettings(ClusterSettings("kafka", (Address("b", 1),)))
    assert values_of(newest_records(whole, settings, 4)) == [
        *(b"6", b"7", b"8", b"9"),
        *(b"16", b"17", b"18", b"19"),
    ]
    assert asked == [[(6, 10), (16, 20)]]
    asked.clear()
    assert values_of(newest_records(cut, settings, 2)) == [b"1", b"2", b"2", b"3"]
    assert asked == [[(1, 10)], [(2, 20)]]


def test_the_schema_is_written_as_a_job_file_can_name_it(tmp_path: Path) -> None:
    write_schema(described(list(JSON)), tmp_path / "o.ddl")
    assert (tmp_path / "o.ddl").read_text() == "id BIGINT, name STRING\n"
    with pytest.raises(UsageError, match="there is no schema to write"):
        write_schema(described([b"plain"]), tmp_path / "o.ddl")
    with pytest.raises(UsageError, match="cannot be written"):
        write_schema(described(list(JSON)), tmp_path / "gone" / "o.ddl")


def test_it_is_drawn_with_how_often_each_field_was_there() -> None:
    text = rendered(render_sample(described([*JSON, FRAMED])))
    assert "3 records: 2 json, 1 framed" in text
    assert "schema 7: 1 record" in text
    assert "id BIGINT, name STRING" in text
    assert "1/2" in text


def test_it_says_what_to_do_with_the_fields() -> None:
    found = described(list(JSON))
    text = rendered(render_sample(found))
    assert "write them to a file with --out orders.ddl" in text
    text = rendered(render_sample(found, "views.ddl"))
    assert "views.ddl now has these fields" in text
    assert "schema: views.ddl}}" in text
    assert "--out" not in text


def test_decoded_values_are_drawn_as_a_table_of_their_first_fields() -> None:
    fields = ", ".join(f"f{n} STRING" for n in range(9))
    form = RowFormat(value=JsonFormat(parse_ddl(fields)))
    text = rendered(render_sample(described([b'{"f0": "%s", "f5": "e"}' % (b"x" * 50)], form)))
    (heading,) = [line.split() for line in text.splitlines() if "+ 3 more" in line]
    assert heading == ["f0", "f1", "f2", "f3", "f4", "f5", "+", "3", "more"]
    (row,) = [line.split() for line in text.splitlines() if "xxx" in line]
    assert row == ["x" * 17 + "...", *["null"] * 4, "e", "..."]


def test_values_of_all_kinds_are_drawn_as_they_are_written() -> None:
    fields = "price DECIMAL(10,2), day DATE, paid BOOLEAN, amount DOUBLE, tags ARRAY<STRING>"
    payload = b'{"price": 7.5, "day": "2026-01-02", "paid": true, "amount": 0.5, "tags": ["a"]}'
    (row,) = described([payload], RowFormat(value=JsonFormat(parse_ddl(fields)))).rows
    assert row == {
        "price": "7.50",
        "day": "2026-01-02",
        "paid": "true",
        "amount": "0.5",
        "tags": '["a"]',
    }


def test_the_next_step_is_named_where_nothing_is_decoded_yet() -> None:
    text = rendered(render_sample(described(list(JSON))))
    assert "decode: {value: {format: json, schema: orders.ddl}}" in text


def test_nothing_is_a_response() -> None:
    assert described([]).to_json() == {"records": 0, "formats": {}, "schemas": [], "schema": ""}


def test_values_are_shown_escaped_and_cut() -> None:
    lines = list(shown_rows(described([b"\x1b[31m", None, b"x" * 200])))
    assert lines[0] == "\\x1b[31m"
    assert lines[1] == "null"
    assert len(lines[2]) == 100


def test_values_are_shown_as_the_job_decodes_them() -> None:
    for is_flat in (False, True):
        form = RowFormat(value=JsonFormat(parse_ddl("id BIGINT NOT NULL")), is_flat=is_flat)
        found = described([JSON[1], None, b"{}"], form)
        assert found.rows[0] == {"id": "2"}
        assert str(found.rows[2]).startswith("undecodable value: ")
        assert found.undecodable == 1
        text = rendered(render_sample(found))
        assert "undecodable: 1 record" in text
        assert "undecodable value: " in text
        assert "orders.ddl" not in text
    assert described([b"x"], RowFormat(value=form.value)).schema == "id BIGINT NOT NULL"
