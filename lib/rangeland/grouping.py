"""Groups values, or sums counts, by a key. Plans have up to ten thousand ranges, slices or losses,
so these are grouped once rather than searched each time. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol, TypeVar

from rangeland.model import Partition

K = TypeVar("K")
V = TypeVar("V")


class _InPartition(Protocol):
    @property
    def partition(self) -> Partition: ...


P = TypeVar("P", bound=_InPartition)


def group_by(values: Iterable[V], key: Callable[[V], K]) -> dict[K, list[V]]:
    """The values by key, both in the order in which they appear."""
    groups: dict[K, list[V]] = {}
    for value in values:
        groups.setdefault(key(value), []).append(value)
    return groups


def sum_by_key(pairs: Iterable[tuple[K, int]]) -> dict[K, int]:
    """The sum of the counts of each key, in the order in which keys first appear."""
    total: dict[K, int] = {}
    for key, count in pairs:
        total[key] = total.get(key, 0) + count
    return total


def by_partition(values: Iterable[P]) -> dict[Partition, list[P]]:
    """Ranges, slices or losses by partition, in the order in which they appear."""
    return group_by(values, lambda value: value.partition)
