"""A transform: keys and values as text, without tombstones.

It keeps topic, partition and offset, so that offsets without a row are counted as filtered.
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F


def with_text(rows: DataFrame) -> DataFrame:
    text = F.udf(as_text, "string")
    return rows.where("value is not null").select(
        "topic",
        "partition",
        "offset",
        "timestamp",
        text("key").alias("key"),
        text("value").alias("value"),
    )


def as_text(data: bytes | None) -> str | None:
    """The text, with escapes for bytes that are not UTF-8."""
    return None if data is None else bytes(data).decode(errors="backslashreplace")
