"""The fast decoder of Jafka's message sets: one call of the compiled kernel for all sets.

The kernel verifies checksums too. The format is known to ``sets.h`` only; the structs here mirror
those there.
"""

from __future__ import annotations

import ctypes
from array import array
from typing import Any, Protocol, cast, get_type_hints

import pyarrow as pa

from rangeland.decode import columns
from rangeland.decode.jafka.layout import (
    HEADER_BYTES,
    LENGTH_BYTES,
    POSITION,
    EntryWalk,
    MessageSet,
    SetFault,
    bad_entry,
    messages_batch,
)
from rangeland.decode.native.kernel_memory import (
    CAPACITY,
    INT32,
    INT64,
    POINTER,
    SLACK,
    allocate,
    as_buffer,
    as_int64,
    binary_array,
    check_size,
    function_of,
    number_array,
    out_of_capacity,
    struct_of,
)

_SMALLEST_ENTRY = LENGTH_BYTES + HEADER_BYTES

_Messages = struct_of(
    "_Messages", "row_capacity byte_capacity", "value_offsets value_data offsets positions"
)


class _WalkedNumbers(Protocol):
    """The fields of the walk's result, in their order."""

    entries: int
    start: int
    end: int


class _DecodedNumbers(Protocol):
    """The fields of the decoder's result, in their order."""

    rows: int
    value_bytes: int
    set: int
    record: int
    position: int


_Walked = struct_of("_Walked", " ".join(get_type_hints(_WalkedNumbers)))
_Decoded = struct_of("_Decoded", " ".join(get_type_hints(_DecodedNumbers)))


class JafkaKernel:
    """The functions of one loaded library. See ``layout.SetDecoder``."""

    def __init__(self, library: ctypes.CDLL) -> None:
        walk = [POINTER, INT64, INT64, INT32, POINTER]
        decode = [POINTER, INT64, POINTER, POINTER]
        self._walk = function_of(library, "rangeland_walk_entries", walk)
        self._decode = function_of(library, "rangeland_decode_sets", decode)

    def walk_entries(self, data: Any, until: int, *, plain_only: bool = False) -> EntryWalk:
        buffer = as_buffer(data)
        result = _Walked()
        until = max(-1, as_int64(until))
        fault = self._walk(buffer.address, buffer.size, until, plain_only, ctypes.addressof(result))
        found = cast(_WalkedNumbers, result)
        return EntryWalk(found.entries, found.start, found.end, SetFault(fault) if fault else None)

    def decode_sets(self, sets: list[MessageSet]) -> pa.RecordBatch:
        kept = [as_buffer(one.data) for one in sets]
        size = sum(buffer.size for buffer in kept)
        check_size(size)
        rows = sum(buffer.size // _SMALLEST_ENTRY for buffer in kept)
        value_offsets, value_data = allocate(4 * rows + 4, size + SLACK)
        offsets, positions = allocate(8 * rows, 4 * rows)
        buffers = (value_offsets, value_data, offsets, positions)
        output = _Messages(rows, size, *(buffer.address for buffer in buffers))
        found = self._run(_table(sets, kept), len(sets), output)
        rows = found.rows
        values = (value_offsets, value_data)
        return messages_batch(
            binary_array(columns.VALUE.type, rows, values, found.value_bytes),
            number_array(columns.OFFSET, rows, offsets),
            number_array(POSITION, rows, positions),
        )

    def _run(self, table: array[int], count: int, output: ctypes.Structure) -> _DecodedNumbers:
        result = _Decoded()
        address, _ = table.buffer_info()
        fault = self._decode(address, count, ctypes.addressof(output), ctypes.addressof(result))
        found = cast(_DecodedNumbers, result)
        if fault == 0:
            return found
        if fault == CAPACITY:
            raise out_of_capacity(set=found.set, record=found.record)
        raise bad_entry(SetFault(fault), found.set, found.record, found.position)


def _table(sets: list[MessageSet], kept: list[pa.Buffer]) -> array[int]:
    table = array("q")
    for buffer, (_, base_offset, is_packed, first_position) in zip(kept, sets, strict=True):
        table.extend((buffer.address, buffer.size, base_offset, is_packed, first_position))
    return table
