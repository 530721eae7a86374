"""What holds for all ranges, limits and logs, compared with sets of plain integers."""

from __future__ import annotations

import itertools
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from rangeland.model import (
    Address,
    Bounds,
    Earliest,
    FromCheckpoint,
    Isolation,
    Latest,
    Leader,
    LogState,
    Partition,
    Range,
    Slice,
    Survey,
)
from rangeland.planning.bound_resolution import RangeRequest
from rangeland.planning.coverage import GrowingCoverage, coverage_of, uncovered_parts
from rangeland.planning.incarnation import LogMark
from rangeland.planning.intervals import Interval, insert, merge, near, overlap, subtract, width
from rangeland.planning.job_position import JobPosition
from rangeland.planning.plan_builder import PlanTerms, draft_new
from rangeland.planning.plan_kind import PlanKind
from rangeland.planning.policy import Policy
from rangeland.planning.run_limits import Limits, share_out
from rangeland.planning.slices import Slicing, cut_slices
from rangeland.planning.task_packing import pack_tasks
from tests.examples import tried

QUICK = tried(40)
LEADERS = (None, Address("b1", 1), Address("b2", 1), Address("b3", 1))

wanted = st.lists(st.integers(0, 60), max_size=8)
intervals = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), max_size=8)
one_interval = st.tuples(st.integers(0, 40), st.integers(0, 40)).map(lambda i: (min(i), max(i)))
ranges = st.lists(
    st.builds(
        lambda number, start, size, bytes_: Range(
            Partition("t", number), start, start + size, "A", bytes_
        ),
        st.integers(0, 3),
        st.integers(0, 1 << 40),
        st.integers(0, 1 << 20) | st.integers(0, 5),
        st.integers(0, 1 << 40) | st.just(0),
    ),
    max_size=5,
)


def offsets(found: list[Interval]) -> set[int]:
    return {o for start, end in found for o in range(start, end)}


# --- shares -----------------------------------------------------------------------------


@QUICK
@given(st.integers(-5, 300), wanted, st.integers(0, 50))
def test_shares_sum_to_the_limit_and_none_is_above_what_is_wanted(
    total: int, wants: list[int], turn: int
) -> None:
    shares = share_out(total, wants, turn)
    assert sum(shares) == min(max(0, total), sum(wants))
    assert all(0 <= share <= want for share, want in zip(shares, wants, strict=True))


@QUICK
@given(st.integers(0, 300), wanted, st.integers(0, 50))
def test_who_does_not_get_all_gets_no_less_than_any_other(
    total: int, wants: list[int], turn: int
) -> None:
    shares = share_out(total, wants, turn)
    for share, want in zip(shares, wants, strict=True):
        if share < want:
            assert share >= max(shares) - 1


@QUICK
@given(st.integers(0, 300), wanted)
def test_a_higher_limit_never_gives_anyone_less(total: int, wants: list[int]) -> None:
    less, more = share_out(total, wants), share_out(total + 1, wants)
    assert all(a <= b for a, b in zip(less, more, strict=True))


@QUICK
@given(st.integers(1, 20), st.lists(st.integers(1, 10_000), min_size=1, max_size=20))
def test_runs_in_a_row_leave_no_partition_out_however_low_the_limit(
    limit: int, wants: list[int]
) -> None:
    """One new record in each partition between two runs, beside a backlog of any size."""
    landed = [0] * len(wants)
    for turn in range(len(wants)):
        shares = share_out(
            limit, [w + turn - done for w, done in zip(wants, landed, strict=True)], turn
        )
        landed = [done + share for done, share in zip(landed, shares, strict=True)]
    assert all(landed)


# --- slices and tasks -------------------------------------------------------------------


@QUICK
@given(ranges, st.integers(1 << 26, 1 << 40), st.integers(0, 20))
def test_slices_tile_ranges_exactly_whatever_the_slicing(
    asked: list[Range], target_bytes: int, min_slices: int
) -> None:
    slices = cut_slices(asked, Slicing(target_bytes, min_slices), {})
    assert [s.index for s in slices] == list(range(len(slices)))
    left = iter(slices)
    for r in asked:
        position = r.from_offset
        size = 0
        while position < r.until_offset:
            slice_ = next(left)
            assert (slice_.partition, slice_.topic_id) == (r.partition, r.topic_id)
            assert slice_.from_offset == position < slice_.until_offset
            position, size = slice_.until_offset, size + slice_.estimated_bytes
        assert position == r.until_offset
        assert size <= r.estimated_bytes
    assert next(left, None) is None


pieces = st.lists(
    st.tuples(st.integers(0, 1000), st.sampled_from(LEADERS)), max_size=20
).map(
    lambda found: [
        Slice(i, Partition("t", i), 0, 10, size, "A", leader)
        for i, (size, leader) in enumerate(found)
    ]
)  # fmt: skip


