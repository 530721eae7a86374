"""Files that are gone while Spark reads: whether their rows may be left out is never up to the
session, which is the user's, and in which other threads read.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rangeland.decode.columns import PLAIN_COLUMNS
from rangeland.delta.table_schema.table_constraints import TableConstraint
from rangeland.delta.transaction_log.delta_kernel import DeltaKernel
from rangeland.errors import EngineFailed, StorageFailed
from rangeland.model import DataFile, Partition
from rangeland.planning.plan import PlanId
from rangeland.spark import offset_scan
from rangeland.spark.constraint_query import first_violation
from rangeland.spark.offset_scan import intervals_in, table_frame
from rangeland.spark.replace_where import compare, prepared_frame, replace_rows

pytestmark = pytest.mark.spark

MISSING = "spark.sql.files.ignoreMissingFiles"
CORRUPT = "spark.sql.files.ignoreCorruptFiles"
ROWS = "topic STRING, partition INT, offset BIGINT"
PATIENCE_S = 120
ALL = [0, 1, 2, 3, 4, 5]


@pytest.fixture
def ignoring(spark: Any) -> Any:
    """A user's session, which ignores what is missing or damaged."""
    session = spark.newSession()
    session.conf.set(MISSING, "true")
    session.conf.set(CORRUPT, "true")
    return session


@pytest.fixture
def landed(spark: Any, table: str) -> str:
    """A table with offsets 0 to 2 in one file, and 3 to 5 in another."""
    spark.sql(f"CREATE TABLE delta.`{table}` ({ROWS}) USING delta")
    for first in (0, 3):
        rows = ", ".join(f"('a', 0, {n})" for n in range(first, first + 3))
        spark.sql(f"INSERT INTO delta.`{table}` SELECT /*+ COALESCE(1) */ * FROM VALUES {rows}")
    return table


def prepared(table: str, name: str, *offsets: int) -> DataFile:
    count = len(offsets)
    columns = [["a"] * count, pa.array([0] * count, pa.int32()), [*offsets]]
    rows = pa.table(columns, ["topic", "partition", "offset"])
    pq.write_table(rows, Path(table) / name)
    return DataFile(name, 0, count, "{}", 0)


def file_of(spark: Any, table: str, offset: int) -> Path:
    frame = spark.read.format("delta").load(table).where(f"offset = {offset}")
    (uri,) = {row[0] for row in frame.select("_metadata.file_path").collect()}
    return Path(table) / uri.rpartition("/")[2]


def offsets(spark: Any, table: str) -> list[int]:
    return sorted(row.offset for row in spark.read.format("delta").load(table).collect())


def schema_of(kernel: DeltaKernel, table: str) -> str:
    snapshot = kernel.load(table)
    assert snapshot is not None
    return snapshot.schema_json


def test_two_scans_at_once_leave_the_session_as_it_is(
    spark: Any, landed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second begins while the first reads, and ends after it."""
    file_of(spark, landed, 4).unlink()
    both_read, first_has_ended = Event(), Event()
    collect = offset_scan.collect_rows
    settings = []

    def collect_first(frame: Any) -> pa.Table:
        settings.append(spark.conf.get(MISSING, None))
        assert both_read.wait(PATIENCE_S)
        return collect(frame)

    def collect_second(frame: Any) -> pa.Table:
        settings.append(spark.conf.get(MISSING, None))
        both_read.set()
        assert first_has_ended.wait(PATIENCE_S)
        return collect(frame)

    calls = iter((collect_first, collect_second))
    monkeypatch.setattr(offset_scan, "collect_rows", lambda frame: next(calls)(frame))
    before = spark.conf.get(MISSING, None)
    with ThreadPoolExecutor(2) as threads:
        scans = []
        for _ in range(2):
            scans.append(threads.submit(intervals_in, table_frame(spark, landed)))
            while len(settings) < len(scans) and not scans[-1].done():
                Event().wait(0.01)
        found = [scans[0].result()]
        first_has_ended.set()
        found.append(scans[1].result())
    assert [*settings, spark.conf.get(MISSING, None)] == [before] * 3
    for intervals in found:
        starts, ends = intervals[Partition("a", 0)]
        assert (starts.tolist(), ends.tolist()) == ([0], [3])


def test_a_scan_changes_neither_the_active_session_nor_what_makes_frames_of_rdds(
    spark: Any, landed: str
) -> None:
    def sessions() -> list[Any]:
        active = type(spark).getActiveSession()
        frame = spark.sparkContext.parallelize([(1,)]).toDF("n INT")
        return [active._jsparkSession, frame.sparkSession._jsparkSession]

    sessions()  # making a frame of an RDD makes its session the active one
    before = sessions()
    intervals_in(table_frame(spark, landed))
    after = sessions()
    assert [one.equals(other) for one, other in zip(after, before, strict=True)] == [True, True]


def test_nothing_is_committed_without_a_prepared_file(
    spark: Any, ignoring: Any, kernel: DeltaKernel, landed: str
) -> None:
    """It disappears after all checks, in a session that ignores missing files."""
    files = [prepared(landed, "new-1.parquet", 3, 4), prepared(landed, "new-2.parquet", 5)]
    frame = prepared_frame(ignoring, landed, files, schema_of(kernel, landed))
    assert frame.count() == 3
    (Path(landed) / "new-2.parquet").unlink()
    with pytest.raises(StorageFailed, match="could not replace rows"):
        replace_rows(frame, landed, "offset >= 3", PlanId("rangeland/replace/1", 0))
    assert offsets(spark, landed) == ALL
    with pytest.raises(EngineFailed, match=r"could not compare.*(FILE_NOT_EXIST|FileNotFound)"):
        compare(table_frame(ignoring, landed, all_files=True), frame)


def test_constraints_are_not_met_by_a_file_that_is_gone_or_damaged(
    ignoring: Any, kernel: DeltaKernel, landed: str
) -> None:
    constraint = TableConstraint("small", "offset < 5", "CHECK (offset < 5)")
    file = prepared(landed, "new.parquet", 5)
    frame = prepared_frame(ignoring, landed, [file], schema_of(kernel, landed))
    assert first_violation(frame, [constraint], PLAIN_COLUMNS) is not None
    path = Path(landed) / file.path
    path.write_bytes(b"PAR1" + b"\0" * 100 + b"PAR1")
    with pytest.raises(EngineFailed, match="could not check new rows"):
        first_violation(frame, [constraint], PLAIN_COLUMNS)
    path.unlink()
    with pytest.raises(EngineFailed, match="could not check new rows"):
        first_violation(frame, [constraint], PLAIN_COLUMNS)


def test_rows_beside_the_replaced_ones_are_not_lost_with_their_file(
    spark: Any, ignoring: Any, kernel: DeltaKernel, landed: str
) -> None:
    """The file may come back, such as from a backup; a commit without its rows would be final."""
    file = prepared(landed, "new.parquet", 4)
    frame = prepared_frame(ignoring, landed, [file], schema_of(kernel, landed))
    old = file_of(spark, landed, 4)
    content = old.read_bytes()
    old.unlink()
    with pytest.raises(StorageFailed, match="could not replace rows"):
        replace_rows(frame, landed, "offset = 4", PlanId("rangeland/replace/1", 0))
    old.write_bytes(content)
    assert offsets(spark, landed) == ALL
    assert replace_rows(frame, landed, "offset = 4", PlanId("rangeland/replace/1", 0)) is None
    assert offsets(spark, landed) == ALL
