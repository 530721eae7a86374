"""Data frames as Arrow tables, and their schemas; PySpark's releases offer them in different
ways."""

from __future__ import annotations

import inspect
from typing import Any

import pyarrow as pa


def arrow_schema(schema: Any) -> pa.Schema:
    """The Arrow schema of a data frame, with timestamps in UTC."""
    from pyspark.sql.pandas import types

    convert: Any = types.to_arrow_schema
    parameters = inspect.signature(convert).parameters
    return convert(schema, **({"timezone": "UTC"} if "timezone" in parameters else {}))


def collect_rows(frame: Any) -> pa.Table:
    """The rows of a small data frame."""
    if hasattr(frame, "toArrow"):
        return frame.toArrow()
    batches = frame._collect_as_arrow()  # before Spark 4.0
    return pa.Table.from_batches(batches, schema=arrow_schema(frame.schema))
