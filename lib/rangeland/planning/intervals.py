"""Arithmetic on sorted lists of half-open intervals ``[from, until)``.

Coverage, holes and slices all come down to intervals, so the arithmetic is here, once. Lists
contain sorted, non-empty intervals that neither touch nor overlap; ``merge`` makes such a list.
"""

from __future__ import annotations

from collections.abc import Iterable

Interval = tuple[int, int]


def merge(intervals: Iterable[Interval]) -> list[Interval]:
    """The same offsets as a sorted list without empty, touching or overlapping intervals."""
    merged: list[Interval] = []
    for start, end in sorted(i for i in intervals if i[0] < i[1]):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((start, end))
    return merged


def subtract(interval: Interval, taken: Iterable[Interval]) -> list[Interval]:
    """The rest of ``interval`` without the offsets in ``taken`` (in any order)."""
    remaining: list[Interval] = []
    begin, end = interval
    for start, stop in merge(taken):
        if stop <= begin:
            continue
        if start >= end:
            break
        if start > begin:
            remaining.append((begin, start))
        begin = stop
    if begin < end:
        remaining.append((begin, end))
    return remaining


def overlap(interval: Interval, others: Iterable[Interval]) -> list[Interval]:
    """The parts of ``interval`` that are also in ``others``, merged."""
    start, end = interval
    return merge((max(start, a), min(end, b)) for a, b in others)


def width(intervals: Iterable[Interval]) -> int:
    """The number of offsets, counting an offset twice if it is listed twice."""
    return sum(end - start for start, end in intervals)
