"""The table against the ledger: is every landed offset there, and there once? Pure.

Expected are landed ranges without the offsets that have no row. Found are runs of offsets,
an offset in as many runs as it has rows. Where a range's gaps were not recorded, its count
decides: with as many distinct offsets as were landed it is complete, and with fewer every offset of
it without a row is suspect.

An offset may rightly be there twice: a topic that was deleted and created again uses its numbers
again, and the ranges of both incarnations expect it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, fields, replace
from functools import reduce
from operator import add

import numpy as np

from rangeland.grouping import group_by
from rangeland.model import Partition, Range
from rangeland.planning.coverage import coverage_of, leave_out
from rangeland.planning.incarnation import may_be_same
from rangeland.planning.intervals import Interval, merge, overlap, subtract, width

Runs = tuple[np.ndarray, np.ndarray]
"""Starts and ends of runs of offsets, in any order."""


@dataclass(frozen=True, slots=True)
class LandedRange:
    """A landed range, and how many of its offsets have a row: None where only a part is left of a
    range whose gaps were not recorded. ``in_bytes``: its offsets are the byte positions of entries,
    ``landed`` counts rows, and only the whole range can be checked."""

    range: Range
    landed: int | None
    gaps: tuple[Interval, ...] | None = None
    in_bytes: bool = False

    @property
    def topic_id(self) -> str | None:
        return self.range.topic_id


@dataclass(frozen=True, slots=True)
class CountedRange:
    """Rows of a partition whose offsets are bytes. ``rows`` counts the distinct ones of each of its
    ranges, in order; ``twice`` are offsets with a duplicate row, ``unknown`` offsets in no
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
    """Offsets with rows that no landing brought."""
    suspect: tuple[Range, ...] = ()
    """The holes that may include offsets which never had a row."""
    unproved: tuple[Range, ...] = ()
    """What is left of ranges whose gaps were not recorded: it is no longer known which of their
    offsets had a row."""

    @property
    def is_clean(self) -> bool:
        return not (self.holes or self.duplicates)


@dataclass(frozen=True, slots=True)
class ReplacedRange:
    """The offsets of a replaced range, by what happened to their rows: the *same* as before,
    *added* where there were none, *changed*, *missing* where there are none now."""

    same: int = 0
    added: int = 0
    changed: int = 0
    missing: int = 0

    def __add__(self, other: ReplacedRange) -> ReplacedRange:
        return ReplacedRange(*map(add, astuple(self), astuple(other)))


def in_force(landed_ranges: Iterable[LandedRange]) -> list[LandedRange]:
    """The ranges, in the order they were landed, without what later ones have replaced."""
    left: dict[Partition, list[LandedRange]] = {}
    ends: dict[Partition, int] = {}
    for landed_range in landed_ranges:
        r = landed_range.range
        mine = left.setdefault(r.partition, [])
        if r.from_offset < ends.get(r.partition, 0):  # otherwise it follows the others, as most do
            mine[:] = [rest for old in mine for rest in _without(old, r)]
        mine.append(landed_range)
        ends[r.partition] = max(ends.get(r.partition, 0), r.until_offset)
    return [landed_range for mine in left.values() for landed_range in mine]


def _without(old: LandedRange, new: Range) -> list[LandedRange]:
    r = old.range
    same_log = may_be_same(r.topic_id, new.topic_id)
    is_disjoint = new.until_offset <= r.from_offset or r.until_offset <= new.from_offset
    if r.partition != new.partition or not same_log or is_disjoint:
        return [old]
    rests = subtract(r.interval, [new.interval])
    return [_part(old, rest) for rest in rests]


def _part(old: LandedRange, rest: Interval) -> LandedRange:
    where = replace(old.range, from_offset=rest[0], until_offset=rest[1])
    if old.gaps is None:
        return LandedRange(where, None, in_bytes=old.in_bytes)
    gaps = tuple(overlap(rest, old.gaps))
    return LandedRange(where, where.width - width(gaps), gaps)


def audit(
    landed_ranges: Sequence[LandedRange],
    runs: Mapping[Partition, Runs],
    counted: Mapping[Partition, CountedRange] | None = None,
) -> Audit:
    """Every offset of every range against the ``runs`` that have rows; of partitions whose
    offsets are bytes, every range against the rows that were ``counted``."""
    in_bytes = [_audit_counted(landed_ranges, p, c) for p, c in sorted((counted or {}).items())]
    whole = _audit_runs(
        [landed_range for landed_range in landed_ranges if not landed_range.in_bytes], runs
    )
    return reduce(_join_audits, in_bytes, whole)


def _join_audits(one: Audit, other: Audit) -> Audit:
    return Audit(
        *(tuple(sorted((*getattr(one, f.name), *getattr(other, f.name)))) for f in fields(Audit))
    )


