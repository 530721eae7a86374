"""The sets of jars that this library and its tests need, by name, as Maven coordinates: ``jars``
fetches them."""

from __future__ import annotations

import platform
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class JarSet:
    """Jars that are fetched together. ``coordinates`` and ``excludes`` are
    ``group:artifact:version`` and ``group:artifact``; an exclude may use ``*`` for the artifact.
    ``classifier`` names one file with everything, instead of a jar and its dependencies;
    ``packaging`` is jar or ``tar.gz``. A set that is not ``transitive`` has only the named
    jars."""

    coordinates: tuple[str, ...]
    excludes: tuple[str, ...] = ()
    classifier: str = ""
    packaging: str = "jar"
    transitive: bool = True


_LOG4J = "org.apache.logging.log4j:log4j-slf4j-impl:2.24.3"
_IN_SPARK = ("org.apache.spark:*", "org.scala-lang:*", "org.apache.hadoop:*")
_SPARK_PARTS = [
    "catalyst",
    "common-utils",
    "core",
    "kvstore",
    "launcher",
    "network-common",
    "network-shuffle",
    "sketch",
    "sql-api",
    "sql",
    "tags",
    "unsafe",
]
_JSON4S_PARTS = ("ast", "core", "jackson", "scalap")
_POSTGRES_CPU = "arm64v8" if platform.machine() == "aarch64" else "amd64"

