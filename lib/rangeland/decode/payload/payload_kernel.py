"""The kernel's payload decoders.

A *program* is a schema, or a writer's schema resolved to the table's, in the form of tables by
which the kernel walks over payloads. A full column ends a call and is doubled in size, and the next
call continues with the same payload.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from rangeland.decode.native import native_library
from rangeland.decode.native.kernel_arrays import POINTER, KernelFunction, struct_of
from rangeland.decode.payload.column_buffers import ColumnTable
from rangeland.decode.payload.payload_bytes import PayloadBytes
from rangeland.decode.payload.payload_decoder import MAX_DECODED_BYTES

_SPARE_PER_BYTE = 4  # as in protobuf.h
"""The memory for joining messages that come in parts, as a multiple of the length of the longest
payload."""

_COLUMN_FULL = 99  # as in payload_columns.h
_FREE_BYTES = 16 << 10
"""The memory that any payload may take, in addition to the nulls and defaults in all columns."""


class _Progress(NamedTuple):
    """The progress of one call of a payload decoder: the kernel's ``progress_t``."""

    next: int
    taken: int
    full: int
    wanted: int


@dataclass(frozen=True, eq=False)
class AvroProgram:
    """The tables by which ``avro.h`` walks: a row of ``avro_node_t`` for each node, the children of
    the nodes, and encoded default values."""

    nodes: np.ndarray
    children: np.ndarray
    constants: bytes


@dataclass(frozen=True, eq=False)
class ProtobufProgram:
    """The tables by which ``protobuf.h`` walks: rows of ``proto_message_t`` and ``proto_field_t``,
    and the numbers of closed enums."""

    messages: np.ndarray
    fields: np.ndarray
    children: np.ndarray
    oneofs: int
    paths: Sequence[str]
    """The path of each field, for error messages."""


class PayloadKernel:
    """The functions of one loaded library."""

    def __init__(self, library: Any = None) -> None:
        loaded = library or native_library.load_library()
        self._avro = KernelFunction(loaded, "rangeland_decode_avro", [POINTER] * 5, _Progress)
        name = "rangeland_decode_protobuf"
        self._protobuf = KernelFunction(loaded, name, [POINTER] * 3, _Progress)
        self._last: np.ndarray | None = None

    def decode_avro(
        self,
        payloads: PayloadBytes,
        roots: np.ndarray,
        program: AvroProgram,
        columns: ColumnTable,
    ) -> pa.Array:
        """The values of as many payloads as fit into ``MAX_DECODED_BYTES``, but at least one.
        ``roots``: the node with which each payload's schema begins. Faults are noted in
        ``payloads``, and the faulty values are null."""
        constants = pa.py_buffer(program.constants)
        tables = (program.nodes.ctypes.data, program.children.ctypes.data, constants.address)

        def run(table: Any, sink: Any) -> tuple[_Progress, int]:
            return self._avro(table, *tables, sink)

        return self._decode(payloads, roots, columns, run, len(program.constants))

    def decode_protobuf(
        self, payloads: PayloadBytes, program: ProtobufProgram, columns: ColumnTable
    ) -> pa.Array:
        """The same as ``decode_avro`` for Protobuf. All payloads are of the message with which the
        program begins."""
        longest = int((payloads.ends - payloads.starts).max(initial=0))
        slots = np.zeros((len(program.fields), 4), np.int64)
        cases = np.zeros(program.oneofs + 1, np.int64)
        spare = np.zeros(_SPARE_PER_BYTE * longest + 8, np.uint8)
        tables = (program.messages, program.fields, program.children, slots, cases, spare)
        numbers = [*(table.ctypes.data for table in tables), len(spare)]
        whole = struct_of(numbers, [])  # proto_program_t

        def run(table: Any, sink: Any) -> tuple[_Progress, int]:
            return self._protobuf(table, whole, sink)

        roots = np.zeros(payloads.count, np.int64)
        return self._decode(payloads, roots, columns, run)

    def _decode(
        self,
        payloads: PayloadBytes,
        roots: np.ndarray,
        columns: ColumnTable,
        run: Callable[[Any, Any], tuple[_Progress, int]],
        default_bytes: int = 0,
    ) -> pa.Array:
        arrays = (payloads.starts, payloads.ends, roots)
        outputs = (payloads.faults, payloads.positions, payloads.places)
        for array in (*arrays, *outputs):
            assert array.dtype == np.int64
            assert array.flags.c_contiguous
        numbers = [payloads.data.address, payloads.count, *(a.ctypes.data for a in arrays)]
        table = struct_of([*numbers, *(a.ctypes.data for a in outputs)], [])  # payloads_t
        basic_cost = _FREE_BYTES + 2 * (columns.cost + default_bytes)
        size = int((payloads.ends - payloads.starts).sum())
        buffers = columns.buffers(payloads.count, size, self._last)
        progress = _Progress(0, 0, 0, 0)
        is_full = True
        while is_full:
            limits = (basic_cost, MAX_DECODED_BYTES, progress.next, progress.taken)
            sink = struct_of([buffers.numbers.ctypes.data, *limits, 0, 0, 0, 0], [])
            progress, fault = run(table, sink)
            is_full = fault == _COLUMN_FULL
            if is_full:
                buffers.grow(progress.full, progress.wanted)
        self._last = buffers.numbers
        return buffers.array()
