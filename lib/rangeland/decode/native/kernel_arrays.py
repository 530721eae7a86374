"""What all kernels have in common: how they are called, their memory, and the Arrow arrays made of
it.

A kernel writes straight into Arrow buffers from the default memory pool. They are allocated at the
largest size they may need (memory that is never touched costs nothing) and cut to size afterwards.
The interpreter's lock is released during a call.

Limit: the input of one call must be smaller than 2 GiB, so that no column exceeds what 32-bit
offsets can address. Callers split their input well before that, by memory (see
``dialects/kafka/records``).
"""

from __future__ import annotations

import ctypes
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
import pyarrow as pa

from rangeland.decode import columns
from rangeland.errors import Bug

MAX_BYTES = (1 << 31) - 1
"""Arrow's offsets into a column of bytes are int32."""
SLACK = 64
"""The same as in kernel.c, which copies in blocks that may go past the end."""
CAPACITY = 100  # as in kernel.c
POINTER = ctypes.c_void_p
INT32 = ctypes.c_int32
INT64 = ctypes.c_int64


R = TypeVar("R", bound=tuple[Any, ...])


class KernelFunction(Generic[R]):
    """A function of the library. Its last argument is a struct of 64-bit numbers that it fills;
    ``result`` is a NamedTuple with the same fields. The function itself returns a fault, or 0 for
    none."""

    def __init__(
        self,
        library: ctypes.CDLL,
        name: str,
        arguments: Sequence[Any],
        result: type[R],
        *,
        is_void: bool = False,
    ) -> None:
        self._function = getattr(library, name)
        self._function.argtypes = [*arguments, POINTER]
        self._function.restype = None if is_void else INT32
        self._make: Any = result._make  # type: ignore[attr-defined]
        self._numbers = INT64 * len(result._fields)  # type: ignore[attr-defined]

    def __call__(self, *arguments: Any) -> tuple[R, int]:
        numbers = self._numbers()
        fault = self._function(*arguments, numbers) or 0
        result = self._make(numbers)
        if fault == CAPACITY:
            raise Bug(
                "the decode kernel ran out of the memory it was given",
                why="its capacities are upper bounds",
                **result._asdict(),
            )
        return result, fault


def struct_of(numbers: Sequence[int], buffers: Sequence[pa.Buffer]) -> ctypes.Array[ctypes.c_int64]:
    """A struct of 64-bit numbers followed by the addresses of buffers, in the kernel's order."""
    fields = (*numbers, *(buffer.address for buffer in buffers))
    return (INT64 * len(fields))(*fields)


def as_buffer(data: Any) -> pa.Buffer:
    return data if type(data) is pa.Buffer else pa.py_buffer(data)


def as_int64(number: int) -> int:
    """The nearest number that the kernel accepts; every offset lies within these limits."""
    return max(-1 << 63, min(number, (1 << 63) - 1))


def check_fits_in_one_call(size: int) -> None:
    if size > MAX_BYTES:
        raise Bug(
            f"{size} bytes were given to one call of the decoder",
            why=f"it takes {MAX_BYTES}, so that no column exceeds what Arrow can address",
            bytes=size,
            max_bytes=MAX_BYTES,
        )


def allocate(*sizes: int) -> list[pa.Buffer]:
    return [pa.allocate_buffer(size, resizable=True) for size in sizes]


class GrowingColumns(ABC):
    """The columns that a kernel fills, and their memory: each has three buffers, for validity,
    values and data.

    ``numbers`` has, for each column, the struct that the kernel knows. From ``capacity`` on, its
    numbers are the room in rows, the room in bytes of data, and the addresses of the buffers.
    ``levels``: columns of the same level always have the same number of rows.
    """

    def __init__(self, numbers: np.ndarray, capacity: int, levels: Sequence[int]) -> None:
        self.numbers = numbers
        self._capacity = capacity
        self._levels = levels
        self._buffers: list[list[Any]] = [[None, None, None] for _ in numbers]

    @abstractmethod
    def set_rows(self, index: int, row_count: int) -> None:
        """Makes room for this many rows of a column."""

    def set_bytes(self, index: int, size: int) -> None:
        """Makes room for this many bytes of data."""
        self.resize(index, 2, size + SLACK)
        self.numbers[index, self._capacity + 1] = size

    def grow(self, index: int, wanted: int) -> None:
        """Makes room for this many more bytes, or for more rows in all columns of the same level:
        reading a payload again for each of the columns would take too long."""
        rows, size = map(int, self.numbers[index, self._capacity : self._capacity + 2])
        if wanted:
            self.set_bytes(index, size + max(size, wanted))
            return
        for at, level in enumerate(self._levels):
            lacks_room = self.numbers[at, self._capacity] < 2 * rows
            if level == self._levels[index] and lacks_room:
                self.set_rows(at, 2 * rows)

    def resize(self, index: int, which: int, size: int) -> int:
        """Resizes a buffer, keeping its contents; returns its previous size."""
        buffer = self._buffers[index][which]
        begin = 0
        if buffer is None:
            buffer = self._buffers[index][which] = pa.allocate_buffer(size, resizable=True)
        else:
            begin = buffer.size
            buffer.resize(size)
        self.numbers[index, self._capacity + 2 + which] = buffer.address
        return begin

    def as_array(self, index: int, which: int, kind: Any) -> Any:
        """The contents of a buffer, which may be changed in place."""
        return np.frombuffer(self._buffers[index][which], kind)

    def cut(self, index: int, which: int, size: int) -> pa.Buffer:
        """A buffer that will not grow any more."""
        return cut(self._buffers[index][which], size)


