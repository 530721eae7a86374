"""The nodes of the programs with which the kernel walks over Avro. ``avro_resolution`` adds the
nodes that put values into columns; nodes that skip unread values are made here.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum

import numpy as np

from rangeland.decode.payload.avro.avro_schema import (
    MAX_TYPES,
    AvroArray,
    AvroEnum,
    AvroFixed,
    AvroMap,
    AvroPrimitive,
    AvroRecord,
    AvroType,
    AvroUnion,
    is_null,
)
from rangeland.decode.payload.payload_decoder import PayloadSchemaError
from rangeland.decode.payload.payload_kernel import AvroProgram

NO_COLUMN = -1


class Operation(IntEnum):
    """What the kernel does at a node. The numbers are those of ``avro.h``."""

    NULL = 1
    BOOLEAN = 2
    INT = 3
    LONG = 4
    FLOAT = 5
    DOUBLE = 6
    BYTES = 7
    FIXED = 8
    ENUM = 9
    RECORD = 10
    ARRAY = 11
    MAP = 12
    UNION = 13
    UUID = 14
    DEFAULT = 15
    UNRESOLVED = 16


OF_PRIMITIVE = {
    "null": Operation.NULL,
    "boolean": Operation.BOOLEAN,
    "int": Operation.INT,
    "long": Operation.LONG,
    "float": Operation.FLOAT,
    "double": Operation.DOUBLE,
    "bytes": Operation.BYTES,
    "string": Operation.BYTES,
}


class AvroNodes:
    """The table of nodes of all programs for the same columns."""

    def __init__(self) -> None:
        self.paths: list[str] = []
        """The path of each node, for messages."""
        self._nodes: list[tuple[int, int, int, int, int]] = []
        self._children: list[int] = []
        self._constants = bytearray()
        self._skipped: dict[int, int] = {}
        self._empty: dict[int, bool] = {}
        self._kept: list[AvroType] = []

    def keep(self, kind: AvroType) -> None:
        """Keeps a type alive, because from now on its parts are recognised by identity."""
        self._kept.append(kind)

    def program(self) -> AvroProgram:
        nodes = np.array(self._nodes, np.int64)
        children = np.array(self._children or [0], np.int64)
        return AvroProgram(nodes, children, bytes(self._constants) or b"\0")

    def constant(self, value: bytes) -> int:
        """The position of an encoded value among the constants."""
        at = len(self._constants)
        self._constants += len(value).to_bytes(8, "little") + value
        return at

    def node(
        self,
        operation: Operation,
        column: int,
        path: str,
        argument: int = 0,
        children: Sequence[int] = (),
        count: int | None = None,
    ) -> int:
        first = len(self._children)
        self._children.extend(children)
        size = len(children) if count is None else count
        self._nodes.append((operation, column, argument, first, size))
        self.paths.append(path)
        if len(self._nodes) > MAX_TYPES:
            raise PayloadSchemaError("the schema has too many types")
        return len(self._nodes) - 1

    def items(self, operation: Operation, item: AvroType, column: int, path: str, node: int) -> int:
        may_be_empty = operation is Operation.ARRAY and self.takes_no_bytes(item)
        return self.node(operation, column, path, int(may_be_empty), [node])

    def skip(self, writer: AvroType, path: str) -> int:
        """Nodes that read a value and discard it, shared by all fields that skip this type."""
        node = self._skipped.get(id(writer))
        if node is None:
            node = self._skipped[id(writer)] = self._add_skip(writer, path)
        return node

    def _add_skip(self, writer: AvroType, path: str) -> int:
        if self.takes_no_bytes(writer):  # one node, however many fields are inside
            return self.node(Operation.NULL, NO_COLUMN, path)
        match writer:
            case AvroRecord():
                nodes = [self.skip(one.type, inside(path, one.name)) for one in writer.fields]
                return self.node(Operation.RECORD, NO_COLUMN, path, 0, nodes)
            case AvroUnion():
                nodes = [self.skip(one, path) for one in writer.branches]
                children = [*nodes, *nodes]
                return self.node(Operation.UNION, NO_COLUMN, path, -1, children, len(nodes))
            case AvroArray():
                node = self.skip(writer.items, f"{path}[]")
                return self.items(Operation.ARRAY, writer.items, NO_COLUMN, path, node)
            case AvroMap():
                node = self.skip(writer.values, f"{path}{{}}")
                return self.items(Operation.MAP, writer.values, NO_COLUMN, path, node)
            case AvroEnum():
                count = len(writer.symbols)
                return self.node(Operation.ENUM, NO_COLUMN, path, 0, (), count)
            case AvroFixed():
                return self.node(Operation.FIXED, NO_COLUMN, path, writer.size)
            case AvroPrimitive():
                return self.node(OF_PRIMITIVE[writer.name], NO_COLUMN, path, 1)

    def takes_no_bytes(self, kind: AvroType) -> bool:
        """Whether a value is encoded as zero bytes, so that any number of them fits in a payload.
        Every type is examined once: if types are used twice, the number of values doubles at each
        level."""
        is_empty = self._empty.get(id(kind))
        if is_empty is None:
            match kind:
                case AvroRecord():
                    is_empty = all(self.takes_no_bytes(field.type) for field in kind.fields)
                case AvroFixed():
                    is_empty = kind.size == 0
                case _:
                    is_empty = is_null(kind)
            self._empty[id(kind)] = is_empty
        return is_empty


def inside(path: str, name: str) -> str:
    """The path of a field."""
    return f"{path}.{name}" if path else name
