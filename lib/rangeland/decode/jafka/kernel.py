"""The fast decoder of message sets: memory for the compiled kernel, and Arrow of what it wrote.

As in ``kernel``: one call for all sets, straight into Arrow buffers that are taken at their
upper bound and cut to size at the end. Checksums are the kernel's work too.

Rules: no format knowledge here, that is ``sets.h``; the structs mirror those there.
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
from rangeland.decode.kafka.kernel import CAPACITY, MAX_BYTES, SLACK, allocate, cut, struct_of
from rangeland.errors import Bug

_SMALLEST_ENTRY = LENGTH_BYTES + HEADER_BYTES
_MAX_INT64 = (1 << 63) - 1

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
    """The functions of one loaded library. See ``sets.SetDecoder``."""

    def __init__(self, library: ctypes.CDLL) -> None:
        pointer, number = ctypes.c_void_p, ctypes.c_int64
        self._walk = library.rangeland_walk_entries
        self._walk.restype = ctypes.c_int32
        self._walk.argtypes = [pointer, number, number, ctypes.c_int32, pointer]
        self._decode = library.rangeland_decode_sets
        self._decode.restype = ctypes.c_int32
        self._decode.argtypes = [pointer, number, pointer, pointer]

    def walk_entries(self, data: Any, until: int, *, plain_only: bool = False) -> EntryWalk:
        buffer = _buffer(data)
        result = _Walked()
        until = max(-1, min(until, _MAX_INT64))
        fault = self._walk(buffer.address, buffer.size, until, plain_only, ctypes.addressof(result))
        found = cast(_WalkedNumbers, result)
        return EntryWalk(found.entries, found.start, found.end, SetFault(fault) if fault else None)

    def decode_sets(self, sets: list[MessageSet]) -> pa.RecordBatch:
        kept = [_buffer(one.data) for one in sets]
        size = sum(buffer.size for buffer in kept)
        if size > MAX_BYTES:
            raise Bug(
                f"{size} bytes were given to one call of the decoder",
                why=f"it takes {MAX_BYTES}, so that no column passes what Arrow can address",
                bytes=size,
                max_bytes=MAX_BYTES,
            )
        rows = sum(buffer.size // _SMALLEST_ENTRY for buffer in kept)
        value_offsets, value_data = allocate(4 * rows + 4, size + SLACK)
        offsets, positions = allocate(8 * rows, 4 * rows)
        buffers = (value_offsets, value_data, offsets, positions)
        output = _Messages(rows, size, *(buffer.address for buffer in buffers))
        found = self._run(_table(sets, kept), len(sets), output)
        rows = found.rows
        return messages_batch(
            _values(rows, value_offsets, value_data, found.value_bytes),
            pa.Array.from_buffers(columns.OFFSET.type, rows, [None, cut(offsets, 8 * rows)], 0),
            pa.Array.from_buffers(POSITION.type, rows, [None, cut(positions, 4 * rows)], 0),
        )

    def _run(self, table: array[int], count: int, output: ctypes.Structure) -> _DecodedNumbers:
        result = _Decoded()
        address, _ = table.buffer_info()
        fault = self._decode(address, count, ctypes.addressof(output), ctypes.addressof(result))
        found = cast(_DecodedNumbers, result)
        if fault == 0:
            return found
        if fault == CAPACITY:
            raise Bug(
                "the decode kernel ran out of the room it was given",
                why="its capacities are upper bounds",
                set=found.set,
                record=found.record,
            )
        raise bad_entry(SetFault(fault), found.set, found.record, found.position)


def _values(rows: int, offsets: pa.Buffer, data: pa.Buffer, size: int) -> pa.Array:
    buffers = [None, cut(offsets, 4 * rows + 4), cut(data, size)]
    return pa.Array.from_buffers(columns.VALUE.type, rows, buffers, 0)


def _buffer(data: Any) -> pa.Buffer:
    return data if type(data) is pa.Buffer else pa.py_buffer(data)


def _table(sets: list[MessageSet], kept: list[pa.Buffer]) -> array[int]:
    table = array("q")
    for buffer, (_, base_offset, is_packed, first_position) in zip(kept, sets, strict=True):
        table.extend((buffer.address, buffer.size, base_offset, is_packed, first_position))
    return table
