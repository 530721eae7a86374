"""Rows by offset: what the driver reads of a small table is what Spark reads of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rangeland.decode.columns import PLAIN_COLUMNS
from rangeland.delta.parquet_files import local_scan
from rangeland.delta.transaction_log.delta_kernel import DeltaKernel
from rangeland.errors import TableRefused
from rangeland.landing.audit.table_rows import DriverRows, SparkRows, table_rows
from rangeland.model import Partition, Range
from rangeland.planning.table_audit import LandedRange
from rangeland.spark.deferred_session import DeferredSession

pytestmark = pytest.mark.spark

ROWS = "topic STRING, partition INT, offset BIGINT, broker STRING, position INT, value STRING"
VALUES = ", ".join(
    f"('{topic}', {number}, {offset}, '{broker}', {position}, 'v')"
    for topic, number, broker in (("a", 0, "b1"), ("a", 0, "b2"), ("a", 1, "b1"), ("x y", 0, "b1"))
    for offset in (0, 1, 2, 5, 6)
    for position in range(2 if offset == 5 else 1)
)
MAPPED = "'delta.columnMapping.mode' = 'name', 'delta.minReaderVersion' = '2', "
MAPPED += "'delta.minWriterVersion' = '5'"
WIDENABLE = "'delta.enableTypeWidening' = 'true'"
WIDENED = tuple(
    f"ALTER TABLE {{}} ALTER COLUMN {name} TYPE BIGINT" for name in ("partition", "position")
)
Make = Callable[..., Any]


@pytest.fixture
def make(spark: Any, kernel: DeltaKernel, tmp_path: Path) -> Make:
    """A table of such rows, and an ``INSERT`` of some of them once more, as a target table."""

    def made(
        *, folder: str = "table", properties: str = "", by: str = "", columns: str = ROWS
    ) -> Any:
        path = tmp_path / folder
        name = f"delta.`{path}`"
        spark.sql(
            f"CREATE TABLE {name} ({columns}) USING delta "
            + (f"PARTITIONED BY ({by}) " if by else "")
            + (f"TBLPROPERTIES ({properties})" if properties else "")
        )
        if columns == ROWS:
            spark.sql(f"INSERT INTO {name} VALUES {VALUES}")
            again = "('a', 0, 2, 'b1', 0, 'v'), ('a', 0, NULL, 'b1', 0, 'v')"
            spark.sql(f"INSERT INTO {name} VALUES {again}, (NULL, 0, 7, 'b1', 0, 'v')")
        return look(str(path))

    def look(path: str) -> Any:
        snapshot = kernel.load(path)
        assert snapshot is not None
        return SimpleNamespace(
            snapshot=snapshot,
            version=snapshot.version,
            log_columns=PLAIN_COLUMNS,
            location=SimpleNamespace(
                storage=lambda: kernel.storage(path), uri=kernel.resolve(path)
            ),
            look=lambda: look(path),
            sql=lambda text: spark.sql(text.format(f"delta.`{path}`")),
        )

    return made


@pytest.fixture
def unmade(spark: Any, monkeypatch: pytest.MonkeyPatch) -> DeferredSession:
    """A session that is not made until something asks for it."""
    monkeypatch.setattr("rangeland.spark.deferred_session.without_context", lambda gateway: None)
    return DeferredSession(None, "", lambda: spark.sparkContext, lambda: spark)


def in_words(rows: Any) -> list[Any]:
    """All answers, in an order that does not depend on who reads."""
    found: list[Any] = []
    for by_broker in (False, True):
        intervals = rows.intervals(by_broker=by_broker)
        pairs = {
            p: sorted(zip(*(x.tolist() for x in r), strict=True)) for p, r in intervals.items()
        }
        found.append(sorted(pairs.items()))
    whole = [Range(Partition("a", 0, "b1"), 0, 5), Range(Partition("a", 0, "b1"), 5, 6)]
    found.append(rows.entries({whole[0].partition: [LandedRange(r, 1) for r in whole]}))
    for partition in (Partition("a", 0), Partition("a", 0, "b2"), Partition("x y", 0)):
        for offset in (2, 4, 5):
            files = rows.files_with(partition, offset)
            # Spark writes the URI of a local file in two ways.
            found.append([file.replace("file:///", "file:/") for file in files])
    return found


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param({}, id="plain"),
        pytest.param({"folder": "a #1%20 b"}, id="odd path", marks=pytest.mark.slow),
        pytest.param({"properties": MAPPED}, id="mapped", marks=pytest.mark.slow),
        pytest.param({"by": "topic, partition"}, id="partitioned", marks=pytest.mark.slow),
        pytest.param({"by": "topic", "properties": MAPPED}, id="partitioned and mapped"),
    ],
)
def test_the_driver_reads_what_spark_reads(
    make: Make, spark: Any, unmade: DeferredSession, kind: dict[str, str]
) -> None:
    table = make(**kind)
    here, there = table_rows(unmade, table), table_rows(spark, table)
    assert isinstance(here, DriverRows)
    assert isinstance(there, SparkRows)
    assert in_words(here) == in_words(there)
    assert here.intervals(by_broker=False)
    assert not unmade.has_session


def covered(rows: Any) -> dict[Partition, list[int]]:
    """All offsets: intervals may be cut in two, since Spark's tasks read several files."""
    found = rows.intervals(by_broker=True).items()
    return {p: sorted(n for a, b in zip(*r, strict=True) for n in range(a, b)) for p, r in found}


