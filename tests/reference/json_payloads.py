"""The slow, obvious decoder of JSON payloads, with the standard library's parser.

``json_kernel`` must decode the same payloads to the same values. Reasons may differ in words.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from rangeland.decode.payload.column_buffers import children_of
from rangeland.decode.payload.json.json_parser import (
    JsonMismatch,
    JsonNumber,
    JsonObject,
    parse_payload,
)
from rangeland.decode.payload.json.json_rules import cells_of, most_cells
from rangeland.decode.payload.json.json_scalars import read_scalar
from rangeland.decode.payload.payload_decoder import (
    DecodedPayloads,
    PayloadArray,
    PayloadDecoder,
    Undecodable,
    UnknownFields,
)


@dataclass
class _Cells:
    """Counts values in arrays and maps, to stop a small text from becoming a huge table."""

    left: int


@dataclass
class JsonReference(PayloadDecoder):
    """Decodes one record at a time."""

    arrow_type: pa.StructType
    unknown_fields: UnknownFields = UnknownFields.DROP

    def decode(self, payloads: PayloadArray) -> DecodedPayloads:
        values: list[Any] = []
        faults: list[Undecodable] = []
        rescued: list[str | None] = []
        for row, payload in enumerate(payloads.to_pylist()):
            value, kept = None, None
            if payload is not None:
                try:
                    value, kept = self._record(payload)
                except JsonMismatch as error:
                    faults.append(Undecodable(row, str(error)))
            values.append(value)
            rescued.append(kept)
        keeps = self.unknown_fields is UnknownFields.KEEP
        return DecodedPayloads(
            pa.array(values, self.arrow_type),
            tuple(faults),
            pa.array(rescued, pa.string()) if keeps else None,
        )

    def _record(self, payload: bytes) -> tuple[Any, str | None]:
        parsed = parse_payload(payload)
        cells = _Cells(most_cells(len(payload)))
        value = _value(parsed, pa.field("", self.arrow_type, nullable=False), "", cells)
        if self.unknown_fields is UnknownFields.DROP:
            return value, None
        unknown = _unknown(parsed, self.arrow_type)
        if unknown is not None and self.unknown_fields is UnknownFields.FAIL:
            raise JsonMismatch("it has a field that the schema lacks")
        return value, None if unknown is None else _text_of(unknown)


# --- Values -----------------------------------------------------------------------------


def _value(found: Any, expected: pa.Field, path: str, cells: _Cells) -> Any:
    if found is None:
        if not expected.nullable:
            raise JsonMismatch(f"{path or 'the payload'} is null")
        return None
    kind = expected.type
    if pa.types.is_struct(kind):
        return _struct(found, kind, path, cells)
    if pa.types.is_list(kind):
        if not isinstance(found, list) or isinstance(found, JsonObject):
            raise JsonMismatch(f"{path} is not an array")
        _count(cells, kind, len(found))
        return [_value(item, kind.value_field, f"{path}[]", cells) for item in found]
    if pa.types.is_map(kind):
        pairs = _fields(found, path)
        if len({key for key, _ in pairs}) < len(pairs):
            raise JsonMismatch(f"a key of {path} occurs twice")
        _count(cells, kind, len(pairs))
        return [(key, _value(item, kind.item_field, f"{path}[]", cells)) for key, item in pairs]
    return _scalar(found, kind, path)


def _struct(found: Any, kind: pa.StructType, path: str, cells: _Cells) -> dict[str, Any]:
    pairs = _fields(found, path)
    value: dict[str, Any] = {}
    for child in children_of(kind):
        inside = f"{path}.{child.name}" if path else child.name
        given = [item for key, item in pairs if key == child.name]
        if len(given) > 1:
            raise JsonMismatch(f"{inside} occurs twice")
        if not given and not child.nullable:
            raise JsonMismatch(f"{inside} is missing")
        value[child.name] = _value(given[0], child, inside, cells) if given else None
    return value


def _fields(found: Any, path: str) -> JsonObject:
    if not isinstance(found, JsonObject):
        raise JsonMismatch(f"{path or 'the payload'} is not an object")
    return found


def _count(cells: _Cells, kind: pa.DataType, items: int) -> None:
    cells.left -= items * cells_of(children_of(kind)[0].type)
    if cells.left < 0:
        raise JsonMismatch("it has too many values for its size")


def _scalar(found: Any, kind: pa.DataType, path: str) -> Any:
    if pa.types.is_boolean(kind):
        value = found if isinstance(found, bool) else None
    elif pa.types.is_string(kind):
        value = found if isinstance(found, str) else None
    elif pa.types.is_binary(kind):
        value = _binary(found)
    else:
        value = read_scalar(found, kind)
    if value is None:
        raise JsonMismatch(f"{path} is not of type {kind}")
    return value


def _binary(found: Any) -> bytes | None:
    if not isinstance(found, str):
        return None
    try:
        value = base64.b64decode(found.encode("ascii"), validate=True)
    except (binascii.Error, UnicodeEncodeError):
        return None
    return value if base64.b64encode(value).decode() == found else None


# --- What the schema lacks --------------------------------------------------------------


def _unknown(found: Any, kind: pa.DataType) -> Any:
    """The part of a value that its type lacks, None if there is nothing."""
    if found is None or not pa.types.is_nested(kind):
        return None
    if pa.types.is_list(kind):
        parts = [_unknown(item, kind.value_type) for item in found]
        last = max((at for at, part in enumerate(parts) if part is not None), default=-1)
        return [JsonObject() if part is None else part for part in parts[: last + 1]] or None
    return JsonObject(_unknown_fields(found, kind)) or None


def _unknown_fields(found: JsonObject, kind: pa.DataType) -> Iterator[tuple[str, Any]]:
    known = {} if pa.types.is_map(kind) else {child.name: child for child in children_of(kind)}
    for key, item in found:
        if pa.types.is_struct(kind) and key not in known:
            yield key, item
            continue
        inside = kind.item_type if pa.types.is_map(kind) else known[key].type
        part = _unknown(item, inside)
        if part is not None:
            yield key, part


def _text_of(value: Any) -> str:
    if isinstance(value, JsonObject):
        fields = (f"{_text_of(key)}:{_text_of(item)}" for key, item in value)
        return "{" + ",".join(fields) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_text_of, value)) + "]"
    return value.text if isinstance(value, JsonNumber) else json.dumps(value, ensure_ascii=False)
