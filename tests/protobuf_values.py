"""Random Protobuf types, values of them, and what a decoder makes of values."""

from __future__ import annotations

import datetime as dt
import itertools
import json
import math
from decimal import Decimal
from typing import Any

from google.protobuf import descriptor_pb2 as pb
from google.protobuf import (
    descriptor_pool,
    duration_pb2,
    json_format,
    message_factory,
    struct_pb2,
    timestamp_pb2,
    wrappers_pb2,
)
from google.protobuf.internal.wire_format import WIRETYPE_LENGTH_DELIMITED as LENGTH_DELIMITED
from google.protobuf.unknown_fields import UnknownFieldSet
from hypothesis import strategies as st

F = pb.FieldDescriptorProto
EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_files = itertools.count()
SCALARS = [
    *(F.TYPE_DOUBLE, F.TYPE_FLOAT, F.TYPE_INT64, F.TYPE_UINT64, F.TYPE_INT32, F.TYPE_FIXED64),
    *(F.TYPE_FIXED32, F.TYPE_BOOL, F.TYPE_STRING, F.TYPE_BYTES, F.TYPE_UINT32, F.TYPE_SFIXED32),
    *(F.TYPE_SFIXED64, F.TYPE_SINT32, F.TYPE_SINT64),
]
KEYS = [F.TYPE_INT64, F.TYPE_BOOL, F.TYPE_STRING, F.TYPE_UINT32, F.TYPE_SINT32]
KNOWN = {
    ".google.protobuf.Timestamp": timestamp_pb2,
    ".google.protobuf.Duration": duration_pb2,
    ".google.protobuf.Int64Value": wrappers_pb2,
    ".google.protobuf.StringValue": wrappers_pb2,
    ".google.protobuf.Struct": struct_pb2,
    ".google.protobuf.Value": struct_pb2,
    ".google.protobuf.ListValue": struct_pb2,
}
TEXT = st.text(max_size=8)
INT32 = st.integers(-(1 << 31), (1 << 31) - 1)
INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
UINT32, UINT64 = st.integers(0, (1 << 32) - 1), st.integers(0, (1 << 64) - 1)
NUMBERS = {
    F.TYPE_INT32: INT32,
    F.TYPE_SINT32: INT32,
    F.TYPE_SFIXED32: INT32,
    F.TYPE_INT64: INT64,
    F.TYPE_SINT64: INT64,
    F.TYPE_SFIXED64: INT64,
    F.TYPE_UINT32: UINT32,
    F.TYPE_FIXED32: UINT32,
    F.TYPE_UINT64: UINT64,
    F.TYPE_FIXED64: UINT64,
    F.TYPE_BOOL: st.booleans(),
    F.TYPE_STRING: st.text(max_size=8),
    F.TYPE_BYTES: st.binary(max_size=8),
    F.TYPE_FLOAT: st.floats(width=32, allow_nan=False),
    F.TYPE_DOUBLE: st.floats(allow_nan=False),
    F.TYPE_ENUM: st.sampled_from([0, 1, 5]),
}


@st.composite
def files(draw: Any) -> tuple[bytes, Any]:
    """A descriptor set whose last file has the message ``p.M``, and Google's class for it."""
    number = next(_files)
    syntax = draw(st.sampled_from(["proto2", "proto3"]))
    file = pb.FileDescriptorProto(name=f"f{number}.proto", package=f"p{number}", syntax=syntax)
    file.enum_type.add(name="E").value.extend(
        pb.EnumValueDescriptorProto(name=name, number=at)
        for name, at in [("A", 0), ("B", 1), ("F", 5)]
    )
    modules = {module.DESCRIPTOR.name: module for module in KNOWN.values()}
    file.dependency.extend(modules)
    _fill(draw, file.message_type.add(name="M"), f".p{number}", f".p{number}.M", syntax, 2)
    files_ = [module.DESCRIPTOR for module in modules.values()]
    whole = pb.FileDescriptorSet()
    for one in files_:
        one.CopyToProto(whole.file.add())
    whole.file.append(file)
    pool = descriptor_pool.DescriptorPool()
    for one in whole.file:
        pool.Add(one)
    found = pool.FindMessageTypeByName(f"p{number}.M")
    return whole.SerializeToString(), message_factory.GetMessageClass(found)


