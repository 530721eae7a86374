"""The sets of jars that this library needs, as Maven coordinates; ``jars`` fetches them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class JarSet:
    """Jars that are fetched together. ``name`` is also the name of their folder in the cache.
    ``coordinates`` and ``excludes`` have the forms ``group:artifact:version`` and
    ``group:artifact``; an exclude may use ``*`` for the artifact. ``classifier`` selects a single
    file that contains everything, instead of a jar and its dependencies; ``packaging`` is jar or
    ``tar.gz``. A set that is not ``transitive`` consists of only the jars named."""

    name: str
    coordinates: tuple[str, ...]
    excludes: tuple[str, ...] = ()
    classifier: str = ""
    packaging: str = "jar"
    transitive: bool = True


def by_name(*sets: JarSet) -> dict[str, JarSet]:
    return {one.name: one for one in sets}


IN_SPARK = ("org.apache.spark:*", "org.scala-lang:*", "org.apache.hadoop:*")

LIBRARY_JARS = by_name(
    # For a session's class path: it then starts without resolving anything.
    JarSet("delta-4.4.0", ("io.delta:delta-spark_4.2_2.13:4.4.0",), excludes=IN_SPARK),
    # Delta Kernel and those dependencies that not every supported Spark has. Its own lists of
    # dependencies also name libraries that Spark has, and that must not be there twice.
    JarSet(
        "delta-kernel-4.4.0",
        (
            "io.delta:delta-kernel-api:4.4.0",
            "io.delta:delta-kernel-defaults:4.4.0",
            "org.apache.parquet:parquet-hadoop:1.16.0",
        ),
        excludes=(
            "io.delta:delta-storage",
            "io.delta:delta-kernel-unitycatalog",
            "org.apache.hadoop:*",
            "com.fasterxml.jackson.core:*",
            "com.fasterxml.jackson.datatype:*",
            "com.github.luben:*",
            "commons-pool:*",
            "org.roaringbitmap:*",
            "org.xerial.snappy:*",
            "io.airlift:*",
            "javax.annotation:*",
            "com.google.code.findbugs:*",
            "org.slf4j:*",
            "org.apache.logging.log4j:*",
        ),
    ),
    JarSet("delta-4.4.0-spark-4.1", ("io.delta:delta-spark_4.1_2.13:4.4.0",), excludes=IN_SPARK),
    JarSet("delta-4.4.0-spark-4.0", ("io.delta:delta-spark_4.0_2.13:4.4.0",), excludes=IN_SPARK),
    JarSet(
        "delta-3.3.2-scala-2.12", ("io.delta:delta-spark_2.12:3.3.2",), excludes=("org.antlr:*",)
    ),
    JarSet(
        "delta-3.3.2-scala-2.13", ("io.delta:delta-spark_2.13:3.3.2",), excludes=("org.antlr:*",)
    ),
    # For tables on S3: what is needed in addition to Spark's own Hadoop. Only those parts of
    # Amazon's SDK that it uses, because the bundle of all parts takes hundreds of megabytes.
    JarSet(
        "hadoop-aws-3.5.0",
        (
            "org.apache.hadoop:hadoop-aws:3.5.0",
            "software.amazon.awssdk:s3:2.35.4",
            "software.amazon.awssdk:s3-transfer-manager:2.35.4",
            "software.amazon.awssdk:sts:2.35.4",
        ),
        excludes=("software.amazon.awssdk:bundle", "io.netty:*", "org.slf4j:*"),
    ),
    # For tables on Azure.
    JarSet(
        "hadoop-azure-3.5.0",
        ("org.apache.hadoop:hadoop-azure:3.5.0",),
        excludes=(
            "commons-codec:*",
            "commons-logging:*",
            "io.netty:*",
            "org.slf4j:*",
        ),
    ),
    # For tables on Google storage. It contains all of its dependencies.
    JarSet("hadoop-gcp-3.5.0", ("org.apache.hadoop:hadoop-gcp:3.5.0",), excludes=("org.slf4j:*",)),
)
