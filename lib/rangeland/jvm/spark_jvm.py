"""The parts of the driver's JVM that Delta Kernel needs, whether or not Spark runs in it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class SparkJvm:
    """A driver's JVM. ``gateway`` is py4j's; ``settings`` is the SparkConf, which takes hundreds of
    calls to read completely. ``hadoop`` is the Hadoop configuration that a Spark session there
    gives to Delta, with all settings of the session; as long as there is no session
    (``has_session``), it lacks those in ``settings``."""

    gateway: Any
    hadoop: Any
    settings: Any
    has_session: bool = True

    @property
    def classes(self) -> Any:
        """py4j's view of the JVM's classes."""
        return self.gateway.jvm


def jvm_of(spark: SparkSession) -> SparkJvm:
    """The JVM of a session, even of one that has not been made yet (see ``deferred_session``)."""
    own: SparkJvm | None = getattr(spark, "spark_jvm", None)
    if own is not None:
        return own
    context = spark.sparkContext
    hadoop = spark._jsparkSession.sessionState().newHadoopConf()
    return SparkJvm(context._gateway, hadoop, context._jsc.sc().conf())


def without_context(gateway: Any) -> SparkJvm:
    """The JVM before it has a SparkContext, with the configuration that a SparkContext would
    get."""
    classes = gateway.jvm
    conf = classes.org.apache.spark.SparkConf()
    hadoop = classes.org.apache.spark.deploy.SparkHadoopUtil.get().newConfiguration(conf)
    return SparkJvm(gateway, hadoop, conf, has_session=False)


def elements_of(collection: Any) -> list[Any]:
    """The elements of a Java collection. py4j's own iterators end with a Java exception, which
    takes PySpark some eighty calls to translate."""
    array = collection.toArray()
    return [array[index] for index in range(len(array))]
