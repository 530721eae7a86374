"""One small Spark session with Delta: for the drivers that are killed, and for the judge.

Its jars come from the cache that the brokers' jars come from, so a session starts without
resolving anything. All it leaves behind is in the folder it is given.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rangeland.jvm.jars import jar_files
from rangeland.jvm.java import SMALL_JVM

JARS = "delta-4.4.0"


def open_session(folder: Path, master: str, settings: Mapping[str, str] | None = None) -> Any:
    """The active session, or a new one with ``master``. What Spark warns of is logged."""
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    jars = [str(jar) for jar in jar_files(JARS)]
    folder.mkdir(parents=True, exist_ok=True)
    chosen = {
        "spark.jars": ",".join(jars),
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.driver.extraJavaOptions": " ".join(SMALL_JVM),
        "spark.local.dir": str(folder / "local"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.databricks.delta.snapshotPartitions": "2",
        # Else VACUUM lists folders with ten thousand tasks.
        "spark.sql.sources.parallelPartitionDiscovery.parallelism": "2",
        # Compiling code takes longer here than the queries of a judge.
        "spark.sql.codegen.wholeStage": "false",
        **(settings or {}),
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PySpark's own, at import
        from pyspark.sql import SparkSession

        builder = SparkSession.builder.master(master).appName("rangeland-chaos")
        for name, value in chosen.items():
            builder = builder.config(name, value)
        session = builder.getOrCreate()
    session.sparkContext.setLogLevel("WARN")
    return session
