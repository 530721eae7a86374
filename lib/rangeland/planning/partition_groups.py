"""Ranges, slices or losses by partition: plans have ten thousand of them, so none is searched for
among all others. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol, TypeVar

from rangeland.model import Partition


class _InPartition(Protocol):
    @property
    def partition(self) -> Partition: ...


Piece = TypeVar("Piece", bound=_InPartition)


def by_partition(pieces: Iterable[Piece]) -> dict[Partition, list[Piece]]:
    """In the order in which they are given."""
    found: dict[Partition, list[Piece]] = {}
    for piece in pieces:
        found.setdefault(piece.partition, []).append(piece)
    return found
