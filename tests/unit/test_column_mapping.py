"""Column mapping: which numbers and names columns have in files, and how rows get them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rangeland.delta.parquet_files.data_files import FileWriter, FileWriterSettings
from rangeland.delta.stores.store_access import StoreSettings
from rangeland.delta.table_metadata import TableMetadata
from rangeland.delta.table_schema.arrow_schema import schema_json
from rangeland.delta.table_schema.column_mapping import (
    HIGHEST_ID_PROPERTY,
    ID,
    NESTED_IDS,
    PHYSICAL_NAME,
    highest_id,
    lacked_field,
    map_columns,
    shown_schema,
    stored_column,
    stored_schema,
)
from rangeland.delta.table_schema.schema_compatibility import row_layout
from rangeland.delta.table_schema.schema_evolution import Evolution, evolve_schema, follow
from rangeland.delta.transaction_log.delta_kernel import DeltaKernel
from rangeland.delta.transaction_log.table_commit import change_of
from rangeland.delta.transaction_log.table_snapshot import Snapshot
from rangeland.errors import StorageFailed
from rangeland.model import DataFile
from tests.unit.test_delta_files import ROWS, rows

NAME = {"delta.columnMapping.mode": "name", HIGHEST_ID_PROPERTY: "40"}


def numbered(fields: list[dict[str, Any]], start: int = 1) -> list[dict[str, Any]]:
    """The fields of a table in which Spark has given each a number and a name."""
    found = []
    for number, field in enumerate(fields, start):
        facts = {ID: number, PHYSICAL_NAME: f"p{number}"}
        kind = field["type"]
        if isinstance(kind, dict) and kind["type"] == "array":
            inner = numbered(kind["elementType"]["fields"], 20)
            kind = kind | {"elementType": kind["elementType"] | {"fields": inner}}
        found.append(field | {"type": kind, "metadata": facts})
    return found


def table(*features: str, partition_by: tuple[str, ...] = (), **more: str) -> TableMetadata:
    fields = numbered(json.loads(schema_json(ROWS))["fields"])
    text = json.dumps({"type": "struct", "fields": fields})
    names = frozenset({"columnMapping", *features})
    return TableMetadata("file:/t", 3, text, partition_by, NAME | more, names, "id")


def test_files_have_the_physical_names_and_numbers(tmp_path: Path) -> None:
    layout = row_layout(table(partition_by=("topic",)), ROWS).layout
    writer = FileWriter(FileWriterSettings(StoreSettings(str(tmp_path)), layout))
    writer.write(rows(0, 10).slice(3))
    (file,) = writer.close()
    schema = pq.read_schema(tmp_path / file.path)
    names = [f"p{n}" for n, f in enumerate(ROWS.names, 1) if f != "topic"]
    assert schema.names == names
    ids = [int(schema.field(n).metadata[b"PARQUET:field_id"]) for n in names]
    assert [f"p{n}" for n in ids] == names
    headers = schema.field("p8").type.value_type
    assert [f.name for f in headers] == ["p20", "p21"]
    assert headers.field(0).metadata[b"PARQUET:field_id"] == b"20"
    (topic,) = {row["topic"] for row in rows(0, 1).to_pylist()}
    assert file.partition_values == {"p3": topic}
    stats = json.loads(file.stats)
    assert (stats["minValues"]["p5"], stats["maxValues"]["p5"]) == (3, 9)
    assert set(stats["nullCount"]) == set(names)
    stored = pq.ParquetFile(tmp_path / file.path).read()
    assert stored.column("p5").to_pylist() == list(range(3, 10))
    expected = rows(0, 10).slice(3).column("headers").to_pylist()
    found = stored.column("p8").to_pylist()
    assert [[[*h.values()] for h in row or ()] for row in found] == [
        [[*h.values()] for h in row or ()] for row in expected
    ]


def test_schemas_for_reading_have_the_names_of_files_or_of_sql() -> None:
    text = table().schema_json
    assert [f["name"] for f in json.loads(stored_schema(text))["fields"]][:2] == ["p1", "p2"]
    assert json.loads(shown_schema(text)) == json.loads(schema_json(ROWS))
    assert stored_column(text, "Topic") == "p3"
    assert stored_column(schema_json(ROWS), "topic") == "topic"


def test_without_mapping_nothing_is_numbered() -> None:
    plain = TableMetadata("file:/t", 1, schema_json(ROWS))
    assert map_columns(plain, schema_json(ROWS)) == schema_json(ROWS)
    assert highest_id(schema_json(ROWS)) == 0


MORE = pa.schema(
    [*ROWS, pa.field("at", pa.struct([("x", pa.int32()), ("y", pa.list_(pa.int8()))]))]
)


def test_new_columns_get_new_numbers_and_each_driver_chooses_the_same() -> None:
    columns = map_columns(table(), schema_json(MORE))
    assert columns == map_columns(table(), schema_json(MORE))
    *old, new = json.loads(columns)["fields"]
    assert old == json.loads(table().schema_json)["fields"]
    assert new["metadata"][ID] == 41
    assert [f["metadata"][ID] for f in new["type"]["fields"]] == [42, 43]
    names = {new["metadata"][PHYSICAL_NAME]}
    names |= {f["metadata"][PHYSICAL_NAME] for f in new["type"]["fields"]}
    assert len(names) == 3
    # A column that was dropped does not come back with its old values.
    later = replace(table(), configuration=NAME | {HIGHEST_ID_PROPERTY: "43"})
    again = json.loads(map_columns(later, schema_json(MORE)))["fields"][-1]["metadata"]
    assert again[ID] == 44
    assert again[PHYSICAL_NAME] not in names


def test_iceberg_also_numbers_what_has_no_field_of_its_own(tmp_path: Path) -> None:
    iceberg = table("icebergCompatV2")
    new = json.loads(map_columns(iceberg, schema_json(MORE)))["fields"][-1]["type"]["fields"][1]
    assert new["metadata"][NESTED_IDS] == {f"{new['metadata'][PHYSICAL_NAME]}.element": 45}
    after, written = follow(iceberg, MORE, Evolution.ADD, ())
    layout = row_layout(after, written).layout
    writer = FileWriter(FileWriterSettings(StoreSettings(str(tmp_path)), layout))
    batch = rows(0, 2)
    more = pa.array([{"x": 1, "y": [2]}, None], MORE.field("at").type)
    writer.write(pa.RecordBatch.from_arrays([*batch.columns, more], schema=MORE))
    (file,) = writer.close()
    inner = pq.read_schema(tmp_path / file.path)[-1].type
    assert inner.field(1).type.value_field.metadata[b"PARQUET:field_id"] == b"45"


def test_files_fit_only_if_the_table_has_their_numbers_or_never_had_them() -> None:
    columns = map_columns(table(), schema_json(MORE))

    def misfits(now: TableMetadata, highest: int) -> list[str]:
        change = evolve_schema(now.schema_json, columns, are_written=True, highest_id=highest)
        return [one.field for one in change.misfits]

    assert misfits(table(), 40) == []
    change = evolve_schema(table().schema_json, columns, highest_id=40)
    assert highest_id(change.schema_json) == 43
    # Another commit has used the number, or added the column under a name of its own.
    assert misfits(table(), 41) == ["at"]
    other = json.loads(columns)
    other["fields"][-1]["metadata"] |= {PHYSICAL_NAME: "other"}
    theirs = replace(table(), schema_json=json.dumps(other))
    assert misfits(theirs, 43) == ["at"]
    # The table has no mapping any more.
    assert "at" in misfits(TableMetadata("file:/t", 1, schema_json(ROWS)), 0)
    # It has one by now, and the files do not.
    plain = evolve_schema(table().schema_json, schema_json(MORE), are_written=True, highest_id=40)
    assert [one.field for one in plain.misfits] == ["at"]


# --- files of a table that does not follow them -------------------------------------------------


def prepared(folder: Path, metadata: TableMetadata) -> list[DataFile]:
    """Files for a table, as a job prepares them whose columns the table does not follow."""
    layout = row_layout(metadata, ROWS).layout
    writer = FileWriter(FileWriterSettings(StoreSettings(str(folder)), layout))
    writer.write(rows(0, 10))
    return writer.close()


def misfits_of(folder: Path, files: list[DataFile], now: TableMetadata) -> list[str]:
    snapshot = SimpleNamespace(
        path=str(folder), schema_json=now.schema_json, property=now.configuration.get
    )
    kernel = SimpleNamespace(storage=StoreSettings)
    change = change_of(cast(DeltaKernel, kernel), cast(Snapshot, snapshot), "", files)
    assert not change.is_any
    return [one.field for one in change.misfits]


def with_field(now: TableMetadata, column: str, **facts: Any) -> TableMetadata:
    """The table after a change of one field."""
    fields = json.loads(now.schema_json)["fields"]
    changed = [f | facts if f["name"] == column else f for f in fields]
    return replace(now, schema_json=json.dumps({"type": "struct", "fields": changed}))


def test_files_do_not_fit_once_a_column_of_theirs_was_dropped_and_added(tmp_path: Path) -> None:
    files = prepared(tmp_path, table())
    assert misfits_of(tmp_path, files, table()) == []
    renamed = with_field(table(), "value", name="payload")
    assert misfits_of(tmp_path, files, renamed) == []
    (old,) = (f for f in json.loads(table().schema_json)["fields"] if f["name"] == "value")
    again = with_field(table(), "value", metadata={ID: 41, PHYSICAL_NAME: "p41"})
    assert misfits_of(tmp_path, files, again) == [old["metadata"][PHYSICAL_NAME]]
    unmapped = TableMetadata(
        "file:/t", 1, schema_json(ROWS), configuration={"delta.columnMapping.mode": "none"}
    )
    assert misfits_of(tmp_path, prepared(tmp_path, unmapped), unmapped) == []
    assert misfits_of(tmp_path, files, unmapped) == ["p1"]


def test_files_that_others_have_removed_or_broken_fit_no_table(tmp_path: Path) -> None:
    """Those that are gone are found when they are committed."""
    gone, broken = *prepared(tmp_path, table()), *prepared(tmp_path, table())
    (tmp_path / gone.path).unlink()
    assert misfits_of(tmp_path, [gone], table()) == []
    (tmp_path / broken.path).write_bytes(b"?" * broken.size_bytes)
    with pytest.raises(StorageFailed, match="could not read the prepared file"):
        misfits_of(tmp_path, [broken], table())


INNER = pa.struct([("x", pa.int32()), ("y", pa.list_(pa.struct([("z", pa.int8())])))])


@pytest.mark.parametrize(
    ("in_table", "in_files", "lacked"),
    [
        (INNER, INNER, None),
        (INNER, pa.struct([INNER.field("x")]), None),
        (pa.struct([INNER.field("x")]), INNER, "at.y"),
        (pa.struct([("y", pa.list_(pa.struct([("q", pa.int8())])))]), INNER, "at.x"),
        (
            pa.struct([("x", pa.int64()), ("y", pa.list_(pa.struct([("q", pa.int8())])))]),
            INNER,
            "at.y.element.z",
        ),
        (pa.map_(pa.string(), INNER), pa.map_(pa.string(), INNER), None),
        (
            pa.map_(pa.string(), pa.struct([("x", pa.int32())])),
            pa.map_(pa.string(), INNER),
            "at.value.y",
        ),
        (pa.int32(), INNER, "at.x"),
    ],
)
def test_nested_fields_are_looked_for_where_they_are(
    in_table: pa.DataType, in_files: pa.DataType, lacked: str | None
) -> None:
    text = schema_json(pa.schema([pa.field("at", in_table), pa.field("b", pa.int32())]))
    found = lacked_field(text, pa.schema([pa.field("at", in_files)]))
    assert (None if found is None else found.name) == lacked
