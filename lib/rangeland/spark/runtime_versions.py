"""Which Spark, Scala, Delta and Java this library supports, and what a session has.

Internal names of Delta Kernel are used, which change between minor releases: with other
versions a landing would fail halfway, with an error of the JVM. So other versions are refused
at the start. Patch releases may differ.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from rangeland.errors import UsageError
from rangeland.jvm.java import MINIMUM_JAVA

SPARK, SCALA, DELTA = "4.2", "2.13", "4.4"
DELTA_PACKAGE = "io.delta:delta-spark_4.2_2.13:4.4.0"
EXTENSION = "io.delta.sql.DeltaSparkSessionExtension"
CATALOG = "org.apache.spark.sql.delta.catalog.DeltaCatalog"
_KERNEL = "io.delta.kernel.Meta"
_INSTALL = "pip install 'pyspark==4.2.0' 'delta-spark==4.4.0'"


@dataclass(frozen=True, slots=True)
class RuntimeVersions:
    """The versions of one driver. ``pyspark`` is the Python side, ``spark`` the JVM's and
    ``home`` its folder; ``delta`` is that of Delta Kernel, empty if there is none."""

    pyspark: str
    spark: str
    scala: str
    java: str
    delta: str
    home: str = ""


def versions_of(jvm: Any) -> RuntimeVersions:
    """The versions that a driver runs, read from its JVM; no session is needed."""
    from pyspark import __version__ as pyspark

    return RuntimeVersions(
        pyspark=pyspark,
        spark=str(jvm.org.apache.spark.package.SPARK_VERSION()),
        scala=str(jvm.scala.util.Properties.versionNumberString()),
        java=str(jvm.java.lang.System.getProperty("java.version")),
        delta=_delta_version(jvm),
        home=str(jvm.java.lang.System.getenv("SPARK_HOME") or ""),
    )


def _delta_version(jvm: Any) -> str:
    kernel = _loaded(jvm, _KERNEL)
    if kernel is not None:
        return str(kernel.getField("KERNEL_VERSION").get(None))
    older = _loaded(jvm, "io.delta.package")
    return "" if older is None else str(jvm.io.delta.package.VERSION())


def _loaded(jvm: Any, name: str) -> Any:
    from py4j.protocol import Py4JJavaError

    try:
        return jvm.java.lang.Thread.currentThread().getContextClassLoader().loadClass(name)
    except Py4JJavaError:
        return None


def refuse_others(found: RuntimeVersions) -> None:
    """Raises UsageError if a version is not supported, or if there is no Delta."""
    refuse_other_engine(found)
    if not found.delta:
        raise UsageError(
            "this Spark session has no Delta",
            why=f"the class {_KERNEL} is not on its class path",
            do=f"start it with --packages {DELTA_PACKAGE} --conf spark.sql.extensions={EXTENSION} "
            f"--conf spark.sql.catalog.spark_catalog={CATALOG}, or have `rangeland submit` "
            "write the whole command",
        )
    refuse_other_delta(found)


def refuse_other_engine(found: RuntimeVersions) -> None:
    """Checks PySpark, Spark, Scala and Java."""
    place = f" in {found.home}" if found.home else ""
    if _minor(found.pyspark) != _minor(found.spark):
        raise UsageError(
            f"PySpark is {found.pyspark} and the Spark it uses{place} is {found.spark}",
            why="both sides of a session must be of one version",
            do=f"Use the spark-submit of PySpark {SPARK}, or unset SPARK_HOME",
            pyspark=found.pyspark,
            spark=found.spark,
        )
    if _minor(found.spark) != SPARK:
        remedy = f"Use the spark-submit of a Spark {SPARK} ({_INSTALL}) and a cluster of that"
        raise _other(f"Spark{place}", found.spark, SPARK, f"{remedy}; see what SPARK_HOME names")
    if _minor(found.scala) != SCALA:
        raise _other("Scala", found.scala, SCALA, f"Use the Spark that is built for Scala {SCALA}")
    if _feature(found.java) < MINIMUM_JAVA:
        remedy = f"Point JAVA_HOME at a JDK or JRE {MINIMUM_JAVA} or later, on every host"
        raise _other("Java", found.java, f"{MINIMUM_JAVA} or later", remedy)


def refuse_other_delta(found: RuntimeVersions) -> None:
    """Checks Delta, if there is one."""
    if found.delta and _minor(found.delta) != DELTA:
        remedy = f"Take other Delta jars away and start it with --packages {DELTA_PACKAGE}"
        raise _other("Delta", found.delta, DELTA, remedy)


def _other(what: str, found: str, wanted: str, remedy: str) -> UsageError:
    return UsageError(
        f"{what} is {found}, and {wanted} is needed",
        why="another version may understand the same calls differently",
        do=remedy,
        found=found,
        wanted=wanted,
    )


def _minor(version: str) -> str:
    """``4.2`` for ``4.2.0-SNAPSHOT``."""
    return ".".join(version.split(".")[:2])


def _feature(java: str) -> int:
    """8 for ``1.8.0_412``, 17 for ``17.0.15``; 0 if it cannot be read."""
    found = re.match(r"(?:1\.)?(\d+)", java)
    return int(found.group(1)) if found else 0
