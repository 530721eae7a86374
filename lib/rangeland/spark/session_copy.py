"""Readers with settings of their own for files that are missing or damaged, and for old dates.

Delta takes these settings from the session to which a frame belongs, not from any option of a
reader; its writer does the same for the rows that it keeps or replaces. The session may be the
user's, with other threads reading in it at the same time, so its settings are never changed: each
reader gets a copy of it, made at that moment, with the same settings, views and functions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrameReader, SparkSession

_MISSING = "spark.sql.files.ignoreMissingFiles"
_CORRUPT = "spark.sql.files.ignoreCorruptFiles"
_CALENDARS = (
    "spark.sql.parquet.datetimeRebaseModeInWrite",
    "spark.sql.parquet.int96RebaseModeInWrite",
)


class SessionCopy:
    """A copy of a session, with these settings. It exists only in the JVM: in Python, its frames
    belong to the original session, because another ``SparkSession`` would take over ``RDD.toDF``
    and might become the active one."""

    def __init__(self, spark: SparkSession, settings: Mapping[str, str]) -> None:
        self._spark = spark
        self._java: Any = spark._jsparkSession.cloneSession()
        for name, value in settings.items():
            self._java.conf().set(name, value)

    @property
    def read(self) -> DataFrameReader:
        reader = self._spark.read
        reader._jreader = self._java.read()
        return reader


def ignoring_missing_files(spark: SparkSession) -> SessionCopy:
    """A copy in which a missing file counts as having no rows."""
    return SessionCopy(spark, {_MISSING: "true"})


def requiring_all_files(spark: SparkSession) -> SessionCopy:
    """A copy in which reading and writing fail if a file is gone or damaged, whatever the session
    itself ignores. Old dates and times are written as they are, which Spark before 4.0 would refuse
    by default; Rangeland's own files contain them in that form too."""
    calendars = dict.fromkeys(_CALENDARS, "CORRECTED")
    return SessionCopy(spark, {_MISSING: "false", _CORRUPT: "false", **calendars})
