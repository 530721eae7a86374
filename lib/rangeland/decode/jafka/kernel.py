"""The fast decoder of Jafka's message sets: one call of the compiled kernel for all sets.

The kernel verifies checksums too. Only ``sets.h`` knows the format; the structs here mirror the
ones there.
"""

from __future__ import annotations

import ctypes
from array import array
from typing import Any, NamedTuple

import pyarrow as pa

from rangeland.decode import columns
from rangeland.decode.jafka.layout import (
    HEADER_BYTES,
    LENGTH_BYTES,
    POSITION,
    EntryWalk,
    MessageSet,
    SetFault,
    UndecodableEntry,
    messages_batch,
)
from rangeland.decode.native.kernel_arrays import (
    INT32,
    INT64,
    POINTER,
    SLACK,
    KernelFunction,
    allocate,
    as_buffer,
    as_int64,
    binary_array,
    check_fits_in_one_call,
    number_array,
    struct_of,
)

_SMALLEST_ENTRY = LENGTH_BYTES + HEADER_BYTES


class _Walked(NamedTuple):
    """The result of a walk; the fields are in the kernel's order."""

    entries: int
    start: int
    end: int


class _Decoded(NamedTuple):
    """The result of the decoder; the fields are in the kernel's order. The last three say where a
    fault is."""

    rows: int
    value_bytes: int
    set: int
    record: int
    byte_index: int


class JafkaKernel:
    """The functions of one loaded library."""

    def __init__(self, library: ctypes.CDLL) -> None:
        walk = [POINTER, INT64, INT64, INT32]
        decode = [POINTER, INT64, POINTER]
        self._walk = KernelFunction(library, "rangeland_walk_entries", walk, _Walked)
        self._decode = KernelFunction(library, "rangeland_decode_sets", decode, _Decoded)

    def walk_entries(self, data: Any, width: int, *, plain_only: bool = False) -> EntryWalk:
        """Walks over the complete entries that begin within the first ``width`` bytes; an
        incomplete entry ends the walk without a fault. ``plain_only``: a compressed entry ends it
        with a fault."""
        buffer = as_buffer(data)
        width = max(-1, as_int64(width))
        walk, fault = self._walk(buffer.address, buffer.size, width, plain_only)
        return EntryWalk(walk.entries, walk.start, walk.end, SetFault(fault) if fault else None)

    def decode_sets(self, sets: list[MessageSet]) -> pa.RecordBatch:
        """All messages of all sets, as ``MESSAGES``. Raises UndecodableEntry, with the set and
        record (counted from 0) and the byte index within the set."""
        buffers = [as_buffer(s.data) for s in sets]
        size = sum(buffer.size for buffer in buffers)
        check_fits_in_one_call(size)
        rows = sum(buffer.size // _SMALLEST_ENTRY for buffer in buffers)
        values = allocate(4 * rows + 4, size + SLACK)
        offsets, positions = allocate(8 * rows, 4 * rows)
        output = struct_of([rows, size], [*values, offsets, positions])
        table = _table(sets, buffers)
        result, fault = self._decode(table.buffer_info()[0], len(sets), output)
        if fault:
            raise UndecodableEntry(SetFault(fault), result.set, result.record, result.byte_index)
        rows = result.rows
        return messages_batch(
            binary_array(columns.VALUE.type, rows, values, result.value_bytes),
            number_array(columns.OFFSET, rows, offsets),
            number_array(POSITION, rows, positions),
        )


def _table(sets: list[MessageSet], buffers: list[pa.Buffer]) -> array[int]:
    table = array("q")
    for buffer, (_, base_offset, is_packed, first_position) in zip(buffers, sets, strict=True):
        table.extend((buffer.address, buffer.size, base_offset, is_packed, first_position))
    return table
