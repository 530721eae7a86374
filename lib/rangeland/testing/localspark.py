"""A quiet Spark session on this machine, for the demo: Delta from our own cache of jars.

Nothing is resolved when it starts and nothing but errors is printed by its JVM, so that
what a person reads is ours. All it leaves behind is in the folder it is given.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from rangeland.spark.session import DEFAULTS, open_spark, with_delta
from rangeland.testing.jars import jar_files

JARS = "delta-4.4.0"
_LOG4J = """rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d %p %c: %m%n
"""


def open_local_spark(app_name: str, folder: Path) -> Any:
    """The active session if there is one, else a small local one.

    Raises as ``open_spark`` does, and as ``jar_files`` where the jars cannot be fetched."""
    from pyspark.sql import SparkSession

    if SparkSession.getActiveSession() is not None:
        return open_spark(app_name)
    jars = ",".join(str(jar) for jar in jar_files(JARS))
    log4j = folder / "log4j2.properties"
    log4j.write_text(_LOG4J, encoding="utf-8")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    settings = {
        **DEFAULTS,
        "spark.jars": jars,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={log4j.as_uri()}",
        "spark.local.dir": str(folder / "spark"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        # A table of a demo is small; two hundred partitions of nothing take their time.
        "spark.sql.shuffle.partitions": "2",
        "spark.databricks.delta.snapshotPartitions": "2",
    }
    builder = SparkSession.builder.appName(app_name).master("local[*]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return with_delta(session)
