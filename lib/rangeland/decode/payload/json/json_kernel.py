"""The fast decoder of JSON payloads: the compiled kernel reads them straight into Arrow buffers.

A full column ends a call; it gets twice the room, and the next call continues with the same
payload. Decoding ends once the columns take up ``MAX_DECODED_BYTES``. Only the ``json_*.h`` files
know the format.
"""

from __future__ import annotations

import ctypes
import math
import os
import re
from collections.abc import Sequence
from functools import cache
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from rangeland.decode.native.kernel_arrays import (
    INT64,
    POINTER,
    SLACK,
    KernelFunction,
    struct_of,
)
from rangeland.decode.payload.json.json_columns import (
    JsonColumns,
    JsonKind,
    NodeField,
    NodeTable,
    schema_nodes,
)
from rangeland.decode.payload.json.json_rules import most_cells
from rangeland.decode.payload.json.json_scalars import nearest_float
from rangeland.decode.payload.payload_bytes import data_and_offsets
from rangeland.decode.payload.payload_decoder import (
    MAX_DECODED_BYTES,
    DecodedPayloads,
    PayloadArray,
    PayloadDecoder,
    Undecodable,
    UnknownFields,
)
from rangeland.decode.payload.schema_ddl import print_type

_UNKNOWN: Final = 15
_OUT_OF_RANGE: Final = 5
_REASONS: Final = {
    1: "it is not valid JSON",
    2: "the JSON ends too early",
    3: "there is more after the end of the JSON object",
    4: "{field} must be {expected}",
    _OUT_OF_RANGE: "{field} is out of range for {type}",
    6: "{field} must be a whole number without a decimal point or exponent",
    7: "a string is not UTF-8",
    8: "a string has an unescaped control character",
    9: "a string has an invalid escape",
    10: "a string has half of a surrogate pair",
    11: "it is nested more than 64 deep",
    12: "{field} occurs twice, or has a key that does",
    13: "{field} is missing",
    14: "{field} is null but must not be",
    _UNKNOWN: "it has a field that the schema lacks: {name}",
    16: "{field} is not a date (YYYY-MM-DD)",
    17: "{field} is not an ISO 8601 time",
    18: "{field} is a time without an offset; TIMESTAMP_NTZ accepts it",
    19: "{field} is a time with an offset; TIMESTAMP accepts it",
    20: "{field} is not a number that fits {type} exactly",
    21: "{field} is not Base64",
    22: "its arrays and maps have more than {cells:,} values, the maximum for a record of its size",
}
_EXPECTED: Final = {
    JsonKind.BOOLEAN: "true or false",
    JsonKind.INTEGER: "a whole number",
    JsonKind.REAL: "a number",
    JsonKind.DECIMAL: "a number",
    JsonKind.STRUCT: "an object",
    JsonKind.LIST: "an array",
    JsonKind.MAP: "an object",
}
_UNKNOWN_FIELDS: Final = {UnknownFields.DROP: 0, UnknownFields.FAIL: 1, UnknownFields.KEEP: 2}
_NAME: Final = re.compile(r'(?:[^"\\]|\\.)*')
_SHOWN_NAME: Final = 60


class _JsonCall(NamedTuple):
    """The input of the kernel: the numbers and addresses of its ``json_call_t``."""

    payloads: int
    offsets: int
    valid: int
    row: int
    rows: int
    payload_bytes: int
    nodes: int
    node_count: int
    names: int
    slots: int
    powers: int
    scratch: int
    map_slots: int
    unknown: int
    seed: int
    faults: int
    most_taken: int


class _JsonResult(NamedTuple):
    """The result of one call of the kernel: its ``json_result_t``."""

    row: int
    faults: int
    grow_node: int
    grow_bytes: int


class _Filled(NamedTuple):
    fields: int


class _Input(NamedTuple):
    """An array of payloads in the form that the kernel takes."""

    data: pa.Buffer
    offsets: Any
    valid: Any
    rows: int

    def bytes_of(self, row: int) -> memoryview:
        return memoryview(self.data)[self.offsets[row] : self.offsets[row + 1]]


