"""The fast decoder of Kafka's records: one call of the compiled kernel for all payloads.

A second call follows only if some record has headers, since only the first call shows how much
memory they need. Only ``kernel.c`` and ``messages.h`` know the format; the structs here mirror the
ones there.
"""

from __future__ import annotations

import ctypes
import sys
from array import array
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from rangeland.decode import columns
from rangeland.decode.kafka.batch_table import BatchWalk, Heads, Payloads, StoredBatches
from rangeland.decode.kafka.layout import (
    Fault,
    MessageWalk,
    Payload,
    TooManyHeaders,
    UndecodableRecord,
)
from rangeland.decode.native.kernel_arrays import (
    INT64,
    POINTER,
    SLACK,
    KernelFunction,
    allocate,
    as_buffer,
    as_int64,
    binary_array,
    check_fits_in_one_call,
    header_column,
    number_array,
    struct_of,
)

_SMALLEST_ROW = 6  # read before a row is written: five fields after the length


class _Decoded(NamedTuple):
    """The result of the decoder: the kernel's ``result_t``. The last three fields say where a fault
    is."""

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
    byte_index: int


class KafkaKernel:
    """The functions of one loaded library."""

    def __init__(self, library: ctypes.CDLL) -> None:
        decode = [POINTER, *[INT64] * 3, POINTER]
        walk = [POINTER, *[INT64] * 2]
        walk_batches = [POINTER, *[INT64] * 4, POINTER]
        self._rows = KernelFunction(library, "rangeland_decode_rows", decode, _Decoded)
        self._headers = KernelFunction(library, "rangeland_decode_headers", decode, _Decoded)
        self._walk = KernelFunction(
            library, "rangeland_walk_messages", walk, MessageWalk, is_void=True
        )
        self._walk_batches = KernelFunction(
            library, "rangeland_walk_batches", walk_batches, BatchWalk, is_void=True
        )

    def walk_messages(self, data: Any, max_bytes: int) -> MessageWalk:
        """The uncompressed messages of format 0 or 1 at the start of ``data``, as long as their
        offsets rise, up to the first that ends beyond ``max_bytes``. Only their lengths are
        checked."""
        buffer = as_buffer(data)
        return self._walk(buffer.address, buffer.size, max_bytes)[0]

    def walk_batches(
        self, data: Any, begin: int = 0, last_offset: int = -1, heads: Heads | None = None
    ) -> BatchWalk:
        """The consecutive v2 batches from byte ``begin`` on, with offsets above ``last_offset``,
        whose headers are consistent in themselves and with the next entry. ``heads``: a table for
        their rows; the walk ends when it is full."""
        buffer = as_buffer(data)
        capacity, table = (0, None) if heads is None else (len(heads), heads.ctypes.data)
        walk, _ = self._walk_batches(
            buffer.address, buffer.size, begin, last_offset, capacity, table
        )
        return walk._replace(is_all=bool(walk.is_all))

    def decode_records(
        self,
        payloads: Sequence[Payload],
        from_offset: int,
        until_offset: int,
        max_headers: int = sys.maxsize,
    ) -> pa.RecordBatch:
        """The records with ``from_offset <= offset < until_offset``, in order, with the columns of
        ``columns.RECORDS``: key, value, offset, timestamp, timestampType, headers.

        Raises UndecodableRecord, with the payload and record (counted from 0) and the byte index in
        the payload's data; TooManyHeaders if together they have more than ``max_headers`` headers,
        before these take up memory; and Bug if together the payloads exceed 2 GiB.
        """
        call = _Call(payloads, from_offset, until_offset)
        result, arrays = call.run_rows(self._rows)
        if result.headers > max_headers:
            raise TooManyHeaders(result.headers)
        headers = call.run_headers(self._headers, result) if result.headers else None
        if headers is None:
            headers = pa.nulls(result.rows, columns.HEADERS.type)
        return columns.records_batch([*arrays, headers])


class _Call:
    """A list of payloads, whose buffers stay alive and in place as long as the kernel reads
    them."""

    def __init__(self, payloads: Sequence[Payload], from_offset: int, until_offset: int) -> None:
        self.offsets = (as_int64(from_offset), as_int64(until_offset))
        self.count = len(payloads)
        self.kept: list[pa.Buffer] = []
        self.bytes = 0
        self.rows = 0
        self.table = array("q")
        for part in payloads.parts if isinstance(payloads, Payloads) else payloads:
            if isinstance(part, StoredBatches):
                self._add_stored(part)
            else:
                self._add(part)
        check_fits_in_one_call(self.bytes)

    def _add(self, payload: Payload) -> None:
        data, base, base_ms, append_ms, records, delta, form, shift, headers = payload
        buffer = as_buffer(data)
        self.kept.append(buffer)
        address, size = buffer.address, buffer.size
        self.bytes += size
        self.rows += max(0, min(records, size // _SMALLEST_ROW))
        stamp, stamped = (0, 0) if append_ms is None else (append_ms, 1)
        row = address, size, base, base_ms, stamp, stamped, records, delta, form, shift, headers
        self.table.extend(row)

    def _add_stored(self, stored: StoredBatches) -> None:
        buffer = pa.py_buffer(stored.records)
        self.kept.append(buffer)
        table = stored.table(buffer.address)
        sizes = table[:, 1]
        counts = table[:, 6]
        self.bytes += int(sizes.sum())
        self.rows += int(np.minimum(counts, sizes // _SMALLEST_ROW).sum())
        self.table.frombytes(table.tobytes())

    def run_rows(self, function: KernelFunction[_Decoded]) -> tuple[_Decoded, list[pa.Array]]:
        rows = self.rows
        data = self.bytes + SLACK
        bits = self.rows // 8 + 1
        key = allocate(4 * rows + 4, data, bits)
        value = allocate(4 * rows + 4, data, bits)
        numbers = offsets, times, time_valid, types = allocate(8 * rows, 8 * rows, bits, 4 * rows)
        output = struct_of([rows, self.bytes], [*key, *value, *numbers])  # rows_t
        result = self._run(function, output)

        rows = result.rows
        return result, [
            binary_array(columns.KEY.type, rows, key, result.key_bytes, result.key_nulls),
            binary_array(columns.VALUE.type, rows, value, result.value_bytes, result.value_nulls),
            number_array(columns.OFFSET, rows, offsets),
            number_array(columns.TIMESTAMP, rows, times, result.timestamp_nulls, time_valid),
            number_array(columns.TIMESTAMP_TYPE, rows, types),
        ]

    def run_headers(self, function: KernelFunction[_Decoded], counted: _Decoded) -> pa.Array:
        rows = counted.rows
        headers = counted.headers
        key_bytes, value_bytes = counted.header_key_bytes, counted.header_value_bytes
        lists = allocate(4 * rows + 4, rows // 8 + 1)
        keys = allocate(4 * headers + 4, key_bytes)
        values = allocate(4 * headers + 4, value_bytes + SLACK, headers // 8 + 1)
        capacities = (rows, headers, key_bytes, value_bytes)
        output = struct_of(capacities, [*lists, *keys, *values])  # headers_t
        result = self._run(function, output)
        return header_column(result, lists, keys, values)

    def _run(
        self, function: KernelFunction[_Decoded], output: ctypes.Array[ctypes.c_int64]
    ) -> _Decoded:
        address, _ = self.table.buffer_info()
        result, fault = function(address, self.count, *self.offsets, output)
        if fault:
            raise UndecodableRecord(Fault(fault), result.payload, result.record, result.byte_index)
        return result
