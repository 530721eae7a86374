"""The coverage rule: an offset is landed once, by whichever way it came."""

from __future__ import annotations

import pytest

from rangeland.model import Partition, Range
from rangeland.planning.coverage import Coverage, coverage_of, covered_parts, uncovered_parts
from rangeland.planning.intervals import Interval, merge, overlap, subtract, width

P0, P1 = Partition("t", 0), Partition("t", 1)


@pytest.mark.parametrize(
    ("intervals", "merged"),
    [
        ([], []),
        ([(3, 3), (5, 4)], []),
        ([(5, 8), (1, 2)], [(1, 2), (5, 8)]),
        ([(1, 2), (2, 3)], [(1, 3)]),
        ([(1, 9), (2, 3)], [(1, 9)]),
        ([(1, 5), (4, 9), (9, 10)], [(1, 10)]),
    ],
)
def test_merge_sorts_joins_and_drops_the_empty(
    intervals: list[Interval], merged: list[Interval]
) -> None:
    assert merge(intervals) == merged


@pytest.mark.parametrize(
    ("taken", "left"),
    [
        ([], [(10, 20)]),
        ([(10, 20)], []),
        ([(0, 99)], []),
        ([(0, 10), (20, 30)], [(10, 20)]),
        ([(12, 14)], [(10, 12), (14, 20)]),
        ([(16, 18), (5, 11)], [(11, 16), (18, 20)]),
        ([(12, 16), (14, 18)], [(10, 12), (18, 20)]),
        ([(15, 15)], [(10, 20)]),
    ],
)
def test_subtract_leaves_what_is_not_taken(taken: list[Interval], left: list[Interval]) -> None:
    assert subtract((10, 20), taken) == left


def test_an_empty_interval_has_nothing_left_and_overlaps_nothing() -> None:
    assert subtract((5, 5), []) == []
    assert overlap((5, 5), [(0, 9)]) == []


def test_overlap_is_what_both_have() -> None:
    assert overlap((10, 20), [(0, 12), (15, 16), (19, 40), (50, 60)]) == [
        (10, 12),
        (15, 16),
        (19, 20),
    ]
    assert width([(1, 3), (2, 4)]) == 4


def test_what_is_landed_is_left_out_and_a_middle_makes_two() -> None:
    landed = coverage_of([Range(P0, 10, 20, "A"), Range(P0, 20, 30, "A")])
    asked = [Range(P0, 0, 40, "A"), Range(P0, 12, 28, "A"), Range(P1, 0, 40, "A")]
    assert uncovered_parts(asked, landed) == [
        Range(P0, 0, 10, "A"),
        Range(P0, 30, 40, "A"),
        Range(P1, 0, 40, "A"),
    ]
    assert covered_parts(asked, landed) == [Range(P0, 10, 30, "A"), Range(P0, 12, 28, "A")]


def test_another_incarnation_of_the_topic_has_other_offsets_under_the_same_numbers() -> None:
    landed = coverage_of([Range(P0, 0, 50, "A")])
    assert uncovered_parts([Range(P0, 0, 50, "B")], landed) == [Range(P0, 0, 50, "B")]
    assert covered_parts([Range(P0, 0, 50, "B")], landed) == []


def test_an_unknown_incarnation_matches_every_incarnation() -> None:
    landed = coverage_of([Range(P0, 0, 10, "A"), Range(P0, 5, 20, "B")])
    assert uncovered_parts([Range(P0, 0, 30, None)], landed) == [Range(P0, 20, 30, None)]
    landed = coverage_of([Range(P0, 0, 10, None), Range(P0, 20, 30, "A")])
    assert uncovered_parts([Range(P0, 0, 40, "A")], landed) == [
        Range(P0, 10, 20, "A"),
        Range(P0, 30, 40, "A"),
    ]


def test_coverage_of_nothing_covers_nothing() -> None:
    assert coverage_of([]) == Coverage()
    assert Coverage().of(P0, "A") == []
    assert Coverage().of(P0, None) == []