def ranges_in_bytes(landed_ranges: Iterable[LandedRange]) -> dict[Partition, list[LandedRange]]:
    """The ranges whose offsets are bytes, by partition, in the order of the log."""
    in_order = sorted((p for p in landed_ranges if p.in_bytes), key=lambda p: p.range)
    return group_by(in_order, lambda landed_range: landed_range.range.partition)


def _audit_counted(
    landed_ranges: Sequence[LandedRange], partition: Partition, counted: CountedRange
) -> Audit:
    mine = ranges_in_bytes(landed_ranges)[partition]
    pairs = list(zip(mine, counted.rows, strict=True))
    too_few = tuple(p.range for p, rows in pairs if p.landed is not None and rows < p.landed)
    too_many = [p.range for p, rows in pairs if p.landed is not None and rows > p.landed]
    unknown = [Range(partition, offset, offset + 1) for offset in counted.unknown]
    return Audit(
        holes=too_few,
        duplicates=tuple(Range(partition, offset, offset + 1) for offset in counted.twice),
        unknown_rows=tuple(sorted([*unknown, *too_many])),
        suspect=too_few,
        unproved=tuple(p.range for p in mine if p.landed is None),
    )


def _audit_runs(landed_ranges: Sequence[LandedRange], runs_of: Mapping[Partition, Runs]) -> Audit:
    holes: list[Range] = []
    duplicates: list[Range] = []
    unknown_rows: list[Range] = []
    suspect: list[Range] = []
    unproved = tuple(p.range for p in landed_ranges if p.landed is None)
    landed = group_by(landed_ranges, lambda landed_range: landed_range.range.partition)
    for partition in sorted(landed.keys() | set(runs_of)):
        runs = runs_of.get(partition, (np.empty(0, np.int64), np.empty(0, np.int64)))
        own = landed.get(partition, [])
        wanted, unsure = _expected_intervals(own, runs)
        compared = _Compared(partition, wanted, runs)
        holes += compared.where(compared.wanted > compared.found)
        duplicates += compared.where((compared.found > compared.wanted) & (compared.wanted > 0))
        unknown_rows += compared.where((compared.found > 0) & (compared.wanted == 0))
        suspect += [
            Range(partition, start, end)
            for hole in compared.where(compared.wanted > compared.found)
            for start, end in overlap(hole.interval, unsure)
        ]
    return Audit(tuple(holes), tuple(duplicates), tuple(unknown_rows), tuple(suspect), unproved)


def _expected_intervals(
    landed_ranges: Sequence[LandedRange], runs: Runs
) -> tuple[list[Interval], list[Interval]]:
    """The offsets that should have a row, one interval for each row; and where that is not known
    offset by offset."""
    wanted: list[Interval] = []
    unsure: list[Interval] = []
    present: list[Interval] | None = None
    for landed_range in landed_ranges:
        whole = landed_range.range.interval
        if landed_range.gaps is not None:
            wanted += subtract(whole, landed_range.gaps)
            continue
        if present is None:
            present = _present(runs)
        rows = overlap(whole, present)
        if landed_range.landed is None or width(rows) >= landed_range.landed:
            wanted += rows
        else:
            wanted.append(whole)
            unsure.append(whole)
    return wanted, merge(unsure)


@dataclass(frozen=True, slots=True)
class LocatedHoles:
    """Parts of landed ranges whose rows are gone, each with the topic id of the log that they came
    from. ``shared`` are of two incarnations of a topic, and it is unknown whose rows are gone.
    ``leaves_more``: at offsets of these the rows of a later incarnation are gone, too."""

    ranges: tuple[Range, ...]
    shared: tuple[Range, ...] = ()
    leaves_more: bool = False

    def are_all_in(self, planned: Iterable[Range]) -> bool:
        """Whether nothing stays missing once these ranges have landed."""
        is_alone = not (self.shared or self.leaves_more)
        return is_alone and not leave_out(self.ranges, coverage_of(planned))


def locate_holes(
    landed_ranges: Sequence[LandedRange], holes: Iterable[Range], runs: Mapping[Partition, Runs]
) -> LocatedHoles:
    """The holes as parts of landed ranges. Where several incarnations of a topic have landed, an
    offset that is in none of the ``runs`` lacks the rows of all, and the oldest comes
    first."""
    newest = _parts_of(reversed(landed_ranges), holes)
    alone = [part for r in newest for part in _outside(r, _of_others(landed_ranges, r))]
    both = [part for r in newest for part in _inside(r, _of_others(landed_ranges, r))]
    present = {r.partition: _present(runs.get(r.partition)) for r in both}
    gone = [part for r in both for part in _outside(r, present[r.partition])]
    shared = [part for r in both for part in _inside(r, present[r.partition])]
    oldest = _parts_of(landed_ranges, gone)
    return LocatedHoles(tuple(sorted([*alone, *oldest])), tuple(sorted(shared)), bool(gone))


