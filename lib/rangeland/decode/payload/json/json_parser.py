"""One JSON payload as Python values, parsed by the standard library: strict, slow, obvious.

Objects keep the order and the repetitions of their fields, and numbers keep their digits.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, NoReturn

from rangeland.decode.payload.json.json_rules import MAX_DEPTH


@dataclass(frozen=True)
class JsonNumber:
    """A number as it was written."""

    text: str


class JsonObject(list[tuple[str, Any]]):
    """The fields of an object in their order, including repetitions."""


class JsonMismatch(ValueError):
    """The payload is not JSON, or does not have the shape of the schema."""


def parse_payload(payload: bytes) -> Any:
    try:
        parsed = json.loads(
            payload.decode("utf-8"),
            object_pairs_hook=JsonObject,
            parse_int=JsonNumber,
            parse_float=JsonNumber,
            parse_constant=_raise_for_constant,
        )
    except UnicodeDecodeError as error:
        raise JsonMismatch(f"it is not UTF-8 at byte {error.start}") from None
    except RecursionError:
        raise JsonMismatch(f"it is nested more than {MAX_DEPTH} deep") from None
    except json.JSONDecodeError as error:
        raise JsonMismatch(f"it is not JSON: {error}") from None
    _check_can_be_decoded(parsed, 1)
    return parsed


def _raise_for_constant(name: str) -> NoReturn:
    raise JsonMismatch(f"{name} is not JSON")


def _check_can_be_decoded(value: Any, depth: int) -> None:
    """Raises JsonMismatch for unpaired surrogates and for deep nesting, wherever they are."""
    if isinstance(value, str):
        try:
            value.encode("utf-8")
        except UnicodeEncodeError:
            raise JsonMismatch("it has half of a surrogate pair") from None
    elif isinstance(value, list):
        if depth > MAX_DEPTH:
            raise JsonMismatch(f"it is nested more than {MAX_DEPTH} deep")
        for item in value:
            if isinstance(value, JsonObject):
                _check_can_be_decoded(item[0], depth)
                item = item[1]
            _check_can_be_decoded(item, depth + 1)
