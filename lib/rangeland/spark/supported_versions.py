"""Which versions of Spark, Scala, Delta and Java this library supports, and which ones a session
has.

Each Spark release goes with the Delta release made for it. Landing does not use that Delta (see
``delta_kernel_loader``), but tables are read and replaced through it. Other versions are refused at
the start, because a landing would fail halfway with an error from the JVM. Patch releases may
differ.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rangeland.errors import UsageError
from rangeland.jvm.jar_sets import LIBRARY_JARS, JarSet
from rangeland.jvm.jars import spark_jar_folders

EXTENSION = "io.delta.sql.DeltaSparkSessionExtension"
CATALOG = "org.apache.spark.sql.delta.catalog.DeltaCatalog"
_DELTA = "io.delta.package"


@dataclass(frozen=True, slots=True)
class DeltaBuild:
    """Delta for one combination of Spark and Scala: its name for ``--packages``, and its set of
    jars."""

    package: str
    jars: JarSet


@dataclass(frozen=True, slots=True)
class SupportedSpark:
    """A minor release of Spark. ``deltas`` are the minor releases of Delta made for it, newest
    last; ``builds`` are the ones that our own sessions use, by Scala version. ``java`` is the
    oldest supported version of Java."""

    spark: str
    deltas: tuple[str, ...]
    builds: Mapping[str, DeltaBuild]
    java: int = 17

    @property
    def install(self) -> str:
        return f"pip install 'pyspark=={self.spark}.*' rangeland"


def _since_4_0(spark: str, jars: str, *deltas: str) -> SupportedSpark:
    build = DeltaBuild(f"io.delta:delta-spark_{spark}_2.13:4.4.0", LIBRARY_JARS[jars])
    return SupportedSpark(spark, deltas, {"2.13": build})


_3_5 = SupportedSpark(
    "3.5",
    ("3.2", "3.3"),
    {
        scala: DeltaBuild(
            f"io.delta:delta-spark_{scala}:3.3.2", LIBRARY_JARS[f"delta-3.3.2-scala-{scala}"]
        )
        for scala in ("2.12", "2.13")
    },
    java=11,
)
SUPPORTED = {
    supported.spark: supported
    for supported in (
        _3_5,
        _since_4_0("4.0", "delta-4.4.0-spark-4.0", "4.0", "4.1", "4.2", "4.3", "4.4"),
        _since_4_0("4.1", "delta-4.4.0-spark-4.1", "4.1", "4.2", "4.3", "4.4"),
        _since_4_0("4.2", "delta-4.4.0", "4.4"),
    )
}
NEWEST = SUPPORTED["4.2"]
SPARKS = "3.5, 4.0, 4.1 or 4.2"


@dataclass(frozen=True, slots=True)
class InstalledSpark:
    """The Spark that a command on this machine starts."""

    version: str
    scala: str
    home: str
    support: SupportedSpark
    hadoop: str = ""

    @property
    def delta(self) -> DeltaBuild:
        return self.support.builds[self.scala]


def installed_spark() -> InstalledSpark:
    """The installed Spark, identified by the names of its jars. Raises UsageError if Spark is not
    installed, or not in a supported version."""
    for folder in spark_jar_folders():
        for jar in folder.glob("spark-core_*.jar"):
            scala, version = jar.stem.removeprefix("spark-core_").split("-", 1)
            home = str(folder.parent)
            support = _support_of(version, scala, home)
            hadoop_jar = next(folder.glob("hadoop-client-api-*.jar"), None)
            hadoop = hadoop_jar.stem.rpartition("-")[2] if hadoop_jar is not None else ""
            return InstalledSpark(version, scala, home, support, hadoop)
    raise UsageError(
        "Spark was not found", why="PySpark is not installed", do=f"install it: {NEWEST.install}"
    )


@dataclass(frozen=True, slots=True)
class RuntimeVersions:
    """The versions that one driver runs."""

    pyspark: str
    """The version of the Python side."""
    spark: str
    """The version of the JVM side."""
    scala: str
    java: str
    delta: str
    """The version of Delta for Spark; empty if there is none."""
    home: str = ""
    """The home folder of the JVM side."""


def versions_of(jvm: Any) -> RuntimeVersions:
    """The versions that a driver runs, read from its JVM; needs no session."""
    from pyspark import __version__ as pyspark

    return RuntimeVersions(
        pyspark=pyspark,
        spark=str(jvm.org.apache.spark.package.SPARK_VERSION()),
        scala=str(jvm.scala.util.Properties.versionNumberString()),
        java=str(jvm.java.lang.System.getProperty("java.version")),
        delta=str(jvm.io.delta.package.VERSION()) if _has(jvm, _DELTA) else "",
        home=str(jvm.java.lang.System.getenv("SPARK_HOME") or ""),
    )


def _has(jvm: Any, name: str) -> bool:
    from py4j.protocol import Py4JJavaError

    try:
        jvm.java.lang.Thread.currentThread().getContextClassLoader().loadClass(name)
    except Py4JJavaError:
        return False
    return True


def check_versions_are_supported(versions: RuntimeVersions) -> None:
    """Raises UsageError if a version is not supported, or if there is no Delta."""
    support = require_supported_spark(versions)
    if not versions.delta:
        package = support.builds[_minor(versions.scala)].package
        raise UsageError(
            "this Spark session has no Delta",
            why=f"the class {_DELTA} is not on its class path",
            do=f"start it with --packages {package} --conf spark.sql.extensions={EXTENSION} "
            f"--conf spark.sql.catalog.spark_catalog={CATALOG}, or have `rangeland submit` "
            "write the whole command",
        )
    check_delta_is_supported(versions)


def require_supported_spark(versions: RuntimeVersions) -> SupportedSpark:
    """Checks PySpark, Spark, Scala and Java."""
    place = f" in {versions.home}" if versions.home else ""
    if _minor(versions.pyspark) != _minor(versions.spark):
        raise UsageError(
            f"PySpark is {versions.pyspark} and the Spark it uses{place} is {versions.spark}",
            why="both sides of a session must have the same version",
            do=f"use the spark-submit of PySpark {_minor(versions.pyspark)}, or unset SPARK_HOME",
            pyspark=versions.pyspark,
            spark=versions.spark,
        )
    support = _support_of(versions.spark, versions.scala, versions.home)
    if _feature(versions.java) < support.java:
        remedy = f"point JAVA_HOME at a JDK or JRE {support.java} or later, on every host"
        raise _version_error("Java", versions.java, f"{support.java} or later", remedy)
    return support


def _support_of(spark: str, scala: str, home: str) -> SupportedSpark:
    place = f" in {home}" if home else ""
    support = SUPPORTED.get(_minor(spark))
    if support is None:
        remedy = f"use the spark-submit of a Spark {NEWEST.spark} ({NEWEST.install}) and a cluster"
        raise _version_error(
            f"Spark{place}", spark, SPARKS, f"{remedy} of that; see what SPARK_HOME names"
        )
    if _minor(scala) not in support.builds:
        scalas = " or ".join(support.builds)
        raise _version_error(
            "Scala", scala, scalas, f"Use the Spark that is built for Scala {scalas}"
        )
    return support


def check_delta_is_supported(versions: RuntimeVersions) -> None:
    """Checks Delta, if there is one."""
    support = _support_of(versions.spark, versions.scala, versions.home)
    if versions.delta and _minor(versions.delta) not in support.deltas:
        package = support.builds[_minor(versions.scala)].package
        remedy = f"remove other Delta jars and start it with --packages {package}"
        raise _version_error("Delta", versions.delta, " or ".join(support.deltas), remedy)


def _version_error(what: str, found: str, wanted: str, remedy: str) -> UsageError:
    return UsageError(
        f"{what} is {found}; {wanted} is required",
        why="another version may understand the same calls differently",
        do=remedy,
        found=found,
        wanted=wanted,
    )


def _minor(version: str) -> str:
    """``4.2`` for ``4.2.0-SNAPSHOT``."""
    return ".".join(version.split(".")[:2])


def _feature(java: str) -> int:
    """8 for ``1.8.0_412``, 17 for ``17.0.15``; 0 if it cannot be parsed."""
    match = re.match(r"(?:1\.)?(\d+)", java)
    return int(match.group(1)) if match else 0
