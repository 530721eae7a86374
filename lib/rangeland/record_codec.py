"""Converts dataclasses to flat records of plain values, and back, by rules derived from their
fields.

A field becomes a column of the same name, unless ``names`` has another. A dataclass in a field adds
its columns to the record, and a tuple of dataclasses is a list of records. A mapping whose keys
are dataclasses is also a list of records, in the order of the keys, with the columns of key and
value; any other mapping is a list of pairs. A tuple of fixed length is a list, or a record if
``parts`` names its parts.

A *blank*, which is an empty text or False, is written as null if it is the field's default. Null,
or a missing column, is read as None if the field allows it, and otherwise as the field's default,
since records of earlier versions lack the newest columns.

If a class has a *view*, its columns are those that the view lists, in that order: ``field`` or
``field=column``, which may also be a property; ``*field`` adds the columns of a dataclass, which
would otherwise be a record in the record; ``field?`` is left out if it has its default. Columns
that a view always writes must be present when a record is read.
"""

from __future__ import annotations

import copy
import dataclasses
import types
import typing
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import Any, TypeVar

from rangeland.untrusted import Unreadable, require_type, whole

T = TypeVar("T")
Record = dict[str, Any]
Shape = Any
"""The shape of a column's values: a type; a list with one shape; a dict of columns, for a record;
or a pair of shapes, for a map."""


@dataclass(frozen=True, slots=True)
class ColumnType:
    """The type of a column: how its values are written and read. ``read`` may raise Unreadable."""

    shape: Shape
    write: Callable[[Any], Any]
    read: Callable[[Any], Any]


AS_IT_IS = ColumnType(object, lambda value: value, lambda value: value)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Field:
    """A field of a dataclass, and how it is written. ``nested`` is a dataclass whose columns are
    part of the record, the one of this ``name`` first; any other field is one ``column``. ``blank``
    is the value that is written as null, or not written at all if the field ``is_sparse``."""

    attribute: str
    name: str
    column: ColumnType = AS_IT_IS
    nested: type | None = None
    default: Callable[[], Any] | None = None
    blank: object = None
    is_written: bool = True
    is_optional: bool = False
    is_sparse: bool = False

    def read(self, get: Callable[[str], Any]) -> Any:
        value = get(self.name) if self.is_written else None
        if value is not None:
            return self.column.read(value if self.nested is None else get)
        if self.is_optional:
            return None
        if self.default is None:
            raise Unreadable(f"{self.name}: expected a value, missing")
        return self.default()


@dataclass(frozen=True, slots=True)
class _Columns:
    """The fields of one class: all of them as declared, and those that are written, in the order of
    their columns."""

    read: tuple[_Field, ...]
    written: tuple[_Field, ...]


