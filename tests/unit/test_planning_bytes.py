"""Logs whose offsets are the positions of entries, and brokers that nobody can stand in for."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rangeland.errors import JobFileError, ProofFailed, RangeLost, Unreachable
from rangeland.loss import Action, LossKind
from rangeland.model import (
    AbsentPartitions,
    Address,
    AtOffset,
    AtTime,
    Bound,
    Bounds,
    Counts,
    Earliest,
    FromCheckpoint,
    GroupOffset,
    Isolation,
    Latest,
    Leader,
    LogState,
    OffsetLookups,
    Partition,
    Range,
    Slice,
    Survey,
)
from rangeland.planning.bound_resolution import RangeRequest, resolve
from rangeland.planning.coverage import coverage_of
from rangeland.planning.incarnation import LogMark
from rangeland.planning.job_position import JobPosition
from rangeland.planning.plan import Plan
from rangeland.planning.policy import Policy
from rangeland.planning.proof import prove
from rangeland.planning.run_limits import Limits, apply_limits
from rangeland.planning.slice_receipt import Receipt
from rangeland.planning.table_audit import CountedRange, LandedRange, audit
from tests.fakes.planning import unless_failing

ONE, TWO = Partition("orders", 0, "1"), Partition("orders", 0, "2")
B1 = Address("b1", 9092)


def log(partition: Partition = ONE, start: int = 0, end: int = 1000) -> LogState:
    borders = (start, start + 300, start + 700, end)
    return LogState(partition, Leader(B1), start, end, end - start, borders)


def request(lower: Bound | Bounds, upper: Bound | Bounds, **actions: Action) -> RangeRequest:
    sides = [b if isinstance(b, Bounds) else Bounds(b) for b in (lower, upper)]
    return RangeRequest(sides[0], sides[1], Earliest(), Policy(**actions), topics=("orders",))


RUN = request(FromCheckpoint(), Latest())
HOLD = request(FromCheckpoint(), Latest(), unreachable=Action.HOLD)
BOTH = {ONE: LogMark(300), TWO: LogMark(500)}


def absent_but(answered: set[str], unanswered: dict[str, str] | None = None) -> AbsentPartitions:
    return AbsentPartitions(
        answered_brokers=frozenset(answered), unanswered_brokers=unanswered or {}
    )


def in_entry(offset: int, start: int, end: int) -> OffsetLookups:
    return OffsetLookups(entries={(ONE, offset): (start, end)})


def only_one_answers() -> Survey:
    return Survey(1, {ONE: log()}, absent=absent_but({"1"}, {"2": "connection refused"}))


# --- a broker that is down ---------------------------------------------------------------


@pytest.mark.parametrize("unanswered", [{}, {"2": "connection refused"}])
def test_what_backfills_alone_have_landed_of_a_broker_is_missed_if_it_is_down(
    unanswered: dict[str, str],
) -> None:
    """Even if the cluster no longer names it: otherwise its part of the range would be left out
    without a word."""
    survey = Survey(1, {ONE: log()}, absent=absent_but({"1"}, unanswered))
    covered = coverage_of([Range(ONE, 0, 100), Range(TWO, 0, 100)])
    other = coverage_of([Range(ONE, 0, 100), Range(Partition("other", 0, "2"), 0, 100)])
    asked = request(AtTime(5), Latest())
    survey = replace(survey, lookups=OffsetLookups({(ONE, 5): 300}))
    with pytest.raises(Unreachable, match=r"orders") as caught:
        unless_failing(resolve(asked, survey, JobPosition({}, covered)))
    assert str(TWO) in str(caught.value)
    divided = replace(asked, partitions={"orders": ["1-0"]})
    assert unless_failing(resolve(divided, survey, JobPosition({}, covered))).ranges
    reads_both = replace(asked, partitions={"orders": ["1-0", "2-0"]})
    with pytest.raises(Unreachable, match=r"orders/2-0"):
        unless_failing(resolve(reads_both, survey, JobPosition({}, covered)))
    with pytest.raises(Unreachable, match=r"orders/2-0"):  # a replacement
        unless_failing(resolve(asked, survey, JobPosition(landed_again=covered)))
    found = unless_failing(resolve(asked, survey, JobPosition({}, other)))
    assert [r.partition for r in found.ranges] == [ONE]
    listed = request(Bounds(AtTime(5), {ONE: AtTime(5)}, only_listed=True), Latest())
    assert unless_failing(resolve(listed, survey, JobPosition({}, covered))).ranges


# --- a log that was written again --------------------------------------------------------


def test_a_mark_inside_an_entry_shows_that_the_log_was_written_again() -> None:
    survey = Survey(1, {ONE: log()}, in_entry(310, 300, 340), absent_but({"1"}))
    checkpoint = {ONE: LogMark(310)}
    with pytest.raises(RangeLost, match=r"\[310, 340\) truncated.*rewritten"):
        unless_failing(resolve(RUN, survey, JobPosition(checkpoint)))
    skips = request(FromCheckpoint(), Latest(), truncated=Action.SKIP)
    skipped = resolve(skips, survey, JobPosition(checkpoint))
    assert [(r.from_offset, r.until_offset) for r in skipped.ranges] == [(340, 1000)]
    assert [(x.kind, x.width) for x in skipped.losses] == [(LossKind.TRUNCATED, 30)]
    held = resolve(
        request(FromCheckpoint(), Latest(), truncated=Action.HOLD), survey, JobPosition(checkpoint)
    )
    assert (held.ranges, len(held.held)) == ((), 1)
    sound = Survey(1, {ONE: log()}, in_entry(310, 310, 340), absent_but({"1"}))
    assert resolve(RUN, sound, JobPosition(checkpoint)).ranges[0].from_offset == 310


# --- inside an entry --------------------------------------------------------------------


@pytest.mark.parametrize("side", ["from", "until"])
def test_an_offset_inside_an_entry_is_refused_with_the_nearest_valid_ones(side: str) -> None:
    listed = Bounds(Earliest(), {ONE: AtOffset(310)}, only_listed=True)
    asked = request(listed, Latest()) if side == "from" else request(Earliest(), listed)
    survey = Survey(1, {ONE: log()}, in_entry(310, 300, 340), absent_but({"1"}))
    with pytest.raises(JobFileError, match="no entry begins at offset 310") as caught:
        resolve(asked, survey, JobPosition())
    assert caught.value.do == "use 300 or 340"
    assert caught.value.facts["nearest"] == [300, 340]


def test_a_groups_offset_inside_an_entry_is_refused_too() -> None:
    survey = Survey(
        1,
        {ONE: log()},
        replace(in_entry(310, 300, 340), of_groups={(ONE, "g"): 310}),
        absent_but({"1"}),
    )
    with pytest.raises(JobFileError, match="group:g"):
        resolve(request(GroupOffset("g"), Latest()), survey, JobPosition())


def test_an_offset_at_which_an_entry_begins_is_fine() -> None:
    listed = Bounds(Earliest(), {ONE: AtOffset(310)}, only_listed=True)
    survey = Survey(1, {ONE: log()}, in_entry(310, 310, 340), absent_but({"1"}))
    (found,) = resolve(request(listed, Latest()), survey, JobPosition()).ranges
    assert (found.from_offset, found.until_offset) == (310, 1000)


def test_a_time_that_a_broker_knows_only_about_is_said_to_be_so() -> None:
    survey = Survey(
        1,
        {ONE: log()},
        OffsetLookups({(ONE, 5): 300}, inexact_times=frozenset({(ONE, 5)})),
        absent_but({"1"}),
    )
    found = resolve(request(AtTime(5), Latest()), survey, JobPosition())
    assert "begins at 300, which is at or before the time" in found.notes[0]
    exact = replace(survey, lookups=OffsetLookups({(ONE, 5): 300}))
    assert resolve(request(AtTime(5), Latest()), exact, JobPosition()).notes == ()


# --- unreachable ------------------------------------------------------------------------


def test_a_broker_that_is_gone_takes_its_partitions_out_of_reach_and_they_are_not_lost() -> None:
    with pytest.raises(Unreachable, match=r"orders/2-0 cannot be read now.*refused"):
        unless_failing(resolve(RUN, only_one_answers(), JobPosition(BOTH)))


def test_a_broker_that_is_not_registered_any_more_is_unreachable_too() -> None:
    survey = Survey(1, {ONE: log()}, absent=absent_but({"1"}))
    with pytest.raises(Unreachable, match="no broker of that name is registered") as caught:
        unless_failing(resolve(RUN, survey, JobPosition(BOTH)))
    assert "gone for good" in caught.value.do
    assert "set `policy: {unreachable: hold}`" in caught.value.do


@pytest.mark.parametrize("unanswered", [{}, {"2": "connection refused"}])
def test_a_listed_partition_of_a_broker_that_is_down_is_not_the_jobs_mistake(
    unanswered: dict[str, str],
) -> None:
    survey = Survey(1, {ONE: log()}, absent=absent_but({"1"}, unanswered))
    until = Bounds(Latest(), {TWO: AtOffset(40)}, only_listed=True)
    with pytest.raises(Unreachable, match="orders/2-0 cannot be read now: broker 2"):
        unless_failing(resolve(request(Earliest(), until), survey, JobPosition()))


def test_a_policy_holds_what_is_unreachable_and_lands_the_others() -> None:
    found = resolve(HOLD, only_one_answers(), JobPosition(BOTH))
    assert [r.partition for r in found.ranges] == [ONE]
    assert [(loss.partition, loss.kind) for loss in found.held] == [(TWO, LossKind.UNREACHABLE)]


def test_a_partition_without_a_leader_is_held_as_well() -> None:
    absent = replace(absent_but({"1", "2"}), unreachable={TWO: "it has no leader"})
    survey = Survey(1, {ONE: log()}, absent=absent)
    assert [loss.partition for loss in resolve(HOLD, survey, JobPosition()).held] == [TWO]
    with pytest.raises(Unreachable, match="it has no leader"):
        unless_failing(resolve(RUN, survey, JobPosition()))


def test_a_partition_that_a_living_broker_no_longer_has_has_vanished() -> None:
    survey = Survey(1, {ONE: log()}, absent=absent_but({"1", "2"}))
    skip = request(FromCheckpoint(), Latest(), vanished=Action.SKIP)
    (loss,) = resolve(skip, survey, JobPosition(BOTH)).losses
    assert (loss.partition, loss.kind) == (TWO, LossKind.VANISHED)


# --- limits -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("max_bytes", "until"), [(900, 700), (700, 700), (699, 300), (10, 300), (5000, 1000)]
)
def test_a_limit_ends_a_range_at_a_border(max_bytes: int, until: int) -> None:
    asked = Range(ONE, 0, 1000, None, 1000)
    (found,) = apply_limits([asked], Limits(max_bytes=max_bytes), {ONE: log()})
    assert (found.from_offset, found.until_offset) == (0, until)


def test_a_limit_of_records_cannot_be_kept_where_offsets_are_bytes() -> None:
    with pytest.raises(JobFileError, match="max_records") as caught:
        apply_limits([Range(ONE, 0, 1000)], Limits(max_records=5), {ONE: log()})
    assert caught.value.do == "use limits.max_bytes"


# --- the proof --------------------------------------------------------------------------


def plan_of(width: int) -> Plan:
    return Plan(
        job="j",
        application="rangeland/j",
        sequence=1,
        dialect="any",
        isolation=Isolation.READ_COMMITTED,
        ranges=(Range(ONE, 0, width),),
        slices=(Slice(0, ONE, 0, width),),
    )


def test_entries_that_take_up_the_whole_slice_are_its_proof() -> None:
    receipt = Receipt(0, ONE, 0, 1000, Counts(landed=3), entry_span=1000)
    (outcome,) = prove(plan_of(1000), {0: receipt})
    assert outcome.counts.landed == 3
    assert outcome.offsets_are_bytes


@pytest.mark.parametrize("entry_span", [999, 1001, None])
def test_entries_that_do_not_are_none(entry_span: int | None) -> None:
    receipt = Receipt(0, ONE, 0, 1000, Counts(landed=3), entry_span=entry_span)
    with pytest.raises(ProofFailed, match="does not add up"):
        prove(plan_of(1000), {0: receipt})


# --- after the fact ---------------------------------------------------------------------

PIECES = [
    LandedRange(Range(ONE, 0, 300), 10, offsets_are_bytes=True),
    LandedRange(Range(ONE, 300, 1000), 20, offsets_are_bytes=True),
]


def test_a_piece_with_fewer_rows_than_were_landed_is_torn() -> None:
    found = audit(PIECES, {}, {ONE: CountedRange((10, 19))})
    assert found.holes == found.suspect == (Range(ONE, 300, 1000),)
    assert audit(PIECES, {}, {ONE: CountedRange((10, 20))}).is_clean


def test_rows_that_are_there_again_are_duplicates_and_others_strangers() -> None:
    found = audit(PIECES, {}, {ONE: CountedRange((10, 20), twice=(60,), unknown=(1200,))})
    assert found.duplicates == (Range(ONE, 60, 61),)
    assert found.unknown_rows == (Range(ONE, 1200, 1201),)
