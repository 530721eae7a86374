"""Silences what local executors and PySpark log about exceptions that are reported anyway."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from threading import Lock
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_NOISY = (
    "org.apache.spark.executor.Executor",
    "org.apache.spark.scheduler.TaskSetManager",
)
_PYSPARK = "SQLQueryContextLogger"
"""PySpark's logger of full Java stack traces."""


class SharedSilence:
    """Loggers that are silent as long as anyone wants them to be. Log levels belong to the process,
    and jobs run side by side: the first job to come saves the levels, the last to leave restores
    them."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._users = 0
        self._restore: Callable[[], None] = lambda: None

    @contextmanager
    def held(self, silence: Callable[[], Callable[[], None]]) -> Iterator[None]:
        """``silence`` returns a function that restores the levels."""
        with self._lock:
            if self._users == 0:
                self._restore = silence()
            self._users += 1
        try:
            yield
        finally:
            with self._lock:
                self._users -= 1
                if self._users == 0:
                    self._restore()


_silence = SharedSilence()


@contextmanager
def quiet_executors(spark: SparkSession) -> Iterator[None]:
    """Silences local executors, which log to our own stderr: they print dozens of lines of Java for
    an exception that is reported anyway. Executors of a cluster keep logging."""
    with _silence.held(lambda: _silence_loggers(spark)):
        yield


def _silence_loggers(spark: SparkSession) -> Callable[[], None]:
    python_logger = logging.getLogger(_PYSPARK)
    python_level = python_logger.level
    python_logger.setLevel(logging.CRITICAL)
    restore_java = _silence_java(spark)

    def restore() -> None:
        python_logger.setLevel(python_level)
        restore_java()

    return restore


def _silence_java(spark: SparkSession) -> Callable[[], None]:
    context = spark.sparkContext
    if not str(context.master).startswith("local"):
        return lambda: None
    jvm: Any = context._jvm
    log4j = jvm.org.apache.logging.log4j
    levels = []
    try:
        for name in _NOISY:
            levels.append((name, log4j.LogManager.getLogger(name).getLevel()))
            log4j.core.config.Configurator.setLevel(name, log4j.Level.OFF)
    except Exception:  # another logging backend
        levels = []

    def restore() -> None:
        with suppress(Exception):  # the JVM may be gone
            for name, level in levels:
                log4j.core.config.Configurator.setLevel(name, level)

    return restore
