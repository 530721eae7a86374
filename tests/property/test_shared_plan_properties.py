"""A shared plan: whatever members do and in whatever order, each slice is handed in once and
all of them are in the end."""

from __future__ import annotations

from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from rangeland.model import Counts, Partition, Slice
from rangeland.planning.slice_assignment import (
    PlanComplete,
    ReadSlices,
    SliceOwners,
    WaitForOthers,
    drop_done,
    member_step,
)
from rangeland.planning.slice_receipt import Receipt, TaskResult
from tests.examples import tried

MEMBERS = ("a", "b", "c")
QUICK = tried(40)


def slices_of(widths: list[int]) -> list[Slice]:
    """``widths[p]`` slices of partition ``p``, ten offsets each."""
    found: list[Slice] = []
    for number, count in enumerate(widths):
        for i in range(count):
            place = Partition("t", number)
            found.append(Slice(len(found), place, i * 10, i * 10 + 10))
    return found


def unit_of(slices: list[Slice]) -> TaskResult:
    return TaskResult(
        tuple(
            Receipt(s.index, s.partition, s.from_offset, s.until_offset, Counts(landed=s.width))
            for s in slices
        )
    )


def seats_of(
    me: str, owners: Mapping[Partition, str], members: tuple[str, ...], is_settled: bool = True
) -> SliceOwners:
    owned = frozenset(p for p, owner in owners.items() if owner == me)
    return SliceOwners(me, owned, owners, members, is_settled)


plans = st.lists(st.integers(0, 3), min_size=1, max_size=4).map(slices_of)


@st.composite
def assignments(draw: st.DrawFn, plan: list[Slice]) -> tuple[dict[Partition, str], tuple[str, ...]]:
    members = tuple(sorted(draw(st.sets(st.sampled_from(MEMBERS), min_size=1))))
    owners = {}
    for partition in {s.partition for s in plan}:
        owner = draw(st.sampled_from([*members, None]))
        if owner is not None:
            owners[partition] = owner
    return owners, members


@QUICK
@given(st.data())
def test_each_slice_that_is_left_has_one_reader_where_all_see_the_same_group(
    data: st.DataObject,
) -> None:
    plan = data.draw(plans)
    owners, members = data.draw(assignments(plan))
    done = data.draw(st.sets(st.sampled_from(range(max(1, len(plan))))))
    read: list[int] = []
    for me in members:
        step = member_step(plan, done, seats_of(me, owners, members))
        match step:
            case ReadSlices(found):
                read += [s.index for s in found]
            case WaitForOthers(found):
                assert found == tuple(s for s in plan if s.index not in done)
            case PlanComplete():
                assert {s.index for s in plan} <= done
    assert sorted(read) == [s.index for s in plan if s.index not in done]


@QUICK
@given(st.data())
def test_a_plan_that_cannot_be_split_has_one_reader(data: st.DataObject) -> None:
    plan = data.draw(plans.filter(bool))
    owners, members = data.draw(assignments(plan))
    steps = [member_step(plan, (), seats_of(me, owners, members), whole=True) for me in members]
    readers = [step for step in steps if isinstance(step, ReadSlices)]
    assert readers == [ReadSlices(tuple(plan))]


@QUICK
@given(plans, st.booleans())
def test_a_driver_that_waits_for_nobody_reads_all(plan: list[Slice], whole: bool) -> None:
    alone = SliceOwners.alone("b", [s.partition for s in plan])
    step = member_step(plan, (), alone, whole=whole)
    assert step == (ReadSlices(tuple(plan)) if plan else PlanComplete())


@QUICK
@given(st.data())
def test_nobody_reads_what_may_have_an_owner_in_a_moment(data: st.DataObject) -> None:
    plan = data.draw(plans)
    owners, members = data.draw(assignments(plan))
    me = data.draw(st.sampled_from(members))
    step = member_step(plan, (), seats_of(me, owners, members, is_settled=False))
    if isinstance(step, ReadSlices):
        assert {owners.get(s.partition) for s in step.slices} == {me}


@QUICK
@given(st.data())
def test_whatever_drivers_hand_in_each_slice_is_handed_in_once_and_all_are(
    data: st.DataObject,
) -> None:
    """Members die, come back and see old groups; each reads in tasks of several slices."""
    plan = data.draw(plans)
    handed_in: list[int] = []
    for _ in range(data.draw(st.integers(0, 6))):
        owners, members = data.draw(assignments(plan))
        me = data.draw(st.sampled_from(MEMBERS))
        seen = data.draw(st.sets(st.sampled_from(handed_in))) if handed_in else set()
        step = member_step(plan, seen, seats_of(me, owners, members))  # on an old look
        if not isinstance(step, ReadSlices):
            continue
        task_size = data.draw(st.integers(1, 3))
        slices = list(step.slices)
        units = [unit_of(slices[i : i + task_size]) for i in range(0, len(slices), task_size)]
        finished = data.draw(st.lists(st.sampled_from(units), unique=True))
        kept = drop_done(finished, handed_in)
        assert all(unit in finished for unit in kept)
        handed_in += [r.slice_index for unit in kept for r in unit.receipts]
    alone = member_step(plan, handed_in, SliceOwners("z", frozenset(s.partition for s in plan), {}))
    if isinstance(alone, ReadSlices):
        handed_in += [s.index for s in alone.slices]
    assert sorted(handed_in) == [s.index for s in plan]
    assert member_step(plan, handed_in, SliceOwners("z", frozenset(), {})) == PlanComplete()


def test_a_unit_is_dropped_whole_where_one_of_its_slices_is_handed_in() -> None:
    plan = slices_of([3])
    units = [unit_of(plan[:2]), unit_of(plan[2:])]
    assert drop_done(units, {1}) == [units[1]]
    assert drop_done([*units, units[1]], ()) == units
