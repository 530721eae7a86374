"""The columns of the quarantine."""

from __future__ import annotations

import pyarrow as pa

from rangeland.decode.columns import HEADER
from rangeland.delta.arrow_schema import UTC_MICROS

_ABORTED = pa.struct([pa.field("producer_id", pa.int64()), pa.field("first_offset", pa.int64())])
RECORD = pa.struct(
    [
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("offset", pa.int64()),
        pa.field("timestamp", UTC_MICROS),
        pa.field("timestampType", pa.int32()),
        pa.field("headers", pa.list_(pa.field("element", HEADER))),
        pa.field("bornTimestamp", UTC_MICROS),
        pa.field("reason", pa.string()),
        pa.field("schema_id", pa.int32()),
        pa.field("position", pa.int32()),
    ]
)
"""An intact record whose key or value cannot be decoded. Its names are those of ``decode.columns``
and of dialects."""
SCHEMA = pa.schema(
    [
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("broker", pa.string()),
        pa.field("topic_id", pa.string()),
        pa.field("from_offset", pa.int64()),
        pa.field("until_offset", pa.int64()),
        pa.field("job", pa.string()),
        pa.field("application", pa.string()),
        pa.field("sequence", pa.int64()),
        pa.field("plan", pa.string()),
        pa.field("reason", pa.string()),
        pa.field("leader", pa.string()),
        pa.field("kept_at", UTC_MICROS),
        pa.field("aborted", pa.list_(pa.field("element", _ABORTED))),
        pa.field("records", pa.binary()),
        pa.field("undecodable", pa.list_(pa.field("element", RECORD))),
    ]
)
