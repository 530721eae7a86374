"""The columns of a dialect's rows: those of the contract, and its own behind them."""

from __future__ import annotations

import pyarrow as pa

from rangeland.decode.columns import row_schema
from rangeland.dialects.dialect import load_dialect


def rows_of(dialect: str) -> pa.Schema:
    """What ``read_slices`` gives, and what lands where no transform changes it. Raises
    JobFileError for a dialect that is not there."""
    capabilities = load_dialect(dialect).capabilities
    return row_schema(broker=capabilities.numbered_per_broker, extra=capabilities.columns)
