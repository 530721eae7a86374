"""The columns that the kernel's payload decoders fill: their table, their memory, their arrays.

A table of columns is in preorder, as in ``payload_columns.h``: a struct is followed by its fields,
a list by its items, a map by its entries (a struct of key and value). The table is made once per
schema; the buffers are allocated for each array of payloads, and grow while the kernel fills them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rangeland.decode.native.kernel_arrays import (
    GrowingColumns,
    plain_array,
    text_array,
    with_room,
)
from rangeland.decode.payload.payload_decoder import MAX_DECODED_BYTES, PayloadSchemaError

MAX_COLUMNS = 10_000
MAX_DEPTH = 64
"""How deeply types may be nested: the kernel recurses on its own stack."""
EMPTY_STRUCT = pa.bool_()
"""The column for a type without fields, because Parquet has no empty groups: true where it is
set."""


class ColumnKind(IntEnum):
    BOOL = 1
    INT32 = 2
    INT64 = 3
    FLOAT = 4
    DOUBLE = 5
    DECIMAL = 6
    BINARY = 7
    TEXT = 8
    LIST = 9
    STRUCT = 10


_KINDS = {
    pa.bool_(): ColumnKind.BOOL,
    pa.int32(): ColumnKind.INT32,
    pa.date32(): ColumnKind.INT32,
    pa.int64(): ColumnKind.INT64,
    pa.timestamp("us"): ColumnKind.INT64,
    pa.timestamp("us", "UTC"): ColumnKind.INT64,
    pa.float32(): ColumnKind.FLOAT,
    pa.float64(): ColumnKind.DOUBLE,
    pa.binary(): ColumnKind.BINARY,
    pa.string(): ColumnKind.TEXT,
}
_WIDTHS = {
    ColumnKind.INT32: 4,
    ColumnKind.INT64: 8,
    ColumnKind.FLOAT: 4,
    ColumnKind.DOUBLE: 8,
    ColumnKind.DECIMAL: 16,
}
_FIELDS = 12  # of column_t
_ROWS, _BYTES, _CAPACITY = 5, 6, 7
_FEWEST_ROWS, _FEWEST_BYTES = 64, 1024


@dataclass
class PayloadColumn:
    kind: ColumnKind
    arrow_type: pa.DataType
    symbols: dict[int, str] | None = None
    """The symbols of an enum: the text for each number that the kernel writes; other numbers are
    shown as numbers."""
    text_of: Callable[[bytes], str] | None = None
    """Makes the text of values that the kernel writes as bytes and that are shown as text."""
    end: int = 0
    level: int = -1
    """The list to whose items the column belongs: columns of the same level have the same number of
    rows."""

    @property
    def has_bytes(self) -> bool:
        return self.kind in (ColumnKind.BINARY, ColumnKind.TEXT)

    @property
    def has_offsets(self) -> bool:
        return self.has_bytes or self.kind is ColumnKind.LIST

    @property
    def cost(self) -> int:
        """The memory that a row takes, in bytes, including its validity and the longest symbol."""
        longest = max((len(text.encode()) for text in (self.symbols or {}).values()), default=0)
        return 1 + _data_bytes(self.kind, 1) + longest


@dataclass
class ColumnTable:
    """The columns of one schema in the kernel's form. To build the table, ``add`` a column, then
    the columns inside it, then ``close`` it."""

    columns: list[PayloadColumn] = field(default_factory=list)
    open: list[int] = field(default_factory=list)
    """The columns that are not closed yet."""

    def add(
        self,
        arrow_type: pa.DataType,
        symbols: dict[int, str] | None = None,
        text_of: Callable[[bytes], str] | None = None,
    ) -> int:
        index = len(self.columns)
        if index >= MAX_COLUMNS:
            raise PayloadSchemaError(f"the schema has more than {MAX_COLUMNS} columns")
        if len(self.open) >= MAX_DEPTH:
            raise PayloadSchemaError(f"the schema is nested more than {MAX_DEPTH} levels deep")
        kind = ColumnKind.INT32 if symbols is not None else _kind(arrow_type)
        if text_of is not None:
            kind = ColumnKind.BINARY
        lists = (at for at in reversed(self.open) if self.columns[at].kind is ColumnKind.LIST)
        level = next(lists, -1)
        self.columns.append(PayloadColumn(kind, arrow_type, symbols, text_of, level=level))
        self.open.append(index)
        return index

    def close(self, index: int) -> None:
        self.columns[index].end = len(self.columns)
        self.open.pop()

    @contextmanager
    def entries_of(self, index: int) -> Iterator[None]:
        """Adds to a map the struct of its entries and their key, around the column for the
        values."""
        kind = self.columns[index].arrow_type
        if not pa.types.is_map(kind):
            yield
            return
        entries = self.add(pa.struct([kind.key_field, kind.item_field]))
        self.leaf(kind.key_type)
        yield
        self.close(entries)

    def leaf(self, arrow_type: pa.DataType, symbols: dict[int, str] | None = None) -> int:
        index = self.add(arrow_type, symbols)
        self.close(index)
        return index

    def fields_of(self, index: int) -> list[int]:
        """The columns directly inside a column."""
        fields = []
        at = index + 1
        while at < self.columns[index].end:
            fields.append(at)
            at = self.columns[at].end
        return fields

    @cached_property
    def _template(self) -> np.ndarray:
        """One ``column_t`` for each column, without memory."""
        rows = np.zeros((len(self.columns), _FIELDS), np.int64)
        for row, column in zip(rows, self.columns, strict=True):
            limit = 0
            if column.kind is ColumnKind.DECIMAL:
                limit = 10**column.arrow_type.precision
            low = np.uint64(limit & ((1 << 64) - 1)).astype(np.int64)
            row[:_ROWS] = (column.kind, column.end, column.cost, low, limit >> 64)
        return rows

    @cached_property
    def cost(self) -> int:
        """The bytes that a row takes in all columns together."""
        return sum(column.cost for column in self.columns)

    def buffers(self, row_count: int, payload_bytes: int, last: np.ndarray | None) -> ColumnBuffers:
        """Buffers for this many payloads. ``last``: the numbers of another array, for a first
        estimate."""
        least = sum(column.cost for column in self.columns if column.level < 0)
        row_count = min(row_count, MAX_DECODED_BYTES // least + 1)
        return ColumnBuffers(
            self, row_count, payload_bytes, self._template if last is None else last
        )


class ColumnBuffers(GrowingColumns):
    """One use of a table: the memory that the kernel fills."""

    def __init__(
        self, table: ColumnTable, row_count: int, payload_bytes: int, last: np.ndarray
    ) -> None:
        self._columns = table.columns
        self._fields_of = table.fields_of
        levels = [column.level for column in table.columns]
        super().__init__(table._template.copy(), _CAPACITY, levels)  # rows of column_t
        for index, column in enumerate(self._columns):
            guess = row_count if column.level < 0 else with_room(last[index, _ROWS])
            self.set_rows(index, max(guess, _FEWEST_ROWS))
            if column.has_bytes:
                size = max(payload_bytes // 16, with_room(last[index, _BYTES]), _FEWEST_BYTES)
                self.set_bytes(index, size)
            if column.has_offsets:
                self.as_array(index, 1, np.int32)[0] = 0

    def set_rows(self, index: int, row_count: int) -> None:
        valid = row_count // 8 + 1
        begin = self.resize(index, 0, valid)
        self.as_array(index, 0, np.uint8)[begin:valid] = 0xFF
        self.resize(index, 1, _data_bytes(self._columns[index].kind, row_count))
        self.numbers[index, _CAPACITY] = row_count

    def array(self, index: int = 0) -> pa.Array:
        """The values of a column."""
        column = self._columns[index]
        numbers = self.numbers[index]
        rows = int(numbers[_ROWS])
        buffers = [self.cut(index, 0, rows // 8 + 1)]
        if column.kind is not ColumnKind.STRUCT:
            buffers.append(self.cut(index, 1, _data_bytes(column.kind, rows)))
        if column.has_bytes:
            buffers.append(self.cut(index, 2, int(numbers[_BYTES])))
        children = [self.array(at) for at in self._fields_of(index)]
        stored = column.arrow_type
        if column.symbols is not None or column.text_of is not None:
            stored = pa.int32() if column.text_of is None else pa.binary()
        values = pa.Array.from_buffers(stored, rows, buffers, children=children)
        if pa.types.is_map(stored):
            return last_of_each_key(values)
        if column.text_of is not None:
            return _as_text(values, column.text_of)
        return values if column.symbols is None else _as_symbols(values, column.symbols)


def last_of_each_key(maps: pa.MapArray) -> pa.MapArray:
    """Maps in which every key occurs only once: of several entries with the same key, the last
    counts."""
    lengths = np.diff(maps.offsets.to_numpy())
    if not len(lengths) or lengths.max() < 2:
        return maps
    owners = np.repeat(np.arange(len(lengths)), lengths)
    keys = maps.keys.dictionary_encode()
    entries = owners * len(keys.dictionary) + keys.indices.to_numpy()
    _, from_end = np.unique(entries[::-1], return_index=True)
    if len(from_end) == len(owners):
        return maps
    last = np.sort(len(owners) - 1 - from_end)
    counts = np.bincount(owners[last], minlength=len(lengths))
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    indexes = plain_array(last, pa.int64())
    parts = pa.StructArray.from_arrays(
        [maps.keys.take(indexes), maps.items.take(indexes)],
        fields=[maps.type.key_field, maps.type.item_field],
    )
    valid = maps.buffers()[0]
    buffers = [valid, pa.py_buffer(offsets)]
    return pa.Array.from_buffers(maps.type, len(maps), buffers, maps.null_count, 0, [parts])


def struct_type(fields: Sequence[tuple[str, pa.DataType]]) -> pa.DataType:
    """A struct of nullable fields; raises an error for names that cannot occur together in a
    table."""
    names: dict[str, str] = {}
    for name, _ in fields:
        earlier = names.setdefault(name.lower(), name)
        if earlier is not name:
            raise PayloadSchemaError(f"the fields {earlier} and {name} would be the same column")
    return pa.struct([pa.field(name, kind) for name, kind in fields])


def list_type(item: pa.DataType) -> pa.DataType:
    return pa.list_(pa.field("element", item))


def children_of(kind: pa.DataType) -> list[pa.Field]:
    """The fields of a struct, the element of an array, the value of a map."""
    if pa.types.is_struct(kind):
        return list(kind)
    if pa.types.is_list(kind):
        return [kind.value_field]
    return [kind.item_field] if pa.types.is_map(kind) else []


def decimal_type(precision: int, scale: int) -> pa.DataType:
    if not 0 < precision <= 38 or not 0 <= scale <= precision:
        raise PayloadSchemaError(
            f"decimal({precision},{scale}) is out of range: tables take up to 38 digits"
        )
    return pa.decimal128(precision, scale)


def _kind(arrow_type: pa.DataType) -> ColumnKind:
    if pa.types.is_struct(arrow_type):
        return ColumnKind.STRUCT
    if pa.types.is_list(arrow_type) or pa.types.is_map(arrow_type):
        return ColumnKind.LIST
    if pa.types.is_decimal(arrow_type):
        return ColumnKind.DECIMAL
    return _KINDS[arrow_type]


def _data_bytes(kind: ColumnKind, row_count: int) -> int:
    if kind is ColumnKind.STRUCT:
        return 0
    if kind is ColumnKind.BOOL:
        return row_count // 8 + 1
    return _WIDTHS[kind] * row_count if kind in _WIDTHS else 4 * row_count + 4


def _as_text(values: pa.Array, text_of: Callable[[bytes], str]) -> pa.Array:
    texts = [None if value is None else text_of(value) for value in values.to_pylist()]
    return pa.array(texts, pa.string())


def _as_symbols(numbers: pa.Array, symbols: dict[int, str]) -> pa.Array:
    known_numbers = plain_array(np.array([*symbols], np.int32), pa.int32())
    at = pc.index_in(numbers, value_set=known_numbers)
    texts: Any = text_array([*symbols.values()]).take(at)
    return (
        texts
        if at.null_count == numbers.null_count
        else pc.coalesce(texts, numbers.cast(pa.string()))
    )
