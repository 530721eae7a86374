"""The columns of a dialect's rows: those of all dialects, then its own."""

from __future__ import annotations

import pyarrow as pa

from rangeland.decode.columns import row_schema
from rangeland.decode.payload.row_format import RowFormat
from rangeland.dialects.dialect import load_dialect


def rows_of(dialect: str) -> pa.Schema:
    """The columns that ``read_slices`` returns, and that land unless a transform changes them.
    Raises JobFileError for an unknown dialect."""
    capabilities = load_dialect(dialect).capabilities
    return row_schema(broker=capabilities.numbered_per_broker, extra=capabilities.columns)


def typed_rows(dialect: str, row_format: RowFormat | None) -> pa.Schema:
    """The columns of rows whose keys and values have been decoded."""
    rows = rows_of(dialect)
    return rows if row_format is None else row_format.schema(rows)
