"""Compiles a writer's schema and the table's schema to a program for the kernel, by Avro's rules.

The columns come from the reader's schema alone, so the programs of all writers fill the same
columns, and payloads with any mixture of schema ids are decoded in one call, in their order. If a
writer's type cannot be read as the reader's, the program has a node that fails: a branch of a union
that never occurs does no harm. Fields that a writer lacks get the reader's default, which is
encoded here once.

The names of records, enums and fixed types matter only in unions of several types, where nothing
else says what a branch means. There, a branch is read as the one with the same short name or with a
matching alias. A type that stands alone, or next to null, may have another name in the table's
schema.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum

import pyarrow as pa

from rangeland.decode.payload.avro.avro_default import encode_default
from rangeland.decode.payload.avro.avro_nodes import (
    NO_COLUMN,
    OF_PRIMITIVE,
    AvroNodes,
    Operation,
    inside,
)
from rangeland.decode.payload.avro.avro_schema import (
    NO_DEFAULT,
    AvroArray,
    AvroEnum,
    AvroField,
    AvroFixed,
    AvroMap,
    AvroPrimitive,
    AvroRecord,
    AvroType,
    AvroUnion,
    arrow_type_of,
    branch_key,
    is_null,
    shown_type,
    types_inside,
    value_branches,
)
from rangeland.decode.payload.column_buffers import ColumnTable, children_of

_PROMOTED = {
    "int": {"int", "long", "float", "double"},
    "long": {"long", "float", "double"},
    "float": {"float", "double"},
    "string": {"string", "bytes"},
    "bytes": {"bytes", "string"},
}
_NAMED = (AvroRecord, AvroEnum, AvroFixed)


@dataclass(frozen=True)
class Mismatch:
    """A field of a writer's schema that cannot be read as the reader's; types are in words.
    ``is_of_some``: it concerns only values that may never occur: a null, a symbol, or a branch with
    another name."""

    path: str
    writer_type: str
    reader_type: str
    is_of_some: bool = False

    def __str__(self) -> str:
        return f"{self.writer_type} cannot be read as {self.reader_type}"


class AvroCompiler:
    """The columns of one reader's schema, and programs that fill them."""

    def __init__(self, reader: AvroType) -> None:
        self.reader = reader
        self.columns = ColumnTable()
        self.nodes = AvroNodes()
        self._children_of: dict[int, list[int]] = {}  # the columns inside a column, in order
        self._mismatches: dict[int, Mismatch] = {}
        self._add_columns(reader, arrow_type_of(reader))

    def add_writer(self, writer: AvroType) -> tuple[int, Mapping[int, Mismatch]]:
        """The node at which the program for a writer's schema begins, and the fields that cannot be
        read."""
        self._mismatches = {}
        self.nodes.keep(writer)
        return self._resolve(writer, self.reader, 0, ""), self._mismatches

    # --- columns ---

    def _add_columns(self, kind: AvroType, arrow_type: pa.DataType) -> int:
        branches = value_branches(kind)
        if isinstance(kind, AvroUnion) and len(branches) == 1:
            return self._add_columns(branches[0], arrow_type)
        symbols = dict(enumerate(kind.symbols)) if isinstance(kind, AvroEnum) else None
        index = self.columns.add(arrow_type, symbols)
        inner = branches if isinstance(kind, AvroUnion) else types_inside(kind)
        with self.columns.entries_of(index):
            self._children_of[index] = [
                self._add_columns(one, field.type)
                for one, field in zip(inner, children_of(arrow_type), strict=True)
            ]
        self.columns.close(index)
        return index

    # --- nodes ---

    def _mismatch(
        self, writer: str, reader: str, column: int, path: str, *, is_of_some: bool = False
    ) -> int:
        index = self.nodes.node(Operation.UNRESOLVED, column, path)
        is_of_some = is_of_some or writer == "null"
        self._mismatches[index] = Mismatch(path, writer, reader, is_of_some)
        return index

    def _resolve(self, writer: AvroType, reader: AvroType, column: int, path: str) -> int:
        if isinstance(writer, AvroUnion):
            return self._resolve_branches(writer, reader, column, path)
        if isinstance(reader, AvroUnion):
            return self._resolve_into_union(writer, reader, column, path)
        node = self._resolve_value(writer, reader, column, path)
        if node is None:
            return self._mismatch(shown_type(writer), shown_type(reader), column, path)
        return node

    def _resolve_branches(self, writer: AvroUnion, reader: AvroType, column: int, path: str) -> int:
        """Resolves each branch as if it were the writer's only type, except for its name: in a
        union of several types, a branch with another name means something else."""
        names_matter = len(value_branches(writer)) > 1
        nodes = []
        for one in writer.branches:
            if names_matter and _has_another_name(one, value_branches(reader)):
                words = (shown_type(one), shown_type(reader))
                nodes.append(self._mismatch(*words, column, path, is_of_some=True))
            else:
                nodes.append(self._resolve(one, reader, column, path))
        return self.nodes.node(Operation.UNION, NO_COLUMN, path, -1, [*nodes, *nodes], len(nodes))

    def _resolve_into_union(
        self, writer: AvroType, reader: AvroUnion, column: int, path: str
    ) -> int:
        if is_null(writer):
            if any(map(is_null, reader.branches)):
                return self.nodes.node(Operation.NULL, column, path)
            return self._mismatch("null", shown_type(reader), column, path)
        branches = value_branches(reader)
        if len(branches) == 1:
            return self._resolve(writer, branches[0], column, path)
        at = _matching_branch(writer, branches)
        if at is None:
            return self._mismatch(shown_type(writer), shown_type(reader), column, path)
        member = self._children_of[column][at]
        node = self._resolve(writer, branches[at], member, path)
        return self.nodes.node(Operation.UNION, column, path, 0, [node, member], 1)

    def _resolve_value(
        self, writer: AvroType, reader: AvroType, column: int, path: str
    ) -> int | None:
        """Resolves two types, neither of which is a union. None: they do not match."""
        match writer, reader:
            case AvroRecord(), AvroRecord():
                return self._resolve_record(writer, reader, column, path)
            case AvroEnum(), AvroEnum():
                return self._resolve_enum(writer, reader, column, path)
            case AvroArray(), AvroArray():
                item = self._children_of[column][0]
                node = self._resolve(writer.items, reader.items, item, f"{path}[]")
                return self.nodes.items(Operation.ARRAY, writer.items, column, path, node)
            case AvroMap(), AvroMap():
                value = self._children_of[column][0]
                node = self._resolve(writer.values, reader.values, value, f"{path}{{}}")
                return self.nodes.items(Operation.MAP, writer.values, column, path, node)
            case AvroPrimitive() | AvroFixed(), AvroPrimitive() | AvroFixed():
                return self._resolve_scalar(writer, reader, column, path)
        return None

    def _resolve_scalar(
        self,
        writer: AvroPrimitive | AvroFixed,
        reader: AvroPrimitive | AvroFixed,
        column: int,
        path: str,
    ) -> int | None:
        if not _is_readable(writer, reader):
            return None
        if isinstance(writer, AvroFixed):
            is_text = writer.logical == "uuid" and _is_uuid(reader)
            operation = Operation.UUID if is_text else Operation.FIXED
            return self.nodes.node(operation, column, path, writer.size)
        factor = 1
        if "timestamp" in reader.logical:
            factor = _micros_factor(writer.logical or reader.logical)
        operation = OF_PRIMITIVE[writer.name]
        if factor != 1:
            operation = Operation.LONG  # an int is encoded like a long
        return self.nodes.node(operation, column, path, factor)

    def _resolve_enum(self, writer: AvroEnum, reader: AvroEnum, column: int, path: str) -> int:
        numbers = {symbol: at for at, symbol in enumerate(reader.symbols)}
        default = numbers.get(reader.default or "", -1)
        mapped = [numbers.get(symbol, default) for symbol in writer.symbols]
        index = self.nodes.node(Operation.ENUM, column, path, 0, mapped)
        if missing := [s for s, n in zip(writer.symbols, mapped, strict=True) if n < 0]:
            shown = ", ".join(missing[:5])
            words = f"an enum without {shown}, and without a default"
            name = f"{shown_type(writer)} with {shown}"
            self._mismatches[index] = Mismatch(path, name, words, is_of_some=True)
        return index

    def _resolve_record(
        self, writer: AvroRecord, reader: AvroRecord, column: int, path: str
    ) -> int:
        members = dict(zip((f.name for f in reader.fields), self._children_of[column], strict=True))
        by_writer = _fields_by_writer(writer, reader)
        nodes = []
        for field in writer.fields:
            target = by_writer.get(field.name)
            if target is None:
                nodes.append(self.nodes.skip(field.type, inside(path, field.name)))
            else:
                inner = inside(path, target.name)
                nodes.append(self._resolve(field.type, target.type, members[target.name], inner))
        written = {target.name for target in by_writer.values()}
        for lacking in reader.fields:
            if lacking.name not in written:
                inner = inside(path, lacking.name)
                nodes.append(self._default(lacking, members[lacking.name], inner))
        return self.nodes.node(Operation.RECORD, column, path, 0, nodes)

    def _default(self, lacking: AvroField, column: int, path: str) -> int:
        if lacking.default is NO_DEFAULT:
            words = f"{shown_type(lacking.type)} without a default"
            return self._mismatch("no field", words, column, path)
        value = encode_default(lacking.type, lacking.default, path)
        if lacking.default is None:
            return self.nodes.node(Operation.NULL, column, path)
        at = self.nodes.constant(value)
        node = self._resolve(lacking.type, lacking.type, column, path)
        return self.nodes.node(Operation.DEFAULT, column, path, at, [node])