def map_of_doubles() -> tuple[bytes, Any]:
    """As ``files``, with a message whose only field is ``map<int64, double> f = 1``."""
    file = pb.FileDescriptorProto(name="doubles.proto", package="doubles", syntax="proto3")
    message = file.message_type.add(name="M")
    entry = message.nested_type.add(name="FEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=F.TYPE_INT64, label=F.LABEL_OPTIONAL)
    entry.field.add(name="value", number=2, type=F.TYPE_DOUBLE, label=F.LABEL_OPTIONAL)
    kind = {"type": F.TYPE_MESSAGE, "type_name": ".doubles.M.FEntry"}
    message.field.add(name="f", number=1, label=F.LABEL_REPEATED, **kind)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    found = pool.FindMessageTypeByName("doubles.M")
    whole = pb.FileDescriptorSet(file=[file])
    return whole.SerializeToString(), message_factory.GetMessageClass(found)


def _fill(draw: Any, message: Any, package: str, path: str, syntax: str, depth: int) -> None:
    numbers = draw(st.lists(st.integers(1, 40), max_size=6, unique=True))
    for at, number in enumerate(numbers):
        field = message.field.add(name=f"f{at}", number=number, label=F.LABEL_OPTIONAL)
        kinds = ["scalar", "scalar", "enum", "known"] + (["message", "map"] if depth else [])
        kinds += ["group"] if depth and syntax == "proto2" else []
        match draw(st.sampled_from(kinds)):
            case "scalar":
                field.type = draw(st.sampled_from(SCALARS))
            case "enum":
                field.type, field.type_name = F.TYPE_ENUM, f"{package}.E"
            case "known":
                field.type, field.type_name = F.TYPE_MESSAGE, draw(st.sampled_from([*KNOWN]))
            case "map":
                _add_map(draw, message, field, package, path, syntax, depth)
                continue
            case kind:
                inner = message.nested_type.add(name=f"N{at}")
                _fill(draw, inner, package, f"{path}.N{at}", syntax, depth - 1)
                field.type = F.TYPE_GROUP if kind == "group" else F.TYPE_MESSAGE
                field.type_name = f"{path}.N{at}"
        match draw(st.integers(0, 4)):
            case 0 | 1:
                field.label = F.LABEL_REPEATED
            case 2 if field.type != F.TYPE_GROUP:
                field.oneof_index = 0
            case 3 if syntax == "proto2":
                field.label = F.LABEL_REQUIRED
    if any(field.HasField("oneof_index") for field in message.field):
        message.oneof_decl.add(name="choice")


def _add_map(
    draw: Any, message: Any, field: Any, package: str, path: str, syntax: str, depth: int
) -> None:
    name = f"{field.name.upper()}Entry"
    entry = message.nested_type.add(name=name)
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, label=F.LABEL_OPTIONAL, type=draw(st.sampled_from(KEYS)))
    value = entry.field.add(name="value", number=2, label=F.LABEL_OPTIONAL)
    kind = draw(st.sampled_from(["scalar", "enum", "message"]))
    if kind == "scalar":
        value.type = draw(st.sampled_from(SCALARS))
    elif kind == "enum":
        value.type, value.type_name = F.TYPE_ENUM, f"{package}.E"
    else:
        _fill(
            draw,
            message.nested_type.add(name=f"V{field.name}"),
            package,
            f"{path}.V{field.name}",
            syntax,
            depth - 1,
        )
        value.type, value.type_name = F.TYPE_MESSAGE, f"{path}.V{field.name}"
    field.type, field.type_name, field.label = F.TYPE_MESSAGE, f"{path}.{name}", F.LABEL_REPEATED


@st.composite
def messages(draw: Any, kind: Any) -> Any:
    found = kind()
    _populate(draw, found)
    return found


JSON = st.recursive(
    st.none() | st.booleans() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)
JSON_TYPES = {
    "google.protobuf.Struct": st.dictionaries(TEXT, JSON, max_size=3),
    "google.protobuf.Value": JSON,
    "google.protobuf.ListValue": st.lists(JSON, max_size=3),
}


def _populate(draw: Any, message: Any) -> None:
    name = message.DESCRIPTOR.full_name
    if name in JSON_TYPES:
        json_format.ParseDict(draw(JSON_TYPES[name]), message)
        return
    if name in ("google.protobuf.Timestamp", "google.protobuf.Duration"):
        message.FromMicroseconds(draw(st.integers(-(10**15), 10**15)))
        return
    for field in message.DESCRIPTOR.fields:
        is_map = field.message_type is not None and field.message_type.GetOptions().map_entry
        if is_map:
            key, value = field.message_type.fields
            for one in draw(st.lists(NUMBERS[key.type], max_size=3)):
                entries = getattr(message, field.name)
                if value.message_type is None:
                    entries[one] = draw(NUMBERS[value.type])
                else:
                    _populate(draw, entries[one])
        elif field.is_repeated:
            for _ in range(draw(st.integers(0, 3))):
                items = getattr(message, field.name)
                if field.message_type is None:
                    items.append(draw(NUMBERS[field.type]))
                else:
                    _populate(draw, items.add())
        elif field.is_required or draw(st.booleans()):
            if field.message_type is None:
                setattr(message, field.name, draw(NUMBERS[field.type]))
            else:
                getattr(message, field.name).SetInParent()
                _populate(draw, getattr(message, field.name))


