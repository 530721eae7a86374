"""The payload decoders of the kernel: a first pass that counts, and a second one that fills."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from rangeland.decode.native import native_library
from rangeland.decode.native.kernel_arrays import POINTER, KernelFunction, struct_of
from rangeland.decode.payload.column_buffers import ColumnTable
from rangeland.decode.payload.payload_bytes import PayloadBytes
from rangeland.decode.payload.protobuf_program import ProtobufProgram
from rangeland.errors import Bug

_SPARE_PER_BYTE = 4  # as in protobuf.h
"""The memory in which messages that come in parts are joined, in lengths of the longest payload."""


class _Passed(NamedTuple):
    decoded: int


@dataclass(frozen=True, eq=False)
class AvroProgram:
    """What ``avro.h`` walks by: a row of ``avro_node_t`` for each node, their children, and
    encoded default values."""

    nodes: np.ndarray
    children: np.ndarray
    constants: bytes


class PayloadKernel:
    """The functions of one loaded library."""

    def __init__(self, library: Any = None) -> None:
        loaded = library or native_library.load_library()
        self._avro = KernelFunction(loaded, "rangeland_decode_avro", [POINTER] * 5, _Passed)
        self._protobuf = KernelFunction(loaded, "rangeland_decode_protobuf", [POINTER] * 3, _Passed)

    def decode_avro(
        self,
        payloads: PayloadBytes,
        roots: np.ndarray,
        program: AvroProgram,
        columns: ColumnTable,
    ) -> pa.Array:
        """``roots``: the node that each payload's schema begins with. Faults are noted in
        ``payloads``, and there is a null in their place."""
        constants = pa.py_buffer(program.constants)
        tables = (program.nodes.ctypes.data, program.children.ctypes.data, constants.address)

        def run(table: Any, sink: Any) -> tuple[_Passed, int]:
            return self._avro(table, *tables, sink)

        return _passes(payloads, roots, columns, run)

    def decode_protobuf(
        self, payloads: PayloadBytes, program: ProtobufProgram, columns: ColumnTable
    ) -> pa.Array:
        """All payloads are of the message that the program begins with."""
        longest = int((payloads.ends - payloads.starts).max(initial=0))
        slots = np.zeros((len(program.fields), 4), np.int64)
        cases = np.zeros(program.oneofs + 1, np.int64)
        spare = np.zeros(_SPARE_PER_BYTE * longest + 8, np.uint8)
        tables = (program.messages, program.fields, program.children, slots, cases, spare)
        numbers = [*(table.ctypes.data for table in tables), len(spare)]
        whole = struct_of(numbers, [])  # proto_program_t

        def run(table: Any, sink: Any) -> tuple[_Passed, int]:
            return self._protobuf(table, whole, sink)

        roots = np.zeros(payloads.count, np.int64)
        return _passes(payloads, roots, columns, run)


def _passes(
    payloads: PayloadBytes,
    roots: np.ndarray,
    columns: ColumnTable,
    run: Callable[[Any, Any], tuple[_Passed, int]],
) -> pa.Array:
    arrays = (payloads.starts, payloads.ends, roots)
    found = (payloads.faults, payloads.positions, payloads.places)
    for array in (*arrays, *found):
        assert array.dtype == np.int64
        assert array.flags.c_contiguous
    table = struct_of(
        [payloads.data.address, payloads.count, *(a.ctypes.data for a in (*arrays, *found))], []
    )
    buffers = columns.buffers()
    counted, _ = run(table, buffers.sink())
    buffers.allocate()
    filled, fault = run(table, buffers.sink())
    if fault or filled != counted:
        raise Bug("the two passes over an array of payloads differ", counted=counted, filled=filled)
    return buffers.array()
