"""A schema as the table of nodes by which the kernel decodes JSON, and the resulting Arrow arrays.

The nodes are the root, then its fields, then their fields and so on, so that the children of a node
are next to each other. A row of the table is a ``json_node_t`` of ``json_values.h``. After the
nodes of the schema come two that do not belong to it: for the text of rescued fields, and for
numbers that the kernel leaves to the caller.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum, auto
from typing import Any, Final

import numpy as np
import pyarrow as pa

from rangeland.decode.native.kernel_arrays import SLACK, GrowingColumns, with_room
from rangeland.decode.payload.column_buffers import children_of
from rangeland.decode.payload.json.json_rules import cells_of
from rangeland.decode.payload.payload_decoder import MAX_DECODED_BYTES
from rangeland.decode.payload.schema_ddl import LOCAL_TIME

UNDECIDED_NUMBERS: Final = 5
"""How many 64-bit numbers a ``json_undecided_t`` has."""


class JsonKind(IntEnum):
    """The kind of a node. The numbers are those of ``json_values.h``."""

    BOOLEAN = 0
    INTEGER = 1
    REAL = 2
    DECIMAL = 3
    STRING = 4
    BINARY = 5
    DAY = 6
    INSTANT = 7
    LOCAL = 8
    STRUCT = 9
    LIST = 10
    MAP = 11


class NodeField(IntEnum):
    """The numbers of ``json_node_t``, in their order."""

    KIND = 0
    IS_NULLABLE = auto()
    WIDTH = auto()
    PRECISION = auto()
    SCALE = auto()
    FIRST_CHILD = auto()
    CHILDREN = auto()
    CELLS = auto()
    NAME = auto()
    NAME_LENGTH = auto()
    IS_PLAIN = auto()
    SLOTS = auto()
    SLOT_MASK = auto()
    LENGTH = auto()
    BYTES = auto()
    CAPACITY = auto()
    BYTE_CAPACITY = auto()
    VALID = auto()
    VALUES = auto()
    DATA = auto()


@dataclass(frozen=True)
class JsonNode:
    """One field of the schema, or an element, key or value in it."""

    field: pa.Field
    kind: JsonKind
    path: str
    """Its place in the schema, for messages: ``customer.tags[].name``."""
    first_child: int
    children: int
    level: int
    """The array or map that contains it: nodes of the same level have the same number of items."""

    @property
    def item_bytes(self) -> int:
        """The bytes that an item takes in the buffer of values; 0 for types that have no such
        buffer."""
        if self.kind in (JsonKind.STRUCT, JsonKind.BOOLEAN):
            return 0
        return 4 if self.has_offsets else int(self.field.type.bit_width) // 8

    @property
    def has_offsets(self) -> bool:
        return self.kind >= JsonKind.LIST or self.has_bytes

    @property
    def has_bytes(self) -> bool:
        return self.kind in (JsonKind.STRING, JsonKind.BINARY)


def schema_nodes(schema: pa.StructType) -> list[JsonNode]:
    """All nodes of a schema, the root first, level by level."""
    queue = [(pa.field("", schema), "", -1)]
    nodes: list[JsonNode] = []
    for field, path, level in queue:  # the queue grows on the way
        inside = _inside(field.type, path)
        kind = _kind_of(field.type)
        within = level if kind is JsonKind.STRUCT else len(nodes)
        nodes.append(JsonNode(field, kind, path, len(queue), len(inside), level))
        queue.extend((*child, within) for child in inside)
    return nodes


def _inside(kind: pa.DataType, path: str) -> list[tuple[pa.Field, str]]:
    if pa.types.is_struct(kind):
        return [(f, f"{path}.{f.name}" if path else f.name) for f in children_of(kind)]
    keys = [(kind.key_field, f"the keys of {path}")] if pa.types.is_map(kind) else []
    return keys + [(item, f"{path}[]") for item in children_of(kind)]


def _kind_of(kind: pa.DataType) -> JsonKind:
    if pa.types.is_timestamp(kind):
        return JsonKind.LOCAL if kind == LOCAL_TIME else JsonKind.INSTANT
    tests = {
        pa.types.is_boolean: JsonKind.BOOLEAN,
        pa.types.is_integer: JsonKind.INTEGER,
        pa.types.is_floating: JsonKind.REAL,
        pa.types.is_decimal: JsonKind.DECIMAL,
        pa.types.is_string: JsonKind.STRING,
        pa.types.is_binary: JsonKind.BINARY,
        pa.types.is_date: JsonKind.DAY,
        pa.types.is_struct: JsonKind.STRUCT,
        pa.types.is_list: JsonKind.LIST,
        pa.types.is_map: JsonKind.MAP,
    }
    return next(json_kind for test, json_kind in tests.items() if test(kind))


class NodeTable:
    """The part of the table that is the same for all calls: the schema."""

    def __init__(self, nodes: list[JsonNode]) -> None:
        self.nodes = nodes
        self.has_bytes = [*(node.has_bytes for node in nodes), True, False]
        self.has_offsets = [*(node.has_offsets for node in nodes), True, False]
        self.names = b"".join(node.field.name.encode() for node in nodes) + bytes(SLACK)
        self.numbers = np.zeros((len(nodes) + 2, len(NodeField)), np.int64)
        name_at = slot_at = 0
        for node, row in zip(nodes, self.numbers, strict=False):
            name = node.field.name.encode()
            size = 1
            while size <= 2 * node.children:
                size *= 2
            self._fill(node, row, name)
            row[NodeField.NAME] = name_at
            row[NodeField.SLOTS] = slot_at
            row[NodeField.SLOT_MASK] = size - 1
            name_at += len(name)
            slot_at += size
        self.slots = np.full(slot_at, -1, np.int32)
        rescued = self.numbers[-2]
        undecided = self.numbers[-1]
        rescued[NodeField.KIND] = JsonKind.STRING
        rescued[NodeField.IS_NULLABLE] = True
        undecided[NodeField.WIDTH] = 8 * UNDECIDED_NUMBERS

    @staticmethod
    def _fill(node: JsonNode, row: Any, name: bytes) -> None:
        kind = node.field.type
        is_decimal = node.kind is JsonKind.DECIMAL
        row[: NodeField.NAME] = (
            node.kind,
            node.field.nullable,
            node.item_bytes,
            kind.precision if is_decimal else 0,
            kind.scale if is_decimal else 0,
            node.first_child,
            node.children,
            cells_of(kind),
        )
        row[NodeField.NAME_LENGTH] = len(name)
        row[NodeField.IS_PLAIN] = not any(byte < 0x20 or byte in b'"\\' for byte in name)


class JsonColumns(GrowingColumns):
    """The columns of one batch while it is being decoded: buffers that grow."""

    def __init__(self, table: NodeTable, row_count: int, payload_bytes: int, last: Any) -> None:
        """``last``: the numbers of the previous call, whose sizes are the first estimate."""
        self._table = table
        row_count = min(row_count, MAX_DECODED_BYTES // int(table.numbers[0, NodeField.CELLS]))
        levels = [*(node.level for node in table.nodes), -2, -3]
        super().__init__(table.numbers.copy(), NodeField.CAPACITY, levels)
        for index in range(len(self.numbers)):
            items = max(row_count, 64, with_room(last[index, NodeField.LENGTH]))
            size = max(payload_bytes // 16, 1024, with_room(last[index, NodeField.BYTES]))
            self.set_rows(index, items if index < len(table.nodes) + 1 else 64)
            if table.has_bytes[index]:
                self.set_bytes(index, size)
            if table.has_offsets[index]:
                self.values_of(index, np.int32)[0] = 0

    def set_rows(self, index: int, row_count: int) -> None:
        """Gives a node room for this many rows, and notes this in its numbers."""
        width = 4 if self._table.has_offsets[index] else int(self.numbers[index, NodeField.WIDTH])
        self.resize(index, 0, row_count // 8 + 1)
        self.resize(index, 1, (row_count + 1) * width if width else row_count // 8 + 1)
        self.numbers[index, NodeField.CAPACITY] = row_count

    def values_of(self, index: int, kind: Any) -> Any:
        """The values of a node, which may be changed in place."""
        return self.as_array(index, 1, kind)

    def undecided_numbers(self) -> list[list[int]]:
        """The numbers left to the caller, as ``json_undecided_t``: node, item, row, begin and
        length of the text."""
        numbers = self.values_of(-1, np.int64)[: self.numbers[-1, NodeField.LENGTH] * 5]
        return numbers.reshape(-1, UNDECIDED_NUMBERS).tolist()  # type: ignore[no-any-return]

    def void_row(self, row: int) -> None:
        """Makes a decoded row null."""
        for index in (0, len(self._table.nodes)):
            bits = self.as_array(index, 0, np.uint8)
            bits[row >> 3] &= ~(1 << (row & 7)) & 0xFF

    def values(self) -> pa.Array:
        return self._array(0)

    def rescued_column(self) -> pa.Array:
        return self._build(len(self._table.nodes), pa.string(), True, [])

    def _array(self, index: int) -> pa.Array:
        node = self._table.nodes[index]
        children = [self._array(node.first_child + i) for i in range(node.children)]
        kind = node.field.type
        if node.kind is JsonKind.MAP:
            entries = pa.StructArray.from_arrays(children, fields=[kind.key_field, kind.item_field])
            children = [entries]
        return self._build(index, kind, node.field.nullable, children)

    def _build(
        self, index: int, kind: pa.DataType, is_nullable: bool, children: list[pa.Array]
    ) -> pa.Array:
        row = self.numbers[index]
        length = int(row[NodeField.LENGTH])
        buffers = [self.cut(index, 0, length // 8 + 1) if is_nullable else None]
        if self._table.has_offsets[index]:
            buffers.append(self.cut(index, 1, 4 * length + 4))
        elif not pa.types.is_struct(kind):
            width = int(row[NodeField.WIDTH])
            size = length * width if width else length // 8 + 1
            buffers.append(self.cut(index, 1, size))
        if self._table.has_bytes[index]:
            buffers.append(self.cut(index, 2, int(row[NodeField.BYTES])))
        return pa.Array.from_buffers(kind, length, buffers, children=children)
