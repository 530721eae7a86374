"""Missing rows become ranges of the landings that they belonged to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from rangeland.model import Partition, Range
from rangeland.planning.hole_location import LocatedHoles, locate_holes
from rangeland.planning.table_audit import (
    Audit,
    IntervalArrays,
    LandedRange,
    audit,
    cut_ranges,
    intervals_of,
    other_incarnations,
    ranges_in_force,
)

P0, P1 = Partition("t", 0), Partition("t", 1)
PIECES = [
    LandedRange(Range(P0, 0, 10, "old"), 10, ()),
    LandedRange(Range(P0, 0, 5, "new"), 5, ()),
    LandedRange(Range(P0, 10, 20, "old"), 10, ()),
    LandedRange(Range(P1, 0, 10, "new"), 10, ()),
]


def test_a_hole_has_the_topic_id_of_the_newest_landing_of_its_offsets() -> None:
    landed_ranges = [*PIECES[2:], LandedRange(Range(P0, 10, 15, "old"), 5, ())]
    assert locate_holes(landed_ranges, [Range(P0, 12, 17)], {}).ranges == (
        Range(P0, 12, 15, "old"),
        Range(P0, 15, 17, "old"),
    )


def test_where_two_incarnations_have_landed_a_hole_is_theirs_only_if_both_lack_their_rows() -> None:
    hole = [Range(P0, 3, 12)]
    found = locate_holes(PIECES, hole, {P0: intervals_of(np.array([3]))})
    assert found.shared == (Range(P0, 3, 4, "new"),), "one of two rows is there"
    old = (Range(P0, 4, 5, "old"), Range(P0, 5, 10, "old"), Range(P0, 10, 12, "old"))
    assert found.ranges == old, "the oldest first"
    assert found.leaves_more
    gone = [LandedRange(Range(P0, 0, 20, "old"), 0, ((0, 20),)), PIECES[1]]
    found = locate_holes(gone, [Range(P0, 4, 5)], {P0: intervals_of(np.array([3]))})
    assert found == LocatedHoles((Range(P0, 4, 5, "new"),)), "the old rows are lost by now"


def test_a_hole_outside_of_all_landings_is_nobody_s() -> None:
    assert locate_holes(PIECES, [Range(P1, 10, 12), Range(P0, 20, 21)], {}) == LocatedHoles(())


def test_holes_are_all_in_a_plan_that_leaves_none_of_them_missing() -> None:
    found = LocatedHoles((Range(P0, 10, 12), Range(P1, 0, 5)))
    assert found.are_all_in([Range(P0, 0, 20), Range(P1, 0, 3), Range(P1, 3, 5)])
    assert not found.are_all_in([Range(P0, 10, 12)]), "a partition is held"
    assert not found.are_all_in([Range(P0, 10, 12), Range(P1, 0, 4)]), "an end may still come"
    assert not replace(found, leaves_more=True).are_all_in(found.ranges)
    assert not replace(found, shared=(Range(P0, 30, 31),)).are_all_in(found.ranges)


def test_an_end_inside_a_piece_cuts_it_and_one_at_its_edge_does_not() -> None:
    slices = [LandedRange(Range(P0, 0, 10, "A"), None), LandedRange(Range(P0, 10, 20, "A"), None)]
    assert cut_ranges(slices, [Range(P0, 0, 10, "A"), Range(P0, 0, 99, "A")]) == []
    begins_inside = Range(P0, 9, 20, "A")
    assert cut_ranges(slices, [begins_inside]) == [(begins_inside, slices[0].range)]
    ends_inside = Range(P0, 10, 11, "A")
    assert cut_ranges(slices, [ends_inside]) == [(ends_inside, slices[1].range)]


def test_another_incarnation_of_the_topic_and_another_partition_cut_nothing() -> None:
    slices = [LandedRange(Range(P0, 0, 10, "A"), None)]
    assert cut_ranges(slices, [Range(P0, 3, 5, "B"), Range(P1, 3, 5, "A")]) == []
    unknown = Range(P0, 3, 5)
    assert len(cut_ranges(slices, [unknown])) == 1


def test_another_incarnation_that_shares_offsets_is_seen() -> None:
    assert other_incarnations(PIECES, Range(P0, 3, 4, "new")) == [Range(P0, 0, 10, "old")]
    assert other_incarnations(PIECES, Range(P0, 10, 12, "old")) == []
    assert other_incarnations(PIECES, Range(P0, 3, 4)) == [], "of a broker without ids nobody knows"


def test_what_is_left_of_a_range_whose_rowless_offsets_were_not_kept_is_said_to_be_unproved() -> (
    None
):
    landed_ranges = ranges_in_force(
        [LandedRange(Range(P0, 0, 10, "A"), 5), LandedRange(Range(P0, 4, 6, "A"), 1, ((5, 6),))]
    )
    found = audit(landed_ranges, {})
    assert found.unproved == (Range(P0, 0, 4, "A"), Range(P0, 6, 10, "A"))
    assert found.holes == (Range(P0, 4, 5),)


def _rows(*offsets: Sequence[int]) -> dict[Partition, IntervalArrays]:
    return {P0: intervals_of(np.concatenate([np.array(each, np.int64) for each in offsets]))}


EVENS, ODDS, FIRST = range(0, 100, 2), range(1, 100, 2), range(50)
UNRECORDED = [LandedRange(Range(P0, 0, 100, name), 50) for name in ("old", "new")]
RECORDED = LandedRange(Range(P0, 0, 100, "new"), 50, ((50, 100),))


@pytest.mark.parametrize(
    ("landed_ranges", "old", "new"),
    [
        (UNRECORDED, EVENS, ODDS),
        (UNRECORDED, EVENS, EVENS),
        ([UNRECORDED[0], RECORDED], EVENS, FIRST),
    ],
)
def test_all_rows_of_two_incarnations_are_no_holes_wherever_they_are(
    landed_ranges: list[LandedRange], old: range, new: range
) -> None:
    """A transform has left out others of each, and it was not recorded which."""
    assert audit(landed_ranges, _rows(old, new)) == Audit()
    whole = Range(P0, 0, 100)
    fewer = _rows(old[1:], new)
    assert audit(landed_ranges, fewer) == Audit(holes=(whole,), suspect=(whole,))
    assert locate_holes(landed_ranges, [whole], fewer) == LocatedHoles((), (whole,)), "not again"
    assert audit(landed_ranges, _rows(old, new, [70])) == Audit(unknown_rows=(whole,))


def test_rows_of_two_incarnations_are_counted_with_all_ranges_that_share_offsets() -> None:
    """Those of other offsets are compared one by one, as ever."""
    more = LandedRange(Range(P0, 90, 150, "later"), 60, ())
    beside = LandedRange(Range(P0, 150, 160, "later"), 10, ())
    rows = _rows(EVENS, ODDS, range(90, 155))
    found = audit([*UNRECORDED, more, beside], rows)
    assert found == Audit(holes=(Range(P0, 155, 160),))


def test_rows_of_two_incarnations_whose_number_is_not_known_cannot_be_proved() -> None:
    rest = [replace(UNRECORDED[0], landed=None), UNRECORDED[1]]
    assert audit(rest, _rows(EVENS)) == Audit(unproved=(Range(P0, 0, 100),))
    assert audit(rest, _rows(range(49))).holes, "not even those of the other one are there"
