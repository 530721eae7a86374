"""One Spark session with Delta, made or found.

Under ``spark-submit`` and in notebooks there is a session, or its settings, already: they
are taken as they are. On a plain machine a local one is made. Nothing here reads or
writes; a session that cannot carry Delta is refused with what to add.
"""

from __future__ import annotations

import os
import sys
from typing import Any

from rangeland.errors import StorageFailed, Unreachable, UsageError

EXTENSION = "io.delta.sql.DeltaSparkSessionExtension"
CATALOG = "org.apache.spark.sql.delta.catalog.DeltaCatalog"

DEFAULTS = {
    "spark.sql.extensions": EXTENSION,
    "spark.sql.catalog.spark_catalog": CATALOG,
    "spark.ui.enabled": "false",
    # The console bar writes to the stream that our own progress uses.
    "spark.ui.showConsoleProgress": "false",
}


def open_spark(app_name: str = "rangeland") -> Any:
    """The active session, or a new one. Raises UsageError when Java or Delta is missing."""
    from pyspark.sql import SparkSession

    active = SparkSession.getActiveSession()
    if active is not None:
        return with_delta(active)
    # Without this a local worker is whatever python3 the PATH finds, without pyarrow.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(app_name)
    if not _submitted():
        builder = _with_delta_packages(_local(builder))
    try:
        session = builder.getOrCreate()
    except Exception as error:
        raise _not_started(error) from error
    session.sparkContext.setLogLevel("ERROR")
    return with_delta(session)


def _submitted() -> bool:
    """True where spark-submit has already decided master and packages."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def _local(builder: Any) -> Any:
    for name, value in DEFAULTS.items():
        builder = builder.config(name, value)
    master = os.environ.get("RANGELAND_MASTER", "local[*]")
    memory = os.environ.get("RANGELAND_DRIVER_MEMORY", "1g")
    return (
        builder.master(master)
        .config("spark.driver.memory", memory)
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
    )


def _with_delta_packages(builder: Any) -> Any:
    from delta import configure_spark_with_delta_pip

    return configure_spark_with_delta_pip(builder)


def with_delta(session: Any) -> Any:
    """The session, once it is certain that it carries Delta and Delta Kernel."""
    loader = session._jvm.java.lang.Thread.currentThread().getContextClassLoader()
    try:
        loader.loadClass("io.delta.kernel.TableManager")
    except Exception as error:
        raise UsageError(
            "this Spark session has no Delta",
            why="the class io.delta.kernel.TableManager is not on its class path",
            do="start it with --packages io.delta:delta-spark_4.2_2.13:4.4.0 "
            f"--conf spark.sql.extensions={EXTENSION} "
            f"--conf spark.sql.catalog.spark_catalog={CATALOG}",
        ) from error
    return session


def _not_started(error: Exception) -> Exception:
    text = str(error)
    if "JAVA_GATEWAY_EXITED" in text or "Java gateway" in text:
        return UsageError(
            "Spark could not be started",
            why="there is no Java 17 or newer, or the Delta jars could not be fetched; "
            "what Java said stands above",
            do="install a JDK (17 or newer) or set JAVA_HOME, then try again",
        )
    if "unresolved dependency" in text.lower():
        return Unreachable("the Delta jars could not be fetched", why=text[:300])
    return StorageFailed("Spark could not be started", why=text[:300])
