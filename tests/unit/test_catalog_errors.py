"""What the failure of a catalog means, from the exceptions of Java that Spark wraps."""

from __future__ import annotations

import pytest
from py4j.protocol import Py4JNetworkError
from pyspark.errors import AnalysisException

from rangeland.errors import (
    Bug,
    Conflict,
    EngineFailed,
    JobFileError,
    RangelandError,
    StorageFailed,
    TableRefused,
)
from rangeland.spark.spark_errors import catalog_error
from tests.unit.test_replacement_errors import from_java

WHAT = "could not list the tables of main.events.{topic}"
HIVE = "org.apache.hadoop.hive."
DOWN = "Could not connect to meta store using any of the URIs provided."
CLIENT = "Unable to instantiate SessionHiveMetaStoreClient"


def test_a_metastore_that_is_down_is_passing_trouble_with_its_innermost_reason() -> None:
    found = catalog_error(
        WHAT,
        from_java(
            ("org.apache.spark.sql.AnalysisException", f"HiveException: {CLIENT}"),
            (f"{HIVE}ql.metadata.HiveException", CLIENT),
            ("java.lang.reflect.InvocationTargetException", ""),
            (f"{HIVE}metastore.api.MetaException", DOWN),
        ),
    )
    assert isinstance(found, StorageFailed)
    assert (found.exit_code, found.what, found.why) == (75, WHAT, DOWN.rstrip("."))


def test_a_user_who_may_not_ask_is_refused() -> None:
    denied = ("org.apache.hadoop.security.AccessControlException", "no USE on schema events")
    found = catalog_error(WHAT, from_java(("a.B", "failed"), denied))
    assert isinstance(found, TableRefused)
    assert found.why == denied[1]


def test_a_catalog_that_is_not_there_is_a_mistake_of_the_job_file(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    error = AnalysisException("`nowhere` is no catalog\nand more")
    monkeypatch.setattr(error, "getSqlState", lambda: "42K05")
    found = catalog_error(WHAT, error)
    assert isinstance(found, JobFileError)
    assert found.why == "`nowhere` is no catalog"


@pytest.mark.parametrize(
    ("error", "kind"),
    [(Py4JNetworkError("gone"), EngineFailed), (Conflict("x"), Conflict), (KeyError("odd"), Bug)],
)
def test_other_errors_mean_what_they_mean_everywhere(
    error: Exception, kind: type[RangelandError]
) -> None:
    assert type(catalog_error(WHAT, error)) is kind
