"""The slow, obvious decoder of JSON payloads, with the standard library's parser.

``json_kernel`` must decode the same payloads to the same values. Reasons may differ in words.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Context, Decimal
from typing import Any, Final

import numpy as np
import pyarrow as pa

from rangeland.decode.payload.json_parser import (
    JsonMismatch,
    JsonNumber,
    JsonObject,
    parse_payload,
)
from rangeland.decode.payload.json_rules import cells_of, children_of, most_cells
from rangeland.decode.payload.payload_decoder import (
    DecodedPayloads,
    PayloadArray,
    PayloadDecoder,
    Undecodable,
    UnknownFields,
)

_NUMBER: Final = re.compile(r"-?(0|[1-9][0-9]*)(?:\.([0-9]+))?(?:[eE]([+-]?[0-9]+))?")
_DATE: Final = re.compile(r"([0-9]{4})-([0-9]{2})-([0-9]{2})")
_TIME: Final = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})[Tt ]([0-9]{2}):([0-9]{2})(?::([0-9]{2})(?:\.([0-9]{1,9}))?)?"
    r"([Zz]|[+-][0-9]{2}(?::?[0-9]{2})?)?"
)
_MAX_OFFSET: Final = timedelta(hours=18)
_EXACT: Final = Context(prec=100)
_LARGEST_EXPONENT: Final = 100_000
"""Past this, only a zero fits any type, and arithmetic would take long."""


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
    value = read_scalar(found, kind)
    if value is None:
        raise JsonMismatch(f"{path} is not of type {kind}")
    return value


def read_scalar(found: Any, kind: pa.DataType) -> Any:
    """A parsed value as one of a simple type, None if it does not fit."""
    return next(read for test, read in _READERS if test(kind))(found, kind)


def _boolean(found: Any, _: pa.DataType) -> bool | None:
    return found if isinstance(found, bool) else None


def _integer(found: Any, kind: pa.DataType) -> int | None:
    if not isinstance(found, JsonNumber) or not re.fullmatch("-?[0-9]{1,19}", found.text):
        return None
    number, limit = int(found.text), 1 << (kind.bit_width - 1)
    return number if -limit <= number < limit else None


def _float(found: Any, kind: pa.DataType) -> float | None:
    if not isinstance(found, JsonNumber):
        return None
    number = float(found.text)
    if kind == pa.float32():
        with np.errstate(over="ignore"):
            number = float(np.float32(number))
    return number if math.isfinite(number) else None


def _decimal(found: Any, kind: pa.DataType) -> Decimal | None:
    text = found.text if isinstance(found, JsonNumber) else found
    match = _NUMBER.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        return None
    whole, fraction, exponent = match[1], match[2] or "", match[3] or "0"
    digits = (whole + fraction).lstrip("0")
    significant = digits.rstrip("0")
    if not significant:
        return Decimal(0)
    sign = "-" if exponent.startswith("-") else ""
    power = int(sign + (exponent.lstrip("+-0")[:12] or "0"))
    if abs(power) > _LARGEST_EXPONENT + len(text):
        return None
    last = power - len(fraction) + len(digits) - len(significant)
    if last < -kind.scale or len(significant) + last > kind.precision - kind.scale:
        return None
    value = Decimal(int(significant)).scaleb(last, _EXACT)
    return -value if text.startswith("-") else value


def _text(found: Any, _: pa.DataType) -> str | None:
    return found if isinstance(found, str) else None


def _binary(found: Any, _: pa.DataType) -> bytes | None:
    if not isinstance(found, str):
        return None
    try:
        value = base64.b64decode(found.encode("ascii"), validate=True)
    except (binascii.Error, UnicodeEncodeError):
        return None
    return value if base64.b64encode(value).decode() == found else None


def _date(found: Any, _: pa.DataType) -> date | None:
    match = _DATE.fullmatch(found) if isinstance(found, str) and found.isascii() else None
    if match is None:
        return None
    try:
        return date(*(int(part) for part in match.groups()))
    except ValueError:
        return None


def _timestamp(found: Any, kind: pa.DataType) -> int | None:
    match = _TIME.fullmatch(found) if isinstance(found, str) and found.isascii() else None
    if match is None or (match[6] is None) != (kind.tz is None):
        return None
    day = _date(match[1], kind)
    hour, minute, second = int(match[2]), int(match[3]), int(match[4] or 0)
    if day is None or hour > 23 or minute > 59 or second > 59:
        return None
    micros = int((match[5] or "0").ljust(6, "0")[:6])
    offset = _offset(match[6] or "Z")
    if offset is None:
        return None
    local = datetime(day.year, day.month, day.day, hour, minute, second, micros)
    try:
        moment = local - offset
    except OverflowError:
        return None
    return (moment - datetime(1970, 1, 1)) // timedelta(microseconds=1)


def _offset(text: str) -> timedelta | None:
    if text in "Zz":
        return timedelta(0)
    hours, minutes = int(text[1:3]), int(text[-2:]) if len(text) > 3 else 0
    offset = timedelta(hours=hours, minutes=minutes)
    if minutes > 59 or offset > _MAX_OFFSET:
        return None
    return -offset if text.startswith("-") else offset


_READERS: Final[Sequence[tuple[Callable[[pa.DataType], bool], Callable[[Any, Any], Any]]]] = (
    (pa.types.is_boolean, _boolean),
    (pa.types.is_integer, _integer),
    (pa.types.is_floating, _float),
    (pa.types.is_decimal, _decimal),
    (pa.types.is_string, _text),
    (pa.types.is_binary, _binary),
    (pa.types.is_date, _date),
    (pa.types.is_timestamp, _timestamp),
)


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
