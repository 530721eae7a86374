"""An append beside what others do to the table at the same time: VACUUM, UPDATE, another lock."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rangeland.delta.stores.local_table_lock import lock_table
from rangeland.delta.transaction_log.delta_kernel import DeltaKernel
from rangeland.delta.transaction_log.table_commit import CommittedOutcome, FilesGone, commit_once
from rangeland.delta.transaction_log.table_snapshot import CommitRequest
from rangeland.errors import Conflict
from rangeland.landing.target.landing_commits import landed_at
from rangeland.model import DataFile
from rangeland.planning.plan import PlanId
from rangeland.testing.processes import PATIENCE_S

pytestmark = pytest.mark.spark

APPLICATION = "rangeland/orders"
Sql = Callable[[str], list[Any]]


@pytest.fixture
def days(table: str, sql: Sql) -> str:
    """A table of two days with a row each."""
    sql(
        f"CREATE TABLE delta.`{table}` (offset BIGINT, value STRING, day STRING) USING delta "
        "PARTITIONED BY (day)"
    )
    sql(f"INSERT INTO delta.`{table}` VALUES (0, 'old', 'monday'), (1, 'old', 'tuesday')")
    return table


def prepared(table: str, day: str) -> DataFile:
    """A file with a row of a day, written and not committed."""
    path = Path(table) / f"part-{day}-{time.monotonic_ns()}.parquet"
    pq.write_table(pa.table({"offset": [2], "value": ["new"]}), path)
    stats = '{"numRecords":1,"minValues":{"offset":2},"maxValues":{"offset":2},"nullCount":{}}'
    return DataFile(path.name, path.stat().st_size, 1, stats, 1, {"day": day})


def test_files_that_vanish_while_a_landing_waits_for_the_lock_are_missed(
    days: str, kernel: DeltaKernel
) -> None:
    file = prepared(days, "tuesday")
    before = kernel.load(days)
    assert before is not None
    with ThreadPoolExecutor(1) as pool:
        with lock_table(before.path):
            request = CommitRequest(APPLICATION, 1, [file])
            landing = pool.submit(commit_once, kernel, days, request)
            time.sleep(2)  # it has seen the file, if it looks before it waits
            (Path(days) / file.path).unlink()
        assert landing.result(60) == FilesGone((file.path,))
    after = kernel.load(days)
    assert after is not None
    assert after.version == before.version


class Update:
    """An UPDATE of Spark's that has read the table and waits before it commits."""

    def __init__(self, spark: Any, table: str, where: str, folder: Path) -> None:
        self._begun, self._go_on = folder / "begun", folder / "go-on"
        begun, go_on = str(self._begun), str(self._go_on)

        def slowly(value: str) -> str:
            import time
            from pathlib import Path

            Path(begun).touch()
            deadline = time.monotonic() + PATIENCE_S
            while not Path(go_on).exists() and time.monotonic() < deadline:
                time.sleep(0.05)
            return value.upper()

        spark.udf.register("slowly", slowly)
        self._error: Exception | None = None
        text = f"UPDATE delta.`{table}` SET value = slowly(value) WHERE {where}"
        self._thread = threading.Thread(target=self._run, args=(spark, text))
        self._thread.start()
        while not self._begun.exists() and self._thread.is_alive():
            time.sleep(0.05)

    def _run(self, spark: Any, text: str) -> None:
        try:
            spark.sql(text)
        except Exception as error:
            self._error = error

    def end(self) -> str:
        """The name of its error, empty for none."""
        self._go_on.touch()
        self._thread.join(120)
        text = str(self._error or "")
        return next((w for w in text.replace(":", " ").split() if w.endswith("Append")), text)


@pytest.mark.parametrize(
    ("where", "error"), [("day = 'monday'", ""), ("offset = 0", "ConcurrentAppend")]
)
@pytest.mark.slow
def test_an_update_of_other_partitions_goes_through_beside_an_append(
    days: str, kernel: DeltaKernel, spark: Any, sql: Sql, tmp_path: Path, where: str, error: str
) -> None:
    update = Update(spark, days, where, tmp_path)
    landed = commit_once(kernel, days, CommitRequest(APPLICATION, 1, [prepared(days, "tuesday")]))
    found = update.end()
    assert isinstance(landed, CommittedOutcome)
    history = sql(f"DESCRIBE HISTORY delta.`{days}`")
    assert {h.version: h.isBlindAppend for h in history}[landed.version] is True
    if error:
        assert error.lower() in found.lower().replace("_", "")
    else:
        assert found == ""
        values = sql(f"SELECT value FROM delta.`{days}` ORDER BY offset")
        assert [row.value for row in values] == ["OLD", "old", "new"]


def test_a_table_that_was_created_again_while_a_run_was_reading_takes_no_commit(
    days: str, kernel: DeltaKernel, sql: Sql
) -> None:
    before = kernel.load(days)
    assert before is not None
    sql(f"CREATE OR REPLACE TABLE delta.`{days}` USING delta AS SELECT * FROM delta.`{days}`")
    with pytest.raises(Conflict, match="created again"):
        commit_once(kernel, before, CommitRequest(APPLICATION, 1, [prepared(days, "tuesday")]))


def test_of_two_first_landings_at_once_both_land_and_one_names_the_ledger(
    days: str, kernel: DeltaKernel
) -> None:
    before = kernel.load(days)
    assert before is not None
    named = {"rangeland.ledger": "id"}
    for application in ("rangeland/a", "rangeland/b"):
        file = prepared(days, "tuesday")
        landed = commit_once(
            kernel, before, CommitRequest(application, 1, [file], properties=named)
        )
        assert isinstance(landed, CommittedOutcome)
        assert landed.is_new
    again = commit_once(
        kernel,
        before,
        CommitRequest("rangeland/a", 1, [prepared(days, "tuesday")], properties=named),
    )
    assert again == CommittedOutcome(None, is_new=False)
    assert landed_at(kernel, days, PlanId("rangeland/a", 1)) == before.version + 1
    after = kernel.load(days)
    assert after is not None
    assert (after.version, after.property("rangeland.ledger")) == (before.version + 2, "id")
