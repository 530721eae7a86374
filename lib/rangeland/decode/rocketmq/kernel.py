"""The fast decoder of stored messages: memory for the compiled kernel, and Arrow of what it
wrote.

As in ``kernel``: one call for all messages, straight into Arrow buffers that are taken at
their upper bound and cut to size at the end. Checksums and properties are the kernel's work
too.

Rules: no format knowledge here, that is ``stored.h``; the structs mirror those there.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, Protocol, cast, get_type_hints

import numpy as np
import pyarrow as pa

from rangeland.decode import columns
from rangeland.decode.kafka.kernel import (
    CAPACITY,
    MAX_BYTES,
    SLACK,
    allocate,
    as_text,
    cut,
    struct_of,
)
from rangeland.decode.rocketmq.layout import (
    LOG_APPEND_TIME,
    SMALLEST,
    STORED,
    DecodedMessages,
    MessageWalk,
    StoredFault,
    bad_stored,
)
from rangeland.errors import Bug

_MAX_INT64 = (1 << 63) - 1
_SMALLEST_PROPERTY = 2  # a key of one byte, and what ends it

_Output = struct_of(
    "_Output",
    "row_capacity header_capacity byte_capacity",
    "key_offsets key_data key_valid value_offsets value_data offsets timestamps born "
    "timestamp_valid born_valid codecs "
    "list_offsets list_valid header_key_offsets header_key_data "
    "header_value_offsets header_value_data header_value_valid",
)


_Tags = struct_of("_Tags", "count", "data ends")


class _StoredNumbers(Protocol):
    """The fields of the kernel's result, in their order."""

    messages: int
    end: int
    last_offset: int
    rows: int
    packed: int
    key_bytes: int
    value_bytes: int
    key_nulls: int
    headers: int
    header_key_bytes: int
    header_value_bytes: int
    header_value_nulls: int
    rows_without_headers: int
    keys_beyond_ascii: int
    timestamp_nulls: int
    born_nulls: int


_Sum = struct_of("_Sum", " ".join(get_type_hints(_StoredNumbers)))


class RocketmqKernel:
    """The functions of one loaded library. See ``stored.StoredDecoder``."""

    def __init__(self, library: ctypes.CDLL) -> None:
        pointer, number = ctypes.c_void_p, ctypes.c_int64
        self._decode = library.rangeland_decode_stored
        self._decode.restype = ctypes.c_int32
        self._decode.argtypes = [pointer, number, number, number, pointer, pointer, pointer]

    def walk_stored(self, data: Any) -> MessageWalk:
        buffer = pa.py_buffer(data)
        result = _Sum()
        fault = self._decode(
            buffer.address, buffer.size, 0, _MAX_INT64, None, None, ctypes.addressof(result)
        )
        return _walked(cast(_StoredNumbers, result), fault)

    def decode_stored(
        self, data: Any, from_offset: int, until_offset: int, tags: Sequence[bytes] = ()
    ) -> DecodedMessages:
        buffer = pa.py_buffer(data)
        if buffer.size > MAX_BYTES:
            raise Bug(
                f"{buffer.size} bytes were given to one call of the decoder",
                why=f"it takes {MAX_BYTES}, so that no column passes what Arrow can address",
                bytes=buffer.size,
                max_bytes=MAX_BYTES,
            )
        output = _Room(buffer.size)
        names = pa.py_buffer(b"".join(tags) + b"\0")  # never nothing: the kernel looks at it
        ends = np.cumsum([len(tag) for tag in tags], dtype=np.int32)
        wanted = _Tags(len(tags), names.address, ends.ctypes.data)
        result = _Sum()
        fault = self._decode(
            buffer.address,
            buffer.size,
            max(0, min(from_offset, _MAX_INT64)),
            max(0, min(until_offset, _MAX_INT64)),
            ctypes.addressof(wanted),
            ctypes.addressof(output.struct),
            ctypes.addressof(result),
        )
        found = cast(_StoredNumbers, result)
        if fault == CAPACITY:
            raise Bug(
                "the decode kernel ran out of the room it was given",
                why="its capacities are upper bounds",
                position=found.end,
            )
        if fault:
            raise bad_stored(StoredFault(fault), found.last_offset, found.end)
        return DecodedMessages(output.batch(found), output.codecs(found), _walked(found, 0))


