"""Reads values from outside within bounds: JSON, whole numbers and addresses.

Brokers, registries, token endpoints, ledgers and files may contain anything. A reader in this
module either returns a value of the requested type or raises ``Unreadable``; the caller turns that
into one of the errors of ``errors``, which names the source of the value. The cost is bounded by
the size of the text.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NoReturn

from rangeland.model import Address

MAX_INT64: Final = 2**63 - 1
MIN_INT64: Final = -(2**63)
MAX_INT32: Final = 2**31 - 1
MAX_PORT: Final = 65_535
MAX_JSON_BYTES: Final = 64 << 20
MAX_JSON_DEPTH: Final = 64
SHOWN: Final = 40
"""How many characters of a value an error message repeats."""

MAX_QUOTED: Final = 300
_PARTS_OF_URL: Final = re.compile(r"//|[@?#=;&%]")
_DECIMAL: Final = re.compile(r"-?[0-9]{1,19}")
_SURROGATE: Final = re.compile(r"\\u[dD][89a-fA-F]")
_REQUIRED: Final = object()
_EXPECTED: Final[dict[type, str]] = {
    str: "text",
    bool: "true or false",
    list: "a list",
    dict: "an object",
    Mapping: "an object",
}


class Unreadable(ValueError):
    """The value does not have the requested form. The caller knows where it came from."""


# --- JSON -------------------------------------------------------------------------------


def parse_json(
    text: str | bytes | bytearray | memoryview,
    *,
    max_bytes: int = MAX_JSON_BYTES,
    unique_keys: bool = False,
) -> Any:
    """The value of a JSON text in UTF-8, at most ``max_bytes`` long and ``MAX_JSON_DEPTH`` deep.

    NaN, infinite numbers (``1e999`` is one) and halves of surrogate pairs are refused; so are
    repeated keys, with ``unique_keys``. Raises Unreadable."""
    decoded = _decode(text, max_bytes)
    pairs = _unique if unique_keys else None
    try:
        value = json.loads(
            decoded,
            parse_constant=_raise_for_constant,
            parse_float=_finite,
            object_pairs_hook=pairs,
        )
        _check_depth_is_bounded(value)
        if _SURROGATE.search(decoded):
            json.dumps(value, ensure_ascii=False).encode()
    except Unreadable:
        raise
    except RecursionError:
        raise _depth_error() from None
    except UnicodeEncodeError:
        raise Unreadable("it contains half of a surrogate pair, which is not a character") from None
    except json.JSONDecodeError as error:
        at = f"line {error.lineno}, column {error.colno}"
        raise Unreadable(f"it is not JSON: {error.msg} at {at}") from None
    except ValueError:  # Python limits the digits of a number
        raise Unreadable("it contains a number with thousands of digits") from None
    return value


def _decode(text: str | bytes | bytearray | memoryview, max_bytes: int) -> str:
    if len(text) > max_bytes:
        raise Unreadable(f"it is longer than {max_bytes} bytes")
    try:
        if isinstance(text, str):
            text.encode()  # bytes of a command line that are not UTF-8 show as surrogates
            return text
        return str(text, "utf-8")
    except UnicodeError:
        raise Unreadable("it is not UTF-8") from None


def _raise_for_constant(name: str) -> NoReturn:
    raise Unreadable(f"{name} is not a JSON number")


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise Unreadable("it contains a number that is too large")
    return number


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        raise Unreadable("it contains a duplicate key")
    return values


def _check_depth_is_bounded(value: Any) -> None:
    level = _containers([value])
    for _ in range(MAX_JSON_DEPTH):
        if not level:
            return
        level = [
            inner
            for outer in level
            for inner in _containers(outer.values() if isinstance(outer, dict) else outer)
        ]
    if level:
        raise _depth_error()


def _containers(values: Iterable[Any]) -> list[Any]:
    return [value for value in values if isinstance(value, dict | list)]


def _depth_error() -> Unreadable:
    return Unreadable(f"it is nested more than {MAX_JSON_DEPTH} levels deep")


class JsonFields:
    """A JSON object whose fields are read by name and type. Every method raises Unreadable if a
    field is missing and has no default, or has another type."""

    __slots__ = ("_values",)

    def __init__(self, value: object) -> None:
        if not isinstance(value, Mapping):
            raise Unreadable(f"expected an object, not {_show(value)}")
        self._values = value

    @staticmethod
    def parse(
        text: str | bytes | bytearray | memoryview,
        *,
        max_bytes: int = MAX_JSON_BYTES,
        unique_keys: bool = False,
    ) -> JsonFields:
        return JsonFields(parse_json(text, max_bytes=max_bytes, unique_keys=unique_keys))

    def __len__(self) -> int:
        return len(self._values)

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def get(self, name: str) -> Any:
        """The value, unchanged; None if it is missing."""
        return self._values.get(name)

    def text(self, name: str, default: Any = _REQUIRED) -> str:
        value: str = self._read(name, str, default)
        return value

    def word(self, name: str) -> str:
        """A string, or a number or boolean converted to a string."""
        value = self._values.get(name)
        return str(value) if isinstance(value, int | float) else self.text(name)

    def flag(self, name: str, default: Any = _REQUIRED) -> bool:
        value: bool = self._read(name, bool, default)
        return value

    def number(
        self, name: str, low: int = 0, high: int = MAX_INT64, *, default: Any = _REQUIRED
    ) -> int:
        value = self._values.get(name)
        if value is None and default is not _REQUIRED:
            return int(default)
        return whole(value, name, low, high)

    def number_or_none(self, name: str) -> int | None:
        value = self._values.get(name)
        return None if value is None else whole(value, name)

    def fields(self, name: str, default: Any = _REQUIRED) -> JsonFields:
        """An object."""
        return JsonFields(self._read(name, Mapping, default))

    def each(self, name: str, default: Any = _REQUIRED) -> list[JsonFields]:
        """A list of objects."""
        return [JsonFields(entry) for entry in self.values(name, default)]

    def texts(self, name: str) -> tuple[str, ...]:
        values = self.values(name)
        if not all(isinstance(one, str) for one in values):
            raise Unreadable(f"{name}: expected a list of strings")
        return tuple(values)

    def values(self, name: str, default: Any = _REQUIRED) -> list[Any]:
        """A list of anything."""
        values: list[Any] = self._read(name, list, default)
        return values

    def _read(self, name: str, kind: type[Any], default: Any) -> Any:
        value = self._values.get(name)
        if value is None and default is not _REQUIRED:
            return default
        if value is None and name not in self._values:
            raise Unreadable(f"{name}: expected {_EXPECTED[kind]}, missing")
        return require_type(value, kind, name)


def require_type(value: Any, kind: type[Any], what: str) -> Any:
    """A value of this type. Raises Unreadable."""
    if not isinstance(value, kind):
        expected = _EXPECTED.get(kind, kind.__name__)
        raise Unreadable(f"{what}: expected {expected}, not {_show(value)}")
    return value


# --- numbers ----------------------------------------------------------------------------


def whole(value: object, what: str, low: int = 0, high: int = MAX_INT64) -> int:
    """A whole number within [low, high]. Raises Unreadable."""
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise Unreadable(f"{what}: expected a whole number in [{low}, {high}], not {_show(value)}")
    return value


def decimal(text: str, what: str, low: int = MIN_INT64, high: int = MAX_INT64) -> int:
    """A number written in ASCII digits, within [low, high]. Raises Unreadable."""
    if not isinstance(text, str) or _DECIMAL.fullmatch(text) is None:
        raise Unreadable(f"{what}: expected a whole number in [{low}, {high}], not {_show(text)}")
    return whole(int(text), what, low, high)


def parse_address(text: str) -> Address:
    """``host:port`` or ``[v6]:port``, as ``str(Address)`` writes it. Raises Unreadable."""
    host, _, port = text.rpartition(":")
    if not host.strip("[]"):
        raise Unreadable(f"{_show(text)} is not host:port")
    return Address(host.strip("[]"), decimal(port, "the port", 1, MAX_PORT))


def is_quotable(address: str) -> bool:
    """Whether an address that cannot be read may be quoted: it is short, and does not look like a
    URL, which may contain a password or a token."""
    return len(address) <= MAX_QUOTED and _PARTS_OF_URL.search(address) is None


def _show(value: object) -> str:
    """Enough of the value for a person to find it."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, int) and value.bit_length() > 128:
        return f"a number of {value.bit_length()} bits"
    if isinstance(value, str | int | float):
        text = repr(value[: SHOWN + 1] if isinstance(value, str) else value)
        return text if len(text) <= SHOWN + 2 else text[:SHOWN] + "...'"
    return "an object" if isinstance(value, Mapping) else "a list"
