"""The columns that the kernel's payload decoders fill: their table, their memory, their arrays.

A table of columns is in preorder, as in ``payload_columns.h``: a struct is followed by its fields,
a list by its items, a map by its entries (a struct of key and value). It is made once per schema;
the buffers are allocated per array of payloads, after the kernel's first pass has counted.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rangeland.decode.native.kernel_arrays import MAX_BYTES, SLACK
from rangeland.decode.payload.payload_decoder import PayloadSchemaError
from rangeland.errors import Bug

MAX_COLUMNS = 10_000
MAX_DEPTH = 64
"""How deeply types may be nested: the kernel walks them with its own stack."""
EMPTY_STRUCT = pa.bool_()
"""What a type without fields becomes, since Parquet has no empty groups: true where it is there."""


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
_ROWS, _BYTES, _NULLS, _ROW_CAPACITY, _BYTE_CAPACITY, _VALID, _DATA, _TEXT = range(4, 12)


@dataclass
class PayloadColumn:
    kind: ColumnKind
    arrow_type: pa.DataType
    symbols: dict[int, str] | None = None
    """For an enum: the text of each number that the kernel writes; others are shown as numbers."""
    text_of: Callable[[bytes], str] | None = None
    """For values that the kernel writes as bytes and that are shown as text."""
    end: int = 0


@dataclass
class ColumnTable:
    """``add`` a column, then those inside it, then ``close`` it."""

    columns: list[PayloadColumn] = field(default_factory=list)
    depth: int = 0

    def add(
        self,
        arrow_type: pa.DataType,
        symbols: dict[int, str] | None = None,
        text_of: Callable[[bytes], str] | None = None,
    ) -> int:
        index = len(self.columns)
        self.depth += 1
        if index >= MAX_COLUMNS:
            raise PayloadSchemaError(f"the schema has more than {MAX_COLUMNS} columns")
        if self.depth > MAX_DEPTH:
            raise PayloadSchemaError(f"the schema is nested more than {MAX_DEPTH} levels deep")
        kind = ColumnKind.INT32 if symbols is not None else _kind(arrow_type)
        if text_of is not None:
            kind = ColumnKind.BINARY
        self.columns.append(PayloadColumn(kind, arrow_type, symbols, text_of))
        return index

    def close(self, index: int) -> None:
        self.columns[index].end = len(self.columns)
        self.depth -= 1

    @contextmanager
    def entries_of(self, index: int) -> Iterator[None]:
        """For a map, the struct of its entries and their key, around the column of the values."""
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
        found, at = [], index + 1
        while at < self.columns[index].end:
            found.append(at)
            at = self.columns[at].end
        return found

    @cached_property
    def _template(self) -> np.ndarray:
        """``column_t`` for each column, without memory."""
        rows = np.zeros((len(self.columns), _FIELDS), np.int64)
        for row, column in zip(rows, self.columns, strict=True):
            limit = 0
            if column.kind is ColumnKind.DECIMAL:
                limit = 10**column.arrow_type.precision
            low = np.uint64(limit & ((1 << 64) - 1)).astype(np.int64)
            row[:4] = (column.kind, column.end, low, limit >> 64)
        return rows

    def buffers(self) -> ColumnBuffers:
        return ColumnBuffers(self, self._template.copy())


class ColumnBuffers:
    """One use of a table: what the kernel counts, and the memory that it fills."""

    def __init__(self, table: ColumnTable, numbers: np.ndarray) -> None:
        self._table = table
        self._numbers = numbers
        self._kept: list[list[pa.Buffer]] = []
        self._marks = np.zeros((len(table.columns), 3), np.int64)

    def sink(self) -> ctypes.Array[ctypes.c_int64]:
        """``sink_t``: for the first pass before ``allocate``, for the second after it."""
        fields = (
            self._numbers.ctypes.data,
            len(self._table.columns),
            int(bool(self._kept)),
            self._marks.ctypes.data,
            0,
            0,
        )
        return (ctypes.c_int64 * len(fields))(*fields)

    def allocate(self) -> None:
        """Memory for what the first pass has counted."""
        for row, column in zip(self._numbers, self._table.columns, strict=True):
            rows, size = int(row[_ROWS]), int(row[_BYTES])
            if max(rows, size) >= MAX_BYTES:
                raise Bug(
                    f"a column of payloads would have {rows} rows and {size} bytes",
                    why="Arrow can address 2 GiB of them",
                )
            row[_ROW_CAPACITY], row[_BYTE_CAPACITY] = rows, size
            sizes = [rows // 8 + 1, _data_bytes(column.kind, rows)]
            if column.kind in (ColumnKind.BINARY, ColumnKind.TEXT):
                sizes.append(size + SLACK)
            kept = [pa.allocate_buffer(n) for n in sizes]
            row[_VALID : _VALID + len(kept)] = [buffer.address for buffer in kept]
            self._kept.append(kept)

    def array(self, index: int = 0) -> pa.Array:
        """The values of a column, after the second pass."""
        column, kept = self._table.columns[index], self._kept[index]
        numbers = self._numbers[index]
        rows, nulls = int(numbers[_ROWS]), int(numbers[_NULLS])
        valid = kept[0] if nulls else None
        match column.kind:
            case ColumnKind.STRUCT:
                arrays = [self.array(at) for at in self._table.fields_of(index)]
                return pa.Array.from_buffers(column.arrow_type, rows, [valid], nulls, 0, arrays)
            case ColumnKind.LIST:
                items = [self.array(index + 1)]
                found = pa.Array.from_buffers(
                    column.arrow_type, rows, [valid, kept[1]], nulls, 0, items
                )
                return last_of_each_key(found) if pa.types.is_map(column.arrow_type) else found
            case ColumnKind.BINARY | ColumnKind.TEXT:
                text = kept[2].slice(0, int(numbers[_BYTES]))
                buffers = [valid, kept[1], text]
                if column.text_of is not None:
                    found = pa.Array.from_buffers(pa.binary(), rows, buffers, nulls)
                    return _as_text(found, column.text_of)
                return pa.Array.from_buffers(column.arrow_type, rows, buffers, nulls)
        if column.symbols is None:
            return pa.Array.from_buffers(column.arrow_type, rows, [valid, kept[1]], nulls)
        found = pa.Array.from_buffers(pa.int32(), rows, [valid, kept[1]], nulls)
        return _as_symbols(found, column.symbols)


def last_of_each_key(maps: pa.MapArray) -> pa.MapArray:
    """Maps in which every key occurs once: of several entries with one key, the last one counts."""
    lengths = np.diff(maps.offsets.to_numpy())
    if not len(lengths) or lengths.max() < 2:
        return maps
    owners = np.repeat(np.arange(len(lengths)), lengths)
    entries = pa.table({"owner": owners, "key": maps.keys, "at": np.arange(len(owners))})
    last = entries.group_by(["owner", "key"]).aggregate([("at", "max")])["at_max"].to_numpy()
    if len(last) == len(owners):
        return maps
    last = np.sort(last)
    counts = np.bincount(owners[last], minlength=len(lengths))
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    parts = pa.StructArray.from_arrays(
        [maps.keys.take(pa.array(last)), maps.items.take(pa.array(last))],
        fields=[maps.type.key_field, maps.type.item_field],
    )
    valid = maps.buffers()[0]
    buffers = [valid, pa.py_buffer(offsets)]
    return pa.Array.from_buffers(maps.type, len(maps), buffers, maps.null_count, 0, [parts])


def struct_type(fields: Sequence[tuple[str, pa.DataType]]) -> pa.DataType:
    """A struct of nullable fields; raises for names that a table cannot have side by side."""
    seen: dict[str, str] = {}
    for name, _ in fields:
        other = seen.setdefault(name.lower(), name)
        if other is not name:
            raise PayloadSchemaError(f"the fields {other} and {name} would be the same column")
    return pa.struct([pa.field(name, kind) for name, kind in fields])


def list_type(item: pa.DataType) -> pa.DataType:
    return pa.list_(pa.field("element", item))


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


def _data_bytes(kind: ColumnKind, rows: int) -> int:
    if kind is ColumnKind.STRUCT:
        return 0
    if kind is ColumnKind.BOOL:
        return rows // 8 + 1
    return _WIDTHS[kind] * rows if kind in _WIDTHS else 4 * rows + 4


def _as_text(values: pa.Array, text_of: Callable[[bytes], str]) -> pa.Array:
    texts = [None if one is None else text_of(one) for one in values.to_pylist()]
    return pa.array(texts, pa.string())


def _as_symbols(numbers: pa.Array, symbols: dict[int, str]) -> pa.Array:
    known = pa.array(list(symbols), pa.int32())
    at = pc.index_in(numbers, value_set=known)
    texts: Any = pa.array(list(symbols.values()), pa.string()).take(at)
    return (
        texts
        if at.null_count == numbers.null_count
        else pc.coalesce(texts, numbers.cast(pa.string()))
    )
