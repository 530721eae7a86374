"""One Spark session with Delta, made or found.

Under ``spark-submit`` and in notebooks there is a session, or its settings, already: they
are taken as they are. On a plain machine a local one is made. Nothing here reads or
writes; a session that cannot carry Delta is refused with what to add.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rangeland.errors import StorageFailed, UsageError
from rangeland.jvm.jars import jar_files
from rangeland.jvm.java import find_java

DELTA_JARS = "delta-4.4.0"
EXTENSION = "io.delta.sql.DeltaSparkSessionExtension"
CATALOG = "org.apache.spark.sql.delta.catalog.DeltaCatalog"

DEFAULTS = {
    "spark.sql.extensions": EXTENSION,
    "spark.sql.catalog.spark_catalog": CATALOG,
    "spark.ui.enabled": "false",
    # The console bar writes to the stream that our own progress uses.
    "spark.ui.showConsoleProgress": "false",
}


def open_spark(app_name: str = "rangeland", settings: Mapping[str, str] | None = None) -> Any:
    """The active session, or a new one with ``settings`` over the defaults. Raises UsageError
    when Java or Delta is missing, and as ``jar_files`` where jars cannot be fetched."""
    from pyspark.sql import SparkSession

    active = SparkSession.getActiveSession()
    if active is not None:
        return with_delta(active)
    # Without this a local worker is whatever python3 the PATH finds, without pyarrow.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(app_name)
    if not _submitted():
        for name, value in {**local_settings(), **(settings or {})}.items():
            builder = builder.config(name, value)
    try:
        session = builder.getOrCreate()
    except Exception as error:
        raise _not_started(error) from error
    session.sparkContext.setLogLevel("ERROR")
    return with_delta(session)


def _submitted() -> bool:
    """True where spark-submit has already decided master and packages."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def local_settings() -> dict[str, str]:
    """A session of this machine: Delta from our own cache of jars, so that nothing has to be
    resolved when it starts, and a JVM that is quiet."""
    find_java()
    quiet = Path(__file__).with_name("log4j2.properties")
    options = f"-Dlog4j2.configurationFile={quiet.as_uri()}" if quiet.is_file() else ""
    return {
        **DEFAULTS,
        "spark.master": os.environ.get("RANGELAND_MASTER", "local[*]"),
        "spark.driver.memory": os.environ.get("RANGELAND_DRIVER_MEMORY", "1g"),
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": options,
        "spark.jars": ",".join(str(jar) for jar in jar_files(DELTA_JARS)),
    }


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
            why="its JVM ended at once; what it said stands above",
            do="see that a JDK, 17 or newer, is what JAVA_HOME names, then try again",
        )
    return StorageFailed("Spark could not be started", why=text[:300])
