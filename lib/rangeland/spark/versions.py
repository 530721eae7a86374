"""Which Spark, Scala, Delta and Java this library is made for, and what a session has.

Delta Kernel is called by its inner names, which change between minor releases: a session of
other versions would fail somewhere in the middle of a landing, with words of the JVM. So it
is refused at the start, in ours. Patch releases may differ.
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
class Versions:
    """Of one session. ``pyspark`` is the Python side, ``spark`` the JVM's; ``delta`` is that
    of Delta Kernel, empty where there is none."""

    pyspark: str
    spark: str
    scala: str
    java: str
    delta: str


def versions_of(session: Any) -> Versions:
    """What the driver of a session runs. Reads five words from its JVM."""
    from pyspark import __version__ as pyspark

    jvm = session._jvm
    return Versions(
        pyspark=pyspark,
        spark=str(session.sparkContext.version),
        scala=str(jvm.scala.util.Properties.versionNumberString()),
        java=str(jvm.java.lang.System.getProperty("java.version")),
        delta=_kernel_version(jvm),
    )


def _kernel_version(jvm: Any) -> str:
    from py4j.protocol import Py4JJavaError

    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    try:
        found = loader.loadClass(_KERNEL).getField("KERNEL_VERSION").get(None)
    except Py4JJavaError:
        return ""
    return str(found)


def refuse_others(found: Versions) -> None:
    """Raises UsageError where a version is not one this library is made for."""
    if _minor(found.pyspark) != _minor(found.spark):
        raise UsageError(
            f"PySpark is {found.pyspark} and the Spark it speaks to is {found.spark}",
            why="both sides of a session must be of one version",
            do="Use the spark-submit of this PySpark, or unset SPARK_HOME",
            pyspark=found.pyspark,
            spark=found.spark,
        )
    if _minor(found.spark) != SPARK:
        raise _other("Spark", found.spark, SPARK, f"Use a Spark {SPARK} cluster: {_INSTALL}")
    if _minor(found.scala) != SCALA:
        raise _other("Scala", found.scala, SCALA, f"Use the Spark that is built for Scala {SCALA}")
    if _feature(found.java) < MINIMUM_JAVA:
        remedy = f"Point JAVA_HOME at a JDK or JRE {MINIMUM_JAVA} or later, on every host"
        raise _other("Java", found.java, f"{MINIMUM_JAVA} or later", remedy)
    if not found.delta:
        raise UsageError(
            "this Spark session has no Delta",
            why=f"the class {_KERNEL} is not on its class path",
            do=f"start it with --packages {DELTA_PACKAGE} --conf spark.sql.extensions={EXTENSION} "
            f"--conf spark.sql.catalog.spark_catalog={CATALOG}, or have `rangeland submit` "
            "write the whole command",
        )
    if _minor(found.delta) != DELTA:
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
    """``4.2`` of ``4.2.0-SNAPSHOT``."""
    return ".".join(version.split(".")[:2])


def _feature(java: str) -> int:
    """8 of ``1.8.0_412``, 17 of ``17.0.15``; 0 where it cannot be read."""
    found = re.match(r"(?:1\.)?(\d+)", java)
    return int(found.group(1)) if found else 0
