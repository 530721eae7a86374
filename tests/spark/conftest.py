"""One local Spark session with Delta for all tests of this suite."""

from __future__ import annotations

import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rangeland.delta.transaction_log.delta_kernel import DeltaKernel
from rangeland.jvm.jar_sets import LIBRARY_JARS
from rangeland.spark import omitted_records
from rangeland.testing.processes import PATIENCE_S
from rangeland.testing.rocketmq import RocketmqCluster
from tests.servers.s3 import S3Server
from tests.spark.buckets import Bucket, buckets_of
from tests.spark_sessions import open_session


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """``local[2]``, UTC, no user interface; stopped at the end of the session. It can reach
    S3, since what a session can reach is settled when it starts."""
    folder = tmp_path_factory.mktemp("spark")
    session = open_session(folder, "local[2]", jar_sets=(LIBRARY_JARS["hadoop-aws-3.5.0"],))
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


@pytest.fixture(scope="session")
def kernel(spark: Any) -> DeltaKernel:
    return DeltaKernel(spark)


@pytest.fixture(scope="session")
def rocketmq() -> Iterator[RocketmqCluster]:
    """Two masters. Do not harm them."""
    with RocketmqCluster(brokers=2) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def s3() -> Iterator[S3Server]:
    with S3Server() as server:
        yield server


@pytest.fixture
def bucket(spark: Any, s3: S3Server) -> Iterator[Bucket]:
    """Makes a bucket that the session knows; settings are those of a bucket, and win."""
    with buckets_of(spark, s3) as make:
        yield make


@pytest.fixture
def lake(bucket: Bucket) -> str:
    """The URI of a table that is not there yet, in a bucket that is."""
    return f"s3a://{bucket()}/a lake/orders"


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


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], str]]:
    """Makes a module with a function ``change(df)`` of this body; gives ``module:change``. The
    records that it fails on are searched for as long as it takes."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(omitted_records, "SEARCH_S", PATIENCE_S)
    name = f"transform_{uuid.uuid4().hex}"

    def write(body: str) -> str:
        text = "from pyspark.sql import functions as F\n\n\ndef change(df):\n    " + body + "\n"
        (tmp_path / f"{name}.py").write_text(text)
        return f"{name}:change"

    yield write
    sys.modules.pop(name, None)
