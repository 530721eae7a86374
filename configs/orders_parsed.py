"""The transform of ``orders-parsed.yaml``: from rows of the log to rows of orders."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

ORDER = "id BIGINT, customer STRING, amount DECIMAL(12, 2)"


def parsed(rows: DataFrame) -> DataFrame:
    """Tombstones are dropped, and so counted as filtered. A value that is not such JSON gives
    nulls, not an error: one bad record must not stop the topic."""
    order = F.from_json(F.col("value").cast("string"), ORDER)
    return (
        rows.where(F.col("value").isNotNull())
        .withColumn("order", order)
        .select("topic", "partition", "offset", "timestamp", "order.*")
    )
