"""One local Spark session with Delta for all tests of this ring.

It is built here and not by the library's own session code, so that these tests say what
Delta does and nothing about how a run starts Spark.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rangeland.delta.kernel import Kernel
from rangeland.jvm.jars import jar_files
from rangeland.jvm.java import SMALL_JVM
from rangeland.spark.session import S3_JARS


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """``local[2]``, UTC, no user interface; stopped at the end of the session. It can reach
    S3, since what a session can reach is settled when it starts."""
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # pyspark's own, at import
        from delta import configure_spark_with_delta_pip
        from pyspark.sql import SparkSession

        builder = (
            SparkSession.builder.master("local[2]")
            .appName("rangeland-tests")
            .config("spark.jars", ",".join(map(str, jar_files(S3_JARS))))
            .config("spark.ui.enabled", "false")
            .config("spark.ui.showConsoleProgress", "false")
            .config("spark.driver.memory", "1g")
            .config("spark.driver.extraJavaOptions", " ".join(SMALL_JVM))
            .config("spark.sql.shuffle.partitions", "2")
            .config("spark.databricks.delta.snapshotPartitions", "2")
            .config("spark.sql.sources.parallelPartitionDiscovery.parallelism", "2")
            .config("spark.sql.session.timeZone", "UTC")
            .config("spark.sql.warehouse.dir", str(tmp_path_factory.mktemp("warehouse")))
            .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
            .config(
                "spark.sql.catalog.spark_catalog",
                "org.apache.spark.sql.delta.catalog.DeltaCatalog",
            )
        )
        session = configure_spark_with_delta_pip(builder).getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


@pytest.fixture(scope="session")
def kernel(spark: Any) -> Kernel:
    return Kernel(spark)


@pytest.fixture
def table(tmp_path: Path) -> str:
    """The path of a table that does not exist yet."""
    return str(tmp_path / "a table")  # a blank, since paths are encoded in the log


@pytest.fixture
def sql(spark: Any) -> Callable[[str], list[Any]]:
    def run(text: str) -> list[Any]:
        rows: list[Any] = spark.sql(text).collect()
        return rows

    return run