@QUICK
@given(pieces, st.integers(1, 2000), st.integers(1, 30))
def test_packing_keeps_every_slice_once_and_never_mixes_leaders(
    slices: list[Slice], target_bytes: int, min_tasks: int
) -> None:
    tasks = pack_tasks(slices, target_bytes, min_tasks)
    assert Counter(s.index for task in tasks for s in task) == Counter(s.index for s in slices)
    assert all(len({s.leader for s in task}) == 1 for task in tasks)
    assert len(tasks) >= min(min_tasks, len(slices))
    sizes = [sum(s.estimated_bytes for s in task) for task in tasks]
    assert sizes == sorted(sizes, reverse=True)


# --- intervals --------------------------------------------------------------------------


@QUICK
@given(intervals)
def test_merge_keeps_the_offsets_and_nothing_touches(found: list[Interval]) -> None:
    merged = merge(found)
    assert offsets(merged) == offsets(found)
    assert width(merged) == len(offsets(found))
    assert all(a[1] < b[0] for a, b in itertools.pairwise(merged))


@QUICK
@given(one_interval, intervals)
def test_subtract_and_overlap_split_an_interval_in_two(
    whole: Interval, others: list[Interval]
) -> None:
    left, shared = subtract(whole, others), overlap(whole, others)
    assert offsets(left) == offsets([whole]) - offsets(others)
    assert offsets(shared) == offsets([whole]) & offsets(others)
    assert width(left) + width(shared) == whole[1] - whole[0]
    assert all(start < end for start, end in left + shared)


# --- drafts -----------------------------------------------------------------------------

limits = st.builds(Limits, st.none() | st.integers(1, 30), st.none() | st.integers(1, 4000))
logs = st.lists(
    st.tuples(st.integers(0, 9), st.integers(0, 40), st.none() | st.integers(0, 5000)),
    min_size=1,
    max_size=4,
)


@QUICK
@given(intervals, one_interval)
def test_intervals_that_are_added_one_by_one_are_merged(
    added: list[Interval], interval: Interval
) -> None:
    merged: list[Interval] = []
    for at, new in enumerate(added):
        insert(merged, new)
        assert merged == merge(added[: at + 1])
    assert subtract(interval, near(merged, interval)) == subtract(interval, added)


@QUICK
@given(st.lists(st.tuples(one_interval, st.integers(0, 1), st.sampled_from(["A", "B", None]))))
def test_a_coverage_that_grows_is_the_coverage_of_all_its_ranges(
    added: list[tuple[Interval, int, str | None]],
) -> None:
    found = [Range(Partition("t", number), *where, topic) for where, number, topic in added]
    growing = GrowingCoverage()
    for r in found:
        growing.add(r)
    for topic in ("A", "B", None):
        wanted_range = Range(Partition("t", 0), 0, 50, topic)
        expected = uncovered_parts([wanted_range], coverage_of(found))
        assert growing.uncovered_parts(wanted_range) == expected


@QUICK
@given(logs, limits, st.lists(st.tuples(st.integers(0, 3), one_interval), max_size=4))
def test_drafts_until_nothing_is_left_land_every_offset_exactly_once(
    found: list[tuple[int, int, int | None]],
    limit: Limits,
    backfilled: list[tuple[int, Interval]],
) -> None:
    states = {
        Partition("t", n): LogState(
            Partition("t", n), Leader(LEADERS[1], topic_id="A"), start, start + size, stored
        )
        for n, (start, size, stored) in enumerate(found)
    }
    terms = PlanTerms(
        "j",
        "rangeland/j",
        "kafka",
        Isolation.READ_COMMITTED,
        RangeRequest(Bounds(FromCheckpoint()), Bounds(Latest()), Earliest(), Policy()),
        limit,
        Slicing(700),
        PlanKind.RUN,
    )
    before = [Range(Partition("t", n), *interval, "A") for n, interval in backfilled]
    landed: Counter[tuple[Partition, int]] = Counter()
    done, checkpoint = list(before), dict[Partition, LogMark]()
    there = {(r.partition, o) for r in before for o in range(r.from_offset, r.until_offset)}
    for sequence in range(1, 400):
        drafted = draft_new(
            terms, Survey(0, states), JobPosition(checkpoint, coverage_of(done), sequence)
        )
        if drafted.is_empty:
            break
        plan = drafted.plan
        assert plan.losses == ()
        for slice_ in plan.slices:
            for o in range(slice_.from_offset, slice_.until_offset):
                landed[slice_.partition, o] += 1
        assert sum(s.width for s in plan.slices) == plan.width > 0
        if limit.max_records is not None:
            assert plan.width <= limit.max_records
        done += plan.ranges
        checkpoint = dict(plan.checkpoint)
        for partition, mark in checkpoint.items():
            below = range(states[partition].start_offset, mark.until_offset)
            assert all((partition, o) in there or landed[partition, o] for o in below)
    else:
        raise AssertionError("the drafts never end")
    asked = {(p, o) for p, s in states.items() for o in range(s.start_offset, s.end_offset)}
    assert landed == Counter(asked - there)
    for partition in states:
        missing = [o for p, o in asked - there if p == partition]
        if missing:
            # What a backfill has landed behind the last hole needs no mark of its own.
            assert checkpoint[partition].until_offset == max(missing) + 1