@pytest.mark.parametrize(
    "by",
    [pytest.param("", marks=pytest.mark.slow, id="plain"), "topic, partition"],
)
def test_numbers_may_have_been_widened(
    make: Make, spark: Any, unmade: DeferredSession, by: str
) -> None:
    table = make(properties=WIDENABLE, by=by)
    narrow = in_words(table_rows(spark, table))
    for statement in WIDENED:
        table.sql(statement)
    table = table.look()
    here, there = table_rows(unmade, table), table_rows(spark, table)
    assert isinstance(here, DriverRows)
    assert narrow == in_words(here) == in_words(there)
    table.sql("INSERT INTO {} VALUES ('a', 1, 7, 'b1', 0, 'v')")
    here, there = table_rows(unmade, table.look()), table_rows(spark, table.look())
    assert isinstance(here, DriverRows)
    assert narrow != in_words(here)
    assert covered(here) == covered(there)
    # No log has a partition of that number: Spark reads such a table, and leaves its row out.
    table.sql("INSERT INTO {} VALUES ('a', 4294967296, 9, 'b1', 0, 'v')")
    found = table_rows(unmade, table.look())
    assert isinstance(found, SparkRows)
    assert found.intervals(by_broker=True).keys() == there.intervals(by_broker=True).keys()


def test_rows_of_a_file_that_is_gone_are_left_out(
    make: Make, spark: Any, unmade: DeferredSession, tmp_path: Path
) -> None:
    table = make()
    whole = in_words(table_rows(unmade, table))
    gone = sorted((tmp_path / "table").glob("*.parquet"))[0]
    gone.unlink()
    left = in_words(table_rows(unmade, table))
    assert left == in_words(table_rows(spark, table))
    assert left != whole


@pytest.mark.parametrize(
    "why",
    ["deletion vector", "column ids", "no statistics", "rows", "files", "unreadable"],
)
def test_what_is_not_small_and_simple_is_left_to_spark(
    make: Make,
    unmade: DeferredSession,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    why: str,
) -> None:
    properties = {
        "deletion vector": "'delta.enableDeletionVectors' = 'true'",
        "column ids": MAPPED.replace("'name'", "'id'"),
        "no statistics": "'delta.dataSkippingNumIndexedCols' = '0'",
    }
    table = make(properties=properties.get(why, ""))
    if why == "deletion vector":
        table.sql("DELETE FROM {} WHERE offset = 1 AND partition = 0")
    elif why == "no statistics":
        monkeypatch.setattr(local_scan, "rows_in", lambda file, unknown: unknown)
    elif why == "rows":
        monkeypatch.setattr(local_scan, "MAX_ROWS", 25)
    elif why == "files":
        monkeypatch.setattr(local_scan, "MAX_FILES", 1)
    elif why == "unreadable":
        sorted((tmp_path / "table").glob("*.parquet"))[0].write_bytes(b"PAR1")
    assert isinstance(table_rows(unmade, table.look()), SparkRows)
    assert unmade.has_session


def test_rows_without_their_place_are_refused_either_way(
    make: Make, unmade: DeferredSession, spark: Any
) -> None:
    table = make(columns="topic STRING, partition STRING, offset BIGINT")
    with pytest.raises(TableRefused, match="do not say which offset"):
        table_rows(unmade, table)
    table = make(folder="other", columns="topic STRING, partition INT, offset BIGINT")
    landed_ranges = {Partition("a", 0, "b"): [LandedRange(Range(Partition("a", 0, "b"), 0, 5), 1)]}
    for rows in (table_rows(unmade, table), table_rows(spark, table)):
        with pytest.raises(TableRefused, match="which record of an entry"):
            rows.entries(landed_ranges)
