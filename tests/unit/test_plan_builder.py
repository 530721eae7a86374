"""From a survey to a plan: nothing twice, nothing skipped, whatever the limits."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rangeland.errors import RangeLost, Unreachable
from rangeland.loss import Action, Loss, LossKind
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
    Survey,
)
from rangeland.planning.bound_resolution import RangeRequest
from rangeland.planning.coverage import Coverage, coverage_of
from rangeland.planning.exact_ranges import draft_exact_ranges, draft_ranges_in_log
from rangeland.planning.incarnation import LogMark
from rangeland.planning.job_position import JobPosition
from rangeland.planning.plan_builder import PlanTerms, draft_new
from rangeland.planning.plan_draft import PlanDraft
from rangeland.planning.plan_kind import PlanKind
from rangeland.planning.policy import Policy
from rangeland.planning.proof import prove
from rangeland.planning.run_limits import Limits
from rangeland.planning.slice_receipt import Receipt
from rangeland.planning.slices import Slicing
from tests.fakes.planning import unless_failing

P0, P1 = Partition("t", 0), Partition("t", 1)
B1 = Address("b1", 9092)


def log(p: Partition, start: int, end: int, size: int | None = None) -> LogState:
    return LogState(p, Leader(B1, topic_id="A"), start, end, size)


def survey(*logs: LogState) -> Survey:
    return Survey(777, {one.partition: one for one in logs})


def terms(
    lower: Bound | None = None,
    upper: Bound | None = None,
    limits: Limits | None = None,
    **actions: Action,
) -> PlanTerms:
    return PlanTerms(
        job="orders",
        application="rangeland/orders",
        dialect="kafka",
        isolation=Isolation.READ_COMMITTED,
        request=RangeRequest(
            Bounds(lower or FromCheckpoint()),
            Bounds(upper or Latest()),
            Earliest(),
            Policy(**actions),
        ),
        limits=limits or Limits(),
        slicing=Slicing(1000),
        kind=PlanKind.BACKFILL,
    )


def position(
    checkpoint: dict[Partition, LogMark] | None = None, *landed: Range, sequence: int = 3
) -> JobPosition:
    return JobPosition(checkpoint or {}, coverage_of(landed), sequence)


def intervals(drafted: PlanDraft) -> list[tuple[int, int, int]]:
    return [(r.partition.number, r.from_offset, r.until_offset) for r in drafted.plan.ranges]


def test_a_draft_is_a_whole_plan_of_its_terms() -> None:
    drafted = draft_new(terms(), survey(log(P0, 10, 20, 5000)), position({P0: LogMark(12, "A")}))
    plan = drafted.plan
    assert (plan.job, plan.application, plan.sequence) == ("orders", "rangeland/orders", 3)
    assert (plan.dialect, plan.isolation) == ("kafka", Isolation.READ_COMMITTED)
    assert plan.made_at_ms == 777
    assert plan.ranges == (Range(P0, 12, 20, "A", 4000),)
    assert [(s.from_offset, s.until_offset, s.leader) for s in plan.slices] == [
        (12, 14, B1),
        (14, 16, B1),
        (16, 18, B1),
        (18, 20, B1),
    ]
    assert plan.checkpoint == {P0: LogMark(20, "A")}
    assert drafted.already_landed == ()
    assert not drafted.is_empty


def test_the_same_inputs_give_the_same_plan() -> None:
    first, second = (draft_new(terms(), survey(log(P0, 0, 9)), position()) for _ in range(2))
    assert first.plan.hash == second.plan.hash


def test_an_empty_range_is_not_part_of_a_plan_and_keeps_the_checkpoint() -> None:
    checkpoint = {P0: LogMark(20, "A")}
    drafted = draft_new(terms(), survey(log(P0, 10, 20), log(P1, 0, 0)), position(checkpoint))
    assert drafted.is_empty
    assert drafted.requested == ()
    assert drafted.plan.checkpoint == checkpoint


def test_without_a_size_on_disk_a_record_is_taken_for_a_kibibyte() -> None:
    drafted = draft_new(terms(), survey(log(P0, 0, 3)), position())
    assert drafted.plan.ranges[0].estimated_bytes == 3 * 1024


def test_what_a_backfill_has_landed_is_left_out_and_reported() -> None:
    drafted = draft_new(terms(), survey(log(P0, 0, 40)), position({}, Range(P0, 10, 20, "A")))
    assert intervals(drafted) == [(0, 0, 10), (0, 20, 40)]
    assert drafted.already_landed == (Range(P0, 10, 20, "A"),)
    assert drafted.plan.checkpoint == {P0: LogMark(40, "A")}


def test_what_is_landed_whole_is_an_empty_draft_and_reported() -> None:
    asked = terms(AtOffset(5), AtOffset(25))
    drafted = draft_new(asked, survey(log(P0, 0, 40)), position({}, Range(P0, 0, 30, "A")))
    assert drafted.is_empty
    assert drafted.already_landed == (Range(P0, 5, 25, "A"),)


def test_the_same_backfill_after_retention_is_already_landed_and_not_lost() -> None:
    asked = terms(AtOffset(5), AtOffset(25))
    drafted = draft_new(asked, survey(log(P0, 30, 40)), position({}, Range(P0, 5, 25, "A")))
    assert drafted.is_empty
    assert drafted.already_landed == (Range(P0, 5, 25, "A"),)
    with pytest.raises(RangeLost, match=r"t/0 \[20, 25\) expired"):
        unless_failing(
            draft_new(asked, survey(log(P0, 30, 40)), position({}, Range(P0, 5, 20, "A")))
        )


@pytest.mark.parametrize("limit", [1, 3, 9, 10, 11, 15, 20, 99])
def test_limits_together_with_coverage_never_make_the_checkpoint_jump_over_a_hole(
    limit: int,
) -> None:
    landed = (Range(P0, 10, 20, "A"), Range(P0, 25, 27, "A"))
    for limits in (Limits(max_records=limit), Limits(max_bytes=limit * 1024)):
        drafted = draft_new(
            terms(limits=limits), survey(log(P0, 0, 40)), position({P0: LogMark(0, "A")}, *landed)
        )
        until = drafted.plan.checkpoint[P0].until_offset
        there = {o for r in (*landed, *drafted.plan.ranges) for o in _offsets(r)}
        assert set(range(until)) <= there
        assert drafted.plan.width == min(limit, 28)


def _offsets(r: Range) -> range:
    return range(r.from_offset, r.until_offset)


def test_a_partition_without_a_share_keeps_its_checkpoint() -> None:
    checkpoint = {P0: LogMark(2, "A"), P1: LogMark(3, "A")}
    logs = survey(log(P0, 0, 40), log(P1, 0, 40))
    drafted = draft_new(terms(limits=Limits(max_records=1)), logs, position(checkpoint))
    assert drafted.plan.checkpoint == {P0: LogMark(3, "A"), P1: LogMark(3, "A")}


def test_expired_offsets_are_recorded_and_not_read_and_the_plan_can_be_proved() -> None:
    drafted = draft_new(
        terms(expired=Action.SKIP), survey(log(P0, 10, 20)), position({P0: LogMark(4, "A")})
    )
    plan = drafted.plan
    assert intervals(drafted) == [(0, 4, 20)]
    assert [(x.from_offset, x.until_offset, x.kind) for x in plan.losses] == [
        (4, 10, LossKind.EXPIRED)
    ]
    assert {o for s in plan.slices for o in range(s.from_offset, s.until_offset)} == set(
        range(10, 20)
    )
    receipts = {
        s.index: Receipt(s.index, P0, s.from_offset, s.until_offset, Counts(landed=s.width))
        for s in plan.slices
    }
    assert prove(plan, receipts)[0].counts == Counts(landed=10, lost=6)


@pytest.mark.parametrize(("limit", "lost"), [(3, 3), (6, 6), (9, 6)])
def test_a_limit_that_ends_inside_a_loss_records_that_part_of_it(limit: int, lost: int) -> None:
    drafted = draft_new(
        terms(limits=Limits(max_records=limit), expired=Action.SKIP),
        survey(log(P0, 10, 20)),
        position({P0: LogMark(4, "A")}),
    )
    assert sum(loss.width for loss in drafted.plan.losses) == lost
    assert sum(s.width for s in drafted.plan.slices) == limit - lost
    assert drafted.plan.checkpoint[P0].until_offset == 4 + limit


def test_what_a_truncated_log_may_yet_bring_is_not_recorded_as_lost() -> None:
    drafted = draft_new(
        terms(truncated=Action.SKIP), survey(log(P0, 0, 20)), position({P0: LogMark(30, "A")})
    )
    assert drafted.is_empty
    assert drafted.plan.losses == ()
    assert drafted.plan.checkpoint == {P0: LogMark(30, "A")}


def test_a_recreated_topic_is_read_from_its_beginning_under_skip() -> None:
    drafted = draft_new(
        terms(recreated=Action.SKIP),
        survey(log(P0, 0, 8)),
        JobPosition({P0: LogMark(30, "OLD")}, coverage_of([Range(P0, 0, 30, "OLD")]), 4),
    )
    assert intervals(drafted) == [(0, 0, 8)]
    assert drafted.plan.checkpoint == {P0: LogMark(8, "A")}


def test_a_held_partition_waits_and_keeps_its_checkpoint() -> None:
    checkpoint = {P0: LogMark(4, "A"), P1: LogMark(12, "A")}
    drafted = draft_new(
        terms(expired=Action.HOLD),
        survey(log(P0, 10, 20), log(P1, 10, 20)),
        JobPosition(checkpoint, Coverage(), 1),
    )
    assert intervals(drafted) == [(1, 12, 20)]
    assert drafted.plan.checkpoint == {P0: LogMark(4, "A"), P1: LogMark(20, "A")}
    loss = Loss(P0, 4, 10, LossKind.EXPIRED, "the log begins at 10 on b1:9092")
    assert drafted.held == (loss.with_action(Action.HOLD),)


@pytest.mark.parametrize(
    ("first_run", "interval"),
    [(Latest(), []), (AtTime(5), [(1, 15, 20)]), (Earliest(), [(1, 10, 20)])],
)
def test_what_the_first_run_held_back_begins_where_that_run_would_have_begun(
    first_run: Bound, interval: list[tuple[int, int, int]]
) -> None:
    asked = replace(terms(), request=replace(terms().request, first_run=first_run))
    seen = Survey(
        777, {p: log(p, 10, 20) for p in (P0, P1)}, OffsetLookups({(P0, 5): 15, (P1, 5): 15})
    )
    here = position({P0: LogMark(20, "A")})
    held = replace(here, held_at_first=frozenset({P1}))
    assert intervals(draft_new(asked, seen, held)) == interval
    assert intervals(draft_new(asked, seen, here)) == [(1, 10, 20)], "it has appeared since"


@pytest.mark.parametrize("first_run", [Latest(), AtTime(5)])
def test_where_a_first_run_begins_is_settled_once_though_nothing_is_there_to_land(
    first_run: Bound,
) -> None:
    """The end of a log, or the first record of a time, is another in the next run."""
    asked = replace(terms(), request=replace(terms().request, first_run=first_run))
    ends = OffsetLookups({(P0, 5): None, (P1, 5): None})
    first = draft_new(asked, Survey(777, {p: log(p, 10, 20) for p in (P0, P1)}, ends), position())
    assert (first.is_empty, first.moves_without_landing) == (True, True)
    assert {p: m.until_offset for p, m in first.plan.checkpoint.items()} == {P0: 20, P1: 20}
    here = position(dict(first.plan.checkpoint))
    grown = Survey(888, {p: log(p, 10, 30) for p in (P0, P1)}, ends)
    second = draft_new(asked, grown, here)
    assert (intervals(second), second.moves_without_landing) == ([(0, 20, 30), (1, 20, 30)], False)


@pytest.mark.parametrize("others", [(), (log(P1, 0, 10),)])
def test_a_first_run_never_begins_past_the_end_of_a_log(others: tuple[LogState, ...]) -> None:
    policy = Policy(truncated=Action.SKIP)
    request = replace(terms().request, first_run=GroupOffset("g"), policy=policy)
    asked = replace(terms(), request=request)
    ahead = OffsetLookups(of_groups={(P0, "g"): 150, (P1, "g"): 0})
    first = draft_new(asked, replace(survey(log(P0, 0, 100), *others), lookups=ahead), position())
    assert [(x.from_offset, x.until_offset) for x in first.skipped_losses] == [(100, 150)]
    assert first.plan.checkpoint[P0] == LogMark(100, "A")
    here = position(dict(first.plan.checkpoint))
    grown = replace(survey(log(P0, 0, 160), *others), lookups=ahead)
    assert intervals(draft_new(asked, grown, here)) == [(0, 100, 160)]


@pytest.mark.parametrize("offset", [0, 10, 30, 50])
@pytest.mark.parametrize("first_run", [Earliest(), AtTime(5)])
def test_a_draft_without_effect_has_the_checkpoint_as_it_was(offset: int, first_run: Bound) -> None:
    """The summary of an idle run relies on it."""
    skipping = terms(expired=Action.SKIP, truncated=Action.SKIP, vanished=Action.SKIP)
    asked = replace(skipping, request=replace(skipping.request, first_run=first_run))
    marks = {P0: LogMark(offset, "A", 1), P1: LogMark(8, "A", 2)}
    seen = replace(survey(log(P0, 10, 30)), lookups=OffsetLookups({(P0, 5): None}))
    drafted = draft_new(asked, seen, position(marks))
    assert drafted.is_without_effect == (offset >= 30)
    assert (drafted.plan.checkpoint == marks) == drafted.is_without_effect


def test_a_partition_without_a_record_of_the_first_time_is_not_read_from_its_beginning() -> None:
    asked = replace(terms(), request=replace(terms().request, first_run=AtTime(5)))
    seen = Survey(
        777, {p: log(p, 10, 20) for p in (P0, P1)}, OffsetLookups({(P0, 5): 15, (P1, 5): None})
    )
    first = draft_new(asked, seen, position())
    assert (intervals(first), first.moves_without_landing) == ([(0, 15, 20)], True)
    assert draft_new(asked, seen, position(dict(first.plan.checkpoint))).is_empty


def test_what_a_policy_passes_over_without_a_record_is_said() -> None:
    here = position({P0: LogMark(50, "A")})
    (note,) = draft_new(terms(truncated=Action.SKIP), survey(log(P0, 0, 30)), here).notes
    assert "truncated" in note
    assert "policy.truncated is skip" in note
    other = position({P0: LogMark(50, "B")})
    assert len(draft_new(terms(recreated=Action.SKIP), survey(log(P0, 0, 30)), other).notes) == 1
    expired = position({P0: LogMark(0, "A")})
    found = draft_new(terms(expired=Action.SKIP), survey(log(P0, 5, 9)), expired)
    assert (found.notes, len(found.plan.losses)) == ((), 1), "that one is in the plan"


def test_a_whole_topic_that_is_gone_has_vanished_where_a_pattern_asks_for_it() -> None:
    gone = Partition("orders-old", 0)
    here = position({P0: LogMark(3, "A"), gone: LogMark(7, "B")})
    asked = replace(terms(), request=replace(terms().request, topic_pattern="t|orders-.*"))
    with pytest.raises(RangeLost) as lost:
        unless_failing(draft_new(asked, survey(log(P0, 0, 9)), here))
    assert lost.value.facts["losses"][0]["topic"] == "orders-old"
    assert lost.value.facts["losses"][0]["verdict"] == "vanished"
    other = replace(terms(), request=replace(terms().request, topic_pattern="t"))
    assert intervals(draft_new(other, survey(log(P0, 0, 9)), here)) == [(0, 3, 9)], (
        "taken out of the job"
    )


def test_a_time_that_the_log_does_not_reach_back_to_is_noted() -> None:
    asked = terms(AtTime(5))
    seen = Survey(
        777, {P0: log(P0, 10, 30), P1: log(P1, 0, 9)}, OffsetLookups({(P0, 5): 10, (P1, 5): 0})
    )
    (note,) = draft_new(asked, seen, position()).notes
    assert note.startswith("t/0 begins at 10")
    assert draft_new(asked, seen, position({}, Range(P0, 4, 10, "A"))).notes == (), "it was landed"
    later = Survey(777, {P0: log(P0, 10, 30)}, OffsetLookups({(P0, 5): 11}))
    assert draft_new(asked, later, position()).notes == ()
    assert draft_new(terms(AtOffset(10)), later, position()).notes == ()


# --- exactly these ranges -------------------------------------------------------------------


def test_ranges_that_are_landed_are_planned_again_when_they_are_asked_for() -> None:
    holes = [Range(P0, 12, 14, "A"), Range(P0, 18, 19, "A")]
    where = position({P0: LogMark(20, "A")}, Range(P0, 0, 20, "A"))
    drafted = draft_exact_ranges(terms(), survey(log(P0, 10, 30)), where, holes)
    assert intervals(drafted) == [(0, 12, 14), (0, 18, 19)]
    assert drafted.plan.checkpoint == {P0: LogMark(20, "A")}, "it stays where it is"
    assert sum(s.width for s in drafted.plan.slices) == 3


def test_ranges_that_no_run_has_reached_are_planned_with_the_epoch_of_their_log() -> None:
    """Whoever finishes the plan later sees by it whether an election has rewritten the log."""
    seen = survey(LogState(P0, Leader(B1, 5, "B"), 10, 30))
    drafted = draft_exact_ranges(terms(), seen, position(), [Range(P0, 12, 14, "B")])
    assert drafted.plan.checkpoint == {P0: LogMark(14, "B", 5)}
    skipping = terms(recreated=Action.SKIP)
    other = draft_exact_ranges(skipping, seen, position(), [Range(P0, 12, 14, "A")])
    assert other.plan.checkpoint == {}, "it is another incarnation's"


@pytest.mark.parametrize(
    ("hole", "kind"),
    [
        (Range(P0, 5, 12, "A"), LossKind.EXPIRED),
        (Range(P0, 12, 14, "B"), LossKind.RECREATED),
    ],
)
def test_what_the_log_no_longer_has_fails_or_is_part_of_the_plan_as_lost(
    hole: Range, kind: LossKind
) -> None:
    seen = survey(log(P0, 10, 30))
    with pytest.raises(RangeLost) as lost:
        unless_failing(draft_exact_ranges(terms(), seen, position(), [hole]))
    assert lost.value.facts["losses"][0]["verdict"] == kind.value
    skipping = terms(None, None, None, **{kind.value: Action.SKIP})
    plan = draft_exact_ranges(skipping, seen, position(), [hole]).plan
    assert [(r.from_offset, r.until_offset) for r in plan.ranges] == [
        (hole.from_offset, hole.until_offset)
    ]
    assert {loss.kind for loss in plan.losses} == {kind}
    assert sum(s.width for s in plan.slices) + sum(x.width for x in plan.losses) == hole.width
    receipts = {
        s.index: Receipt(
            s.index, s.partition, s.from_offset, s.until_offset, Counts(landed=s.width)
        )
        for s in plan.slices
    }
    (outcome,) = prove(plan, receipts)
    assert outcome.counts.lost == sum(x.width for x in plan.losses)


@pytest.mark.parametrize(
    ("hole", "kind", "left"),
    [
        (Range(P0, 28, 33, "A"), LossKind.TRUNCATED, [(0, 28, 30)]),
        (Range(P1, 0, 3, "A"), LossKind.VANISHED, []),
    ],
)
def test_what_may_yet_come_is_not_recorded_as_lost(
    hole: Range, kind: LossKind, left: list[tuple[int, int, int]]
) -> None:
    seen = survey(log(P0, 10, 30))
    with pytest.raises(RangeLost):
        unless_failing(draft_exact_ranges(terms(), seen, position(), [hole]))
    drafted = draft_exact_ranges(
        terms(None, None, None, **{kind.value: Action.SKIP}), seen, position(), [hole]
    )
    assert (intervals(drafted), drafted.plan.losses) == (left, ())
    (note,) = drafted.notes
    assert "stays missing" in note


def test_where_other_records_have_taken_the_place_of_missing_ones_a_policy_decides() -> None:
    seen, hole = survey(log(P0, 0, 30)), Range(P0, 3, 9, "A")
    other = Loss(P0, 5, 20, LossKind.TRUNCATED, "an election")
    with pytest.raises(RangeLost, match=r"\[5, 9\)"):
        unless_failing(draft_exact_ranges(terms(), seen, position(), [hole], [other]))
    skipping = terms(truncated=Action.SKIP)
    drafted = draft_exact_ranges(skipping, seen, position(), [hole], [other])
    assert (intervals(drafted), drafted.plan.losses) == ([(0, 3, 9)], ())
    assert drafted.skipped_losses == (replace(other, until_offset=9).with_action(Action.SKIP),)
    assert not draft_exact_ranges(skipping, seen, position(), [hole]).skipped_losses


def test_what_is_missing_is_planned_whole_whatever_the_limits() -> None:
    limited = terms(limits=Limits(max_records=1))
    drafted = draft_exact_ranges(
        limited, survey(log(P0, 0, 30)), position(), [Range(P0, 0, 20, "A")]
    )
    assert intervals(drafted) == [(0, 0, 20)]


def test_ranges_of_partitions_that_the_job_leaves_out_are_left_out() -> None:
    seen = Survey(777, {P0: log(P0, 0, 9)}, absent=AbsentPartitions(frozenset({P1})))
    assert intervals(draft_exact_ranges(terms(), seen, position(), [Range(P1, 0, 3, "A")])) == []


def test_what_a_log_has_lost_of_one_range_keeps_no_other_of_its_partition_from_the_plan() -> None:
    wanted = [Range(P0, first, first + 4, "A") for first in (0, 11, 20, 28, 40)]
    wanted += [Range(P0, 15, 19, "old"), Range(P1, 0, 4, "A")]
    drafted = draft_ranges_in_log(terms(), survey(log(P0, 13, 30)), position(), wanted)
    assert intervals(drafted) == [(0, 13, 15), (0, 20, 24), (0, 28, 30)]
    assert drafted.plan.losses == drafted.skipped_losses == drafted.notes == ()
    assert [(loss.kind, *loss.interval) for loss in drafted.held] == [
        (LossKind.EXPIRED, 0, 4),
        (LossKind.EXPIRED, 11, 13),
        (LossKind.TRUNCATED, 30, 32),
        (LossKind.TRUNCATED, 40, 44),
        (LossKind.RECREATED, 15, 19),
        (LossKind.VANISHED, 0, 4),
    ]
    left_out = Survey(777, {P0: log(P0, 13, 30)}, absent=AbsentPartitions(frozenset({P1})))
    drafted = draft_ranges_in_log(terms(), left_out, position(), wanted[-1:])
    assert (intervals(drafted), drafted.held) == ([], ())


FAR = Partition("t", 0, "2")


@pytest.mark.parametrize(
    ("hole", "seen", "why"),
    [
        (
            Range(P1, 0, 3),
            Survey(7, {P0: log(P0, 0, 9)}, absent=AbsentPartitions(unreachable={P1: "no leader"})),
            "no lead",
        ),
        (
            Range(FAR, 0, 3),
            Survey(
                7, {P0: log(P0, 0, 9)}, absent=AbsentPartitions(unanswered_brokers={"2": "refused"})
            ),
            "broker 2: r",
        ),
        (Range(FAR, 0, 3), Survey(7, {P0: log(P0, 0, 9)}), "no broker of that name"),
    ],
)
def test_what_nobody_serves_now_is_held_or_asked_for_later_and_never_called_gone(
    hole: Range, seen: Survey, why: str
) -> None:
    wanted = [Range(P0, 2, 4, "A"), hole]
    with pytest.raises(Unreachable, match=why) as caught:
        unless_failing(draft_exact_ranges(terms(), seen, position(), wanted))
    assert caught.value.exit_code == 75
    drafted = draft_exact_ranges(terms(unreachable=Action.HOLD), seen, position(), wanted)
    assert (intervals(drafted), drafted.plan.losses) == ([(0, 2, 4)], ())
    (held,) = drafted.held
    assert (held.partition, held.kind) == (hole.partition, LossKind.UNREACHABLE)


# --- a beginning of its own -----------------------------------------------------------------


def run_from(lower: Bound, limits: Limits | None = None) -> PlanTerms:
    return replace(terms(lower, limits=limits), kind=PlanKind.RUN)


def test_a_run_that_begins_later_says_what_it_passes_over() -> None:
    here = position({P0: LogMark(4, "A")}, Range(P0, 0, 4, "A"))
    drafted = draft_new(run_from(AtOffset(9)), survey(log(P0, 0, 20)), here)
    assert intervals(drafted) == [(0, 9, 20)]
    assert drafted.passed_over == (Range(P0, 4, 9, "A"),)
    (note,) = drafted.notes
    assert "t/0 [4, 9) is passed over" in note
    assert """backfill JOB.yaml --from '{"t": {"0": 4}}' --until '{"t": {"0": 9}}'""" in note


def test_what_a_backfill_has_landed_is_not_passed_over() -> None:
    here = position({P0: LogMark(4, "A")}, Range(P0, 0, 4, "A"), Range(P0, 6, 9, "A"))
    drafted = draft_new(run_from(AtOffset(9)), survey(log(P0, 0, 20)), here)
    assert drafted.passed_over == (Range(P0, 4, 6, "A"),)


def test_a_run_from_its_checkpoint_passes_over_nothing() -> None:
    here = position({P0: LogMark(4, "A")}, Range(P0, 0, 4, "A"), Range(P0, 6, 9, "A"))
    drafted = draft_new(replace(terms(), kind=PlanKind.RUN), survey(log(P0, 0, 20)), here)
    assert (drafted.passed_over, drafted.notes) == ((), ())


@pytest.mark.parametrize("lower", [AtOffset(10), Latest()])
def test_a_beginning_moves_the_checkpoint_where_there_is_nothing_to_land(lower: Bound) -> None:
    here = position({P0: LogMark(4, "A")})
    drafted = draft_new(run_from(lower), survey(log(P0, 0, 10)), here)
    assert (drafted.is_empty, drafted.moves_without_landing) == (True, True)
    assert drafted.plan.checkpoint == {P0: LogMark(10, "A")}
    assert drafted.passed_over == (Range(P0, 4, 10, "A"),)
    after = position(dict(drafted.plan.checkpoint))
    again = draft_new(run_from(lower), survey(log(P0, 0, 10)), after)
    assert (again.is_empty, again.moves_without_landing, again.notes) == (True, False, ())
    later = draft_new(replace(terms(), kind=PlanKind.RUN), survey(log(P0, 0, 12)), after)
    assert intervals(later) == [(0, 10, 12)]


def test_a_beginning_holds_for_a_partition_that_a_limit_gives_no_share() -> None:
    here = position({P0: LogMark(2, "A"), P1: LogMark(3, "A")})
    logs = survey(log(P0, 0, 40), log(P1, 0, 40))
    drafted = draft_new(run_from(AtOffset(30), Limits(max_records=1)), logs, here)
    assert drafted.plan.checkpoint == {P0: LogMark(31, "A"), P1: LogMark(30, "A")}


def test_a_first_run_that_begins_at_the_end_of_a_log_begins_there_for_good() -> None:
    first = draft_new(run_from(Latest()), survey(log(P0, 0, 10), log(P1, 0, 0)), position())
    assert first.moves_without_landing
    assert first.plan.checkpoint == {P0: LogMark(10, "A")}
    assert first.passed_over == ()


def test_a_beginning_never_moves_a_checkpoint_back_nor_past_the_end() -> None:
    here = position({P0: LogMark(4, "A")}, Range(P0, 0, 4, "A"))
    drafted = draft_new(run_from(AtOffset(1)), survey(log(P0, 0, 4)), here)
    assert (drafted.moves_without_landing, drafted.plan.checkpoint) == (
        False,
        {P0: LogMark(4, "A")},
    )
    skip = run_from(AtOffset(99))
    policy = Policy(truncated=Action.SKIP)
    skip = replace(skip, request=replace(skip.request, policy=policy))
    drafted = draft_new(skip, survey(log(P0, 0, 4)), here)
    assert (drafted.moves_without_landing, drafted.plan.checkpoint) == (
        False,
        {P0: LogMark(4, "A")},
    )


def test_a_backfill_moves_no_checkpoint() -> None:
    here = position({P0: LogMark(4, "A")})
    drafted = draft_new(terms(AtOffset(10)), survey(log(P0, 0, 10)), here)
    assert (drafted.moves_without_landing, drafted.passed_over, drafted.notes) == (False, (), ())
