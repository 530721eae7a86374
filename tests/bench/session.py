"""The Spark session all sides share: Delta and Spark's own Kafka source, from cached jars.

It is left as Spark comes, but for what is kinder to the other side than the defaults: a
larger heap than this project needs, and few partitions for Delta's own bookkeeping.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import rangeland
from rangeland.jvm.jar_sets import LIBRARY_JARS
from rangeland.jvm.jars import jar_files
from rangeland.spark.spark_session import DEFAULTS, with_delta
from tests.jar_sets import TEST_JARS

JAR_SETS = (
    LIBRARY_JARS["delta-4.4.0"],
    TEST_JARS["spark-kafka-4.2.0"],
    TEST_JARS["spark-kafka-token-provider-4.0.0"],
    TEST_JARS["spark-avro-4.1.1"],
)
DRIVER_MEMORY = "3g"


def prepare_environment() -> None:
    """Workers and children find this interpreter, this checkout and these packages."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    places = [str(Path(rangeland.__file__).parents[1]), str(Path(__file__).parents[2])]
    given = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    wanted = [*places, *(place for place in given if place and place not in places)]
    os.environ["PYTHONPATH"] = os.pathsep.join(wanted)


def open_session(master: str, folder: Path) -> Any:
    """A session whose scratch files are in ``folder``."""
    from pyspark.sql import SparkSession

    prepare_environment()
    jars = [str(jar) for one in JAR_SETS for jar in jar_files(one)]
    settings = {
        **DEFAULTS,
        "spark.jars": ",".join(jars),
        "spark.driver.memory": DRIVER_MEMORY,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.local.dir": str(folder / "spark"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.databricks.delta.snapshotPartitions": "2",
    }
    builder = SparkSession.builder.appName("rangeland-bench").master(master)
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    return with_delta(session)
