"""Finds out which landings the holes of a table belong to. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from rangeland.grouping import group_by
from rangeland.model import Partition, Range
from rangeland.planning.coverage import coverage_of, uncovered_parts
from rangeland.planning.incarnation import may_be_same
from rangeland.planning.intervals import Interval, merge, overlap, subtract
from rangeland.planning.table_audit import (
    IntervalArrays,
    LandedRange,
    mixed_intervals,
    offsets_present,
    offsets_with_rows,
)


@dataclass(frozen=True, slots=True)
class LocatedHoles:
    """Parts of landed ranges whose rows are gone, each with the topic id of its log. ``shared``
    parts belong to two incarnations of a topic, and it is unknown which one's rows are gone.
    ``leaves_more``: at some of these offsets, the rows of a later incarnation are gone too."""

    ranges: tuple[Range, ...]
    shared: tuple[Range, ...] = ()
    leaves_more: bool = False

    def are_all_in(self, planned: Iterable[Range]) -> bool:
        """Whether nothing is missing any more once these ranges have landed."""
        is_alone = not (self.shared or self.leaves_more)
        return is_alone and not uncovered_parts(self.ranges, coverage_of(planned))


def locate_holes(
    landed_ranges: Sequence[LandedRange],
    holes: Iterable[Range],
    intervals: Mapping[Partition, IntervalArrays],
) -> LocatedHoles:
    """The holes as parts of landed ranges. If several incarnations of a topic have landed, an
    offset that is in none of the ``intervals`` lacks the rows of all of them, and the oldest
    incarnation comes first."""
    uncounted, holes = _split_mixed(landed_ranges, holes, intervals)
    newest = _parts_of(reversed(landed_ranges), holes)
    unique = [part for r in newest for part in _outside(r, _of_others(landed_ranges, r))]
    ambiguous = [part for r in newest for part in _inside(r, _of_others(landed_ranges, r))]
    present = {r.partition: offsets_present(intervals.get(r.partition)) for r in ambiguous}
    empty = [part for r in ambiguous for part in _outside(r, present[r.partition])]
    shared = [part for r in ambiguous for part in _inside(r, present[r.partition])]
    oldest = _parts_of(landed_ranges, empty)
    return LocatedHoles(
        tuple(sorted([*unique, *oldest])), tuple(sorted([*uncounted, *shared])), bool(empty)
    )


def _split_mixed(
    landed_ranges: Sequence[LandedRange],
    holes: Iterable[Range],
    intervals: Mapping[Partition, IntervalArrays],
) -> tuple[list[Range], list[Range]]:
    """The holes in which rows of two incarnations are counted together and some of these rows are
    present; and the other holes."""
    by_partition = group_by(landed_ranges, lambda r: r.range.partition)
    uncounted: list[Range] = []
    others: list[Range] = []
    for partition, of_partition in group_by(holes, lambda hole: hole.partition).items():
        mixed = mixed_intervals(by_partition.get(partition, []))
        present = offsets_present(intervals.get(partition)) if mixed else []
        for hole in of_partition:
            is_mixed = overlap(hole.interval, mixed) and overlap(hole.interval, present)
            (uncounted if is_mixed else others).append(hole)
    return uncounted, others


def _parts_of(landed_ranges: Iterable[LandedRange], holes: Iterable[Range]) -> list[Range]:
    """The holes as parts of the first of these ranges that should have rows there."""
    holes = list(holes)
    unlocated = {hole: [hole.interval] for hole in holes}
    parts: list[Range] = []
    for landed_range in landed_ranges:
        for hole in holes:
            if landed_range.range.partition != hole.partition:
                continue
            rows = offsets_with_rows(landed_range)
            missing = [i for interval in unlocated[hole] for i in overlap(interval, rows)]
            parts += [_cut(landed_range.range, a, b) for a, b in missing]
            unlocated[hole] = [i for x in unlocated[hole] for i in subtract(x, missing)]
    return parts


def _of_others(landed_ranges: Iterable[LandedRange], r: Range) -> list[Interval]:
    """The offsets of a range at which other incarnations of the topic have rows."""
    return merge(
        i
        for landed_range in landed_ranges
        if landed_range.range.partition == r.partition
        and not may_be_same(landed_range.topic_id, r.topic_id)
        for i in overlap(r.interval, offsets_with_rows(landed_range))
    )


def _inside(r: Range, intervals: Sequence[Interval]) -> list[Range]:
    return [_cut(r, a, b) for a, b in overlap(r.interval, intervals)]


def _outside(r: Range, intervals: Sequence[Interval]) -> list[Range]:
    return [_cut(r, a, b) for a, b in subtract(r.interval, intervals)]


def _cut(r: Range, from_offset: int, until_offset: int) -> Range:
    return replace(r, from_offset=from_offset, until_offset=until_offset, estimated_bytes=0)
