"""Spark sessions with Delta for tests: small, and independent of the machine they run on.

The jars come from the project's own jar sets, so a session starts without resolving anything.
To keep it so, the JVM's home directory is one whose Maven and Ivy caches are broken: a session
that looked there would not start. All that a session leaves behind is in the folder it is given.

It is built here and not by the library's own session code, so that these tests say what Delta
does and nothing about how a run starts Spark.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rangeland.jvm.jar_sets import JarSet
from rangeland.jvm.jars import jar_files
from rangeland.jvm.java import SMALL_JVM
from rangeland.spark.supported_versions import CATALOG, EXTENSION, installed_spark

SPARK_JAVA_HOME = "RANGELAND_SPARK_JAVA_HOME"
"""The variable that names a Java for sessions alone: brokers need a newer one than Spark 3.5."""


def open_session(
    folder: Path,
    master: str,
    settings: Mapping[str, str] | None = None,
    *,
    jar_sets: tuple[JarSet, ...] = (),
) -> Any:
    """The active session, or a new one with ``master``, Delta and these other jars. What
    Spark warns of is logged."""
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    delta = installed_spark().delta.jars
    jars = [str(jar) for one in (delta, *jar_sets) for jar in jar_files(one)]
    home = broken_home(folder / "home")
    chosen = {
        "spark.jars": ",".join(jars),
        "spark.sql.extensions": EXTENSION,
        "spark.sql.catalog.spark_catalog": CATALOG,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.driver.extraJavaOptions": " ".join([*SMALL_JVM, f"-Duser.home={home}"]),
        "spark.local.dir": str(folder / "local"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.databricks.delta.snapshotPartitions": "1",
        # Else VACUUM lists folders with ten thousand tasks.
        "spark.sql.sources.parallelPartitionDiscovery.parallelism": "2",
        # Compiling code takes longer here than the queries of a judge.
        "spark.sql.codegen.wholeStage": "false",
        **(settings or {}),
    }
    with warnings.catch_warnings(), _java_of_sessions():
        warnings.simplefilter("ignore")  # PySpark's own, at import
        from pyspark.sql import SparkSession

        builder = SparkSession.builder.master(master).appName("rangeland-tests")
        for name, value in chosen.items():
            builder = builder.config(name, value)
        session = builder.getOrCreate()
    session.sparkContext.setLogLevel("WARN")
    return session


@contextmanager
def _java_of_sessions() -> Iterator[None]:
    before = os.environ.copy()
    if home := before.get(SPARK_JAVA_HOME):
        os.environ["JAVA_HOME"] = home
    try:
        yield
    finally:
        os.environ.pop("JAVA_HOME", None)
        if "JAVA_HOME" in before:
            os.environ["JAVA_HOME"] = before["JAVA_HOME"]


def broken_home(folder: Path) -> Path:
    """A home directory in which no jar can be resolved: Ivy's own folders are files, and the
    local Maven repository has a description of Delta without its jar."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in (".ivy2", ".ivy2.5.2"):
        (folder / name).touch()
    group, artifact, version = installed_spark().delta.package.split(":")
    place = folder / ".m2" / "repository" / Path(*group.split(".")) / artifact / version
    place.mkdir(parents=True, exist_ok=True)
    (place / f"{artifact}-{version}.pom").write_text(
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        f"<groupId>{group}</groupId><artifactId>{artifact}</artifactId>"
        f"<version>{version}</version></project>"
    )
    return folder
