"""A local Spark session that is made in steps, each when it is first needed.

Its JVM runs from the beginning. That is enough for Delta Kernel, and so for every command that
finds nothing to land. The SparkContext is made for the first tasks; the rest, which takes longest,
is made for the first data frame or SQL statement, and a landing without a transform needs neither.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from threading import RLock
from typing import TYPE_CHECKING, Any

from rangeland.jvm.spark_jvm import SparkJvm, without_context

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logging.getLogger(__name__)


class DeferredSession:
    """Stands in for a ``SparkSession``: any attribute that it lacks is looked up in the real
    session, which is made if necessary. ``make_context`` and ``make_session`` are each called once,
    in this order."""

    def __init__(
        self,
        gateway: Any,
        version: str,
        make_context: Callable[[], Any],
        make_session: Callable[[], Any],
    ) -> None:
        self.spark_jvm: SparkJvm = without_context(gateway)
        self.version = version
        """The version of Spark."""
        self._make_context = make_context
        self._make_session = make_session
        self._context: Any = None
        self._session: Any = None
        self._lock = RLock()

    @property
    def has_session(self) -> bool:
        return self._session is not None

    @property
    def parallelism(self) -> int:
        """The number of tasks that run at the same time."""
        runtime = self.spark_jvm.classes.java.lang.Runtime.getRuntime()
        return local_parallelism(self.spark_jvm.settings, runtime.availableProcessors)

    @property
    def sparkContext(self) -> Any:
        with self._lock:
            if self._context is None:
                self._context = _make_timed("SparkContext", self._make_context)
            return self._context

    @property
    def session(self) -> Any:
        """The ``SparkSession`` itself."""
        with self._lock:
            if self._session is None:
                _ = self.sparkContext
                self._session = _make_timed("SparkSession", self._make_session)
            return self._session

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # copy, pickle and the like must not cause a session to be made
            raise AttributeError(name)
        return getattr(self.session, name)


def _make_timed(what: str, make: Callable[[], Any]) -> Any:
    started = time.monotonic()
    part = make()
    logger.info("Made the %s", what, extra={"seconds": round(time.monotonic() - started, 3)})
    return part


def parallelism_of(spark: SparkSession) -> int:
    """How many tasks of a session run at the same time."""
    if isinstance(spark, DeferredSession):
        return spark.parallelism
    return int(spark.sparkContext.defaultParallelism)


def is_local_master(master: str) -> bool:
    """Whether Spark runs in the driver's JVM alone."""
    return master == "local" or master.startswith("local[")


def local_parallelism(settings: Any, processors: Callable[[], int]) -> int:
    """Spark's default parallelism with a local master: ``local``, ``local[4]``, ``local[*]``,
    or one of these with a number of attempts, ``local[4, 2]``."""
    if parallelism := str(settings.get("spark.default.parallelism", "")):
        return int(parallelism)
    threads = (
        str(settings.get("spark.master", ""))
        .removeprefix("local")
        .strip("[]")
        .partition(",")[0]
        .strip()
    )
    if threads == "*":
        return int(processors())
    return int(threads or 1)