def keep_map_entries(message: Any) -> None:
    """Puts entries of maps back that have an unknown field. Google's decoders for Java and C++ keep
    these; the one for Python drops them, as all of them do with an entry whose enum is unknown."""
    for field, value in message.ListFields():
        if field.message_type is None:
            continue
        if not field.message_type.GetOptions().map_entry:
            for one in value if field.is_repeated else [value]:
                keep_map_entries(one)
        elif field.message_type.fields_by_name["value"].message_type is not None:
            for key in value:
                keep_map_entries(value[key])
    for unknown in UnknownFieldSet(message):
        field = message.DESCRIPTOR.fields_by_number.get(unknown.field_number)
        if field is None or field.message_type is None or unknown.wire_type != LENGTH_DELIMITED:
            continue
        if field.message_type.GetOptions().map_entry:
            _keep_entry(getattr(message, field.name), field.message_type, unknown.data)


def _keep_entry(entries: Any, entry_type: Any, data: bytes) -> None:
    entry = message_factory.GetMessageClass(entry_type).FromString(data)
    value = entry_type.fields_by_name["value"]
    if value.enum_type is not None and any(
        one.field_number == value.number for one in UnknownFieldSet(entry)
    ):
        return
    if value.message_type is None:
        entries[entry.key] = entry.value
    else:
        keep_map_entries(entry.value)
        entries[entry.key].CopyFrom(entry.value)


def as_row(message: Any) -> Any:
    """A message as Arrow's ``to_pylist`` gives it, maps sorted."""
    name = message.DESCRIPTOR.full_name
    if name == "google.protobuf.Timestamp":
        return EPOCH + dt.timedelta(microseconds=message.ToMicroseconds())
    if name == "google.protobuf.Duration":
        return message.ToMicroseconds()
    if name in JSON_TYPES:
        return _json(message)
    if name.startswith("google.protobuf."):
        return message.value
    return {field.name: _value(message, field) for field in message.DESCRIPTOR.fields} or True


def _json(message: Any) -> Any:
    """Its JSON, not as text: entries of a struct have no order."""
    match message.DESCRIPTOR.name:
        case "Struct":
            return Json({key: _json(message.fields[key]) for key in message.fields})
        case "ListValue":
            return Json([_json(one) for one in message.values])
    kind = message.WhichOneof("kind")
    if kind in (None, "null_value"):
        return Json(None)
    value = getattr(message, kind)
    if kind in ("struct_value", "list_value"):
        return _json(value)
    if isinstance(value, float) and not math.isfinite(value):
        return Json("NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity")
    return Json(value)


class Json:
    """A JSON value that equals any text of it."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def plain(self) -> Any:
        match self.value:
            case dict():
                return {key: one.plain() for key, one in self.value.items()}
            case list():
                return [one.plain() for one in self.value]
        return self.value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, str) and json.loads(other) == self.plain()

    def __hash__(self) -> int:
        return 0

    def __repr__(self) -> str:
        return repr(json.dumps(self.plain()))


def _value(message: Any, field: Any) -> Any:
    value = getattr(message, field.name)
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        inner = field.message_type.fields_by_name["value"]
        return sorted((key, _item(inner, value[key])) for key in value)
    if field.is_repeated:
        return [_item(field, one) for one in value]
    if field.has_presence and not message.HasField(field.name):
        return None
    return _item(field, value)


def _item(field: Any, value: Any) -> Any:
    if field.message_type is not None:
        return as_row(value)
    if field.enum_type is not None:
        found = field.enum_type.values_by_number.get(value)
        return found.name if found else str(value)
    if field.type in (F.TYPE_UINT64, F.TYPE_FIXED64):
        return Decimal(value)
    return value


def sorted_rows(row: Any) -> Any:
    """A row of a decoder, with the entries of its maps in the order of ``as_row``."""
    if isinstance(row, dict):
        return {name: sorted_rows(one) for name, one in row.items()}
    if isinstance(row, list):
        found = [sorted_rows(one) for one in row]
        return (
            sorted(found, key=lambda one: one[0])
            if found and isinstance(found[0], tuple)
            else found
        )
    return tuple(map(sorted_rows, row)) if isinstance(row, tuple) else row
