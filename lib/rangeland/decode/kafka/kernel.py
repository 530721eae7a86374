"""The fast decoder: gives the compiled kernel its memory, and makes Arrow of what it wrote.

One call per list of payloads decodes everything but headers straight into Arrow buffers
from the default memory pool; a second call follows only where some record has headers,
since only then is it known how much room they need. The interpreter's lock is free during
both. Buffers are taken at their upper bound (memory that is never touched costs nothing)
and cut to size at the end.

Limit: the payloads of one call hold less than 2 GiB together, so that no column can pass
what 32-bit offsets reach. Callers cut earlier, by memory (see ``dialects/kafka/records``).

Rules: no format knowledge here, that is ``kernel.c``; the structs mirror those there.
"""

from __future__ import annotations

import ctypes
from array import array
from collections.abc import Sequence
from typing import Any, Protocol, cast, get_type_hints

import numpy as np
import pyarrow as pa

from rangeland.decode import columns
from rangeland.decode.kafka.batch_table import BatchRun, Heads, Payloads, StoredBatches
from rangeland.decode.kafka.layout import Fault, MessageRun, Payload, bad_record
from rangeland.errors import Bug

MAX_BYTES = (1 << 31) - 1
SLACK = 64
_SMALLEST_ROW = 6  # bytes read before a row is written: five fields after the length
CAPACITY = 100  # as in kernel.c


def struct_of(name: str, numbers: str, pointers: str = "") -> type[ctypes.Structure]:
    fields = [(field, ctypes.c_int64) for field in numbers.split()]
    fields += [(field, ctypes.c_void_p) for field in pointers.split()]  # type: ignore[misc]
    return type(name, (ctypes.Structure,), {"_fields_": fields})


_Rows = struct_of(
    "_Rows",
    "row_capacity byte_capacity",
    "key_offsets key_data key_valid value_offsets value_data value_valid "
    "offsets timestamps timestamp_valid timestamp_types",
)
_Headers = struct_of(
    "_Headers",
    "row_capacity header_capacity key_capacity value_capacity",
    "list_offsets list_valid key_offsets key_data value_offsets value_data value_valid",
)


class _Numbers(Protocol):
    """The fields of the kernel's result, in its order."""

    rows: int
    key_bytes: int
    value_bytes: int
    key_nulls: int
    value_nulls: int
    headers: int
    header_key_bytes: int
    header_value_bytes: int
    header_value_nulls: int
    rows_without_headers: int
    keys_beyond_ascii: int
    timestamp_nulls: int
    payload: int
    record: int
    position: int


_Result = struct_of("_Result", " ".join(get_type_hints(_Numbers)))
_Run = struct_of("_Run", " ".join(MessageRun._fields))
_BatchRun = struct_of("_BatchRun", " ".join(BatchRun._fields))


