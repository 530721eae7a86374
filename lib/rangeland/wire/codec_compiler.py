"""Compiles declarations into codecs, once per class and version.

A compiled struct is a list of steps. A step reads either one field, or several adjacent fields of
fixed width together; a metadata response with ten thousand partitions consists mostly of the
latter. The path of a field is assembled only when an error is raised.

Errors name the field; ``encoding`` adds the message.
"""

from __future__ import annotations

import dataclasses
import struct
from dataclasses import dataclass
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

from rangeland.errors import Bug
from rangeland.wire import arrays, primitives, tagged_fields
from rangeland.wire.codec_errors import UnreadableBytes, UnwritableValue
from rangeland.wire.declarations import FieldSpec, field_spec
from rangeland.wire.primitives import Buffer, FieldCodec, Reader, WireType


@dataclass(frozen=True, slots=True)
class _PresentField:
    """A field of a class, in a version that includes it."""

    name: str
    codec: FieldCodec
    default: Any
    tag: int | None


_COMPILED: dict[tuple[type[Any], int, bool], FieldCodec] = {}


def compile_codec(cls: type[Any], version: int, flexible: bool) -> FieldCodec:
    """The codec of ``cls`` in ``version``. Raises ``Bug`` for a wrong declaration."""
    key = (cls, version, flexible)
    if key not in _COMPILED:
        _COMPILED[key] = _compile(cls, version, flexible)
    return _COMPILED[key]


def _compile(cls: type[Any], version: int, flexible: bool) -> FieldCodec:
    hints = get_type_hints(cls, include_extras=True)
    present: list[_PresentField] = []
    absent: list[tuple[str, Any]] = []
    for field in dataclasses.fields(cls):
        spec = field_spec(field)
        if spec.has(version):
            codec = _codec(hints[field.name], spec, version, flexible)
            present.append(_PresentField(field.name, codec, field.default, spec.tag))
        elif not spec.ignorable:
            absent.append((field.name, field.default))
    plain = [field for field in present if field.tag is None]
    tags = sorted((f for f in present if f.tag is not None), key=lambda f: f.tag or 0)
    if tags and not flexible:
        raise Bug(f"{cls.__name__} has a tagged field in version {version}, which has no tags")
    least = sum(field.codec.least_bytes for field in plain) + flexible
    read = _struct_reader(cls, plain, tags, flexible)
    return FieldCodec(read, _struct_writer(plain, tags, absent, flexible), least)


def _codec(hint: Any, spec: FieldSpec, version: int, flexible: bool) -> FieldCodec:
    inner, nullable = _without_none(hint)
    nullable = nullable and version >= spec.nullable_from
    wire = _wire_type(inner)
    if wire is not None:
        return wire.form(compact=flexible, nullable=nullable)
    if get_origin(inner) is tuple:
        element = _codec(get_args(inner)[0], FieldSpec(), version, flexible)
        return arrays.array(element, compact=flexible, nullable=nullable)
    if nullable and spec.tag is None:
        raise Bug(f"{inner} has no null on the wire", do="declare the field without None")
    return compile_codec(inner, version, flexible)


def _without_none(hint: Any) -> tuple[Any, bool]:
    if get_origin(hint) not in (Union, UnionType):
        return hint, False
    parts = [part for part in get_args(hint) if part is not NoneType]
    return parts[0], True


def _wire_type(hint: Any) -> WireType | None:
    if get_origin(hint) is not Annotated:
        return None
    wire: WireType = get_args(hint)[1]
    return wire


def _steps(plain: list[_PresentField]) -> list[tuple[str | None, Reader]]:
    """The readers of these fields, in order: each reads the field of this name or, without a name,
    several adjacent fields of fixed width as a tuple."""
    steps: list[tuple[str | None, Reader]] = []
    run: list[_PresentField] = []
    for field in [*plain, None]:
        if field is not None and field.codec.format:
            run.append(field)
            continue
        if run:
            steps.append((None, _run_reader(run)))
            run = []
        if field is not None:
            steps.append((field.name, field.codec.read))
    return steps


def _run_reader(run: list[_PresentField]) -> Reader:
    packer = struct.Struct(">" + "".join(field.codec.format for field in run))
    unpack = packer.unpack_from
    size = packer.size

    def read(buffer: memoryview, offset: int) -> tuple[Any, int]:
        try:
            return unpack(buffer, offset), offset + size
        except struct.error:
            return _read_one_by_one(run, buffer, offset)

    return read


def _read_one_by_one(run: list[_PresentField], buffer: memoryview, offset: int) -> tuple[Any, int]:
    """Reads one by one a run of fields that the buffer cuts short, in order to name the field at
    which it ends."""
    values = []
    for field in run:
        try:
            value, offset = field.codec.read(buffer, offset)
        except UnreadableBytes as error:
            raise error.in_field(field.name) from error.__cause__
        values.append(value)
    return tuple(values), offset


def _struct_reader(
    cls: type[Any], plain: list[_PresentField], tags: list[_PresentField], flexible: bool
) -> Reader:
    steps = _steps(plain)
    names = [field.name for field in plain]
    tag_codecs = {field.tag: field.codec for field in tags if field.tag is not None}
    tag_names = {field.tag: field.name for field in tags}

    def read(buffer: memoryview, offset: int) -> tuple[Any, int]:
        values: list[Any] = []
        name = None
        try:
            for name, read_step in steps:
                value, offset = read_step(buffer, offset)
                if name is None:
                    values += value
                else:
                    values.append(value)
        except UnreadableBytes as error:
            if name is not None:
                raise error.in_field(name) from error.__cause__
            raise
        by_name = dict(zip(names, values, strict=True))
        if flexible:
            tagged, offset = tagged_fields.read_tags(buffer, offset, tag_codecs)
            for tag, value in tagged.items():
                by_name[tag_names[tag]] = value
        return cls(**by_name), offset

    return read


def _struct_writer(
    plain: list[_PresentField],
    tags: list[_PresentField],
    absent: list[tuple[str, Any]],
    flexible: bool,
) -> primitives.Writer:
    def write(value: Any, buffers: list[Buffer]) -> None:
        for name, default in absent:
            if getattr(value, name) != default:
                raise UnwritableValue("this version does not have the field").in_field(name)
        for field in plain:
            _write_field(field, value, buffers)
        if flexible:
            tagged_fields.write_tags(_not_default(value), buffers)

    def _not_default(value: Any) -> list[tuple[int, FieldCodec, Any]]:
        values = [(field, getattr(value, field.name)) for field in tags]
        return [(f.tag or 0, f.codec, item) for f, item in values if item != f.default]

    return write


def _write_field(field: _PresentField, value: Any, buffers: list[Buffer]) -> None:
    try:
        field.codec.write(getattr(value, field.name), buffers)
    except UnwritableValue as error:
        raise error.in_field(field.name) from error.__cause__
    except (struct.error, AttributeError, TypeError, ValueError) as error:
        wrong = UnwritableValue("the value does not fit its type", why=str(error))
        raise wrong.in_field(field.name) from error
