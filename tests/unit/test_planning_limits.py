"""Limits are shared fairly, and what they cut off leaves no hole."""

from __future__ import annotations

import pytest

from rangeland.model import Partition, Range
from rangeland.planning.run_limits import Limits, apply_limits, share_out, truncate

P0, P1, P2 = Partition("t", 0), Partition("t", 1), Partition("t", 2)


@pytest.mark.parametrize(
    ("total", "wanted", "shares"),
    [
        (10, [10, 10], [5, 5]),
        (10, [3, 10], [3, 7]),
        (10, [100, 1, 100], [5, 1, 4]),
        (11, [5, 5, 5], [4, 4, 3]),
        (2, [5, 5, 5], [1, 1, 0]),
        (100, [3, 4], [3, 4]),
        (7, [3, 4], [3, 4]),
        (0, [3, 4], [0, 0]),
        (-1, [3], [0]),
        (5, [0, 9, 0], [0, 5, 0]),
        (5, [], []),
    ],
)
def test_shares_are_equal_and_what_one_does_not_need_goes_to_the_others(
    total: int, wanted: list[int], shares: list[int]
) -> None:
    assert share_out(total, wanted) == shares


def r(p: Partition, start: int, end: int, size: int = 0) -> Range:
    return Range(p, start, end, "A", size)


def test_without_limits_everything_is_taken() -> None:
    ranges = [r(P0, 0, 10, 7), r(P1, 5, 5), r(P2, 3, 9, 2)]
    assert apply_limits(ranges, Limits()) == ranges


def test_records_are_shared_fairly_and_ranges_end_earlier() -> None:
    ranges = [r(P0, 0, 1000, 1000), r(P1, 50, 53, 3), r(P2, 7, 1007, 1000)]
    assert apply_limits(ranges, Limits(max_records=23)) == [
        r(P0, 0, 10, 10),
        r(P1, 50, 53, 3),
        r(P2, 7, 17, 10),
    ]


def test_bytes_are_shared_fairly_over_partitions() -> None:
    ranges = [r(P0, 0, 100, 1000), r(P1, 0, 100, 100)]
    assert apply_limits(ranges, Limits(max_bytes=600)) == [r(P0, 0, 50, 500), r(P1, 0, 100, 100)]


def test_both_limits_hold_together() -> None:
    ranges = [r(P0, 0, 100, 1000), r(P1, 0, 100, 1000)]
    assert apply_limits(ranges, Limits(max_records=100, max_bytes=200)) == [
        r(P0, 0, 10, 100),
        r(P1, 0, 10, 100),
    ]


def test_a_record_larger_than_the_limit_is_still_landed() -> None:
    assert apply_limits([r(P0, 0, 4, 4000)], Limits(max_bytes=10)) == [r(P0, 0, 1, 1000)]


def test_fewer_records_than_partitions_leave_some_partitions_for_the_next_run() -> None:
    ranges = [r(P0, 0, 9), r(P1, 0, 9), r(P2, 0, 9)]
    taken = apply_limits(ranges, Limits(max_records=2))
    assert [one.width for one in taken] == [1, 1, 0]


@pytest.mark.parametrize("limits", [Limits(max_records=15), Limits(max_bytes=150)])
def test_after_a_cut_nothing_more_of_that_partition_is_taken(limits: Limits) -> None:
    ranges = [r(P0, 60, 65, 50), r(P0, 0, 10, 100), r(P0, 30, 50, 200)]
    taken = [one for one in apply_limits(ranges, limits) if one.width]
    assert taken == [r(P0, 0, 10, 100), r(P0, 30, 35, 50)]


def test_a_range_that_spends_the_share_exactly_stops_the_next_one() -> None:
    ranges = [r(P0, 0, 10, 100), r(P0, 20, 30, 100)]
    for limits in (Limits(max_records=10), Limits(max_bytes=100)):
        assert [x for x in apply_limits(ranges, limits) if x.width] == [r(P0, 0, 10, 100)]


def test_truncate_keeps_the_first_offsets_and_shrinks_the_estimate() -> None:
    assert truncate(r(P0, 5, 15, 100), 4) == r(P0, 5, 9, 40)
    assert truncate(r(P0, 5, 15, 100), 10) == r(P0, 5, 15, 100)
    assert truncate(r(P0, 5, 15, 100), 99) == r(P0, 5, 15, 100)
    assert truncate(r(P0, 5, 15, 100), 0) == r(P0, 5, 5, 0)