class RecordCodec:
    """Writes and reads dataclasses by one set of rules.

    ``views`` has the views of classes; a class without one has a column for each field. ``names``
    has column names by class and field, ``columns`` the types of columns that differ from those of
    their fields. Fields, and columns of a dataclass in a field, that are ``omitted`` from a class
    are not written; reading gives them their defaults."""

    def __init__(
        self,
        *,
        views: Mapping[type, str] | None = None,
        names: Mapping[type, Mapping[str, str]] | None = None,
        parts: Mapping[str, Sequence[str]] | None = None,
        columns: Mapping[str, ColumnType] | None = None,
        omitted: Mapping[type, Collection[str]] | None = None,
        blanks: Collection[object] = ("", False),
    ) -> None:
        self._views = views or {}
        self._names = names or {}
        self._parts = parts or {}
        self._columns = columns or {}
        self._omitted = omitted or {}
        self._blanks = blanks
        self._compiled: dict[type, _Columns] = {}

    def with_views(
        self, views: Mapping[type, str], columns: Mapping[str, ColumnType] | None = None
    ) -> RecordCodec:
        """The same rules with other views of some classes, and other types of some columns."""
        changed = copy.copy(self)
        changed._views = {**self._views, **views}
        changed._compiled = {}
        changed._columns = {**self._columns, **(columns or {})}
        return changed

    def write(self, value: Any) -> Record:
        record: Record = {}
        for field in self._fields(type(value)).written:
            inner = getattr(value, field.attribute)
            if field.nested is not None:
                record.update(field.column.write(inner))
            elif inner is None or inner == field.blank:
                if not field.is_sparse:
                    record[field.name] = None
            else:
                record[field.name] = field.column.write(inner)
        for name in self._omitted.get(type(value), ()):
            record.pop(name, None)
        return record

    def read(self, kind: type[T], record: object, /, **known: Any) -> T:
        """Reads a record as a dataclass. ``known`` are values of fields that are not in the record.
        Raises Unreadable for a record of another kind."""
        get = require_type(record, dict, kind.__name__).get
        if known:
            fields = (f for f in self._fields(kind).read if f.attribute not in known)
            return kind(**{field.attribute: field.read(get) for field in fields}, **known)
        return self._read(kind, get)

    def columns_of(self, kind: type) -> dict[str, Shape]:
        """The columns of a class and their shapes, in the order in which they are written."""
        shapes: dict[str, Shape] = {}
        for field in self._fields(kind).written:
            nested = field.nested is not None
            shapes |= field.column.shape if nested else {field.name: field.column.shape}
        return {name: shapes[name] for name in shapes if name not in self._omitted.get(kind, ())}

    def _read(self, kind: type[T], get: Callable[[str], Any]) -> T:
        return kind(**{field.attribute: field.read(get) for field in self._fields(kind).read})

    def _fields(self, kind: type) -> _Columns:
        if kind not in self._compiled:
            view = self._views.get(kind) or getattr(kind, "VIEW", None)
            self._compiled[kind] = (
                self._without_view(kind) if view is None else self._with_view(kind, view)
            )
        return self._compiled[kind]

    def _without_view(self, kind: type) -> _Columns:
        hints = typing.get_type_hints(kind)
        fields = tuple(self._field(kind, f, hints[f.name]) for f in dataclasses.fields(kind))
        return _Columns(fields, tuple(field for field in fields if field.is_written))

    def _field(self, kind: type, field: dataclasses.Field[Any], hint: Any) -> _Field:
        name = self._names.get(kind, {}).get(field.name, field.name)
        is_nested = _is_dataclass(_of_hint(hint)[0])
        return dataclasses.replace(
            self._typed(field.name, name, hint, is_nested=is_nested),
            default=_default(field),
            blank=None if is_nested else self._blank(name, field),
            is_written=field.name not in self._omitted.get(kind, ()),
        )

    def _with_view(self, kind: type, view: str) -> _Columns:
        fields = {field.name: field for field in dataclasses.fields(kind)}
        in_view = tuple(self._field_in_view(kind, item, fields) for item in view.split())
        by_name = {field.attribute: field for field in in_view}
        hidden = {
            name: _Field(attribute=name, name=name, default=_default(field), is_written=False)
            for name, field in fields.items()
            if name not in by_name
        }
        return _Columns(tuple((by_name | hidden)[name] for name in fields), in_view)

    def _field_in_view(
        self, kind: type, item: str, fields: Mapping[str, dataclasses.Field[Any]]
    ) -> _Field:
        text, _, renamed = item.partition("=")
        attribute = text.strip("*?")
        name = renamed or attribute
        field = fields.get(attribute)
        source = kind if field is not None else _getter_of(kind, attribute)
        hint = typing.get_type_hints(source)[attribute if field is not None else "return"]
        typed = self._typed(attribute, name, hint, is_nested=text.startswith("*"))
        if typed.nested is not None:
            return typed
        if text.endswith("?"):
            default = None if field is None else _default(field)
            blank = False if default is None else default()
            return dataclasses.replace(typed, default=default, blank=blank, is_sparse=True)
        blank = None if field is None else self._blank(name, field)
        return dataclasses.replace(
            typed, default=None if blank is None else lambda: blank, blank=blank
        )

    def _typed(self, attribute: str, name: str, hint: Any, *, is_nested: bool) -> _Field:
        """A field with the column, or the columns of a dataclass, that its type requires."""
        inner, is_optional = _of_hint(hint)
        if is_nested:
            column = self._nested_columns(inner)
            name = next(iter(column.shape))
        else:
            column = self._columns.get(name) or self._column(name, inner)
        return _Field(
            attribute=attribute,
            name=name,
            column=column,
            nested=inner if is_nested else None,
            is_optional=is_optional,
        )

    def _blank(self, name: str, field: dataclasses.Field[Any]) -> object:
        is_blank = any(field.default is blank for blank in self._blanks)
        return field.default if is_blank and name not in self._columns else None

    def _nested_columns(self, kind: type) -> ColumnType:
        """The columns of a dataclass in a record."""
        shape = self.columns_of(kind)
        nulls = dict.fromkeys(shape)
        return ColumnType(
            shape,
            lambda value: nulls if value is None else self.write(value),
            lambda get: self._read(kind, get),
        )

    def _column(self, name: str, hint: Any) -> ColumnType:
        origin = typing.get_origin(hint)
        args = typing.get_args(hint)
        if _is_dataclass(hint):
            return ColumnType(self.columns_of(hint), self.write, lambda v: self.read(hint, v))
        if origin is frozenset or (origin is tuple and args[-1] is ...):
            return _list_of(name, self._column(name, args[0]), origin)
        if origin is tuple:
            return _parts_of(name, [self._column(name, arg) for arg in args], self._parts.get(name))
        if origin is None or origin is typing.Literal:
            return _scalar(name, hint if origin is None else str)
        if _is_dataclass(args[0]):
            return self._records_of(name, *args)
        return ColumnType((str, str), lambda value: list(value.items()), lambda v: _map(name, v))

    def _records_of(self, name: str, key: Any, hint: Any) -> ColumnType:
        """The column type of a mapping from one dataclass to another, or to tuples of another."""
        is_many = typing.get_origin(hint) is tuple
        value_type = typing.get_args(hint)[0] if is_many else hint

        def write(mapping: Mapping[Any, Any]) -> list[Record]:
            pairs = [
                (self.write(k), value)
                for k, values in sorted(mapping.items(), key=lambda item: item[0])
                for value in (values if is_many else (values,))
            ]
            return [key_columns | self.write(value) for key_columns, value in pairs]

        def read(records: Any) -> dict[Any, Any]:
            values: dict[Any, list[Any]] = {}
            for record in require_type(records, list, name):
                values.setdefault(self.read(key, record), []).append(self.read(value_type, record))
            return {k: tuple(of_key) if is_many else of_key[-1] for k, of_key in values.items()}

        return ColumnType([self.columns_of(key) | self.columns_of(value_type)], write, read)


