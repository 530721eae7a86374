"""The sets of jars that only tests and the benchmark need, by name."""

from __future__ import annotations

import platform

from rangeland.jvm.jar_sets import IN_SPARK, LIBRARY_JARS, JarSet, by_name
from rangeland.testing.broker_jars import BROKER_JARS, LOG4J

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

TEST_JARS = by_name(
    # Console tools: from 4.0 on they are not among the broker's own jars.
    JarSet(
        "kafka-tools-4.1.0",
        (
            "org.apache.kafka:kafka-tools:4.1.0",
            "org.apache.kafka:kafka_2.13:4.1.0",
            LOG4J,
        ),
    ),
    # Its list of dependencies omits two that its server needs. Without an SLF4J binding it logs
    # nothing.
    JarSet(
        "zookeeper-3.9.3",
        (
            "org.apache.zookeeper:zookeeper:3.9.3",
            "io.dropwizard.metrics:metrics-core:4.1.12.1",
            "org.xerial.snappy:snappy-java:1.1.10.5",
            "org.slf4j:slf4j-reload4j:1.7.36",
        ),
    ),
    # Its brokers look for times in another way than those since 5.1.1.
    JarSet(
        "rocketmq-5.0.0",
        (
            "org.apache.rocketmq:rocketmq-namesrv:5.0.0",
            "org.apache.rocketmq:rocketmq-broker:5.0.0",
            "org.apache.rocketmq:rocketmq-client:5.0.0",
        ),
    ),
    # A proxy, and the protocol of its clients.
    JarSet("rocketmq-proxy-5.5.0", ("org.apache.rocketmq:rocketmq-proxy:5.5.0",)),
    # A schema registry with all its dependencies, which its own list does not name.
    JarSet(
        "apicurio-2.6.13",
        ("io.apicurio:apicurio-registry-app:2.6.13.Final",),
        classifier="all",
        packaging="tar.gz",
    ),
    # The jars of Spark 3.5 that are made for one Scala: PySpark 3.5 has them for 2.12.
    JarSet(
        "spark-3.5.9-scala-2.13",
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
    JarSet("delta-4.0.0", ("io.delta:delta-spark_2.13:4.0.0",), excludes=IN_SPARK),
    # An S3 server, without the dependencies of backends other than a folder, and without
    # the web server, which is in its own jar.
    JarSet(
        "s3proxy-4.1.0",
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
    # A YARN in one process, on top of Spark's own Hadoop. Its list of dependencies omits
    # those of its test classes, which it needs.
    JarSet(
        "hadoop-minicluster-3.5.0",
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
    JarSet(
        "postgres-17.5.0",
        (f"io.zonky.test.postgres:embedded-postgres-binaries-linux-{_POSTGRES_CPU}:17.5.0",),
    ),
    # Spark's own Kafka source, which the benchmark compares with, without the jars that PySpark
    # has. Its token provider is not published in that version. Version 4.0.0 of the provider
    # fits, and is a separate set: one set would take the newer of the two versions.
    JarSet(
        "spark-kafka-4.2.0",
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
    JarSet(
        "spark-kafka-token-provider-4.0.0",
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
    JarSet(
        "spark-avro-4.1.1",
        ("org.apache.spark:spark-avro_2.13:4.1.1",),
        excludes=(
            "org.apache.spark:spark-sql_2.13",
            "org.apache.spark:spark-tags_2.13",
            "org.scala-lang:*",
            "org.scala-lang.modules:*",
        ),
    ),
)
ALL_JARS = LIBRARY_JARS | BROKER_JARS | TEST_JARS
"""Every set of the library, of its brokers and of its tests."""