# To support another server, add an entry. Comments explain what the server needs but does not
# list as a dependency.
JAR_SETS: dict[str, JarSet] = {
    # Without an SLF4J binding these brokers log nothing. 4.4.0 depends on an artifact that no
    # repository has; only command line tools need it.
    "kafka-4.4.0": JarSet(
        ("org.apache.kafka:kafka_2.13:4.4.0", _LOG4J),
        excludes=("org.apache.kafka:kafka-tools-api",),
    ),
    "kafka-4.1.0": JarSet(("org.apache.kafka:kafka_2.13:4.1.0", _LOG4J)),
    "kafka-3.9.1": JarSet(
        ("org.apache.kafka:kafka_2.13:3.9.1", "org.slf4j:slf4j-reload4j:1.7.36"),
    ),
    # ZooKeeper 3.4 comes with these. JAXB left the JDK after 8; the cluster id needs it.
    "kafka-0.11.0.3": JarSet(
        ("org.apache.kafka:kafka_2.11:0.11.0.3", "javax.xml.bind:jaxb-api:2.3.1"),
    ),
    "kafka-0.10.2.2": JarSet(
        ("org.apache.kafka:kafka_2.11:0.10.2.2", "javax.xml.bind:jaxb-api:2.3.1"),
    ),
    "kafka-0.9.0.1": JarSet(("org.apache.kafka:kafka_2.11:0.9.0.1",)),
    "kafka-0.8.2.2": JarSet(("org.apache.kafka:kafka_2.11:0.8.2.2",)),
    # Console tools: from 4.0 on they are not among the broker's own jars.
    "kafka-tools-4.1.0": JarSet(
        (
            "org.apache.kafka:kafka-tools:4.1.0",
            "org.apache.kafka:kafka_2.13:4.1.0",
            _LOG4J,
        )
    ),
    # Its list of dependencies omits two that its server needs. Without an SLF4J binding it logs
    # nothing.
    "zookeeper-3.9.3": JarSet(
        (
            "org.apache.zookeeper:zookeeper:3.9.3",
            "io.dropwizard.metrics:metrics-core:4.1.12.1",
            "org.xerial.snappy:snappy-java:1.1.10.5",
            "org.slf4j:slf4j-reload4j:1.7.36",
        )
    ),
    # Its ZooKeeper client and a log binding come with it. Its console tools need jopt-simple, which
    # its list of dependencies omits.
    "jafka-3.0.6": JarSet(("io.jafka:jafka:3.0.6", "net.sf.jopt-simple:jopt-simple:4.3")),
    # Name server, broker and client; the broker brings its own SLF4J (shaded).
    "rocketmq-5.5.0": JarSet(
        (
            "org.apache.rocketmq:rocketmq-namesrv:5.5.0",
            "org.apache.rocketmq:rocketmq-broker:5.5.0",
            "org.apache.rocketmq:rocketmq-client:5.5.0",
        )
    ),
    # A schema registry with all its dependencies, which its own list does not name.
    "apicurio-2.6.13": JarSet(
        ("io.apicurio:apicurio-registry-app:2.6.13.Final",),
        classifier="all",
        packaging="tar.gz",
    ),
    # For a session's class path: it then starts without resolving anything.
    "delta-4.4.0": JarSet(("io.delta:delta-spark_4.2_2.13:4.4.0",), excludes=_IN_SPARK),
    # Delta Kernel and the dependencies that not every supported Spark has. Its own lists of
    # dependencies also name libraries that Spark has, and that must not be there twice.
    "delta-kernel-4.4.0": JarSet(
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
    "delta-4.4.0-spark-4.1": JarSet(("io.delta:delta-spark_4.1_2.13:4.4.0",), excludes=_IN_SPARK),
    "delta-4.4.0-spark-4.0": JarSet(("io.delta:delta-spark_4.0_2.13:4.4.0",), excludes=_IN_SPARK),
    "delta-3.3.2-scala-2.12": JarSet(
        ("io.delta:delta-spark_2.12:3.3.2",), excludes=("org.antlr:*",)
    ),
    "delta-3.3.2-scala-2.13": JarSet(
        ("io.delta:delta-spark_2.13:3.3.2",), excludes=("org.antlr:*",)
    ),
    # The jars of Spark 3.5 that are made for one Scala, for tests: PySpark 3.5 has them for 2.12.
    "spark-3.5.9-scala-2.13": JarSet(
        (
            *(f"org.apache.spark:spark-{part}_2.13:3.5.9" for part in _SPARK_PARTS),
            "org.scala-lang:scala-compiler:2.13.8",
            "org.scala-lang:scala-library:2.13.8",
            "org.scala-lang:scala-reflect:2.13.8",
            "org.scala-lang.modules:scala-collection-compat_2.13:2.7.0",
            "org.scala-lang.modules:scala-parallel-collections_2.13:1.0.4",
            "org.scala-lang.modules:scala-parser-combinators_2.13:2.3.0",
            "org.scala-lang.modules:scala-xml_2.13:2.1.0",
            *(f"org.json4s:json4s-{part}_2.13:3.7.0-M11" for part in _JSON4S_PARTS),
            "com.fasterxml.jackson.module:jackson-module-scala_2.13:2.15.2",
            "com.twitter:chill_2.13:0.10.0",
        ),
        transitive=False,
    ),
    # The oldest for Spark 4.0.
    "delta-4.0.0": JarSet(("io.delta:delta-spark_2.13:4.0.0",), excludes=_IN_SPARK),
    # For tables on S3: what Spark's own Hadoop needs in addition. Only the parts of Amazon's SDK
    # that it uses, since the bundle of all parts is hundreds of megabytes.
    "hadoop-aws-3.5.0": JarSet(
        (
            "org.apache.hadoop:hadoop-aws:3.5.0",
            "software.amazon.awssdk:s3:2.35.4",
            "software.amazon.awssdk:s3-transfer-manager:2.35.4",
            "software.amazon.awssdk:sts:2.35.4",
        ),
        excludes=("software.amazon.awssdk:bundle", "io.netty:*", "org.slf4j:*"),
    ),
    # For tables on Azure.
    "hadoop-azure-3.5.0": JarSet(
        ("org.apache.hadoop:hadoop-azure:3.5.0",),
        excludes=(
            "commons-codec:*",
            "commons-logging:*",
            "io.netty:*",
            "org.slf4j:*",
        ),
    ),
    # For tables on Google storage. It contains all its dependencies.
    "hadoop-gcp-3.5.0": JarSet(("org.apache.hadoop:hadoop-gcp:3.5.0",), excludes=("org.slf4j:*",)),
    # Google's own connector, for tests: only this one can be pointed at an emulator.
    "gcs-connector-4.0.0": JarSet(
        ("com.google.cloud.bigdataoss:gcs-connector:4.0.0",), classifier="shaded"
    ),
    # An S3 server for tests, without the dependencies of backends other than a folder, and without
    # the web server, which is in its own jar.
    "s3proxy-4.1.0": JarSet(
        ("org.gaul:s3proxy:4.1.0", "jakarta.servlet:jakarta.servlet-api:6.0.0"),
        excludes=(
            "com.azure:*",
            "com.github.openstack4j.core:*",
            "com.github.openstack4j.core.connectors:*",
            "com.google.cloud:*",
            "io.grpc:*",
            "io.opentelemetry:*",
            "io.opentelemetry.semconv:*",
            "io.prometheus:*",
            "org.apache.sshd:*",
            "org.eclipse.jetty.ee10:*",
        ),
    ),
    # A YARN in one process, for tests, on top of Spark's own Hadoop. Its list of dependencies omits
    # those of its test classes, which it needs.
    "hadoop-minicluster-3.5.0": JarSet(
        (
            "org.apache.hadoop:hadoop-client-minicluster:3.5.0",
            "org.junit.jupiter:junit-jupiter-api:5.11.4",
            "org.bouncycastle:bcpkix-jdk18on:1.78.1",
        ),
        excludes=(
            "org.apache.hadoop:hadoop-client-api",
            "org.apache.hadoop:hadoop-client-runtime",
        ),
    ),
    # PostgreSQL itself, packed for Java's tests: the database of an Airflow.
    "postgres-17.5.0": JarSet(
        (f"io.zonky.test.postgres:embedded-postgres-binaries-linux-{_POSTGRES_CPU}:17.5.0",)
    ),
    # Spark's own Kafka source, which the benchmark compares with, without the jars that PySpark
    # has. Its token provider is not published in that version. Version 4.0.0 of the provider
    # fits, and is a separate set: one set would take the newer of the two versions.
    "spark-kafka-4.2.0": JarSet(
        (
            "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
            "org.apache.kafka:kafka-clients:3.9.2",
            "org.apache.commons:commons-pool2:2.13.1",
        ),
        excludes=(
            "org.apache.spark:spark-token-provider-kafka-0-10_2.13",
            "org.apache.spark:spark-sql_2.13",
            "org.apache.spark:spark-core_2.13",
            "org.apache.spark:spark-tags_2.13",
            "org.apache.hadoop:*",
            "org.scala-lang:*",
            "org.scala-lang.modules:*",
            "org.slf4j:*",
            "org.lz4:*",
            "at.yawk.lz4:*",
            "com.github.luben:*",
            "org.xerial.snappy:*",
            "com.google.code.findbugs:*",
        ),
    ),
    "spark-kafka-token-provider-4.0.0": JarSet(
        ("org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",),
        excludes=(
            "org.apache.spark:spark-core_2.13",
            "org.apache.spark:spark-tags_2.13",
            "org.apache.kafka:*",
            "org.apache.hadoop:*",
            "org.scala-lang:*",
            "org.scala-lang.modules:*",
            "org.slf4j:*",
        ),
    ),
    # Spark's own Avro functions, for the benchmark. They are not published for 4.2.0;
    # version 4.1.1 fits, since the decoder is in Spark SQL itself.
    "spark-avro-4.1.1": JarSet(
        ("org.apache.spark:spark-avro_2.13:4.1.1",),
        excludes=(
            "org.apache.spark:spark-sql_2.13",
            "org.apache.spark:spark-tags_2.13",
            "org.scala-lang:*",
            "org.scala-lang.modules:*",
        ),
    ),
}
