"""Delta's statistics of one file, collected batch by batch. Pure: Arrow in, JSON out.

Delta uses them to skip files, so a bound may be loose but never wrong: strings are cut to 32
characters, with a tie-breaker on the upper bound, timestamps are in milliseconds, with the upper
bound rounded up, and a column with a NaN gets no bounds. Binary, boolean and nested columns get
only a null count.
"""

from __future__ import annotations

import datetime as dt
import json
import math
from contextlib import suppress
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from rangeland.delta.table_metadata import AddedFile, indexed_columns
from rangeland.untrusted import JsonFields, Unreadable

STRING_PREFIX = 32

_ASCII_MAX = "\x7f"
_UNICODE_MAX = "\U0010ffff"
_EPOCH = dt.datetime(1970, 1, 1)


def has_bounds(kind: pa.DataType) -> bool:
    """Whether Delta keeps a minimum and a maximum for columns of this type."""
    if pt.is_dictionary(kind):
        return has_bounds(kind.value_type)
    return bool(
        pt.is_integer(kind)
        or pt.is_floating(kind)
        or pt.is_decimal(kind)
        or pt.is_date(kind)
        or pt.is_timestamp(kind)
        or pt.is_string(kind)
        or pt.is_large_string(kind)
    )


def may_hold(file: AddedFile, column: str, value: str) -> bool:
    """Whether a file may contain a row with this text in a column; False only if its partition or
    its statistics rule that out."""
    if column in file.partition_values:
        return file.partition_values[column] == value
    try:
        stats = JsonFields.parse(file.stats or "{}")
        if stats.get("numRecords") == 0:
            return False
        low, high = (stats.fields(side, {}).get(column) for side in ("minValues", "maxValues"))
    except Unreadable:
        return True  # another writer's statistics prove nothing
    return not (isinstance(low, str) and isinstance(high, str)) or low <= value <= high


def rows_in(file: AddedFile, unknown: int) -> int:
    """The number of rows in a file according to its statistics; ``unknown`` if they do not say."""
    with suppress(Unreadable):
        return JsonFields.parse(file.stats or "{}").number("numRecords", default=unknown)
    return unknown


class StatsCollector:
    """Statistics of the rows passed to ``add`` so far. Struct columns are left out: their
    statistics are optional, and are needed only for skipping."""

    def __init__(self, schema: pa.Schema, columns: frozenset[str] | None = None) -> None:
        names = indexed_columns(schema) if columns is None else columns
        self._fields = [f for f in schema if f.name in names and not pt.is_struct(f.type)]
        self._bounded = [f for f in self._fields if has_bounds(f.type)]
        self._rows = 0
        self._nulls = {f.name: 0 for f in self._fields}
        self._low: dict[str, Any] = {}
        self._high: dict[str, Any] = {}
        self._unbounded: set[str] = set()

    def add(self, table: pa.Table) -> None:
        self._rows += table.num_rows
        for f in self._fields:
            self._nulls[f.name] += table.column(f.name).null_count
        for f in self._bounded:
            if f.name not in self._unbounded:
                self._widen(f, table.column(f.name))

    def _widen(self, f: pa.Field, column: pa.ChunkedArray) -> None:
        if pt.is_floating(f.type) and pc.any(pc.is_nan(column)).as_py():
            self._unbounded.add(f.name)
            self._low.pop(f.name, None)
            self._high.pop(f.name, None)
            return
        low, high = _bounds(column)
        if low is None:
            return
        name = f.name
        self._low[name] = min(low, self._low.get(name, low))
        self._high[name] = max(high, self._high.get(name, high))

    @property
    def rows(self) -> int:
        return self._rows

    def as_json(self) -> str:
        """Delta's JSON, without the bounds that it cannot express (years past 9999)."""
        bounds = ((self._low, False), (self._high, True))
        low, high = (
            {f.name: _spell(side[f.name], f.type, up=up) for f in self._bounded if f.name in side}
            for side, up in bounds
        )
        return json.dumps(
            {
                "numRecords": self._rows,
                "minValues": {name: value for name, value in low.items() if value is not None},
                "maxValues": {name: value for name, value in high.items() if value is not None},
                "nullCount": self._nulls,
            },
            separators=(",", ":"),
        )


def _bounds(column: pa.ChunkedArray) -> tuple[Any, Any]:
    """The smallest and largest value, as Python values that can be compared; timestamps as Arrow's
    integers, since there is no ``datetime`` outside the years 1 to 9999."""
    if pt.is_dictionary(column.type):
        column = pc.unique(column.cast(column.type.value_type))
    if pt.is_timestamp(column.type):
        column = column.cast(pa.timestamp("us", column.type.tz), safe=False).cast(pa.int64())
    elif pt.is_date(column.type):
        column = column.cast(pa.date32(), safe=False).cast(pa.int32())
    ends = pc.min_max(column)
    return ends["min"].as_py(), ends["max"].as_py()


def _spell(value: Any, kind: pa.DataType, *, up: bool) -> Any:
    """A bound as Delta writes it; None if Delta cannot express it."""
    if isinstance(value, str):
        if "\x00" in value:  # some readers would stop there
            return None
        return upper_prefix(value) if up else value[:STRING_PREFIX]
    if pt.is_dictionary(kind):
        kind = kind.value_type
    if pt.is_timestamp(kind):
        return _instant(value, utc=kind.tz is not None, up=up)
    if pt.is_date(kind):
        return _day(value)
    if isinstance(value, Decimal):
        return _decimal(value)
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def upper_prefix(text: str, length: int = STRING_PREFIX) -> str | None:
    """A short string that is not below ``text`` in UTF-8 order; None if there is none.

    The tie-breaker must be greater than the first character that is cut off, so characters that are
    themselves the greatest possible are kept.
    """
    if len(text) <= length:
        return text
    for cut in range(length, min(len(text), 2 * length)):
        if text[cut] < _ASCII_MAX:
            return text[:cut] + _ASCII_MAX
        if text[cut] < _UNICODE_MAX:
            return text[:cut] + _UNICODE_MAX
    return text if len(text) <= 2 * length else None


def _decimal(value: Decimal) -> int | float | None:
    """The number for JSON; None if it has more than the 15 digits that most parsers keep."""
    if value == value.to_integral_value() and abs(value) < 10**15:
        return int(value)
    return float(value) if Decimal(repr(float(value))) == value else None


def _instant(micros: int, *, utc: bool, up: bool) -> str | None:
    millis = -((-micros) // 1000) if up else micros // 1000
    try:
        when = _EPOCH + dt.timedelta(milliseconds=millis)
    except OverflowError:
        return None
    return when.isoformat(timespec="milliseconds") + ("Z" if utc else "")


def _day(days: int) -> str | None:
    try:
        return (_EPOCH + dt.timedelta(days=days)).date().isoformat()
    except OverflowError:
        return None
