"""Files that executors write: layout, statistics, partitions, bounds on memory, failures."""

from __future__ import annotations

import datetime as dt
import json
import math
import subprocess
import sys
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq
import pytest

from rangeland.delta.parquet_files import data_files as files_module
from rangeland.delta.parquet_files.data_files import (
    ROW_GROUP_BYTES,
    FileWriter,
    FileWriterSettings,
    write_whole_file,
)
from rangeland.delta.parquet_files.file_statistics import StatsCollector, upper_prefix
from rangeland.delta.parquet_files.partition_values import escape, folder
from rangeland.delta.stores.store_access import StoreSettings
from rangeland.delta.table_metadata import Function, PartitionColumn, TableLayout
from rangeland.errors import StorageFailed, TableRefused
from rangeland.landing.execution.committer import null_time_warnings
from rangeland.model import DataFile
from rangeland.planning.slice_receipt import WrittenFile

HEADERS = pa.list_(
    pa.field("element", pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
)
ROWS = pa.schema(
    [
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("timestamp", pa.timestamp("us", "UTC")),
        pa.field("timestampType", pa.int32()),
        pa.field("headers", HEADERS),
    ]
)
MIDNIGHT = dt.datetime(2026, 3, 1, tzinfo=dt.UTC)


def rows(start: int, count: int, *, size: int = 20, minutes: float = 1.0) -> pa.RecordBatch:
    offsets = range(start, start + count)
    columns: list[Any] = [
        [None if o % 7 == 0 else b"k%d" % (o % 5) for o in offsets],
        [b"v" * size for _ in offsets],
        ["orders" for _ in offsets],
        [3 for _ in offsets],
        list(offsets),
        [MIDNIGHT + dt.timedelta(minutes=minutes * o) for o in offsets],
        [0 for _ in offsets],
        [[("h", b"1"), ("h", None)] if o % 2 else None for o in offsets],
    ]
    columns[7] = [h and [{"key": k, "value": v} for k, v in h] for h in columns[7]]
    return pa.record_batch(
        [pa.array(c, f.type) for c, f in zip(columns, ROWS, strict=True)], schema=ROWS
    )


def read(root: Path, files: Sequence[DataFile]) -> pa.Table:
    tables = [pq.ParquetFile(root / f.path).read() for f in files]
    return pa.concat_tables(tables).sort_by("offset")


def write(
    root: Path,
    batches: Sequence[pa.RecordBatch],
    layout: TableLayout,
    row_group_bytes: int = ROW_GROUP_BYTES,
    **settings: Any,
) -> list[DataFile]:
    file_settings = FileWriterSettings(StoreSettings(str(root)), layout, **settings)
    writer = FileWriter(file_settings, row_group_bytes=row_group_bytes)
    for batch in batches:
        writer.write(batch)
    return writer.close()


def test_row_groups_have_no_bounds_that_pass_over_a_nan(tmp_path: Path) -> None:
    """Spark orders NaN above all numbers, so such bounds would hide the row from its filters."""
    schema = pa.schema([("offset", pa.int64()), ("x", pa.float64()), ("y", pa.float32())])
    batch = pa.record_batch([[1, 2], [1.0, math.nan], [math.nan, 1.0]], schema=schema)
    (file,) = write(tmp_path, [batch], TableLayout(schema))
    group = pq.ParquetFile(tmp_path / file.path).metadata.row_group(0)
    offset, *floats = (group.column(i).statistics for i in range(3))
    assert (offset.min, offset.max) == (1, 2)
    assert not any(one is not None and one.has_min_max for one in floats)


@pytest.mark.parametrize("codec", ["zstd", "snappy", "none"])
def test_rows_come_back_as_they_were_given(tmp_path: Path, codec: str) -> None:
    batches = [rows(0, 500), rows(500, 300)]
    (file,) = write(tmp_path, batches, TableLayout(ROWS), compression=codec, name_prefix="7-2")
    assert read(tmp_path, [file]).equals(pa.Table.from_batches(batches))
    assert file.path.startswith("part-7-2-")
    assert file.path.endswith("parquet" if codec == "none" else f"{codec}.parquet")
    assert file.size_bytes == (tmp_path / file.path).stat().st_size
    assert file.rows == 800


def test_files_say_which_calendar_their_dates_are_of(tmp_path: Path) -> None:
    """As Spark does, by its version: one before 4.0 refuses dates before 1582 without it."""
    (file,) = write(tmp_path, [rows(0, 5)], TableLayout(ROWS))
    whole = tmp_path / "whole.parquet"
    write_whole_file(pafs.LocalFileSystem(), str(whole), pa.table({"offset": [1]}))
    for path in (tmp_path / file.path, whole):
        assert pq.read_metadata(path).metadata == {b"org.apache.spark.version": b"3.5.0"}


def test_zstd_compresses_as_hard_as_it_is_told(tmp_path: Path) -> None:
    batches = [rows(0, 5_000)]
    found = [
        write(tmp_path, batches, TableLayout(ROWS), compression_level=level)[0]
        for level in (-7, 1, 19)
    ]
    assert found[0].size_bytes > found[1].size_bytes > found[2].size_bytes
    assert all(read(tmp_path, [file]).equals(pa.Table.from_batches(batches)) for file in found)


def test_no_rows_make_no_file(tmp_path: Path) -> None:
    assert write(tmp_path, [rows(0, 0)], TableLayout(ROWS)) == []
    assert list(tmp_path.iterdir()) == []


def test_payload_has_no_dictionary_and_no_parquet_statistics(tmp_path: Path) -> None:
    (file,) = write(tmp_path, [rows(0, 1000)], TableLayout(ROWS))
    group = pq.ParquetFile(tmp_path / file.path).metadata.row_group(0)
    columns = {group.column(i).path_in_schema: group.column(i) for i in range(group.num_columns)}
    for name in ("key", "value"):
        assert not columns[name].has_dictionary_page
        assert columns[name].statistics is None
    assert columns["topic"].has_dictionary_page
    assert "DELTA_BINARY_PACKED" in columns["offset"].encodings
    assert columns["timestamp"].physical_type == "INT64"


def test_statistics_are_what_delta_keeps(tmp_path: Path) -> None:
    (file,) = write(tmp_path, [rows(10, 50), rows(60, 40)], TableLayout(ROWS))
    stats = json.loads(file.stats)
    assert stats["numRecords"] == 90
    assert stats["minValues"]["offset"] == 10
    assert stats["maxValues"]["offset"] == 99
    assert stats["minValues"]["topic"] == "orders"
    assert stats["minValues"]["timestamp"] == "2026-03-01T00:10:00.000Z"
    assert stats["maxValues"]["timestamp"] == "2026-03-01T01:39:00.000Z"
    assert "key" not in stats["minValues"]
    assert stats["nullCount"]["key"] == sum(o % 7 == 0 for o in range(10, 100))
    assert stats["nullCount"]["headers"] == 45


def stats_of(values: list[Any], kind: pa.DataType) -> tuple[Any, Any]:
    schema = pa.schema([pa.field("c", kind)])
    collector = StatsCollector(schema)
    for value in values:  # one at a time, so that bounds widen
        collector.add(pa.table({"c": pa.array([value], kind)}, schema=schema))
    stats = json.loads(collector.as_json())
    return stats["minValues"].get("c"), stats["maxValues"].get("c")


def test_an_upper_bound_of_instants_is_rounded_up() -> None:
    assert stats_of([1_001, 1_999], pa.timestamp("us", "UTC")) == (
        "1970-01-01T00:00:00.001Z",
        "1970-01-01T00:00:00.002Z",
    )
    assert stats_of([-1], pa.timestamp("us", "UTC"))[0] == "1969-12-31T23:59:59.999Z"


def test_instants_that_no_calendar_has_get_no_bounds() -> None:
    assert stats_of([2**62], pa.timestamp("us", "UTC")) == (None, None)


def test_a_nan_takes_the_bounds_away() -> None:
    assert stats_of([1.0, float("nan"), 2.0], pa.float64()) == (None, None)
    assert stats_of([1.5, 2.5], pa.float64()) == (1.5, 2.5)


def test_dictionary_columns_have_the_bounds_of_their_values() -> None:
    assert stats_of(["b", "a", None], pa.dictionary(pa.int32(), pa.string())) == ("a", "b")


@pytest.mark.parametrize(
    "text",
    ["x" * 33, "é" * 40, "a" * 32 + "\x7f" + "b", "z" * 32 + "\U0010ffff" + "a", "😀" * 33],
)
def test_a_cut_string_bound_is_never_below_the_string(text: str) -> None:
    bound = upper_prefix(text)
    assert bound is not None
    assert bound.encode() >= text.encode()
    assert len(bound) <= 65


def test_a_string_that_no_short_bound_exceeds_gets_none() -> None:
    assert upper_prefix("\U0010ffff" * 200) is None


def test_names_and_values_are_escaped_as_hive_does() -> None:
    assert escape("a b/c:d=e%") == "a b%2Fc%3Ad%3De%25"
    columns = (PartitionColumn("d", "d"), PartitionColumn("x", "x"))
    assert folder(columns, ("1", None)) == "d=1/x=__HIVE_DEFAULT_PARTITION__"


def test_a_partition_value_may_have_the_character_that_no_path_can_have(tmp_path: Path) -> None:
    schema = pa.schema([("s", pa.string()), ("offset", pa.int64())])
    batch = pa.record_batch([["a\0b", "a%00b"], [0, 1]], schema=schema)
    files = write(tmp_path, [batch], TableLayout(schema, (PartitionColumn("s", "s"),)))
    assert [file.partition_values for file in files] == [{"s": "a\0b"}, {"s": "a%00b"}]
    assert [Path(file.path).parent.name for file in files] == ["s=a%00b", "s=a%2500b"]
    assert read(tmp_path, files)["offset"].to_pylist() == [0, 1]


def test_rows_are_split_by_day_and_by_hour_in_utc(tmp_path: Path) -> None:
    by_day = TableLayout(ROWS, (PartitionColumn("date", "timestamp", Function.DATE),))
    days = write(tmp_path, [rows(0, 2000)], by_day)
    assert [f.partition_values["date"] for f in days] == ["2026-03-01", "2026-03-02"]
    assert [f.rows for f in days] == [1440, 560]
    assert all(f.path.startswith(f"date={f.partition_values['date']}/") for f in days)
    by_hour = TableLayout(ROWS, (PartitionColumn("hour", "timestamp", Function.HOUR),))
    hours = write(tmp_path, [rows(0, 120)], by_hour)
    assert hours[1].partition_values == {"hour": "2026-03-01T01:00:00.000000Z"}
    assert hours[1].path.startswith("hour=2026-03-01T01%3A00%3A00.000000Z/")
    assert read(tmp_path, hours).equals(pa.Table.from_batches([rows(0, 120)]))


def test_a_partition_column_of_the_rows_is_not_in_the_files(tmp_path: Path) -> None:
    mixed = rows(0, 100)
    mixed = mixed.set_column(0, pa.field("key", pa.string()), mixed["key"].cast(pa.string()))
    columns = (PartitionColumn("topic", "topic"), PartitionColumn("key", "key"))
    layout = TableLayout(mixed.schema, columns)
    files = write(tmp_path, [mixed], layout)
    assert "topic" not in read(tmp_path, files).column_names
    assert {f.partition_values["key"] for f in files} == {None, "k0", "k1", "k2", "k3", "k4"}
    for f in files:
        assert json.loads(f.stats)["numRecords"] == f.rows
    assert sorted(read(tmp_path, files)["offset"].to_pylist()) == list(range(100))


def test_shuffled_rows_are_gathered_per_partition(tmp_path: Path) -> None:
    table = rows(0, 600).take(pa.array([(i * 211) % 600 for i in range(600)]))
    layout = TableLayout(ROWS, (PartitionColumn("hour", "timestamp", Function.HOUR),))
    files = write(tmp_path, [table], layout)
    assert len(files) == 10
    assert read(tmp_path, files).equals(pa.Table.from_batches([rows(0, 600)]))


def test_open_files_are_bounded(tmp_path: Path) -> None:
    layout = TableLayout(ROWS, (PartitionColumn("offset", "offset"),))
    writer = FileWriter(FileWriterSettings(StoreSettings(str(tmp_path)), layout), max_open_files=4)
    writer.write(rows(0, 20))
    assert len(writer._open) == 4
    assert len(writer.close()) == 20


def test_files_roll_at_the_target_and_lose_nothing(tmp_path: Path) -> None:
    batches = [rows(i * 100, 100, size=1000) for i in range(20)]
    files = write(
        tmp_path, batches, TableLayout(ROWS), compression="none", target_file_bytes=300_000
    )
    assert len(files) > 3
    assert max(f.size_bytes for f in files) < 2 * 300_000
    assert read(tmp_path, files).equals(pa.Table.from_batches(batches))


def test_one_huge_batch_becomes_bounded_row_groups(tmp_path: Path) -> None:
    (file,) = write(
        tmp_path, [rows(0, 1000, size=10_000)], TableLayout(ROWS), row_group_bytes=1 << 20
    )
    meta = pq.ParquetFile(tmp_path / file.path).metadata
    assert meta.num_row_groups >= 9
    assert meta.num_rows == 1000


def test_narrow_numbers_and_other_spelling_are_fitted_to_the_table(tmp_path: Path) -> None:
    schema = pa.schema([pa.field("Offset", pa.int64()), pa.field("partition", pa.int64())])
    files = write(tmp_path, [rows(0, 5)], TableLayout(schema))
    table = pq.ParquetFile(tmp_path / files[0].path).read()
    assert table.schema.names == ["Offset", "partition"]
    assert table["partition"].to_pylist() == [3] * 5


def test_a_null_in_a_required_column_is_refused(tmp_path: Path) -> None:
    writer = FileWriter(
        FileWriterSettings(
            StoreSettings(str(tmp_path)), TableLayout(ROWS, required=frozenset(["key"]))
        )
    )
    with pytest.raises(TableRefused, match="2 rows have no key") as caught:
        writer.write(rows(0, 10))
    assert "the first is the record of orders/3 at offset 0" in str(caught.value)
    assert caught.value.facts["offset"] == 0
    writer.abort()


def test_abort_leaves_nothing_behind(tmp_path: Path) -> None:
    writer = FileWriter(
        FileWriterSettings(
            StoreSettings(str(tmp_path)),
            TableLayout(ROWS),
            compression="none",
            target_file_bytes=20_000,
        )
    )
    for i in range(10):
        writer.write(rows(i * 100, 100, size=500))
    assert len(list(tmp_path.iterdir())) > 1
    writer.abort()
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_said_with_path_and_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full")
    name = uuid.UUID(int=7)
    monkeypatch.setattr(files_module.uuid, "uuid4", lambda: name)
    (tmp_path / f"part-0-{name}.zstd.parquet").symlink_to("/dev/full")
    writer = FileWriter(FileWriterSettings(StoreSettings(str(tmp_path)), TableLayout(ROWS)))
    writer.write(rows(0, 1000))
    with pytest.raises(StorageFailed, match="no room for the next") as caught:
        writer.close()
    assert caught.value.facts["path"].startswith(str(tmp_path))
    assert caught.value.exit_code == 75
    writer.abort()
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_a_file_is_said_so(tmp_path: Path) -> None:
    (tmp_path / "table").write_text("not a folder")
    writer = FileWriter(
        FileWriterSettings(StoreSettings(str(tmp_path / "table")), TableLayout(ROWS))
    )
    writer.write(rows(0, 10))
    with pytest.raises(StorageFailed, match=r"could not write .*table"):
        writer.close()


def test_the_executors_side_imports_neither_spark_nor_py4j() -> None:
    code = (
        "import sys, rangeland.delta.parquet_files.data_files, rangeland.delta.table_metadata; "
        "print([m for m in sys.modules if m.split('.')[0] in ('py4j', 'pyspark', 'pydantic')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# --- times that no calendar has ---------------------------------------------------------


def at_micros(*micros: int | None) -> pa.RecordBatch:
    some = rows(0, len(micros))
    times = pa.array(micros, pa.int64()).cast(ROWS.field("timestamp").type)
    return some.set_column(ROWS.get_field_index("timestamp"), ROWS.field("timestamp"), times)


LAST = 253_402_300_799_999_999  # of the year 9999
FIRST = -62_135_596_800_000_000  # of the year 1


@pytest.mark.parametrize("function", [Function.DATE, Function.HOUR, Function.VALUE])
@pytest.mark.parametrize("bad", [LAST + 1, FIRST - 1, (1 << 63) - 1, -1 << 63])
def test_a_time_outside_of_the_calendar_lands_in_the_partition_of_null(
    tmp_path: Path, function: Function, bad: int
) -> None:
    layout = TableLayout(ROWS, (PartitionColumn("at", "timestamp", function),))
    given = at_micros(0, bad, LAST, None, FIRST)
    files = write(tmp_path, [given], layout)
    null_files = [f for f in files if f.partition_values == {"at": None}]
    assert sum(f.rows for f in null_files) == 2
    assert all(f.path.startswith("at=__HIVE_DEFAULT_PARTITION__/") for f in null_files)
    assert len({f.partition_values["at"] for f in files}) == 4
    found = read(tmp_path, files)
    if function is not Function.VALUE:
        assert found.equals(pa.Table.from_batches([given]))
        entries = [WrittenFile(f) for f in files]
        (said,) = null_time_warnings(entries, layout)
        assert said.startswith("2 records have no timestamp, or one outside the years 1 to 9999")


def test_statistics_of_times_outside_of_the_calendar_have_no_bound_there(tmp_path: Path) -> None:
    (file,) = write(tmp_path, [at_micros(0, (1 << 63) - 1)], TableLayout(ROWS))
    stats = json.loads(file.stats)
    assert stats["minValues"]["timestamp"] == "1970-01-01T00:00:00.000Z"
    assert "timestamp" not in stats["maxValues"]


def test_days_outside_of_the_calendar_are_null(tmp_path: Path) -> None:
    schema = pa.schema([pa.field("day", pa.date32()), pa.field("n", pa.int64())])
    days = pa.array([0, 2_932_897, -719_163, (1 << 31) - 1], pa.int32()).cast(pa.date32())
    batch = pa.record_batch([days, pa.array(range(4))], schema=schema)
    files = write(tmp_path, [batch], TableLayout(schema, (PartitionColumn("day", "day"),)))
    assert {f.partition_values["day"]: f.rows for f in files} == {"1970-01-01": 1, None: 3}
