"""How much of what was asked one run takes: limits shared out fairly over partitions.

A limit is filled like water: each partition gets the same share, what a small one does
not need goes to the others. So a hot partition never starves the rest, and a run below
its limit takes everything. Ranges are cut at their end; the next run goes on from there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from rangeland.model import Partition, Range


@dataclass(frozen=True, slots=True)
class Limits:
    """Per run; None means no limit. ``max_bytes`` is of the log, as the broker stores it."""

    max_records: int | None = None
    max_bytes: int | None = None


def share_out(total: int, wanted: Sequence[int]) -> list[int]:
    """Shares that sum to ``min(total, sum(wanted))``, none above what is wanted, as equal
    as that allows; what does not divide goes to the first."""
    shares = [0] * len(wanted)
    left = max(0, total)
    open_ones = sorted((i for i, want in enumerate(wanted) if want > 0), key=lambda i: wanted[i])
    while open_ones:
        fair = left // len(open_ones)
        smallest = open_ones[0]
        if wanted[smallest] > fair:
            for place, i in enumerate(sorted(open_ones)):
                shares[i] = fair + (1 if place < left % len(open_ones) else 0)
            break
        shares[smallest] = wanted[smallest]
        left -= wanted[smallest]
        open_ones.pop(0)
    return shares


def apply_limits(ranges: Sequence[Range], limits: Limits) -> list[Range]:
    """The same ranges, ended earlier where a partition's share is smaller than it wants.

    A partition with several ranges spends its share on them in order, so that nothing
    after a cut is taken and a checkpoint never jumps over a hole. Estimated bytes shrink
    in proportion; empty ranges stay as they are."""
    by_partition: dict[Partition, list[Range]] = {}
    for r in ranges:
        by_partition.setdefault(r.partition, []).append(r)
    groups = [sorted(group) for group in by_partition.values()]
    if limits.max_records is not None:
        shares = share_out(limits.max_records, [sum(r.width for r in group) for group in groups])
        groups = [_spend_records(g, share) for g, share in zip(groups, shares, strict=True)]
    if limits.max_bytes is not None:
        wanted = [sum(r.estimated_bytes for r in group) for group in groups]
        shares = share_out(limits.max_bytes, wanted)
        groups = [_spend_bytes(g, share) for g, share in zip(groups, shares, strict=True)]
    return sorted(r for group in groups for r in group)


def _spend_records(group: list[Range], share: int) -> list[Range]:
    taken: list[Range] = []
    for r in group:
        if r.width > share:
            return [*taken, truncate(r, share)]
        taken.append(r)
        share -= r.width
    return taken


def _spend_bytes(group: list[Range], share_bytes: int) -> list[Range]:
    taken: list[Range] = []
    for r in group:
        if r.estimated_bytes > share_bytes:
            # At least one record, or one larger than the limit would never be landed.
            records = max(0 if taken else 1, r.width * share_bytes // r.estimated_bytes)
            return [*taken, truncate(r, records)]
        taken.append(r)
        share_bytes -= r.estimated_bytes
    return taken


def truncate(r: Range, records: int) -> Range:
    """The first ``records`` offsets of a range."""
    if records >= r.width:
        return r
    return replace(
        r,
        until_offset=r.from_offset + records,
        estimated_bytes=r.estimated_bytes * records // r.width,
    )
