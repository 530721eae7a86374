"""A small Spark session on this machine, for the demo. All of its files are in one folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rangeland.spark.spark_session import open_spark


def open_local_spark(app_name: str, folder: Path) -> Any:
    """The active session if there is one, else a small local one. Raises as ``open_spark``."""
    return open_spark(
        app_name,
        {
            "spark.local.dir": str(folder / "spark"),
            "spark.sql.warehouse.dir": str(folder / "warehouse"),
            # A table of a demo is small; two hundred partitions of nothing take their time.
            "spark.sql.shuffle.partitions": "2",
            "spark.databricks.delta.snapshotPartitions": "2",
        },
        makes_archive=True,
    )