def _getter_of(kind: type, attribute: str) -> Callable[..., Any]:
    """The function behind a property."""
    descriptor = getattr(kind, attribute)
    is_cached = isinstance(descriptor, cached_property)
    function: Callable[..., Any] = descriptor.func if is_cached else descriptor.fget
    return function


def _of_hint(hint: Any) -> tuple[Any, bool]:
    """The type of a field, and whether it may be None."""
    options = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    (inner,) = (option for option in options if option is not type(None))
    return inner, len(options) > 1


def _is_dataclass(hint: Any) -> bool:
    return dataclasses.is_dataclass(hint) and isinstance(hint, type)


def _list_of(name: str, inner: ColumnType, kind: type) -> ColumnType:
    """The column type of a tuple, or of a set, which is written sorted."""
    ordered = sorted if kind is frozenset else iter
    return ColumnType(
        [inner.shape],
        lambda values: [inner.write(one) for one in ordered(values)],
        lambda values: kind(inner.read(one) for one in require_type(values, list, name)),
    )


def _parts_of(name: str, inner: list[ColumnType], parts: Sequence[str] | None) -> ColumnType:
    def read(value: Any) -> tuple[Any, ...]:
        values = [require_type(value, dict, name).get(part) for part in parts] if parts else value
        if not isinstance(values, list) or len(values) != len(inner):
            raise Unreadable(f"{name}: expected a list of {len(inner)} values")
        return tuple(column.read(part) for column, part in zip(inner, values, strict=True))

    if parts is None:
        return ColumnType([column.shape for column in inner], list, read)
    shape = dict(zip(parts, (column.shape for column in inner), strict=True))
    return ColumnType(shape, lambda value: dict(zip(parts, value, strict=True)), read)


def _scalar(name: str, kind: type) -> ColumnType:
    if kind is int:
        return ColumnType(int, int, lambda value: whole(value, name))
    if issubclass(kind, Enum):
        return ColumnType(str, lambda value: value.value, lambda value: _member(kind, value, name))
    return ColumnType(kind, kind, lambda value: require_type(value, kind, name))


def _member(kind: type[Enum], value: Any, name: str) -> Enum:
    member = {one.value: one for one in kind}.get(require_type(value, str, name))
    if member is None:
        expected = ", ".join(one.value for one in kind)
        raise Unreadable(f"{name}: expected one of {expected}, not {value!r}")
    return member


def _map(name: str, pairs: Any) -> dict[Any, Any]:
    if not all(
        isinstance(pair, tuple | list) and len(pair) == 2
        for pair in require_type(pairs, list, name)
    ):
        raise Unreadable(f"{name}: expected a list of pairs")
    return dict(pairs)


def _default(field: dataclasses.Field[Any]) -> Callable[[], Any] | None:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory
    return None if field.default is dataclasses.MISSING else lambda: field.default