def _fields_by_writer(writer: AvroRecord, reader: AvroRecord) -> dict[str, AvroField]:
    """The reader's field for each field of the writer: by name, or else by the reader's alias."""
    names = {field.name for field in writer.fields}
    by_writer: dict[str, AvroField] = {}
    for field in reader.fields:
        for name in (field.name, *field.aliases):
            if name in names and name not in by_writer:
                by_writer[name] = field
                break
    return by_writer


def _is_uuid(kind: AvroPrimitive | AvroFixed) -> bool:
    return kind.logical == "uuid" or (isinstance(kind, AvroPrimitive) and kind.name == "string")


def _is_readable(writer: AvroPrimitive | AvroFixed, reader: AvroPrimitive | AvroFixed) -> bool:
    if "decimal" in (writer.logical, reader.logical):
        # A decimal's scale is not in its bytes. It can always be read as the reader's bytes.
        if reader.logical == "decimal" and (
            writer.logical != "decimal"
            or writer.scale != reader.scale
            or writer.precision > reader.precision
        ):
            return False
        if reader.logical == "decimal":
            return True
    if isinstance(writer, AvroFixed) and writer.logical == "uuid" and _is_uuid(reader):
        return True
    if isinstance(writer, AvroFixed) or isinstance(reader, AvroFixed):
        return type(writer) is type(reader) and writer.size == reader.size  # type: ignore[union-attr]
    if not _is_same_moment(writer.logical, reader.logical):
        return False
    return reader.name == writer.name or reader.name in _PROMOTED.get(writer.name, ())


