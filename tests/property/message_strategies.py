"""Hypothesis values for any declared message in any version, made from its declaration."""

from __future__ import annotations

import dataclasses
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

from hypothesis import strategies as st

from rangeland.wire.declarations import FieldSpec, field_spec

_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)

_OF_WIRE_TYPE: dict[str, st.SearchStrategy[Any]] = {
    "int8": st.integers(-(2**7), 2**7 - 1),
    "int16": st.integers(-(2**15), 2**15 - 1),
    "int32": st.integers(-(2**31), 2**31 - 1),
    "int64": st.integers(-(2**63), 2**63 - 1),
    "uint16": st.integers(0, 2**16 - 1),
    "uint32": st.integers(0, 2**32 - 1),
    "uvarint": st.integers(0, 2**32 - 1),
    "varint": st.integers(-(2**31), 2**31 - 1),
    "varlong": st.integers(-(2**63), 2**63 - 1),
    "bool": st.booleans(),
    "uuid": st.none() | st.uuids().map(str).filter(lambda text: text.strip("0-") != ""),
    "string": _TEXT,
    "legacy string": _TEXT,
    "bytes": st.binary(max_size=20),
    "records": st.binary(max_size=20).map(memoryview),
}


def values_of(cls: type[Any], version: int) -> st.SearchStrategy[Any]:
    """Values of ``cls`` in which only fields that ``version`` has differ from their defaults."""
    hints = get_type_hints(cls, include_extras=True)
    drawn = {
        field.name: _values(hints[field.name], field_spec(field), version)
        for field in dataclasses.fields(cls)
        if field_spec(field).has(version)
    }
    return st.builds(cls, **drawn)


def _values(hint: Any, spec: FieldSpec, version: int) -> st.SearchStrategy[Any]:
    if get_origin(hint) in (Union, UnionType):
        inner = next(part for part in get_args(hint) if part is not type(None))
        values = _values(inner, spec, version)
        return st.none() | values if version >= spec.nullable_from else values
    if get_origin(hint) is Annotated:
        return _OF_WIRE_TYPE[get_args(hint)[1].name]
    if get_origin(hint) is tuple:
        element = _values(get_args(hint)[0], FieldSpec(), version)
        return st.lists(element, max_size=3).map(tuple)
    return values_of(hint, version)
