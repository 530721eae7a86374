"""The parts of the driver's JVM that Delta Kernel needs, whether or not Spark runs in it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class SparkJvm:
    """A driver's JVM. ``gateway`` is py4j's, ``settings`` the SparkConf: reading all of it takes
    hundreds of calls. ``hadoop`` is the Hadoop configuration that a Spark session there gives to
    Delta, with all settings of the session; before there is one (``has_session``), it lacks those
    of ``settings``."""

    gateway: Any
    hadoop: Any
    settings: Any
    has_session: bool = True

    @property
    def classes(self) -> Any:
        """py4j's view of the JVM's classes."""
        return self.gateway.jvm


def jvm_of(spark: SparkSession) -> SparkJvm:
    """The JVM of a session, even of one that is not made yet (see ``deferred_session``)."""
    own: SparkJvm | None = getattr(spark, "spark_jvm", None)
    if own is not None:
        return own
    context = spark.sparkContext
    hadoop = spark._jsparkSession.sessionState().newHadoopConf()
    return SparkJvm(context._gateway, hadoop, context._jsc.sc().conf())


def without_context(gateway: Any) -> SparkJvm:
    """The JVM before it has a SparkContext, with the configuration that one would get."""
    classes = gateway.jvm
    conf = classes.org.apache.spark.SparkConf()
    hadoop = classes.org.apache.spark.deploy.SparkHadoopUtil.get().newConfiguration(conf)
    return SparkJvm(gateway, hadoop, conf, has_session=False)


def elements_of(collection: Any) -> list[Any]:
    """The elements of a Java collection. py4j's own iterators end with an exception of Java, which
    PySpark translates with some eighty calls."""
    array = collection.toArray()
    return [array[index] for index in range(len(array))]
