"""Which files of a ledger are written into one, and that few rows are written again."""

from __future__ import annotations

import json

import pytest

from rangeland.delta.ledger import compaction
from rangeland.delta.ledger.compaction import to_compact
from rangeland.delta.ledger.event_codec import SCHEMA, is_complete
from rangeland.delta.table_metadata import AddedFile
from rangeland.delta.table_schema.arrow_schema import schema_json


def file(name: str, rows: int = 1, at_ms: int = 0, size_bytes: int = 1_000) -> AddedFile:
    return AddedFile(name, size_bytes, at_ms, json.dumps({"numRecords": rows}), {})


def single(count: int) -> list[AddedFile]:
    return [file(f"part-ledger-plan-{n}.parquet", at_ms=n) for n in range(count)]


@pytest.fixture(autouse=True)
def few_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction, "MANY", 10)
    monkeypatch.setattr(compaction, "NEWEST", 4)


def test_the_older_ones_of_many_files_are_compacted() -> None:
    assert to_compact(single(9)) == []
    assert to_compact(list(reversed(single(12)))) == single(8)


def test_what_others_have_written_stays() -> None:
    assert to_compact([*single(12), file("part-00000-optimized.parquet", 500)]) == single(8)


def test_a_file_takes_in_those_with_no_more_rows_than_it_has() -> None:
    small, large = file("compacted-ledger-a", 8), file("compacted-ledger-b", 16)
    larger = file("compacted-ledger-c", 33)
    assert to_compact([larger, large, small, *single(12)]) == [*single(8), small, large]
    full = file("compacted-ledger-d", 8, size_bytes=compaction.LARGE_BYTES)
    assert to_compact([full, *single(12)]) == single(8)


def test_a_row_is_written_as_often_as_the_logarithm_of_their_number() -> None:
    files: list[AddedFile] = []
    written = 0
    for number in range(4_000):
        files.append(file(f"part-ledger-plan-{number}.parquet", at_ms=number))
        if old := to_compact(files):
            rows = sum(map(compaction.recorded_rows, old))
            written += rows
            files = [f for f in files if f not in old] + [file(f"compacted-ledger-{number}", rows)]
    assert len(files) < 10 + 12
    assert written < 4_000 * 12


@pytest.mark.parametrize("stats", [None, "{", '{"numRecords": "1"}'])
def test_statistics_that_say_nothing_are_no_rows(stats: str | None) -> None:
    assert compaction.recorded_rows(AddedFile("part-ledger-plan-1", 1, 1, stats, {})) == 0


def test_a_ledger_with_other_columns_is_not_complete() -> None:
    assert is_complete(schema_json(SCHEMA))
    assert not is_complete(schema_json(SCHEMA.remove(3)))
    document = json.loads(schema_json(SCHEMA))
    document["fields"].append({**document["fields"][0], "name": "of a later version"})
    assert not is_complete(json.dumps(document))
