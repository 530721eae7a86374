"""Cuts ranges into slices. Pure.

A large partition becomes many slices, so that one partition can use all cores. Cuts are made by
offset in proportion to estimated bytes; they need not fall on batch boundaries, except where the
log can only be cut at certain offsets.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import ceil

from rangeland.grouping import by_partition
from rangeland.model import LogState, Partition, Range, Slice
from rangeland.planning.retention_risk import RetentionRisk

SMALLEST_SLICE_BYTES = 8 << 20
"""The smallest slice that ``min_slices`` makes: a smaller one costs more to start than to read."""

MAX_SLICES = 100_000
"""The maximum number of slices in a plan, unless it has more ranges: slices become larger instead.
This bounds the work if a broker reports an absurd end offset."""


@dataclass(frozen=True, slots=True)
class Slicing:
    """The rule by which ranges are cut: ``target_bytes`` of log per slice, and at least
    ``min_slices`` if there is enough data."""

    target_bytes: int = 128 << 20
    min_slices: int = 0


def cut_slices(
    ranges: Sequence[Range],
    slicing: Slicing,
    logs: Mapping[Partition, LogState],
    risks: Sequence[RetentionRisk] = (),
) -> list[Slice]:
    """Slices that tile the ranges exactly, in order; empty ranges give none. A log with
    borders is cut at the nearest ones, so it may give fewer slices.

    With ``min_slices`` the target shrinks until the total divides into that many slices, but
    not below ``SMALLEST_SLICE_BYTES`` unless the job's own target is smaller still. Above
    ``MAX_SLICES`` it grows."""
    total_bytes = sum(r.estimated_bytes for r in ranges)
    target = slicing.target_bytes
    if slicing.min_slices > 0:
        target = min(target, max(total_bytes // slicing.min_slices, SMALLEST_SLICE_BYTES))
    # Rounding to the nearest count keeps slices within half a target of the target.
    counts = [min(r.width, max(1, round(r.estimated_bytes / target))) for r in ranges]
    if sum(counts) > MAX_SLICES:
        target = max(target, ceil(total_bytes / MAX_SLICES))
        counts = [min(r.width, max(1, r.estimated_bytes // target)) for r in ranges]
    elif sum(counts) < slicing.min_slices:
        counts = [min(r.width, max(1, ceil(r.estimated_bytes / target))) for r in ranges]
    slices: list[Slice] = []
    for r, count in zip(ranges, counts, strict=True):
        slices += _cut_one(r, count, len(slices), logs.get(r.partition))
    at_risk = by_partition(risks)
    return [
        replace(s, is_urgent=True) if any(map(s.overlaps, at_risk.get(s.partition, ()))) else s
        for s in slices
    ]


def _cut_one(r: Range, count: int, first_index: int, log: LogState | None) -> list[Slice]:
    if r.width <= 0:
        return []
    # If only a replica answered, the task looks up the leader when it reads.
    leader = log.leader.address if log is not None and not log.leader.is_replica else None
    borders = [r.from_offset + r.width * i // count for i in range(count + 1)]
    if log is not None and log.borders is not None:
        nearest = {_nearest(log.borders, border) for border in borders[1:-1]}
        inner = sorted(b for b in nearest if r.from_offset < b < r.until_offset)
        borders = [r.from_offset, *inner, r.until_offset]
    return [
        Slice(
            index=first_index + i,
            partition=r.partition,
            from_offset=start,
            until_offset=end,
            estimated_bytes=share_of(r, start, end),
            topic_id=r.topic_id,
            leader=leader,
        )
        for i, (start, end) in enumerate(pairwise(borders))
    ]


def share_of(r: Range, start: int, end: int) -> int:
    """The estimated bytes of a part of a range. Parts that tile the range add up to its
    estimate."""
    first, until = start - r.from_offset, end - r.from_offset
    return r.estimated_bytes * until // r.width - r.estimated_bytes * first // r.width


def _nearest(borders: Sequence[int], offset: int) -> int:
    return min(borders, key=lambda border: (abs(border - offset), border))