class JsonKernel(PayloadDecoder):
    """Decodes payloads by one schema."""

    def __init__(
        self, library: ctypes.CDLL, schema: pa.StructType, unknown_fields: UnknownFields
    ) -> None:
        self.arrow_type = schema
        self._keeps = unknown_fields is UnknownFields.KEEP
        self._unknown = _UNKNOWN_FIELDS[unknown_fields]
        self._decode = KernelFunction(library, "rangeland_decode_json", [POINTER], _JsonResult)
        self._table = table = NodeTable(schema_nodes(schema))
        self._names = pa.py_buffer(table.names)
        self._last = table.numbers
        self._seed = int.from_bytes(os.urandom(7), "little")
        fill = KernelFunction(
            library, "rangeland_json_slots", [POINTER, INT64, POINTER, POINTER], _Filled
        )
        places = (table.numbers.ctypes.data, len(table.nodes), self._names.address)
        fill(*places, table.slots.ctypes.data)

    def decode(self, payloads: PayloadArray) -> DecodedPayloads:
        data = _input(payloads)
        total = int(data.offsets[-1] - data.offsets[0])
        columns = JsonColumns(self._table, data.rows, total, self._last)
        faults = self._run(data, columns)
        unfit = _parse_undecided_numbers(data, columns)
        undecodable = [self._undecodable(data, *fault) for fault in [*faults, *unfit]]
        undecodable.sort(key=lambda fault: fault.row)
        self._last = columns.numbers
        return DecodedPayloads(
            columns.values(), tuple(undecodable), columns.rescued_column() if self._keeps else None
        )

    def _run(self, data: _Input, columns: JsonColumns) -> list[list[int]]:
        """Row, fault, byte index and node of each payload that cannot be decoded."""
        longest = int(np.diff(data.offsets).max(initial=0))
        scratch = np.empty(longest + SLACK, np.uint8)
        map_slots = np.empty(longest + SLACK, np.int32)
        faults = np.empty((data.rows, 4), np.int64)
        row, fault_count = 0, 0
        while True:
            call = _JsonCall(
                payloads=data.data.address,
                offsets=data.offsets.ctypes.data,
                valid=0 if data.valid is None else data.valid.ctypes.data,
                row=row,
                rows=data.rows,
                payload_bytes=data.data.size,
                nodes=columns.numbers.ctypes.data,
                node_count=len(self._table.nodes),
                names=self._names.address,
                slots=self._table.slots.ctypes.data,
                powers=_powers().ctypes.data,
                scratch=scratch.ctypes.data,
                map_slots=map_slots.ctypes.data,
                unknown=self._unknown,
                seed=self._seed,
                faults=faults[fault_count:].ctypes.data,
                most_taken=MAX_DECODED_BYTES,
            )
            ended, is_full = self._decode(struct_of(call, []))
            row = ended.row
            fault_count += ended.faults
            if not is_full:
                return faults[:fault_count].tolist()  # type: ignore[no-any-return]
            columns.grow(ended.grow_node, ended.grow_bytes)

    def _undecodable(
        self, data: _Input, row: int, fault: int, byte_index: int, node: int
    ) -> Undecodable:
        schema_node = self._table.nodes[node]
        name = ""
        if fault == _UNKNOWN:
            shown = bytes(data.bytes_of(row)[byte_index + 1 : byte_index + 4 * _SHOWN_NAME])
            match = _NAME.match(shown.decode("utf-8", "replace"))
            name = match[0][:_SHOWN_NAME] if match else ""
        reason = _REASONS[fault].format(
            field=f"the field {schema_node.path}" if schema_node.path else "the payload",
            expected=_EXPECTED.get(schema_node.kind, "a string"),
            type=_type_name(schema_node.field.type),
            cells=most_cells(len(data.bytes_of(row))),
            name=name,
        )
        return Undecodable(row, f"{reason} (byte {byte_index})")


def _type_name(kind: pa.DataType) -> str:
    return "STRUCT" if pa.types.is_nested(kind) else print_type(kind)


def _input(payloads: PayloadArray) -> _Input:
    data, offsets = data_and_offsets(payloads)
    valid = None
    if payloads.null_count:
        valid = payloads.is_valid().to_numpy(zero_copy_only=False).astype(np.uint8)
    return _Input(data, offsets, valid, len(payloads))


def _parse_undecided_numbers(given: _Input, columns: JsonColumns) -> Sequence[list[int]]:
    """Parses the numbers that the kernel has left to Python and sets them; returns a fault for each
    row with infinite ones."""
    faults: list[list[int]] = []
    for node, item, row, begin, length in columns.undecided_numbers():
        text = bytes(memoryview(given.data)[begin : begin + length]).decode("ascii")
        is_float = int(columns.numbers[node, NodeField.WIDTH]) == 4
        number = nearest_float(text) if is_float else float(text)
        columns.values_of(node, np.float32 if is_float else np.float64)[item] = number
        if not math.isfinite(number) and not (faults and faults[-1][0] == row):
            columns.void_row(row)
            faults.append([row, _OUT_OF_RANGE, begin - int(given.offsets[row]), node])
    return faults


@cache
def _powers() -> Any:
    """The first 128 bits of 5^-342 ... 5^308, high half first: rounded down, or up for negative
    powers, as Eisel and Lemire's method requires."""
    table = []
    for power in range(-342, 309):
        if power >= 0:
            value = 5**power << 128
            bits = value >> (value.bit_length() - 128)
        else:
            divisor = 5**-power
            shift = (divisor - 1).bit_length()
            value = (1 << (2 * shift + 128 if power < -27 else shift + 127)) // divisor + 1
            bits = value >> max(0, value.bit_length() - 128)
        table += [bits >> 64, bits & (1 << 64) - 1]
    return np.array(table, np.uint64)
