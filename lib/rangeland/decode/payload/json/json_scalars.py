"""Decides which JSON numbers and texts fit which types of numbers and times, by ``json_rules``.

It is used to infer the types of a sample. Payloads are decoded by ``json_kernel``, to the same
values.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from datetime import date, datetime, timedelta
from decimal import Context, Decimal
from typing import Any, Final

import numpy as np
import pyarrow as pa

from rangeland.decode.payload.json.json_parser import JsonNumber

_NUMBER: Final = re.compile(r"-?(0|[1-9][0-9]*)(?:\.([0-9]+))?(?:[eE]([+-]?[0-9]+))?")
_DATE: Final = re.compile(r"([0-9]{4})-([0-9]{2})-([0-9]{2})")
_TIME: Final = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})[Tt ]([0-9]{2}):([0-9]{2})(?::([0-9]{2})(?:\.([0-9]{1,9}))?)?"
    r"([Zz]|[+-][0-9]{2}(?::?[0-9]{2})?)?"
)
_MAX_OFFSET: Final = timedelta(hours=18)
_EXACT: Final = Context(prec=100)
_LARGEST_EXPONENT: Final = 100_000
"""Beyond this, only a zero fits any type, and arithmetic would take too long."""


def read_scalar(found: Any, kind: pa.DataType) -> Any:
    """A parsed value as a number or a time of this type; None if it does not fit."""
    return next(read for test, read in _READERS if test(kind))(found, kind)


def _integer(found: Any, kind: pa.DataType) -> int | None:
    if not isinstance(found, JsonNumber) or not re.fullmatch("-?[0-9]{1,19}", found.text):
        return None
    number, limit = int(found.text), 1 << (kind.bit_width - 1)
    return number if -limit <= number < limit else None


def _float(found: Any, kind: pa.DataType) -> float | None:
    if not isinstance(found, JsonNumber):
        return None
    number = nearest_float(found.text) if kind == pa.float32() else float(found.text)
    return number if math.isfinite(number) else None


def nearest_float(text: str) -> float:
    """The 32-bit float nearest to a number's text; infinite beyond the largest. A double that lies
    exactly halfway between two floats may itself be the result of rounding: then the text says
    which float is nearer."""
    number = float(text)
    with np.errstate(over="ignore"):
        nearest = np.float32(number)
        below = np.float32(math.nextafter(number, -math.inf))
        above = np.float32(math.nextafter(number, math.inf))
    # The doubles next to the one halfway have these neighbours too, but their last bit is set.
    if below != above and np.float64(number).view(np.int64) % 2 == 0:
        exact = Decimal(text)  # the number is neither 0 nor infinite, so its exponent is small
        if exact != number:
            nearest = above if exact > number else below
    return float(nearest)


def _decimal(found: Any, kind: pa.DataType) -> Decimal | None:
    text = found.text if isinstance(found, JsonNumber) else found
    match = _NUMBER.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        return None
    whole = match[1]
    fraction = match[2] or ""
    exponent = match[3] or "0"
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
    hour = int(match[2])
    minute = int(match[3])
    second = int(match[4] or 0)
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
    (pa.types.is_integer, _integer),
    (pa.types.is_floating, _float),
    (pa.types.is_decimal, _decimal),
    (pa.types.is_date, _date),
    (pa.types.is_timestamp, _timestamp),
)
