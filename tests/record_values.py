"""Values that say where they come from, for topics whose judge is whoever has written."""

from __future__ import annotations


def values_of(name: str, count: int) -> list[bytes]:
    return [f"{name}-{number:05d}".encode() for number in range(count)]