def _present(runs: Runs | None) -> list[Interval]:
    return [] if runs is None else merge(zip(*(side.tolist() for side in runs), strict=True))


def _parts_of(landed_ranges: Iterable[LandedRange], holes: Iterable[Range]) -> list[Range]:
    """The holes as parts of the first of these ranges that should have rows there."""
    holes = list(holes)
    left = {hole: [hole.interval] for hole in holes}
    found: list[Range] = []
    for landed_range in landed_ranges:
        for hole in holes:
            if landed_range.range.partition != hole.partition:
                continue
            missing = [i for whole in left[hole] for i in overlap(whole, _rows_of(landed_range))]
            found += [_cut(landed_range.range, a, b) for a, b in missing]
            left[hole] = [rest for whole in left[hole] for rest in subtract(whole, missing)]
    return found


def _rows_of(landed_range: LandedRange) -> list[Interval]:
    """The offsets at which a range has rows, as far as that is known."""
    whole = landed_range.range.interval
    if landed_range.gaps is None:
        return [] if landed_range.landed == 0 else [whole]
    return subtract(whole, landed_range.gaps)


def _of_others(landed_ranges: Iterable[LandedRange], r: Range) -> list[Interval]:
    """The offsets of a range at which other incarnations of the topic have rows."""
    return merge(
        i
        for landed_range in landed_ranges
        if landed_range.range.partition == r.partition
        and not may_be_same(landed_range.topic_id, r.topic_id)
        for i in overlap(r.interval, _rows_of(landed_range))
    )


def _inside(r: Range, these: Sequence[Interval]) -> list[Range]:
    return [_cut(r, a, b) for a, b in overlap(r.interval, these)]


def _outside(r: Range, these: Sequence[Interval]) -> list[Range]:
    return [_cut(r, a, b) for a, b in subtract(r.interval, these)]


def _cut(r: Range, from_offset: int, until_offset: int) -> Range:
    return replace(r, from_offset=from_offset, until_offset=until_offset, estimated_bytes=0)


def other_incarnations(landed_ranges: Iterable[LandedRange], r: Range) -> list[Range]:
    """The landed ranges of other incarnations of the topic that share offsets with a range."""
    return [
        p.range
        for p in landed_ranges
        if p.range.partition == r.partition
        and not may_be_same(p.topic_id, r.topic_id)
        and p.range.from_offset < r.until_offset
        and r.from_offset < p.range.until_offset
    ]


def cut_ranges(
    landed_ranges: Iterable[LandedRange], ranges: Iterable[Range]
) -> list[tuple[Range, Range]]:
    """(range, landed range) wherever a bound of the first falls inside the second, in the same
    log."""
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


class _Compared:
    """One partition, cut wherever a count changes; ``wanted`` and ``found`` are per cut."""

    def __init__(self, partition: Partition, wanted: Sequence[Interval], runs: Runs) -> None:
        self._partition = partition
        edges = np.array(wanted, np.int64).reshape(-1, 2)
        edges_and_runs = np.concatenate([edges[:, 0], edges[:, 1], runs[0], runs[1]])
        self._cuts, inverse = np.unique(edges_and_runs, return_inverse=True)
        steps = np.zeros((2, len(self._cuts)), np.int64)
        split = 2 * len(edges)
        np.add.at(steps[0], inverse[: len(edges)], 1)
        np.add.at(steps[0], inverse[len(edges) : split], -1)
        np.add.at(steps[1], inverse[split : split + len(runs[0])], 1)
        np.add.at(steps[1], inverse[split + len(runs[0]) :], -1)
        self.wanted, self.found = np.cumsum(steps, axis=1)

    def where(self, mask: np.ndarray) -> list[Range]:
        """The offsets for which the mask holds, merged."""
        marked = np.concatenate(([False], mask, [False]))
        turns = np.flatnonzero(marked[1:] != marked[:-1])
        return [
            Range(self._partition, int(self._cuts[start]), int(self._cuts[end]))
            for start, end in turns.reshape(-1, 2)
        ]


def runs_of(offsets: np.ndarray) -> Runs:
    """Offsets, in any order and with repetitions, as runs."""
    values, counts = np.unique(offsets, return_counts=True)
    starts: list[np.ndarray] = []
    ends: list[np.ndarray] = []
    while len(values):
        breaks = np.flatnonzero(np.diff(values) > 1) + 1
        starts.append(values[np.concatenate(([0], breaks))])
        ends.append(values[np.concatenate((breaks - 1, [len(values) - 1]))] + 1)
        again = counts > 1
        values, counts = values[again], counts[again] - 1
    if not starts:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    return np.concatenate(starts), np.concatenate(ends)
