"""Values that name their topic and number, so that a test knows what it wrote."""

from __future__ import annotations


def values_of(name: str, count: int) -> list[bytes]:
    return [f"{name}-{number:05d}".encode() for number in range(count)]
