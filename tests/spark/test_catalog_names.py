"""A catalog table is found and created by its name, whatever needs quoting in it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from rangeland.decode.columns import row_schema
from rangeland.errors import Conflict, JobFileError
from rangeland.landing.target.landing_target import open_target
from rangeland.spark.catalog_names import LEDGER_SUFFIX, parts_of, quote_name
from tests.spark.landings import job_of

pytestmark = pytest.mark.spark

OTHER = "my-catalog"
"""A second name of the session's catalog, one that has to be quoted."""


@pytest.fixture(scope="module")
def catalog(spark: Any) -> Iterator[None]:
    manager = spark._jsparkSession.sessionState().catalogManager()
    delta = spark._jvm.org.apache.spark.sql.delta.catalog.DeltaCatalog()
    delta.setDelegateCatalog(manager.catalog("spark_catalog"))
    field = manager.getClass().getDeclaredField("catalogs")
    field.setAccessible(True)
    catalogs = field.get(manager)
    catalogs.put(OTHER, delta)
    yield
    catalogs.remove(OTHER)


@pytest.mark.parametrize(
    "name",
    [
        *(
            pytest.param(name, marks=pytest.mark.slow)
            for name in ("default.2024", "`default`.`orders_a`", f"{OTHER}.default.orders_b")
        ),
        "default.1e5",
        f"`{OTHER}`.default.3e7",
    ],
)
def test_a_table_and_its_ledger_are_made_and_found_by_name(
    catalog: None, spark: Any, name: str
) -> None:
    job = job_of(["127.0.0.1:9"], name, "orders")
    assert open_target(spark, job).table.location.path is None
    try:
        made = open_target(spark, job)
        made.writer.open_or_create(row_schema())
        found = open_target(spark, job)
        path = made.table.location.path
        assert (found.table.location.path, found.table.version) == (path, 0)
        found.writer.open_or_create(row_schema())
        last = parts_of(name)[-1]
        tables = {row["tableName"] for row in spark.sql("SHOW TABLES IN default").collect()}
        assert {last, last + LEDGER_SUFFIX} <= tables
        assert spark.table(quote_name(name, LEDGER_SUFFIX)).count() == 0
    finally:
        spark.sql(f"DROP TABLE IF EXISTS {quote_name(name, LEDGER_SUFFIX)}")
        spark.sql(f"DROP TABLE IF EXISTS {quote_name(name)}")


def test_a_catalog_that_spark_does_not_have_is_a_mistake_of_the_job_file(spark: Any) -> None:
    with pytest.raises(JobFileError, match=r"could not look for the table nowhere\.a\.orders"):
        open_target(spark, job_of(["127.0.0.1:9"], "nowhere.a.orders", "orders"))


@pytest.mark.parametrize("name", ["my-catalog.db.orders-2024", "`a``b`.`c`.`2024`", "x.order"])
def test_spark_reads_the_parts_that_were_meant(spark: Any, name: str) -> None:
    parser = spark._jsparkSession.sessionState().sqlParser()
    parts = parser.parseMultipartIdentifier(quote_name(name))
    assert [parts.apply(i) for i in range(parts.size())] == parts_of(name)


def test_a_name_that_the_catalog_does_not_take_is_a_conflict(spark: Any) -> None:
    target = open_target(spark, job_of(["127.0.0.1:9"], "default.orders-2024", "orders"))
    with pytest.raises(Conflict, match=re.escape("default.orders-2024 could not be created")):
        target.writer.open_or_create(row_schema())