def with_room(count: int) -> int:
    """A first estimate, based on the previous count."""
    return int(count) + int(count) // 4


def cut(buffer: pa.Buffer, size: int) -> pa.Buffer:
    if buffer.size != size:
        buffer.resize(size, shrink_to_fit=True)
    return buffer


def binary_array(
    kind: pa.DataType, row_count: int, buffers: Sequence[pa.Buffer], size: int, nulls: int = 0
) -> pa.Array:
    """An array of binary values or texts. ``buffers``: offsets, data and, if there may be nulls,
    validity."""
    offsets, data, *valid = buffers
    validity = valid[0] if nulls else None
    return pa.Array.from_buffers(
        kind, row_count, [validity, cut(offsets, 4 * row_count + 4), cut(data, size)], nulls
    )


def number_array(
    field: pa.Field, row_count: int, data: pa.Buffer, nulls: int = 0, valid: pa.Buffer | None = None
) -> pa.Array:
    values = cut(data, row_count * (field.type.bit_width // 8))
    return pa.Array.from_buffers(field.type, row_count, [valid if nulls else None, values], nulls)


def plain_array(numbers: np.ndarray, kind: pa.DataType) -> pa.Array:
    """An array of these numbers. ``pa.array`` and ``pa.scalar`` would import pandas, which takes a
    new Python worker longer than reading a small slice."""
    return pa.Array.from_buffers(kind, len(numbers), [None, pa.py_buffer(numbers)])


def text_array(texts: Sequence[str]) -> pa.Array:
    """The same as ``plain_array``, for a column of texts."""
    encoded = [text.encode() for text in texts]
    offsets = np.cumsum([0, *map(len, encoded)], dtype=np.int32)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(b"".join(encoded))]
    return pa.Array.from_buffers(pa.string(), len(texts), buffers)


class HeaderNumbers(Protocol):
    """The part of a kernel's result that concerns the headers it has written."""

    @property
    def rows(self) -> int: ...
    @property
    def headers(self) -> int: ...
    @property
    def header_key_bytes(self) -> int: ...
    @property
    def header_value_bytes(self) -> int: ...
    @property
    def header_value_nulls(self) -> int: ...
    @property
    def rows_without_headers(self) -> int: ...
    @property
    def keys_beyond_ascii(self) -> int: ...


def header_column(
    result: HeaderNumbers,
    lists: Sequence[pa.Buffer],
    keys: Sequence[pa.Buffer],
    values: Sequence[pa.Buffer],
) -> pa.Array:
    """The column of headers. ``lists``: offsets and validity of the rows."""
    rows = result.rows
    count = result.headers
    names = binary_array(pa.string(), count, keys, result.header_key_bytes)
    if result.keys_beyond_ascii:
        names = _as_text(names)
    contents = binary_array(
        pa.binary(), count, values, result.header_value_bytes, result.header_value_nulls
    )
    items = pa.StructArray.from_arrays([names, contents], fields=list(columns.HEADER))
    offsets, valid = lists
    without = result.rows_without_headers
    buffers = [valid if without else None, cut(offsets, 4 * rows + 4)]
    return pa.Array.from_buffers(columns.HEADERS.type, rows, buffers, without, children=[items])


def _as_text(keys: pa.Array) -> pa.Array:
    """Turns header keys that are not all ASCII into text; they stay unchanged if they are UTF-8."""
    try:
        keys.validate(full=True)
    except pa.ArrowInvalid:
        raw = keys.view(pa.binary())
        return pa.array([columns.header_key(key.as_py()) for key in raw], pa.string())
    return keys
