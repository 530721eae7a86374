"""What a replacement that Spark could not write ends with."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from py4j.protocol import Py4JJavaError, Py4JNetworkError
from pyspark.errors import AnalysisException

from rangeland.errors import ALL_OR_NOTHING, WITH_ROOM, Conflict, StorageFailed, TableRefused
from rangeland.landing.execution.commit_failures import rows_changed_error
from rangeland.planning.plan import PlanId
from rangeland.spark.replace_where import (
    RowsChanged,
    names_file,
    reading_prepared_files,
    replace_rows,
)

DELTA = "io.delta.exceptions."


class JavaException:
    """An exception of Java, as py4j hands it over."""

    def __init__(self, *chain: tuple[str, str]) -> None:
        (self._name, self._message), *causes = chain
        self._cause = JavaException(*causes) if causes else None

    def getClass(self) -> Any:
        return SimpleNamespace(getName=lambda: self._name)

    def getMessage(self) -> str:
        return self._message

    def getCause(self) -> JavaException | None:
        return self._cause


class Captured(Exception):
    """An error of PySpark that keeps the exception it was made from."""

    def __init__(self, *chain: tuple[str, str]) -> None:
        super().__init__("[INTERNAL_ERROR] a query failed")
        self._origin = JavaException(*chain)


class ConcurrentAppendException(Exception):
    """The class of this name that the package ``delta`` makes, which keeps no original."""


def from_java(*chain: tuple[str, str]) -> Py4JJavaError:
    error = Py4JJavaError.__new__(Py4JJavaError)
    error.java_exception = JavaException(*chain)
    return error


class Frame:
    """Rows whose write fails, or of which the table's history has this many later commits, or has
    nothing or an error."""

    def __init__(
        self, error: Exception | None = None, history: Exception | int | None = None
    ) -> None:
        self._error = error
        self._history = history
        self._options: dict[str, Any] = {}
        self.write = self
        self.sparkSession = SimpleNamespace(conf={}, sql=self._sql)

    def format(self, *_: object) -> Frame:
        return self

    mode = format

    def option(self, name: str, value: object) -> Frame:
        self._options[name] = value
        return self

    def options(self, **_: object) -> Frame:
        return self

    def save(self, path: str) -> None:
        if self._error is not None:
            raise self._error

    def _sql(self, text: str) -> Any:
        assert text == "DESCRIBE HISTORY delta.`lake/t` LIMIT 20"
        if isinstance(self._history, Exception):
            raise self._history
        texts = [None, "rangeland of another driver"]
        if self._history is not None:
            texts += [*([None] * self._history), self._options["userMetadata"]]
        return SimpleNamespace(collect=lambda: [SimpleNamespace(userMetadata=t) for t in texts])


def replace_with(error: Exception | None, **about: Any) -> RowsChanged | None:
    plan_id = PlanId("rangeland/j/replace/1", 1)
    return replace_rows(cast(Any, Frame(error, **about)), "lake/t", "true", plan_id)


def failure_of(error: Exception) -> Any:
    with pytest.raises((StorageFailed, TableRefused)) as caught:
        replace_with(error)
    assert caught.value.what == "could not replace rows of lake/t"
    assert caught.value.__cause__ is error
    return caught.value


@pytest.mark.parametrize(
    "error",
    [
        from_java((f"{DELTA}ConcurrentAppendException", "[DELTA_CONCURRENT_APPEND] first\nmore")),
        from_java((f"{DELTA}ConcurrentDeleteReadException", "first")),
        from_java((f"{DELTA}MetadataChangedException", "first")),
        from_java((f"{DELTA}ProtocolChangedException", "first")),
        Captured((f"{DELTA}ConcurrentTransactionException", "first")),
        ConcurrentAppendException("first"),
    ],
    ids=["appended", "deleted", "metadata", "protocol", "captured", "a class of delta"],
)
def test_a_change_by_another_writer_is_known_by_the_class_of_the_exception(
    error: Exception,
) -> None:
    changed = replace_with(error)
    assert changed is not None
    assert changed.why.endswith("first")
    failure = rows_changed_error(changed)
    assert type(failure) is Conflict
    assert failure.what == "could not replace rows of lake/t"
    assert failure.why == f"another writer has changed them: {changed.why}"


def test_a_conflict_inside_another_failure_is_not_one() -> None:
    job = ("org.apache.spark.SparkException", "Job aborted")
    inside = ("java.util.ConcurrentModificationException", "")
    assert type(failure_of(from_java(job, inside))) is StorageFailed


def test_a_store_that_is_full_or_denies_access_is_named() -> None:
    job = ("org.apache.spark.SparkException", "Job aborted due to stage failure")
    full = failure_of(from_java(job, ("java.io.IOException", "No space left on device")))
    assert (type(full), full.retry, full.data) == (StorageFailed, WITH_ROOM, ALL_OR_NOTHING)
    denied = ("org.apache.hadoop.security.AccessControlException", "Permission denied: user=me")
    for error in (from_java(job, denied), Captured(job, denied)):
        refused = failure_of(error)
        assert (type(refused), refused.data) == (TableRefused, ALL_OR_NOTHING)
        assert "grant write permission" in refused.do


def test_dates_that_spark_refuses_to_read_are_refused_again() -> None:
    """Such as those of the table's own files that do not say of which calendar they are."""
    ancient = "[INCONSISTENT_BEHAVIOR_CROSS_VERSION.READ_ANCIENT_DATETIME] may get:\nreading dates"
    upgrade = ("org.apache.spark.SparkUpgradeException", ancient)
    job = ("org.apache.spark.SparkException", "Job aborted")
    for error in (from_java(job, upgrade), Captured(upgrade)):
        refused = failure_of(error)
        assert (type(refused), refused.data) == (TableRefused, ALL_OR_NOTHING)
        assert "READ_ANCIENT_DATETIME" in refused.why
        assert "spark.sql.parquet.datetimeRebaseModeInRead" in refused.do


