"""Cutting and packing: literal ranges in, literal slices out.

Sizes are bytes, so that a partition of few large records is cut as finely as one of many
small ones. A unit below is larger than the smallest slice, so that only the numbers count.
"""

from __future__ import annotations

import pytest

from rangeland.model import Address, Leader, LogState, Partition, Range, Slice
from rangeland.planning.slices import SMALLEST_SLICE_BYTES, Slicing, cut_slices
from rangeland.planning.task_packing import pack_tasks

UNIT = 10 * SMALLEST_SLICE_BYTES
T0, T1 = Partition("t", 0), Partition("t", 1)
B1, B2 = Address("b1", 1), Address("b2", 1)


def r(number: int, start: int, end: int, units: float | None = None) -> Range:
    """A range of as many units of bytes as it has offsets, unless told otherwise."""
    size = end - start if units is None else units
    return Range(Partition("t", number), start, end, "A", int(size * UNIT))


def cuts(ranges: list[Range], slicing: Slicing) -> list[tuple[int, int, int]]:
    slices = cut_slices(ranges, slicing, {})
    return [(s.partition.number, s.from_offset, s.until_offset) for s in slices]


HUGE = 1 << 60


@pytest.mark.parametrize(
    ("ranges", "min_slices", "expected"),
    [
        # Empty ranges are dropped.
        ([r(1, 1, 2), r(2, 1, 1)], 0, [(1, 1, 2)]),
        # Enough already: nothing is cut.
        (
            [r(1, 1, 2), r(2, 1, 2), r(3, 1, 2)],
            3,
            [(1, 1, 2), (2, 1, 2), (3, 1, 2)],
        ),
        ([r(1, 1, 5), r(2, 1, 21)], 1, [(1, 1, 5), (2, 1, 21)]),
        # One partition becomes many.
        ([r(1, 1, 5)], 4, [(1, 1, 2), (1, 2, 3), (1, 3, 4), (1, 4, 5)]),
        ([r(1, 1, 11)], 3, [(1, 1, 4), (1, 4, 7), (1, 7, 11)]),
        # A small one stays whole, the large one takes the cuts.
        ([r(1, 1, 5), r(2, 1, 21)], 4, [(1, 1, 5), (2, 1, 7), (2, 7, 14), (2, 14, 21)]),
        ([r(1, 1, 1), r(2, 1, 21)], 4, [(2, 1, 6), (2, 6, 11), (2, 11, 16), (2, 16, 21)]),
        (
            [r(1, 1, 2), r(2, 1, 1001)],
            4,
            [(1, 1, 2), *[(2, 1 + 250 * i, 251 + 250 * i) for i in range(4)]],
        ),
        # No offset is dropped where shares do not divide.
        (
            [r(1, 0, 10), r(2, 0, 10), r(3, 0, 1)],
            6,
            [(1, 0, 3), (1, 3, 6), (1, 6, 10), (2, 0, 3), (2, 3, 6), (2, 6, 10), (3, 0, 1)],
        ),
        # In proportion to size.
        (
            [r(1, 0, 100), r(2, 0, 150), r(3, 0, 200)],
            9,
            [(1, 50 * i, 50 * i + 50) for i in range(2)]
            + [(2, 50 * i, 50 * i + 50) for i in range(3)]
            + [(3, 50 * i, 50 * i + 50) for i in range(4)],
        ),
        # Bytes decide and not offsets.
        ([r(1, 0, 100, 1), r(2, 0, 4, 4)], 5, [(1, 0, 100), *[(2, i, i + 1) for i in range(4)]]),
        # Never more slices than offsets.
        ([r(1, 0, 2, 50)], 9, [(1, 0, 1), (1, 1, 2)]),
        # Rounding down may not leave fewer than were asked for.
        (
            [r(1, 0, 10), r(2, 0, 10), r(3, 0, 10)],
            4,
            [(n, *half) for n in (1, 2, 3) for half in ((0, 5), (5, 10))],
        ),
    ],
)
def test_min_slices_cuts_in_proportion_to_bytes(
    ranges: list[Range], min_slices: int, expected: list[tuple[int, int, int]]
) -> None:
    assert cuts(ranges, Slicing(HUGE, min_slices)) == expected


