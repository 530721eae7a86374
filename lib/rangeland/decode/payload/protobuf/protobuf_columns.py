"""Compiles a message type to the tables that the kernel runs and the columns that they fill.

Every use of a type gets its own rows and columns. Types that contain themselves are refused, since
no table has columns for them. Absent fields are decoded as the language defines: null for a field
with presence, otherwise zero or empty. Well-known types become the values that they stand for.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum

import numpy as np
import pyarrow as pa

from rangeland.decode.payload.column_buffers import (
    EMPTY_STRUCT,
    MAX_COLUMNS,
    MAX_DEPTH,
    ColumnTable,
    list_type,
    struct_type,
)
from rangeland.decode.payload.payload_decoder import PayloadSchemaError
from rangeland.decode.payload.payload_kernel import ProtobufProgram
from rangeland.decode.payload.protobuf.protobuf_descriptors import ProtoField, ProtoType, ProtoTypes
from rangeland.decode.payload.protobuf.protobuf_json import list_text, struct_text, value_text

_REQUIRED_LABEL, _REPEATED_LABEL = 2, 3  # in FieldDescriptorProto


class WireKind(IntEnum):
    """How the kernel reads a field: ``proto_kind`` in ``protobuf.h``."""

    INT32 = 1
    INT64 = 2
    UINT32 = 3
    UINT64 = 4
    SINT32 = 5
    SINT64 = 6
    BOOL = 7
    FIXED32 = 8
    FIXED64 = 9
    SFIXED32 = 10
    FLOAT = 11
    DOUBLE = 12
    BYTES = 13
    MESSAGE = 14
    GROUP = 15
    CLOSED_ENUM = 16


class FieldLabel(IntEnum):
    """Whether a field has presence, is required, or is repeated: ``proto_label`` in
    ``protobuf.h``."""

    IMPLICIT = 0
    OPTIONAL = 1
    REQUIRED = 2
    REPEATED = 3
    IN_ENTRY = 4
    """In the entry of a map, which is left out if its enum is closed and the number is unknown."""


class MessageForm(IntEnum):
    """The form that a message takes in columns: ``proto_form`` in ``protobuf.h``."""

    FIELDS = 0
    EMPTY = 1
    WRAPPER = 2
    TIMESTAMP = 3
    DURATION = 4
    STRUCT = 5
    VALUE = 6
    LIST = 7


_UNSIGNED = pa.decimal128(20, 0)
_GROUP, _MESSAGE, _ENUM = 10, 11, 14
_SCALARS = {  # by the number of the type in FieldDescriptorProto
    1: (WireKind.DOUBLE, pa.float64()),
    2: (WireKind.FLOAT, pa.float32()),
    3: (WireKind.INT64, pa.int64()),
    4: (WireKind.UINT64, _UNSIGNED),
    5: (WireKind.INT32, pa.int32()),
    6: (WireKind.FIXED64, _UNSIGNED),
    7: (WireKind.FIXED32, pa.int64()),
    8: (WireKind.BOOL, pa.bool_()),
    9: (WireKind.BYTES, pa.string()),
    12: (WireKind.BYTES, pa.binary()),
    13: (WireKind.UINT32, pa.int64()),
    15: (WireKind.SFIXED32, pa.int32()),
    16: (WireKind.FIXED64, pa.int64()),
    17: (WireKind.SINT32, pa.int32()),
    18: (WireKind.SINT64, pa.int64()),
}
_KNOWN = {
    "google.protobuf.Timestamp": (MessageForm.TIMESTAMP, pa.timestamp("us", "UTC")),
    "google.protobuf.Duration": (MessageForm.DURATION, pa.int64()),
}
_WRAPPERS = {
    f"google.protobuf.{name}Value": number
    for name, number in {
        "Double": 1,
        "Float": 2,
        "Int64": 3,
        "UInt64": 4,
        "Int32": 5,
        "Bool": 8,
        "String": 9,
        "Bytes": 12,
        "UInt32": 13,
    }.items()
}
_JSON: dict[str, tuple[MessageForm, Callable[[bytes], str]]] = {
    "google.protobuf.Struct": (MessageForm.STRUCT, struct_text),
    "google.protobuf.Value": (MessageForm.VALUE, value_text),
    "google.protobuf.ListValue": (MessageForm.LIST, list_text),
}
_MOMENT_FIELDS = {1: 3, 2: 5}
"""The fields of timestamps and durations, as types by field number: seconds as int64, nanoseconds
as int32."""


class ProtobufCompiler:
    """The columns of one message type and the program that fills them."""

    def __init__(self, types: ProtoTypes, message: str) -> None:
        self._types = types
        self.columns = ColumnTable()
        self._messages: list[tuple[int, ...]] = []
        self._fields: list[tuple[int, ...]] = []
        self._paths: list[str] = []
        self._children: list[int] = []
        self._oneofs = 0
        self._types_used = 0
        self.arrow_type = self._message_type(self._of(message), ())
        self._add_message(self._of(message), self.arrow_type, "")

    def program(self) -> ProtobufProgram:
        return ProtobufProgram(
            np.array(self._messages, np.int64),
            np.array(self._fields or [(0,) * 8], np.int64),
            np.array(self._children or [0], np.int64),
            self._oneofs,
            self._paths,
        )

    def _of(self, name: str) -> ProtoType:
        message = self._types.messages.get(name)
        if message is None:
            raise PayloadSchemaError(f"the message {name} is not defined")
        return message

    # --- types ---

    def _message_type(self, message: ProtoType, outer: tuple[str, ...]) -> pa.DataType:
        if message.name in outer:
            raise PayloadSchemaError(
                f"the message {message.name} contains itself, which no column of a table can "
                "represent"
            )
        if len(outer) > MAX_DEPTH:
            raise PayloadSchemaError(f"messages are nested more than {MAX_DEPTH} levels deep")
        form = _form(message)
        inner = (*outer, message.name)
        match form:
            case MessageForm.TIMESTAMP | MessageForm.DURATION:
                return _KNOWN[message.name][1]
            case MessageForm.WRAPPER:
                return self._item_type(message.fields[0], inner)
            case MessageForm.EMPTY:
                return EMPTY_STRUCT
            case MessageForm.STRUCT | MessageForm.VALUE | MessageForm.LIST:
                return pa.string()
        self._types_used += 1
        if self._types_used > MAX_COLUMNS:
            raise PayloadSchemaError(f"the schema has more than {MAX_COLUMNS} messages")
        fields = [(one.name, self._field_type(one, inner)) for one in message.fields]
        return struct_type(fields)

    def _field_type(self, one: ProtoField, outer: tuple[str, ...]) -> pa.DataType:
        if (entry := self._entry(one)) is not None:
            key, value = sorted(entry.fields, key=lambda f: f.number)
            inner = (*outer, entry.name)
            return pa.map_(self._item_type(key, inner), self._item_type(value, inner))
        item = self._item_type(one, outer)
        return list_type(item) if one.label == _REPEATED_LABEL else item

    def _item_type(self, one: ProtoField, outer: tuple[str, ...]) -> pa.DataType:
        if one.type in (_MESSAGE, _GROUP):
            return self._message_type(self._of(one.type_name), outer)
        if one.type == _ENUM:
            return pa.string()
        if one.type not in _SCALARS:
            raise PayloadSchemaError(f"the field {one.name} has the unknown type {one.type}")
        return _SCALARS[one.type][1]

    def _entry(self, one: ProtoField) -> ProtoType | None:
        """The message for the entries of a map."""
        if one.type != _MESSAGE or one.label != _REPEATED_LABEL:
            return None
        message = self._of(one.type_name)
        return message if message.is_map_entry and len(message.fields) == 2 else None

    # --- rows ---

    def _add_message(self, message: ProtoType, arrow_type: pa.DataType, path: str) -> int:
        """Adds a message with its column, and everything inside it."""
        index = len(self._messages)
        self._messages.append(())
        if message.name in _JSON:
            form, text_of = _JSON[message.name]
            column = self.columns.add(arrow_type, text_of=text_of)
            self.columns.close(column)
            self._messages[index] = (form, column, 0, 0, 0, 0)
            return index
        column = self.columns.add(arrow_type)
        fields = sorted(message.fields, key=lambda one: one.number)
        first = len(self._fields)
        oneof = self._oneofs
        groups = {one.oneof for one in fields if one.oneof is not None}
        oneofs = {group: oneof + at for at, group in enumerate(sorted(groups))}
        self._oneofs += len(oneofs)
        for one in fields:
            self._fields.append(())
            self._paths.append(f"{path}.{one.name}" if path else one.name)
        form = _form(message)
        columns = {}
        if form is MessageForm.FIELDS:  # columns are in the order of declaration
            for one, kind in zip(message.fields, arrow_type, strict=True):
                at = first + fields.index(one)
                columns[one.number] = self._add_field(one, kind.type, self._paths[at])
        for at, one in enumerate(fields):
            inner, child = columns.get(one.number, (column, -1))
            group = -1 if one.oneof is None else oneofs[one.oneof]
            self._fields[first + at] = self._field_row(message, one, inner, child, group)
        self.columns.close(column)
        self._messages[index] = (form, column, first, len(fields), oneof, len(oneofs))
        return index

    def _add_field(self, one: ProtoField, arrow_type: pa.DataType, path: str) -> tuple[int, int]:
        """The column of a field, and the message of its items or of the field itself."""
        entry = self._entry(one)
        if entry is not None:
            column = self.columns.add(arrow_type)
            child = self._add_message(
                entry, pa.struct([arrow_type.key_field, arrow_type.item_field]), path
            )
            self.columns.close(column)
            return column, child
        if one.label == _REPEATED_LABEL:
            column = self.columns.add(arrow_type)
            _, child = self._add_item(one, arrow_type.value_type, path)
            self.columns.close(column)
            return column, child
        return self._add_item(one, arrow_type, path)

    def _add_item(self, one: ProtoField, arrow_type: pa.DataType, path: str) -> tuple[int, int]:
        if one.type in (_MESSAGE, _GROUP):
            column = len(self.columns.columns)
            return column, self._add_message(self._of(one.type_name), arrow_type, path)
        return self.columns.leaf(arrow_type, self._symbols(one)), -1

    def _symbols(self, one: ProtoField) -> dict[int, str] | None:
        if one.type != _ENUM:
            return None
        if one.type_name not in self._types.enums:
            raise PayloadSchemaError(f"the enum {one.type_name} is not defined")
        return self._types.enums[one.type_name].symbols

    def _field_row(
        self, message: ProtoType, one: ProtoField, column: int, child: int, group: int
    ) -> tuple[int, ...]:
        kind, numbers = self._kind(one)
        first = len(self._children)
        self._children.extend(numbers)
        label = _label(message, one)
        return (one.number, kind, label, column, child, group, first, len(numbers))

    def _kind(self, one: ProtoField) -> tuple[WireKind, list[int]]:
        if one.type == _ENUM:
            enum = self._types.enums[one.type_name]
            if enum.is_closed:
                return WireKind.CLOSED_ENUM, sorted(enum.symbols)
            return WireKind.INT32, []
        if one.type == _GROUP:
            return WireKind.GROUP, []
        return (WireKind.MESSAGE if one.type == _MESSAGE else _SCALARS[one.type][0]), []


def _form(message: ProtoType) -> MessageForm:
    """The form of a message: that of a well-known type only if it is defined the way the kernel
    expects."""
    if message.name in _JSON:
        return _JSON[message.name][0]
    types = {one.number: one.type for one in message.fields}
    if message.name in _KNOWN and types == _MOMENT_FIELDS:
        return _KNOWN[message.name][0]
    if message.name in _WRAPPERS and types == {1: _WRAPPERS[message.name]}:
        return MessageForm.WRAPPER
    return MessageForm.FIELDS if message.fields else MessageForm.EMPTY


def _label(message: ProtoType, one: ProtoField) -> FieldLabel:
    if one.label == _REPEATED_LABEL:
        return FieldLabel.REPEATED
    if message.is_map_entry:
        return FieldLabel.IN_ENTRY
    if _form(message) is MessageForm.WRAPPER:
        return FieldLabel.IMPLICIT
    if one.label == _REQUIRED_LABEL:
        return FieldLabel.REQUIRED
    has_presence = (
        message.is_proto2
        or one.is_optional
        or one.oneof is not None
        or one.type in (_MESSAGE, _GROUP)
    )
    return FieldLabel.OPTIONAL if has_presence else FieldLabel.IMPLICIT
