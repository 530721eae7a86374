"""For any rows and any ranges, the audit finds what counting by hand finds."""

from __future__ import annotations

import itertools
from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from rangeland.model import Partition, Range
from rangeland.planning.intervals import subtract
from rangeland.planning.table_audit import Audit, LandedRange, audit, intervals_of, ranges_in_force

P0, P1 = Partition("t", 0), Partition("t", 1)
TOP = 40

offsets = st.lists(st.integers(0, TOP - 1), max_size=60)


@st.composite
def landings(draw: st.DrawFn) -> list[LandedRange]:
    """Ranges one after the other, each with rowless offsets, in lives of the topic."""
    landed_ranges = []
    for life in draw(st.sampled_from((["A"], ["A", "B"], [None]))):
        marks = sorted(draw(st.sets(st.integers(0, TOP), min_size=2, max_size=5)))
        for start, end in itertools.pairwise(marks):
            rowless = draw(st.sets(st.integers(start, end - 1)))
            intervals = tuple(
                subtract((start, end), [(o, o + 1) for o in {*range(start, end)} - rowless])
            )
            landed_ranges.append(
                LandedRange(Range(P0, start, end, life), end - start - len(rowless), intervals)
            )
    return landed_ranges


def listed(ranges: tuple[Range, ...]) -> set[int]:
    found = [o for r in ranges for o in range(r.from_offset, r.until_offset)]
    assert len(found) == len(set(found)), "the ranges of a response are apart"
    return set(found)


def rows_of(landed_ranges: list[LandedRange]) -> Counter[int]:
    rows: Counter[int] = Counter()
    for landed_range in landed_ranges:
        whole = (landed_range.range.from_offset, landed_range.range.until_offset)
        for start, end in subtract(whole, landed_range.rowless or ()):
            rows.update(range(start, end))
    return rows


@given(landings(), offsets)
def test_every_offset_is_counted_as_by_hand(
    landed_ranges: list[LandedRange], rows: list[int]
) -> None:
    wanted, there = rows_of(landed_ranges), Counter(rows)
    said = audit(landed_ranges, {P0: intervals_of(np.array(rows, np.int64))})
    every = range(TOP)
    assert listed(said.holes) == {o for o in every if wanted[o] > there[o]}
    assert listed(said.duplicates) == {o for o in every if there[o] > wanted[o] > 0}
    assert listed(said.unknown_rows) == {o for o in every if there[o] > 0 == wanted[o]}
    assert said.suspect == ()


@given(landings(), st.randoms())
def test_what_was_landed_is_clean_in_any_order_of_rows(
    landed_ranges: list[LandedRange], random: object
) -> None:
    rows = list(rows_of(landed_ranges).elements())
    random.shuffle(rows)  # type: ignore[attr-defined]
    half = len(rows) // 2
    parts = [intervals_of(np.array(part, np.int64)) for part in (rows[:half], rows[half:])]
    intervals = tuple(np.concatenate(side) for side in zip(*parts, strict=True))
    assert audit(landed_ranges, {P0: intervals}) == Audit()  # type: ignore[dict-item]


@given(st.integers(1, TOP), offsets)
def test_without_rowless_offsets_the_count_decides(landed: int, rows: list[int]) -> None:
    landed_range = LandedRange(Range(P0, 0, TOP), landed)
    said = audit([landed_range], {P0: intervals_of(np.array(sorted(set(rows)), np.int64))})
    if len(set(rows)) >= landed:
        assert said.is_clean
    else:
        assert listed(said.holes) == listed(said.suspect) == {*range(TOP)} - {*rows}


@given(landings(), landings())
def test_a_later_landing_stands_in_for_what_it_covers(
    first: list[LandedRange], then: list[LandedRange]
) -> None:
    first = [p for p in first if p.range.topic_id in ("A", None)]
    then = [p for p in then if p.range.topic_id in ("A", None)]
    left = ranges_in_force([*first, *then])
    for o in range(TOP):
        holders = [p for p in left if p.range.from_offset <= o < p.range.until_offset]
        assert len(holders) <= 1
        last = [p for p in (*first, *then) if p.range.from_offset <= o < p.range.until_offset]
        assert bool(holders) == bool(last)
        if holders:
            gone = any(a <= o < b for a, b in holders[0].rowless or ())
            assert gone == any(a <= o < b for a, b in last[-1].rowless or ())
    assert all(p.landed == rows_of([p]).total() for p in left)


def test_partitions_are_distinguished() -> None:
    landed_ranges = [LandedRange(Range(P0, 0, 3), 3, ()), LandedRange(Range(P1, 0, 3), 3, ())]
    said = audit(landed_ranges, {P1: intervals_of(np.array([0, 1, 2, 2]))})
    assert said.holes == (Range(P0, 0, 3),)
    assert said.duplicates == (Range(P1, 2, 3),)
