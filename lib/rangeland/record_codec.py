"""Dataclasses as flat records of plain values, and back, derived from their fields.

A field is a column of its own name, unless ``names`` has another. A dataclass in a field adds
its columns to the record, and a tuple of dataclasses is a list of records. A mapping whose keys
are dataclasses is a list of records too, with the columns of key and value; any other mapping
is a list of pairs. A tuple of fixed length is a list, or a record if ``parts`` names its parts.

An empty text or False is written as null where it is the field's default. Null, or a column
that is not there, is read as None where the field allows it and as its default elsewhere:
records of earlier versions lack the newest columns.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from rangeland.untrusted import Unreadable, whole

T = TypeVar("T")
Record = dict[str, Any]
Shape = Any
"""What a column holds: a type; a list with one shape; a dict of columns, which is a record; or
a pair of the shapes of a map."""


@dataclass(frozen=True, slots=True)
class ColumnType:
    """How the values of a column are written and read; ``read`` may raise Unreadable."""

    shape: Shape
    write: Callable[[Any], Any]
    read: Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class _Field:
    """``nested`` is a dataclass whose columns are part of the record, the one of this ``name``
    first; any other field is one ``column``. ``blank`` is the value that is written as null."""

    attribute: str
    name: str
    is_written: bool
    is_optional: bool
    default: Callable[[], Any] | None
    column: ColumnType
    nested: type | None
    blank: object

    def read(self, get: Callable[[str], Any]) -> Any:
        value = get(self.name) if self.is_written else None
        if value is not None:
            return self.column.read(value if self.nested is None else get)
        if self.is_optional:
            return None
        if self.default is None:
            raise Unreadable(f"{self.name}: expected a value, missing")
        return self.default()


class RecordCodec:
    """Writes and reads dataclasses by one set of rules.

    ``names`` has the names of columns by class and field, ``columns`` the types of columns
    that differ from those of their fields. What is ``omitted`` from a class, a field or a
    column of a dataclass in it, is not written, and its default is read."""

    def __init__(
        self,
        *,
        names: Mapping[type, Mapping[str, str]],
        parts: Mapping[str, Sequence[str]],
        columns: Mapping[str, ColumnType],
        omitted: Mapping[type, Collection[str]],
    ) -> None:
        self._names, self._parts, self._columns, self._omitted = names, parts, columns, omitted
        self._compiled: dict[type, tuple[_Field, ...]] = {}

    def write(self, value: Any) -> Record:
        record: Record = {}
        for field in self._fields(type(value)):
            if not field.is_written:
                continue
            inner = getattr(value, field.attribute)
            if field.nested is not None:
                record.update(field.column.write(inner))
            else:
                is_null = inner is None or inner == field.blank
                record[field.name] = None if is_null else field.column.write(inner)
        for name in self._omitted.get(type(value), ()):
            record.pop(name, None)
        return record

    def read(self, kind: type[T], record: object, **known: Any) -> T:
        """``known`` are values of fields that are not in the record. Raises Unreadable for a
        record of something else."""
        get = _expect(dict, kind.__name__, record).get
        if known:
            fields = (field for field in self._fields(kind) if field.attribute not in known)
            return kind(**{field.attribute: field.read(get) for field in fields}, **known)
        return self._read(kind, get)

    def columns_of(self, kind: type) -> dict[str, Shape]:
        """The columns of a class and their shapes, in the order of its fields."""
        found: dict[str, Shape] = {}
        for field in self._fields(kind):
            if field.is_written:
                nested = field.nested is not None
                found |= field.column.shape if nested else {field.name: field.column.shape}
        return {name: found[name] for name in found if name not in self._omitted.get(kind, ())}

    def _read(self, kind: type[T], get: Callable[[str], Any]) -> T:
        return kind(*[field.read(get) for field in self._fields(kind)])

    def _fields(self, kind: type) -> tuple[_Field, ...]:
        if kind not in self._compiled:
            hints = typing.get_type_hints(kind)
            fields = dataclasses.fields(kind)
            self._compiled[kind] = tuple(self._field(kind, f, hints[f.name]) for f in fields)
        return self._compiled[kind]

    def _field(self, kind: type, field: dataclasses.Field[Any], hint: Any) -> _Field:
        name = self._names.get(kind, {}).get(field.name, field.name)
        options = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
        (inner,) = (option for option in options if option is not type(None))
        is_written = field.name not in self._omitted.get(kind, ())
        rules = (is_written, len(options) > 1, _default(field))
        if dataclasses.is_dataclass(inner) and isinstance(inner, type):
            column = self._nested(inner)
            return _Field(field.name, next(iter(column.shape)), *rules, column, inner, None)
        column = self._columns.get(name) or self._column(name, inner)
        blank = field.default if field.default == "" or field.default is False else None
        return _Field(field.name, name, *rules, column, None, blank)

    def _nested(self, kind: type) -> ColumnType:
        """The columns of a dataclass in a record."""
        shape = self.columns_of(kind)
        nulls = dict.fromkeys(shape)
        return ColumnType(
            shape,
            lambda value: nulls if value is None else self.write(value),
            lambda get: self._read(kind, get),
        )

    def _column(self, name: str, hint: Any) -> ColumnType:
        origin, args = typing.get_origin(hint), typing.get_args(hint)
        if dataclasses.is_dataclass(hint) and isinstance(hint, type):
            return ColumnType(self.columns_of(hint), self.write, lambda v: self.read(hint, v))
        if origin is tuple and args[-1] is ...:
            return _list_of(name, self._column(name, args[0]))
        if origin is tuple:
            return _parts_of(name, [self._column(name, arg) for arg in args], self._parts.get(name))
        if origin is None:
            return _scalar(name, hint)
        if dataclasses.is_dataclass(args[0]):
            return self._records_of(name, *args)
        return ColumnType((str, str), lambda value: list(value.items()), lambda v: _map(name, v))

    def _records_of(self, name: str, key: Any, values: Any) -> ColumnType:
        """Of a mapping from a dataclass to tuples of another."""
        value = typing.get_args(values)[0]

        def write(mapping: Mapping[Any, Any]) -> list[Record]:
            return [self.write(k) | self.write(one) for k, ones in mapping.items() for one in ones]

        def read(records: Any) -> dict[Any, Any]:
            found: dict[Any, Any] = {}
            for record in _expect(list, name, records):
                found.setdefault(self.read(key, record), []).append(self.read(value, record))
            return {k: tuple(ones) for k, ones in found.items()}

        return ColumnType([self.columns_of(key) | self.columns_of(value)], write, read)


def _list_of(name: str, inner: ColumnType) -> ColumnType:
    return ColumnType(
        [inner.shape],
        lambda values: [inner.write(one) for one in values],
        lambda values: tuple(inner.read(one) for one in _expect(list, name, values)),
    )


def _parts_of(name: str, inner: list[ColumnType], parts: Sequence[str] | None) -> ColumnType:
    def read(value: Any) -> tuple[Any, ...]:
        found = [_expect(dict, name, value).get(part) for part in parts] if parts else value
        if not isinstance(found, list) or len(found) != len(inner):
            raise Unreadable(f"{name}: expected a list of {len(inner)} values")
        return tuple(one.read(part) for one, part in zip(inner, found, strict=True))

    if parts is None:
        return ColumnType([one.shape for one in inner], list, read)
    shape = dict(zip(parts, (one.shape for one in inner), strict=True))
    return ColumnType(shape, lambda value: dict(zip(parts, value, strict=True)), read)


def _scalar(name: str, kind: type) -> ColumnType:
    if kind is int:
        return ColumnType(int, int, lambda value: whole(value, name))
    return ColumnType(kind, kind, lambda value: _expect(kind, name, value))


def _expect(kind: type, name: str, value: Any) -> Any:
    if not isinstance(value, kind):
        raise Unreadable(f"{name}: expected {kind.__name__}, not {type(value).__name__}")
    return value


def _map(name: str, pairs: Any) -> dict[Any, Any]:
    if not all(
        isinstance(pair, tuple | list) and len(pair) == 2 for pair in _expect(list, name, pairs)
    ):
        raise Unreadable(f"{name}: expected a list of pairs")
    return dict(pairs)


def _default(field: dataclasses.Field[Any]) -> Callable[[], Any] | None:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory
    return None if field.default is dataclasses.MISSING else lambda: field.default