class KafkaKernel:
    """The functions of one loaded library."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._rows = library.rangeland_decode_rows
        self._headers = library.rangeland_decode_headers
        for function in (self._rows, self._headers):
            function.restype = ctypes.c_int32
            function.argtypes = [
                ctypes.c_void_p,
                *[ctypes.c_int64] * 3,
                *[ctypes.c_void_p] * 2,
            ]

        self._walk = library.rangeland_walk_messages
        self._walk.restype = None
        self._walk.argtypes = [ctypes.c_void_p, *[ctypes.c_int64] * 2, ctypes.c_void_p]

        self._walk_batches = library.rangeland_walk_batches
        self._walk_batches.restype = None
        self._walk_batches.argtypes = [
            ctypes.c_void_p,
            *[ctypes.c_int64] * 4,
            *[ctypes.c_void_p] * 2,
        ]

    def walk_messages(self, data: Any, max_bytes: int) -> MessageRun:
        """As ``messages_reference.walk_messages``."""
        buffer = data if type(data) is pa.Buffer else pa.py_buffer(data)
        found = _Run()
        self._walk(buffer.address, buffer.size, max_bytes, ctypes.addressof(found))
        run = cast(MessageRun, found)
        return MessageRun(run.messages, run.end, run.first_offset, run.last_offset)

    def walk_batches(
        self, data: Any, begin: int = 0, last_offset: int = -1, heads: Heads | None = None
    ) -> BatchRun:
        """See ``decode.walk_batches``."""
        buffer = data if type(data) is pa.Buffer else pa.py_buffer(data)
        found = _BatchRun()
        capacity, table = (0, None) if heads is None else (len(heads), heads.ctypes.data)
        self._walk_batches(
            buffer.address,
            buffer.size,
            begin,
            last_offset,
            capacity,
            table,
            ctypes.addressof(found),
        )
        run = cast(BatchRun, found)
        return BatchRun(run.batches, run.end, run.last_offset, bool(run.is_all))

    def decode_records(
        self, payloads: Sequence[Payload], from_offset: int, until_offset: int
    ) -> pa.RecordBatch:
        """As ``reference.decode_records``: the same rows, the same errors."""
        call = _Call(payloads, from_offset, until_offset)
        found, arrays = call.run_rows(self._rows)
        headers = call.run_headers(self._headers, found) if found.headers else None
        if headers is None:
            headers = pa.nulls(found.rows, columns.HEADERS.type)
        return columns.records_batch([*arrays, headers])


class _Call:
    """One list of payloads, kept alive and addressed for as long as the kernel reads it."""

    def __init__(self, payloads: Sequence[Payload], from_offset: int, until_offset: int) -> None:
        self.offsets = (as_int64(from_offset), as_int64(until_offset))
        self.count = len(payloads)
        self.kept: list[pa.Buffer] = []
        self.bytes = 0
        self.rows = 0
        self.table = array("q")
        for part in payloads.parts if isinstance(payloads, Payloads) else payloads:
            if isinstance(part, StoredBatches):
                self._take_stored(part)
            else:
                self._take(part)
        if self.bytes > MAX_BYTES:
            raise Bug(
                f"{self.bytes} bytes were given to one call of the decoder",
                why=f"it takes {MAX_BYTES}, so that no column passes what Arrow can address",
                bytes=self.bytes,
                max_bytes=MAX_BYTES,
            )

    def _take(self, payload: Payload) -> None:
        data, base_offset, base_ms, append_ms, records, last_delta, form, shift, headers = payload
        buffer = data if type(data) is pa.Buffer else pa.py_buffer(data)
        self.kept.append(buffer)
        size = buffer.size
        self.bytes += size
        self.rows += max(0, min(records, size // _SMALLEST_ROW))
        stamp, stamped = (0, 0) if append_ms is None else (append_ms, 1)
        address = buffer.address
        row = (
            address,
            size,
            base_offset,
            base_ms,
            stamp,
            stamped,
            records,
            last_delta,
            form,
            shift,
            headers,
        )
        self.table.extend(row)

    def _take_stored(self, stored: StoredBatches) -> None:
        buffer = pa.py_buffer(stored.records)
        self.kept.append(buffer)
        table = stored.table(buffer.address)
        sizes, counts = table[:, 1], table[:, 6]
        self.bytes += int(sizes.sum())
        self.rows += int(np.minimum(counts, sizes // _SMALLEST_ROW).sum())
        self.table.frombytes(table.tobytes())

    def run_rows(self, function: ctypes._NamedFuncPointer) -> tuple[_Numbers, list[pa.Array]]:
        rows, data = self.rows, self.bytes + SLACK
        key_offsets, key_data, key_valid = allocate(4 * rows + 4, data, rows // 8 + 1)
        value_offsets, value_data, value_valid = allocate(4 * rows + 4, data, rows // 8 + 1)
        offsets, timestamps, types = allocate(8 * rows, 8 * rows, 4 * rows)
        (time_valid,) = allocate(rows // 8 + 1)
        buffers = [key_offsets, key_data, key_valid, value_offsets, value_data, value_valid]
        buffers += [offsets, timestamps, time_valid, types]
        found = self._run(function, _Rows(rows, self.bytes, *(b.address for b in buffers)))

        rows = found.rows
        key = _binary(rows, key_valid, found.key_nulls, key_offsets, key_data, found.key_bytes)
        value = _binary(
            rows, value_valid, found.value_nulls, value_offsets, value_data, found.value_bytes
        )
        nulls = found.timestamp_nulls
        times = [time_valid if nulls else None, cut(timestamps, 8 * rows)]
        return found, [
            key,
            value,
            pa.Array.from_buffers(columns.OFFSET.type, rows, [None, cut(offsets, 8 * rows)], 0),
            pa.Array.from_buffers(columns.TIMESTAMP.type, rows, times, nulls),
            pa.Array.from_buffers(
                columns.TIMESTAMP_TYPE.type, rows, [None, cut(types, 4 * rows)], 0
            ),
        ]

    def run_headers(self, function: ctypes._NamedFuncPointer, counted: _Numbers) -> pa.Array:
        rows, headers = counted.rows, counted.headers
        key_bytes, value_bytes = counted.header_key_bytes, counted.header_value_bytes
        list_offsets, list_valid = allocate(4 * rows + 4, rows // 8 + 1)
        key_offsets, key_data = allocate(4 * headers + 4, key_bytes)
        value_offsets, value_data, value_valid = allocate(
            4 * headers + 4, value_bytes + SLACK, headers // 8 + 1
        )
        buffers = [list_offsets, list_valid, key_offsets, key_data]
        buffers += [value_offsets, value_data, value_valid]
        room = (rows, headers, key_bytes, value_bytes)
        found = self._run(function, _Headers(*room, *(b.address for b in buffers)))

        keys = pa.Array.from_buffers(pa.string(), headers, [None, key_offsets, key_data], 0)
        if found.keys_beyond_ascii:
            keys = as_text(keys)
        nulls = found.header_value_nulls
        values = _binary(headers, value_valid, nulls, value_offsets, value_data, value_bytes)
        items = pa.StructArray.from_arrays([keys, values], fields=list(columns.HEADER))
        without = found.rows_without_headers
        validity = list_valid if without else None
        return pa.Array.from_buffers(
            columns.HEADERS.type, rows, [validity, list_offsets], without, children=[items]
        )

    def _run(self, function: ctypes._NamedFuncPointer, output: ctypes.Structure) -> _Numbers:
        result = _Result()
        found = cast(_Numbers, result)
        address, _ = self.table.buffer_info()
        fault = function(
            address, self.count, *self.offsets, ctypes.addressof(output), ctypes.addressof(result)
        )
        if fault == 0:
            return found
        if fault == CAPACITY:
            raise Bug(
                "the decode kernel ran out of the room it was given",
                why="its capacities are upper bounds",
                payload=found.payload,
                record=found.record,
            )
        raise bad_record(Fault(fault), found.payload, found.record, found.position)


def as_int64(number: int) -> int:
    """The nearest number that the kernel can be given: no offset is beyond it."""
    return max(-1 << 63, min(number, (1 << 63) - 1))


def allocate(*sizes: int) -> list[pa.Buffer]:
    return [pa.allocate_buffer(size, resizable=True) for size in sizes]


def cut(buffer: pa.Buffer, size: int) -> pa.Buffer:
    if buffer.size != size:
        buffer.resize(size, shrink_to_fit=True)
    return buffer


def _binary(
    rows: int, valid: pa.Buffer, nulls: int, offsets: pa.Buffer, data: pa.Buffer, size: int
) -> pa.Array:
    buffers = [valid if nulls else None, cut(offsets, 4 * rows + 4), cut(data, size)]
    return pa.Array.from_buffers(pa.binary(), rows, buffers, nulls)


def as_text(keys: pa.Array) -> pa.Array:
    """Header keys that are not all ASCII: left as they are where they are UTF-8."""
    try:
        keys.validate(full=True)
    except pa.ArrowInvalid:
        raw = keys.view(pa.binary())
        return pa.array([columns.header_key(key.as_py()) for key in raw], pa.string())
    return keys
