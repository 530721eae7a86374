"""Computes partition values from rows, formats them for Delta's log and escapes them for paths.
Pure.

Days and hours are in UTC, whatever the session's time zone, so that a record lands in the same
partition everywhere. If a batch has few runs of equal values, as it usually does because logs are
nearly in order of time, it is cut into those runs; otherwise its rows are gathered by value.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from rangeland.delta.table_metadata import Function, PartitionColumn

NULL_FOLDER = "__HIVE_DEFAULT_PARTITION__"

Values = tuple[str | None, ...]

_ESCAPED = frozenset("\"#%'*/:=?\\\x7f{[]^") | frozenset(chr(code) for code in range(32))
_RUNS_PER_VALUE = 4
"""The most runs per value: beyond this, sorting the rows is cheaper than writing so many short
pieces."""
_EPOCH = dt.datetime(1970, 1, 1)
_CALENDAR = (1 - _EPOCH.toordinal(), dt.date.max.toordinal() + 1 - _EPOCH.toordinal())
"""The first day of the year 1 and the day after the last of the year 9999, in days since 1970."""
_UNITS_PER_DAY = {"s": 86_400, "ms": 86_400 * 10**3, "us": 86_400 * 10**6, "ns": 86_400 * 10**9}


def escape(text: str) -> str:
    """Escapes a name or value for a partition path, as Hive and Spark do; also escapes NUL, which
    they leave alone and no path can contain."""
    return "".join(f"%{ord(c):02X}" if c in _ESCAPED else c for c in text)


def folder(columns: tuple[PartitionColumn, ...], values: Values) -> str:
    """``name=value`` for each partition column, joined by ``/``; empty if there are none."""
    pairs = zip(columns, values, strict=True)
    return "/".join(f"{escape(c.name)}={NULL_FOLDER if v is None else escape(v)}" for c, v in pairs)


def compute(column: pa.Array, function: Function) -> pa.Array:
    """The partition values of a source column. A time outside the years 1 to 9999 gets null, like a
    record without a time, because neither Spark nor Delta can format it."""
    column = _within_calendar(column)
    if function is Function.DATE:
        return _utc(column).cast(pa.date32(), safe=False)
    if function is Function.HOUR:
        hours = pc.floor_temporal(_utc(column), unit="hour")
        return hours.cast(pa.timestamp(column.type.unit, "UTC"))
    return column


def _within_calendar(column: pa.Array) -> pa.Array:
    if pt.is_timestamp(column.type):
        numbers, units = column.cast(pa.int64()), _UNITS_PER_DAY[column.type.unit]
    elif pt.is_date32(column.type):
        numbers, units = column.cast(pa.int32()).cast(pa.int64()), 1
    else:
        return column
    # Every 64-bit number of nanoseconds lies within the calendar.
    first, end = (max(-1 << 63, min(day * units, (1 << 63) - 1)) for day in _CALENDAR)
    is_within = pc.and_(pc.greater_equal(numbers, first), pc.less(numbers, end))
    if pc.all(is_within).as_py() is not False:
        return column
    return pc.if_else(is_within, column, pa.scalar(None, column.type))


def _utc(column: pa.Array) -> pa.Array:
    """The same instants without a time zone, so that days and hours are in UTC."""
    return column.cast(pa.int64()).cast(pa.timestamp(column.type.unit))


def spell(value: pa.Scalar) -> str | None:
    """A partition value as Delta writes it. Timestamps include their zone; an empty string is null,
    as in Delta."""
    kind = value.type
    plain = value.as_py() if value.is_valid else None
    if plain is None or plain == "":
        return None
    if pt.is_boolean(kind):
        return "true" if plain else "false"
    if pt.is_timestamp(kind):
        micros = value.cast(pa.timestamp("us", kind.tz), safe=False).value
        when = _EPOCH + dt.timedelta(microseconds=micros)
        return when.isoformat("T" if kind.tz else " ", "microseconds") + ("Z" if kind.tz else "")
    return str(plain)


def with_computed(batch: pa.RecordBatch, columns: tuple[PartitionColumn, ...]) -> pa.RecordBatch:
    """The batch with the computed partition columns added."""
    for column in columns:
        if column.function is not Function.VALUE:
            values = compute(batch.column(column.source), column.function)
            batch = batch.append_column(column.name, values)
    return batch


def split(
    batch: pa.RecordBatch, columns: tuple[PartitionColumn, ...]
) -> Iterator[tuple[Values, pa.RecordBatch]]:
    """The batch, cut by partition. Where possible, the results share the batch's memory."""
    if not columns:
        yield (), batch
        return
    codes, values = _encode(batch, columns)
    edges = np.flatnonzero(np.diff(codes)) + 1
    starts = np.concatenate(([0], edges)).tolist()
    if len(starts) <= _RUNS_PER_VALUE * len(values):
        ends = [*starts[1:], batch.num_rows]
        for start, end in zip(starts, ends, strict=True):
            yield values[int(codes[start])], batch.slice(start, end - start)
        return
    order = np.argsort(codes, kind="stable")
    bounds = np.searchsorted(codes[order], np.arange(len(values) + 1))
    for code, key in enumerate(values):
        yield key, batch.take(pa.array(order[bounds[code] : bounds[code + 1]]))


def _encode(
    batch: pa.RecordBatch, columns: tuple[PartitionColumn, ...]
) -> tuple[np.ndarray, list[Values]]:
    """A small number for each row, and the partition values that each number stands for."""
    codes = np.zeros(batch.num_rows, dtype=np.int64)
    texts_of_columns: list[list[str | None]] = []
    for column in columns:
        values = compute(batch.column(column.source), column.function)
        if not pt.is_dictionary(values.type):
            values = values.dictionary_encode(null_encoding="encode")
        texts = [spell(value) for value in values.dictionary]
        indices = pc.fill_null(values.indices, len(texts))  # a given dictionary may lack null
        texts_of_columns.append([*texts, None])
        codes = codes * (len(texts) + 1) + indices.to_numpy(zero_copy_only=False)
    unique, dense = np.unique(codes, return_inverse=True)
    return dense, [_decode(int(code), texts_of_columns) for code in unique]


def _decode(code: int, texts_of_columns: list[list[str | None]]) -> Values:
    values: list[str | None] = []
    for texts in reversed(texts_of_columns):
        code, index = divmod(code, len(texts))
        values.append(texts[index])
    return tuple(reversed(values))
