"""The columns of a landed row, as Arrow types: the one place for names, order and nullability.

Decoders return ``RECORDS`` (the contents of the records); ``with_partition`` adds the columns that
turn them into rows. Dialects add their own columns after ``RECORDS``.

Nothing is decoded here, apart from the text of header keys. Names and types are as in Spark's Kafka
source: a record without headers has null, not an empty list. Timestamps are in microseconds, since
Spark accepts no other unit.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa

from rangeland.model import Partition

HEADER = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])

KEY = pa.field("key", pa.binary())
VALUE = pa.field("value", pa.binary())
TOPIC = pa.field("topic", pa.string())
PARTITION = pa.field("partition", pa.int32())
OFFSET = pa.field("offset", pa.int64())
TIMESTAMP = pa.field("timestamp", pa.timestamp("us", tz="UTC"))
TIMESTAMP_TYPE = pa.field("timestampType", pa.int32())
HEADERS = pa.field("headers", pa.list_(HEADER))
BROKER = pa.field("broker", pa.string())

RECORDS = pa.schema([KEY, VALUE, OFFSET, TIMESTAMP, TIMESTAMP_TYPE, HEADERS])

_CACHED_ROWS = 1 << 17
"""A cached column takes a few megabytes, and shorter chunks get slices of it; longer chunks are
rare."""


@dataclass(frozen=True, slots=True)
class LogColumns:
    """The names of the log's own columns in a table. ``prefix`` distinguishes them from the fields
    of values, if these are columns too."""

    prefix: str = ""

    def column_name(self, name: str) -> str:
        return self.prefix + name

    @property
    def topic(self) -> str:
        return self.column_name(TOPIC.name)

    @property
    def partition(self) -> str:
        return self.column_name(PARTITION.name)

    @property
    def broker(self) -> str:
        return self.column_name(BROKER.name)

    @property
    def offset(self) -> str:
        return self.column_name(OFFSET.name)

    @property
    def position(self) -> str:
        """The index of a record in its entry, for logs whose offsets are bytes."""
        return self.column_name("position")


PLAIN_COLUMNS = LogColumns()


def row_schema(*, broker: bool = False, extra: Iterable[pa.Field] = ()) -> pa.Schema:
    """The columns of a row, in order. ``broker``: each broker numbers its own partitions.
    ``extra``: the dialect's own columns, which come last."""
    fields = [KEY, VALUE, TOPIC, PARTITION, OFFSET, TIMESTAMP, TIMESTAMP_TYPE, HEADERS]
    return pa.schema([*fields, *([BROKER] if broker else []), *extra])


def with_partition(batch: pa.RecordBatch, partition: Partition) -> pa.RecordBatch:
    """Complete rows: ``batch`` (``RECORDS``, then extra columns) with topic and partition as
    constant columns, and the broker if the partition has one. Nothing is copied; the constants are
    slices of cached arrays. The columns are those of ``row_schema``."""
    rows = batch.num_rows
    extra = [field for field in batch.schema if field.name not in RECORDS.names]
    constants: dict[str, pa.Array] = {
        TOPIC.name: _constant(partition.topic, TOPIC.type, rows),
        PARTITION.name: _constant(partition.number, PARTITION.type, rows),
    }
    if partition.broker:
        constants[BROKER.name] = _constant(partition.broker, BROKER.type, rows)
    schema = row_schema(broker=bool(partition.broker), extra=extra)
    columns = [
        constants[name] if name in constants else batch.column(name) for name in schema.names
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _constant(value: str | int, kind: pa.DataType, row_count: int) -> pa.Array:
    if row_count > _CACHED_ROWS:
        return _repeat(value, kind, row_count)
    size = 1 << max(row_count - 1, 0).bit_length()
    return _cached_constant(value, kind, size).slice(0, row_count)


def _repeat(value: str | int, kind: pa.DataType, row_count: int) -> pa.Array:
    """An array that repeats one value. ``pa.scalar`` and ``pa.array`` would import pandas, which
    takes a new Python worker longer than reading a small slice."""
    if isinstance(value, int):
        numbers = np.full(row_count, value, np.int32)
        return pa.Array.from_buffers(kind, row_count, [None, pa.py_buffer(numbers)])
    text = value.encode()
    offsets = np.arange(row_count + 1, dtype=np.int32) * len(text)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(text * row_count)]
    return pa.Array.from_buffers(kind, row_count, buffers)


_cached_constant = lru_cache(maxsize=32)(_repeat)


def header_key(raw: bytes) -> str:
    """A header key as Java reads it: UTF-8, with U+FFFD for invalid bytes."""
    return raw.decode("utf-8", _AS_IN_JAVA)


def _replace_as_in_java(error: UnicodeError) -> tuple[str, int]:
    """Replaces an invalid sequence by one U+FFFD, as Java does. Python finds the same sequences,
    with one exception: in Java, an encoded surrogate (ED A0..BF, and a third byte if there is one)
    is one sequence."""
    assert isinstance(error, UnicodeDecodeError)
    encoded = error.object[error.start : error.start + 3]
    if encoded[0] != 0xED or len(encoded) < 2 or not 0xA0 <= encoded[1] <= 0xBF:
        return "\ufffd", error.end
    third = len(encoded) == 3 and 0x80 <= encoded[2] <= 0xBF
    return "\ufffd", error.start + (3 if third else 2)


_AS_IN_JAVA = "rangeland-as-in-java"
codecs.register_error(_AS_IN_JAVA, _replace_as_in_java)


def records_batch(columns: list[Any]) -> pa.RecordBatch:
    """A batch of ``RECORDS``, made from arrays in that order."""
    return pa.RecordBatch.from_arrays(columns, schema=RECORDS)