def _walked(found: _StoredNumbers, fault: int) -> MessageWalk:
    return MessageWalk(
        found.messages, found.end, found.last_offset, StoredFault(fault) if fault else None
    )


class _Room:
    """Buffers for as many rows and headers as there can be in so many bytes."""

    def __init__(self, size: int) -> None:
        rows, headers, data = size // SMALLEST, size // _SMALLEST_PROPERTY + 1, size + SLACK
        bits = rows // 8 + 1
        self._key = allocate(4 * rows + 4, data, bits)
        self._value = allocate(4 * rows + 4, data)
        self._numbers = allocate(8 * rows, 8 * rows, 8 * rows, bits, bits, rows)
        self._lists = allocate(4 * rows + 4, bits)
        self._header_key = allocate(4 * headers + 4, data)
        self._header_value = allocate(4 * headers + 4, data, headers // 8 + 1)
        buffers = [*self._key, *self._value, *self._numbers, *self._lists]
        buffers += [*self._header_key, *self._header_value]
        self.struct = _Output(rows, headers, size, *(buffer.address for buffer in buffers))

    def batch(self, found: _StoredNumbers) -> pa.RecordBatch:
        rows = found.rows
        offsets, timestamps, born, stamped, is_born, _ = self._numbers
        value_offsets, value_data = self._value
        arrays = [
            _binary(rows, found.key_nulls, self._key, found.key_bytes),
            pa.Array.from_buffers(
                columns.VALUE.type,
                rows,
                [None, cut(value_offsets, 4 * rows + 4), cut(value_data, found.value_bytes)],
                0,
            ),
            _numbers(columns.OFFSET.type, rows, offsets),
            _numbers(columns.TIMESTAMP.type, rows, timestamps, found.timestamp_nulls, stamped),
            pa.repeat(pa.scalar(LOG_APPEND_TIME, columns.TIMESTAMP_TYPE.type), rows),
            self._headers(found),
            _numbers(columns.TIMESTAMP.type, rows, born, found.born_nulls, is_born),
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=STORED)

    def _headers(self, found: _StoredNumbers) -> pa.Array:
        rows, headers = found.rows, found.headers
        key_offsets, key_data = self._header_key
        key_buffers = [
            None,
            cut(key_offsets, 4 * headers + 4),
            cut(key_data, found.header_key_bytes),
        ]
        keys = pa.Array.from_buffers(pa.string(), headers, key_buffers, 0)
        if found.keys_beyond_ascii:
            keys = as_text(keys)
        nulls = found.header_value_nulls
        values = _binary(headers, nulls, self._header_value, found.header_value_bytes)
        items = pa.StructArray.from_arrays([keys, values], fields=list(columns.HEADER))
        list_offsets, list_valid = self._lists
        without = found.rows_without_headers
        validity = list_valid if without else None
        lists = [validity, cut(list_offsets, 4 * rows + 4)]
        return pa.Array.from_buffers(columns.HEADERS.type, rows, lists, without, children=[items])

    def codecs(self, found: _StoredNumbers) -> np.ndarray[Any, Any] | None:
        if not found.packed:
            return None
        return np.frombuffer(self._numbers[-1], np.int8, found.rows)


def _binary(rows: int, nulls: int, room: list[pa.Buffer], size: int) -> pa.Array:
    offsets, data, valid = room
    buffers = [valid if nulls else None, cut(offsets, 4 * rows + 4), cut(data, size)]
    return pa.Array.from_buffers(pa.binary(), rows, buffers, nulls)


def _numbers(
    kind: pa.DataType, rows: int, data: pa.Buffer, nulls: int = 0, valid: pa.Buffer | None = None
) -> pa.Array:
    return pa.Array.from_buffers(kind, rows, [valid if nulls else None, cut(data, 8 * rows)], nulls)
