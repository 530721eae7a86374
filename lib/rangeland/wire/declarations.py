"""Declares messages: their types, version ranges and tags. No bytes are read here.

    @message(key=2, versions=(1, 10), flexible_from=6, response=ListOffsetsResponse)
    class ListOffsetsRequest:
        replica_id: Int32 = -1
        isolation_level: Int8 = since(2, default=0)
        topics: Array[ListOffsetsTopic]

A type combines a Python type with its form on the wire, so that a type checker sees ``int``
where the codec sees four bytes. ``X | None`` is the nullable form. Messages and their parts
are frozen, slotted dataclasses, built by keyword, without methods.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final, TypeAlias, TypeVar, dataclass_transform

from rangeland.errors import Bug
from rangeland.wire import primitives

T = TypeVar("T")

Int8 = Annotated[int, primitives.INT8]
Int16 = Annotated[int, primitives.INT16]
Int32 = Annotated[int, primitives.INT32]
Int64 = Annotated[int, primitives.INT64]
Bool = Annotated[bool, primitives.BOOL]
Uuid = Annotated[str | None, primitives.UUID]
String = Annotated[str, primitives.STRING]
LegacyString = Annotated[str, primitives.LEGACY_STRING]
Bytes = Annotated[bytes, primitives.BYTES]
Records = Annotated[memoryview, primitives.RECORDS]
Array: TypeAlias = tuple[T, ...]

_FIELD: Final = "rangeland.wire.field"
_MESSAGE: Final = "__rangeland_message__"


# --- declaring --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FieldSpec:
    """The versions in which a field is on the wire, and its form there. ``until`` is inclusive. A
    field whose type allows None is nullable from ``nullable_from`` on; if it has a ``tag``, None
    means absent."""

    since: int = 0
    until: int | None = None
    nullable_from: int = 0
    tag: int | None = None
    ignorable: bool = False

    def has(self, version: int) -> bool:
        return self.since <= version and (self.until is None or version <= self.until)


@dataclass(frozen=True, slots=True)
class MessageSpec:
    """What ``@message`` has declared about a message. ``name`` is the name of the class, without
    "Request"; ``key`` is -1 if it is not a request. ``versions`` is inclusive on both sides;
    ``flexible_from`` is the first version with compact lengths and tagged fields, None if there is
    none. ``response``, for requests only, is the class of the response."""

    name: str
    key: int
    versions: tuple[int, int]
    flexible_from: int | None
    response: type[Any] | None

    def flexible(self, version: int) -> bool:
        return self.flexible_from is not None and version >= self.flexible_from


def since(
    version: int,
    *,
    default: Any,
    until: int | None = None,
    nullable_from: int = 0,
    ignorable: bool = False,
) -> Any:
    """A field that is on the wire from ``version`` to ``until``, both inclusive.

    ``ignorable``: a value other than the default may be dropped in a version that lacks the field.
    """
    spec = FieldSpec(version, until, nullable_from, None, ignorable)
    return dataclasses.field(default=default, metadata={_FIELD: spec})


def tagged_field(
    tag: int, *, since: int, default: Any, until: int | None = None, ignorable: bool = False
) -> Any:
    """A field at the end of its struct that is sent only if it does not have its default value."""
    spec = FieldSpec(since, until, since, tag, ignorable)
    return dataclasses.field(default=default, metadata={_FIELD: spec})


@dataclass_transform(
    kw_only_default=True, frozen_default=True, field_specifiers=(since, tagged_field)
)
def struct(cls: type[T]) -> type[T]:
    """Declares a part of a message, or the response to a request: a frozen, slotted dataclass that
    is built by keyword. It has the versions of its message or request."""
    return dataclass(frozen=True, slots=True, kw_only=True)(cls)


@dataclass_transform(
    kw_only_default=True, frozen_default=True, field_specifiers=(since, tagged_field)
)
def message(
    *,
    versions: tuple[int, int],
    key: int = -1,
    flexible_from: int | None = None,
    response: type[Any] | None = None,
) -> Callable[[type[T]], type[T]]:
    """Declares a whole message and the response to it; ``spec_of`` returns the declaration."""

    def declare(cls: type[T]) -> type[T]:
        declared = struct(cls)
        spec = MessageSpec(
            cls.__name__.removesuffix("Request"), key, versions, flexible_from, response
        )
        setattr(declared, _MESSAGE, spec)
        if response is not None:
            setattr(response, _MESSAGE, dataclasses.replace(spec, response=None))
        return declared

    return declare


def spec_of(cls: type[Any]) -> MessageSpec:
    """The declaration that ``@message`` made for this class. Raises ``Bug`` if it is not a message
    or the response to one."""
    spec = getattr(cls, _MESSAGE, None)
    if not isinstance(spec, MessageSpec):
        raise Bug(f"{cls.__name__} is not declared as a message")
    return spec


def requests_in(names: Mapping[str, object]) -> tuple[type[Any], ...]:
    """The messages of a module that have a response, by key."""
    classes = {value for value in names.values() if isinstance(value, type)}
    messages = [cls for cls in classes if isinstance(getattr(cls, _MESSAGE, None), MessageSpec)]
    return tuple(sorted((m for m in messages if spec_of(m).response), key=lambda m: spec_of(m).key))


def field_spec(field: dataclasses.Field[Any]) -> FieldSpec:
    spec: FieldSpec = field.metadata.get(_FIELD, _EVERYWHERE)
    return spec


_EVERYWHERE: Final = FieldSpec()
