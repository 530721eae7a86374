"""Compares the rows of a table with its ledger: is every landed offset there exactly once? Pure.

The expected offsets are those of the landed ranges that still count, without their rowless offsets.
The present offsets are given as intervals; each offset is in as many intervals as it has rows. If a
range's rowless offsets were not recorded, its count decides: with as many distinct offsets as were
landed, it is complete; with fewer, each of its offsets without a row is suspect.

An offset may legitimately be there twice: a recreated topic reuses its numbers, and the ranges of
both incarnations expect a row. If the rowless offsets of one of them were not recorded, only the
total number of rows can be compared.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, fields, replace
from operator import add

import numpy as np

from rangeland.grouping import group_by
from rangeland.model import Partition, Range
from rangeland.planning.incarnation import may_be_same
from rangeland.planning.intervals import Interval, merge, overlap, subtract, width

IntervalArrays = tuple[np.ndarray, np.ndarray]
"""Starts and ends of intervals of consecutive offsets, in any order."""
_NO_INTERVALS: IntervalArrays = (np.empty(0, np.int64), np.empty(0, np.int64))


@dataclass(frozen=True, slots=True)
class LandedRange:
    """A landed range, and how many of its offsets have a row; None if this is only the rest of a
    range whose rowless offsets were not recorded. ``offsets_are_bytes``: offsets are the positions
    of entries, ``landed`` counts rows, and only the whole range can be checked."""

    range: Range
    landed: int | None
    rowless: tuple[Interval, ...] | None = None
    offsets_are_bytes: bool = False

    @property
    def topic_id(self) -> str | None:
        return self.range.topic_id


@dataclass(frozen=True, slots=True)
class CountedRange:
    """Rows of a partition whose offsets are bytes. ``rows``: the number of distinct rows of each of
    its ranges, in order; ``twice``: offsets with a duplicate row; ``unknown``: offsets in no
    range."""

    rows: tuple[int, ...]
    twice: tuple[int, ...] = ()
    unknown: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Audit:
    """The comparison of a table with the landed ranges."""

    holes: tuple[Range, ...] = ()
    """Offsets that should have rows and have none."""
    duplicates: tuple[Range, ...] = ()
    """Offsets that have more rows than they should."""
    unknown_rows: tuple[Range, ...] = ()
    """Offsets with rows from no known landing."""
    suspect: tuple[Range, ...] = ()
    """The holes that may include offsets which never had a row."""
    unproved: tuple[Range, ...] = ()
    """Ranges whose rowless offsets were not recorded, and whose number of rows is no longer known
    either."""

    @property
    def is_clean(self) -> bool:
        return not (self.holes or self.duplicates)


@dataclass(frozen=True, slots=True)
class ReplacedRange:
    """The number of offsets of a replaced range, by what happened to their rows: the *same* as
    before, *added* if there were none before, *changed*, or *missing* if there are none now."""

    same: int = 0
    added: int = 0
    changed: int = 0
    missing: int = 0

    def __add__(self, other: ReplacedRange) -> ReplacedRange:
        return ReplacedRange(*map(add, astuple(self), astuple(other)))


def ranges_in_force(landed_ranges: Iterable[LandedRange]) -> list[LandedRange]:
    """The ranges, in the order in which they were landed, without the parts that later ones have
    replaced."""
    remaining: dict[Partition, list[LandedRange]] = {}
    ends: dict[Partition, int] = {}
    for landed_range in landed_ranges:
        r = landed_range.range
        earlier = remaining.setdefault(r.partition, [])
        if r.from_offset < ends.get(r.partition, 0):  # most ranges follow the earlier ones
            earlier[:] = [part for old in earlier for part in _without(old, r)]
        earlier.append(landed_range)
        ends[r.partition] = max(ends.get(r.partition, 0), r.until_offset)
    return [landed_range for ranges in remaining.values() for landed_range in ranges]


def _without(old: LandedRange, new: Range) -> list[LandedRange]:
    r = old.range
    if not r.overlaps(new) or not may_be_same(r.topic_id, new.topic_id):
        return [old]
    return [_part(old, interval) for interval in subtract(r.interval, [new.interval])]


def _part(old: LandedRange, interval: Interval) -> LandedRange:
    r = replace(old.range, from_offset=interval[0], until_offset=interval[1])
    if old.rowless is None:
        return LandedRange(r, None, offsets_are_bytes=old.offsets_are_bytes)
    rowless = tuple(overlap(interval, old.rowless))
    return LandedRange(r, r.width - width(rowless), rowless)


def audit(
    landed_ranges: Sequence[LandedRange],
    intervals: Mapping[Partition, IntervalArrays],
    counted: Mapping[Partition, CountedRange] | None = None,
) -> Audit:
    """Compares every offset of every range with the ``intervals`` that have rows; if offsets are
    bytes, compares every range with the rows that were ``counted``."""
    in_bytes = [_audit_counted(landed_ranges, p, c) for p, c in sorted((counted or {}).items())]
    whole = _audit_intervals(
        [landed_range for landed_range in landed_ranges if not landed_range.offsets_are_bytes],
        intervals,
    )
    return _join_audits([whole, *in_bytes])


def _join_audits(audits: Sequence[Audit]) -> Audit:
    return Audit(
        *(tuple(sorted(r for each in audits for r in getattr(each, f.name))) for f in fields(Audit))
    )


def ranges_in_bytes(landed_ranges: Iterable[LandedRange]) -> dict[Partition, list[LandedRange]]:
    """The ranges whose offsets are bytes, by partition, in the order of the log."""
    in_order = sorted((p for p in landed_ranges if p.offsets_are_bytes), key=lambda p: p.range)
    return group_by(in_order, lambda landed_range: landed_range.range.partition)


def _audit_counted(
    landed_ranges: Sequence[LandedRange], partition: Partition, counted: CountedRange
) -> Audit:
    ranges = ranges_in_bytes(landed_ranges)[partition]
    pairs = list(zip(ranges, counted.rows, strict=True))
    too_few = tuple(p.range for p, rows in pairs if p.landed is not None and rows < p.landed)
    too_many = [p.range for p, rows in pairs if p.landed is not None and rows > p.landed]
    unknown = [Range(partition, offset, offset + 1) for offset in counted.unknown]
    return Audit(
        holes=too_few,
        duplicates=tuple(Range(partition, offset, offset + 1) for offset in counted.twice),
        unknown_rows=tuple(sorted([*unknown, *too_many])),
        suspect=too_few,
        unproved=tuple(p.range for p in ranges if p.landed is None),
    )


def _audit_intervals(
    landed_ranges: Sequence[LandedRange], intervals_by_partition: Mapping[Partition, IntervalArrays]
) -> Audit:
    landed = group_by(landed_ranges, lambda landed_range: landed_range.range.partition)
    audits = []
    for partition in sorted(landed.keys() | set(intervals_by_partition)):
        intervals = intervals_by_partition.get(partition, _NO_INTERVALS)
        ranges = landed.get(partition, [])
        for whole in mixed_intervals(ranges):
            mixed = [r for r in ranges if overlap(_interval(r), [whole])]
            audits.append(_audit_mixed(Range(partition, *whole), mixed, intervals))
            ranges = [r for r in ranges if not overlap(_interval(r), [whole])]
            intervals = _outside_of(whole, intervals)
        audits.append(_audit_separate(partition, ranges, intervals))
    return _join_audits(audits)


def mixed_intervals(landed_ranges: Sequence[LandedRange]) -> list[Interval]:
    """The offsets of one partition for which only the total number of rows can be counted. Two
    incarnations of a topic have landed them, and it was not recorded where one of the two has rows.
    All offsets of these ranges are included."""
    by_topic_id = group_by(landed_ranges, lambda r: r.topic_id)
    if len(by_topic_id) < 2:
        return []
    landed = {topic_id: merge(map(_interval, rs)) for topic_id, rs in by_topic_id.items()}
    mixed: list[Interval] = []
    shared = [
        interval
        for r in landed_ranges
        if r.rowless is None
        for topic_id, intervals in landed.items()
        if not may_be_same(topic_id, r.topic_id)
        for interval in overlap(_interval(r), intervals)
    ]
    while shared != mixed:  # until no range has only a part of its offsets among them
        mixed = merge(shared)
        shared = merge([*mixed, *(i for i in map(_interval, landed_ranges) if overlap(i, mixed))])
    return mixed


def _interval(landed_range: LandedRange) -> Interval:
    return landed_range.range.interval


def _audit_mixed(
    whole: Range, landed_ranges: Sequence[LandedRange], intervals: IntervalArrays
) -> Audit:
    starts, ends = (np.clip(side, *whole.interval) for side in intervals)
    rows = int((ends - starts).sum())
    landed = sum(r.landed or 0 for r in landed_ranges)
    if rows < landed:
        return Audit(holes=(whole,), suspect=(whole,))
    if any(r.landed is None for r in landed_ranges):
        return Audit(unproved=(whole,))
    return Audit() if rows == landed else Audit(unknown_rows=(whole,))


def _outside_of(whole: Interval, intervals: IntervalArrays) -> IntervalArrays:
    """The intervals without their parts in the whole."""
    starts, ends = intervals
    starts = np.concatenate([starts, np.maximum(starts, whole[1])])
    ends = np.concatenate([np.minimum(ends, whole[0]), ends])
    return starts[starts < ends], ends[starts < ends]


def _audit_separate(
    partition: Partition, landed_ranges: Sequence[LandedRange], intervals: IntervalArrays
) -> Audit:
    expected, unsure = _expected_intervals(landed_ranges, intervals)
    rows = _RowCounts(partition, expected, intervals)
    holes = rows.where(rows.present < rows.expected)
    suspect = [
        Range(partition, start, end)
        for hole in holes
        for start, end in overlap(hole.interval, unsure)
    ]
    return Audit(
        holes=tuple(holes),
        duplicates=tuple(rows.where((rows.present > rows.expected) & (rows.expected > 0))),
        unknown_rows=tuple(rows.where((rows.present > 0) & (rows.expected == 0))),
        suspect=tuple(suspect),
        unproved=tuple(r.range for r in landed_ranges if r.landed is None),
    )


def _expected_intervals(
    landed_ranges: Sequence[LandedRange], intervals: IntervalArrays
) -> tuple[list[Interval], list[Interval]]:
    """The offsets that should have a row, one interval for each row; and the intervals in which it
    is unknown which offsets had rows."""
    expected: list[Interval] = []
    unsure: list[Interval] = []
    present: list[Interval] | None = None
    for landed_range in landed_ranges:
        whole = landed_range.range.interval
        if landed_range.rowless is not None:
            expected += subtract(whole, landed_range.rowless)
            continue
        if present is None:
            present = offsets_present(intervals)
        rows = overlap(whole, present)
        if landed_range.landed is None or width(rows) >= landed_range.landed:
            expected += rows
        else:
            expected.append(whole)
            unsure.append(whole)
    return expected, merge(unsure)


def offsets_present(intervals: IntervalArrays | None) -> list[Interval]:
    """The offsets that have a row."""
    return (
        [] if intervals is None else merge(zip(*(side.tolist() for side in intervals), strict=True))
    )


def offsets_with_rows(landed_range: LandedRange) -> list[Interval]:
    """The offsets at which a range may have rows."""
    whole = landed_range.range.interval
    if landed_range.rowless is None:
        return [] if landed_range.landed == 0 else [whole]
    return subtract(whole, landed_range.rowless)


def other_incarnations(landed_ranges: Iterable[LandedRange], r: Range) -> list[Range]:
    """The landed ranges of other incarnations of the topic that share offsets with a range."""
    return [
        p.range
        for p in landed_ranges
        if p.range.overlaps(r) and not may_be_same(p.topic_id, r.topic_id)
    ]


def cut_ranges(
    landed_ranges: Iterable[LandedRange], ranges: Iterable[Range]
) -> list[tuple[Range, Range]]:
    """The pairs (range, landed range) of the same log in which a bound of the range is inside the
    landed range."""
    return [
        (r, landed_range.range)
        for r in ranges
        for landed_range in landed_ranges
        if landed_range.range.partition == r.partition
        and may_be_same(landed_range.topic_id, r.topic_id)
        and any(
            landed_range.range.from_offset < edge < landed_range.range.until_offset
            for edge in r.interval
        )
    ]


class _RowCounts:
    """The offsets of one partition, cut wherever a count of rows changes. ``expected`` and
    ``present`` have one count for each cut."""

    def __init__(
        self, partition: Partition, expected: Sequence[Interval], intervals: IntervalArrays
    ) -> None:
        self._partition = partition
        edges = np.array(expected, np.int64).reshape(-1, 2)
        edges_and_intervals = np.concatenate([edges[:, 0], edges[:, 1], intervals[0], intervals[1]])
        self._cuts, inverse = np.unique(edges_and_intervals, return_inverse=True)
        steps = np.zeros((2, len(self._cuts)), np.int64)
        split = 2 * len(edges)
        np.add.at(steps[0], inverse[: len(edges)], 1)
        np.add.at(steps[0], inverse[len(edges) : split], -1)
        np.add.at(steps[1], inverse[split : split + len(intervals[0])], 1)
        np.add.at(steps[1], inverse[split + len(intervals[0]) :], -1)
        self.expected, self.present = np.cumsum(steps, axis=1)

    def where(self, mask: np.ndarray) -> list[Range]:
        """The offsets for which the mask holds, merged."""
        marked = np.concatenate(([False], mask, [False]))
        turns = np.flatnonzero(marked[1:] != marked[:-1])
        return [
            Range(self._partition, int(self._cuts[start]), int(self._cuts[end]))
            for start, end in turns.reshape(-1, 2)
        ]


def intervals_of(offsets: np.ndarray) -> IntervalArrays:
    """Offsets, in any order and with repetitions, as intervals."""
    values, counts = np.unique(offsets, return_counts=True)
    starts: list[np.ndarray] = []
    ends: list[np.ndarray] = []
    while len(values):
        breaks = np.flatnonzero(np.diff(values) > 1) + 1
        starts.append(values[np.concatenate(([0], breaks))])
        ends.append(values[np.concatenate((breaks - 1, [len(values) - 1]))] + 1)
        is_repeated = counts > 1
        values = values[is_repeated]
        counts = counts[is_repeated] - 1
    if not starts:
        return _NO_INTERVALS
    return np.concatenate(starts), np.concatenate(ends)
