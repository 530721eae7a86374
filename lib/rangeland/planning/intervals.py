"""Arithmetic on sorted lists of half-open intervals ``[from, until)``.

Coverage, holes and slices all come down to intervals, so the arithmetic is here, once. Lists
contain sorted, non-empty intervals that neither touch nor overlap; ``merge`` makes such a list.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from operator import itemgetter

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


def insert(intervals: list[Interval], new: Interval) -> None:
    """Adds an interval to a merged list, which stays merged."""
    start, end = new
    if start >= end:
        return
    first, last = _touching(intervals, new)
    if first < last:
        start, end = min(start, intervals[first][0]), max(end, intervals[last - 1][1])
    intervals[first:last] = [(start, end)]


def near(intervals: list[Interval], interval: Interval) -> list[Interval]:
    """The intervals of a merged list that touch or overlap another one."""
    first, last = _touching(intervals, interval)
    return intervals[first:last]


def _touching(intervals: list[Interval], interval: Interval) -> tuple[int, int]:
    """The slice of a merged list that touches or overlaps an interval."""
    start, end = interval
    first = bisect_left(intervals, start, key=itemgetter(1))
    return first, max(first, bisect_right(intervals, end, key=itemgetter(0)))


def width(intervals: Iterable[Interval]) -> int:
    """The number of offsets, counting an offset twice if it is listed twice."""
    return sum(end - start for start, end in intervals)