@pytest.mark.parametrize(
    "error",
    [
        from_java(
            ("org.apache.spark.SparkException", "[FAILED_READ_FILE.FILE_NOT_EXIST] gone"),
            ("org.apache.spark.SparkFileNotFoundException", "File part-1 does not exist"),
        ),
        from_java(("org.apache.spark.SparkException", "Job aborted: ExecutorLostFailure")),
        from_java(("org.apache.spark.sql.catalyst.analysis.TableNotFoundException", "no table")),
        Py4JNetworkError("the JVM has gone"),
        RuntimeError(""),
    ],
    ids=["a file is gone", "an executor is gone", "the table is gone", "no JVM", "no message"],
)
def test_any_other_failure_may_pass(error: Exception) -> None:
    failure = failure_of(error)
    assert (type(failure), failure.data) == (StorageFailed, ALL_OR_NOTHING)
    assert failure.why


@pytest.mark.parametrize("later_commits", [0, 3])
def test_rows_are_replaced_once_the_log_has_the_commit(later_commits: int) -> None:
    assert replace_with(None, history=later_commits) is None


def test_a_commit_that_delta_leaves_out_replaces_nothing() -> None:
    changed = RowsChanged(
        "lake/t", "none of its newest commits is this driver's for rangeland/j/replace/1 1"
    )
    assert replace_with(None) == changed


def test_a_commit_whose_log_cannot_be_read_may_have_been_made() -> None:
    with pytest.raises(StorageFailed) as caught:
        replace_with(None, history=Py4JNetworkError("the JVM has gone"))
    assert caught.value.what == "could not determine whether rows of lake/t were replaced"
    assert caught.value.data == ALL_OR_NOTHING


class Refused(AnalysisException):
    """A query that Spark refuses, for this reason."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"[{reason}] it is so")
        self._reason = reason

    def getErrorClass(self) -> str:
        return self._reason


@pytest.mark.parametrize(
    "error",
    [
        Refused("PATH_NOT_FOUND"),
        from_java(("org.apache.spark.SparkFileNotFoundException", "File part-1 does not exist")),
    ],
    ids=["before it is read", "while it is read"],
)
def test_prepared_files_that_are_gone_may_come_back(error: Exception) -> None:
    with pytest.raises(StorageFailed) as caught, reading_prepared_files("lake/t"):
        raise error
    assert caught.value.what == "could not read the new rows for lake/t"
    assert caught.value.why


def test_a_query_that_is_wrong_does_not_count_as_a_store_that_fails() -> None:
    with pytest.raises(Refused), reading_prepared_files("lake/t"):
        raise Refused("UNRESOLVED_COLUMN")


NO_FILE = "[FAILED_READ_FILE.FILE_NOT_EXIST] Encountered error while reading file "


@pytest.mark.parametrize(
    "error",
    [
        from_java(("org.apache.spark.SparkException", f"{NO_FILE}file:///t/day=1/a%20b.parquet.")),
        Captured(
            ("org.apache.spark.SparkException", "Job aborted"),
            ("org.apache.spark.SparkException", f"{NO_FILE}s3a://t/day=1/a%20b.parquet."),
            ("java.io.FileNotFoundException", "404"),
        ),
        from_java(("java.io.FileNotFoundException", "File does not exist: /t/day=1/a b.parquet")),
    ],
)
def test_a_failure_names_the_file_that_it_is_about(error: Exception) -> None:
    failure = failure_of(error)
    assert names_file(failure, "day=1/a b.parquet")
    assert not names_file(failure, "day=1/b.parquet-2")
    assert names_file(failure.with_answers(data="x"), "a b.parquet")
    assert not names_file(StorageFailed("could not replace rows", why="timeout"), "a b.parquet")
