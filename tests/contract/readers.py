"""The check that every reader of wire bytes must pass, whatever it reads.

A reader is ``(buffer, offset) -> (value, new_offset)``. It gets the same bytes three ways:
whole; cut short at every place, each of which must be refused as ``RemoteProtocolError``; and
with junk before and behind, which it must leave alone. ``read_anything`` is the hostile
half: any bytes are a value or ``RemoteProtocolError``, and nothing else comes out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

import pytest

from rangeland.errors import RemoteProtocolError

T = TypeVar("T")
Reader = Callable[[memoryview, int], tuple[T, int]]

JUNK = b"\xff\x00junk\x80"
ALL_CUTS_BYTES = 2048


def read_three_ways(read: Reader[T], data: bytes) -> T:
    """The value of ``data``, after it was read whole, in every strict prefix, and in junk."""
    value, used = read(memoryview(data), 0)
    assert used == len(data), f"{used} of {len(data)} bytes were used"
    for cut in _cuts(len(data)):
        with pytest.raises(RemoteProtocolError) as caught:
            read(memoryview(data[:cut]), 0)
        assert caught.value.facts["reason"] == "underflow", f"cut at {cut}: {caught.value}"
        assert caught.value.facts["size"] <= cut
    again, end = read(memoryview(JUNK + data + JUNK), len(JUNK))
    assert end == len(JUNK) + len(data)
    assert again == value
    return value


def read_anything(read: Reader[T], data: bytes) -> T | None:
    """The value, or None if the bytes were refused in the one way that is allowed."""
    refused: RemoteProtocolError | None = None
    value, used = None, 0
    try:
        value, used = read(memoryview(data), 0)
    except RemoteProtocolError as error:
        refused = error
    if refused is not None:
        assert refused.facts["reason"]
        assert 0 <= refused.facts["offset"] <= len(data)
    assert 0 <= used <= len(data)
    return value


def _cuts(size: int) -> Iterable[int]:
    """Every cut of short data; of longer data the ends and some thousand between them."""
    if size <= ALL_CUTS_BYTES:
        return range(size)
    step = size // ALL_CUTS_BYTES + 1
    return sorted({*range(0, size, step), *range(256), *range(size - 256, size)})
