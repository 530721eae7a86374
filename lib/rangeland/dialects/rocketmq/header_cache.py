"""JSON headers that are like the last one, but for a few numbers.

The answers to pulls come by the thousand, and their headers differ in a few numbers only. So a
header that was read as JSON becomes a pattern, and one that fits it is not read as JSON again:
it takes a third of the time. It gives the same values; what does not fit is left to ``frames``.

Pure but for the pattern that is kept.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

_NUMBERS: Final = re.compile(rb'"(opaque|nextBeginOffset|minOffset|maxOffset)":"?(\d+)')
_NUMBER: Final = rb"(0|[1-9]\d{0,17})"
_OPAQUE: Final = b"opaque"
_NAMES: Final = ["maxOffset", "minOffset", "nextBeginOffset", "opaque"]
_MOST_BYTES: Final = 1 << 10
"""Longer headers carry something else than numbers."""


class HeaderTemplate:
    """Of one connection's headers."""

    def __init__(self) -> None:
        self._pattern: re.Pattern[bytes] | None = None
        self._names: list[str] = []
        self._fields: Mapping[str, str] = {}

    def match(self, buffer: memoryview, start: int, end: int) -> tuple[int, dict[str, str]] | None:
        """The opaque and the fields of a header that is like the last one. Else None."""
        if self._pattern is None:
            return None
        found = self._pattern.fullmatch(buffer, start, end)
        if found is None:
            return None
        numbers = dict(zip(self._names, map(bytes.decode, found.groups()), strict=True))
        return int(numbers.pop("opaque")), {**self._fields, **numbers}

    def learn(self, header: bytes, fields: Mapping[str, str]) -> None:
        """``fields`` are those of the header, which is whole and JSON."""
        places = list(_NUMBERS.finditer(header))
        names = [place[1].decode() for place in places]
        self._pattern = None
        are_fields = all(
            fields.get(p[1].decode()) == p[2].decode() for p in places if p[1] != _OPAQUE
        )
        if len(header) > _MOST_BYTES or sorted(names) != _NAMES or not are_fields:
            return
        pieces, done = [], 0
        for place in places:
            pieces.append(re.escape(header[done : place.start(2)]))
            done = place.end(2)
        pieces.append(re.escape(header[done:]))
        self._names, self._fields = names, fields
        self._pattern = re.compile(_NUMBER.join(pieces))