@pytest.mark.parametrize(
    ("units", "slices"), [(0, 1), (0.4, 1), (1, 1), (1.4, 1), (1.6, 2), (4, 4), (4.4, 4)]
)
def test_a_slice_is_within_half_a_target_of_its_target(units: float, slices: int) -> None:
    assert len(cuts([r(1, 0, 1000, units)], Slicing(UNIT))) == slices


def test_min_slices_cuts_no_finer_than_is_worth_a_start() -> None:
    small = Range(Partition("t", 0), 0, 1000, "A", 2 * SMALLEST_SLICE_BYTES)
    assert len(cuts([small], Slicing(HUGE, 100))) == 2
    # A job's own smaller target is obeyed.
    assert len(cuts([small], Slicing(SMALLEST_SLICE_BYTES // 2, 100))) == 4


def test_slices_carry_the_leader_the_topic_id_and_their_share_of_bytes() -> None:
    logs = {p: LogState(p, Leader(at), 0, 9) for p, at in ((T0, B1), (T1, None))}
    slices = cut_slices([r(0, 0, 2), r(1, 5, 6)], Slicing(UNIT), logs)
    assert slices == [
        Slice(0, Partition("t", 0), 0, 1, UNIT, "A", B1),
        Slice(1, Partition("t", 0), 1, 2, UNIT, "A", B1),
        Slice(2, Partition("t", 1), 5, 6, UNIT, "A", None),
    ]


def test_a_log_is_only_cut_at_its_borders() -> None:
    log = LogState(T0, Leader(B1), 0, 1000, 1000, borders=(0, 90, 480, 1000))
    asked = Range(T0, 90, 1000, None, 910)
    slices = cut_slices([asked], Slicing(300), {T0: log})
    assert [(s.from_offset, s.until_offset) for s in slices] == [(90, 480), (480, 1000)]
    bare = LogState(T0, Leader(B1), 0, 1000, 1000, borders=(0, 1000))
    assert [
        (s.from_offset, s.until_offset) for s in cut_slices([asked], Slicing(300), {T0: bare})
    ] == [(90, 1000)]


# --- packing ----------------------------------------------------------------------------


def s(index: int, size: int, leader: Address | None = B1) -> Slice:
    return Slice(index, Partition("t", index), 0, 10, size, "A", leader)


def packed(slices: list[Slice], target: int, min_tasks: int = 1) -> list[list[int]]:
    return [[slice_.index for slice_ in task] for task in pack_tasks(slices, target, min_tasks)]


def test_small_slices_of_one_leader_share_a_task() -> None:
    assert packed([s(i, 1) for i in range(5)], 100) == [[0, 1, 2, 3, 4]]


def test_slices_of_different_leaders_never_share_a_task() -> None:
    slices = [s(0, 1, B1), s(1, 1, B2), s(2, 1, None), s(3, 1, B1)]
    assert sorted(packed(slices, 100)) == [[0, 3], [1], [2]]


def test_tasks_are_filled_to_about_the_target_largest_first() -> None:
    slices = [s(0, 60), s(1, 50), s(2, 40), s(3, 30), s(4, 20)]
    assert packed(slices, 100) == [[0, 3, 4], [1, 2]]


def test_the_shortest_task_comes_last() -> None:
    assert packed([s(0, 1, B1), s(1, 9, B2), s(2, 5, None)], 100) == [[1], [2], [0]]


@pytest.mark.parametrize(("min_tasks", "expected"), [(1, 1), (2, 2), (4, 4), (5, 5), (99, 5)])
def test_there_are_min_tasks_while_there_are_slices_for_them(min_tasks: int, expected: int) -> None:
    assert len(packed([s(i, 1) for i in range(5)], 100, min_tasks)) == expected
    assert len(packed([s(i, 0) for i in range(5)], 100, min_tasks)) == expected


def test_a_leader_with_one_big_slice_does_not_eat_the_others_tasks() -> None:
    slices = [s(0, 900, B1), *[s(i, 10, B2) for i in range(1, 11)]]
    assert len(packed(slices, 1000, 4)) == 4


def test_nothing_packs_into_no_task() -> None:
    assert pack_tasks([], 100, 4) == []


@pytest.mark.parametrize("size_bytes", [0, 1, 7, 100, 1001])
def test_the_bytes_of_slices_add_up_to_those_of_their_range(size_bytes: int) -> None:
    whole = Range(Partition("t", 1), 3, 40, None, size_bytes)
    slices = cut_slices([whole], Slicing(HUGE, 7), {})
    assert sum(s.estimated_bytes for s in slices) == size_bytes