def _micros_factor(logical: str) -> int:
    """The factor that turns the numbers of a timestamp into microseconds; if it is negative, they
    are divided by it instead."""
    return {"millis": 1000, "micros": 1, "nanos": -1000}[logical.rpartition("-")[2]]


def _is_same_moment(writer: str, reader: str) -> bool:
    """Dates and the two kinds of timestamps cannot stand for each other; plain numbers can stand
    for any of them."""

    def family(logical: str) -> str:
        return logical.rpartition("-")[0] if "timestamp" in logical else logical

    return not writer or not reader or family(writer) == family(reader)


def _matching_branch(writer: AvroType, branches: Sequence[AvroType]) -> int | None:
    """The branch of a reader's union as which the writer's type is read: the one with its name, or
    else the first that can take it, unless both have a name."""
    fitting = {at: _likeness(writer, one) for at, one in enumerate(branches)}
    best = max(fitting, key=lambda at: fitting[at])
    return best if fitting[best] > _Likeness.OTHER_NAME else None


def _has_another_name(writer: AvroType, branches: Sequence[AvroType]) -> bool:
    """Whether it could be read as one of these types if only its name were the same."""
    return max((_likeness(writer, one) for one in branches), default=0) == _Likeness.OTHER_NAME


class _Likeness(IntEnum):
    """How certain it is that a branch is meant for a writer's type."""

    UNREADABLE = 0
    OTHER_NAME = 1
    UNNAMED = 2
    SHORT_ALIAS = 3
    SHORT_NAME = 4
    ALIAS = 5
    NAME = 6


def _likeness(writer: AvroType, reader: AvroType) -> _Likeness:
    if not _may_match(writer, reader):
        return _Likeness.UNREADABLE
    key = branch_key(writer)
    if branch_key(reader) == key:
        return _Likeness.NAME
    if not isinstance(writer, _NAMED) or not isinstance(reader, _NAMED):
        return _Likeness.UNNAMED
    if key in reader.aliases:
        return _Likeness.ALIAS
    short = _short_name(key)
    if _short_name(reader.name) == short:
        return _Likeness.SHORT_NAME
    if short in map(_short_name, reader.aliases):
        return _Likeness.SHORT_ALIAS
    return _Likeness.OTHER_NAME


def _short_name(name: str) -> str:
    return name.rpartition(".")[2]


def _may_match(writer: AvroType, reader: AvroType) -> bool:
    scalars = (AvroPrimitive, AvroFixed)
    if isinstance(writer, scalars) and isinstance(reader, scalars):
        return _is_readable(writer, reader)
    return type(writer) is type(reader)
