"""The driver's JVM, as far as Delta Kernel needs it: whether Spark runs in it does not matter."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class SparkJvm:
    """A driver's JVM. ``gateway`` is py4j's, ``hadoop`` the Hadoop configuration that a Spark
    session there has, ``settings`` are those of Spark."""

    gateway: Any
    hadoop: Any
    settings: Mapping[str, str]

    @property
    def classes(self) -> Any:
        """py4j's view of the JVM's classes."""
        return self.gateway.jvm


def jvm_of(spark: SparkSession) -> SparkJvm:
    """The JVM of a session, which need not have been made yet (see ``deferred_session``)."""
    own: SparkJvm | None = getattr(spark, "spark_jvm", None)
    if own is not None:
        return own
    context = spark.sparkContext
    settings = dict(context.getConf().getAll())
    return SparkJvm(context._gateway, context._jsc.hadoopConfiguration(), settings)


def without_context(gateway: Any) -> SparkJvm:
    """The JVM before it has a SparkContext: what one would be made with."""
    classes = gateway.jvm
    conf = classes.org.apache.spark.SparkConf()
    hadoop = classes.org.apache.spark.deploy.SparkHadoopUtil.get().newConfiguration(conf)
    return SparkJvm(gateway, hadoop, {pair._1(): pair._2() for pair in conf.getAll()})
