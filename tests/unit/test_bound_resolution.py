"""Bounds into ranges: literal requests against literal logs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import pytest

from rangeland.errors import JobFileError, RangeLost, Unreachable
from rangeland.loss import Action, Loss, LossKind
from rangeland.model import (
    AbsentPartitions,
    Address,
    AtOffset,
    AtTime,
    Bound,
    Bounds,
    Earliest,
    FromCheckpoint,
    GroupOffset,
    Latest,
    Leader,
    LogState,
    OffsetLookups,
    Partition,
    Range,
    Survey,
)
from rangeland.planning.bound_resolution import (
    RangeRequest,
    ResolvedRequest,
    describe_bound,
    groups_asked,
    resolve,
    times_asked,
)
from rangeland.planning.coverage import coverage_of
from rangeland.planning.incarnation import LogMark
from rangeland.planning.job_position import JobPosition
from rangeland.planning.policy import Policy
from tests.fakes.planning import unless_failing

GONE = Partition("gone", 0)
P0, P1, P2 = Partition("t", 0), Partition("t", 1), Partition("t", 2)
B1 = Address("b1", 9092)


def log(p: Partition = P0, start: int = 10, end: int = 100, topic_id: str | None = "A") -> LogState:
    return LogState(p, Leader(B1, topic_id=topic_id), start, end)


def survey(
    *logs: LogState,
    times: dict[tuple[Partition, int], int | None] | None = None,
    groups: dict[tuple[Partition, str], int | None] | None = None,
) -> Survey:
    lookups = OffsetLookups(times or {}, of_groups=groups or {})
    return Survey(0, {one.partition: one for one in logs}, lookups)


def request(
    lower: Bound | Bounds,
    upper: Bound | Bounds,
    first_run: Bound | None = None,
    **actions: Action,
) -> RangeRequest:
    return RangeRequest(
        lower if isinstance(lower, Bounds) else Bounds(lower),
        upper if isinstance(upper, Bounds) else Bounds(upper),
        first_run or Earliest(),
        Policy(**actions),
    )


def resolved(
    asked: RangeRequest,
    *logs: LogState,
    checkpoint: Mapping[Partition, LogMark] | None = None,
    **seen: Any,
) -> ResolvedRequest:
    return unless_failing(resolve(asked, survey(*logs, **seen), JobPosition(checkpoint or {})))


def offsets(result: ResolvedRequest) -> list[tuple[int, int, int]]:
    return [(r.partition.number, r.from_offset, r.until_offset) for r in result.ranges]


def lost(losses: tuple[Loss, ...]) -> list[tuple[int, int, int, LossKind]]:
    return [(x.partition.number, x.from_offset, x.until_offset, x.kind) for x in losses]


TIMES: dict[tuple[Partition, int], int | None] = {(P0, 5): 30, (P0, 6): 70, (P0, 9): None}
GROUPS: dict[tuple[Partition, str], int | None] = {(P0, "g"): 42, (P0, "h"): 77, (P0, "none"): None}


# The log is [10, 100) in each of these.
@pytest.mark.parametrize(
    ("lower", "upper", "expected"),
    [
        (Earliest(), Latest(), (10, 100)),
        (Earliest(), Earliest(), (10, 10)),
        (Latest(), Latest(), (100, 100)),
        (Earliest(), AtTime(6), (10, 70)),
        (AtTime(5), AtTime(6), (30, 70)),
        (AtTime(5), AtTime(5), (30, 30)),
        (AtTime(5), AtTime(9), (30, 100)),
        (AtTime(9), Latest(), (100, 100)),
        (AtOffset(23), Latest(), (23, 100)),
        (AtOffset(23), AtOffset(24), (23, 24)),
        (AtOffset(23), AtOffset(23), (23, 23)),
        (AtOffset(10), AtOffset(100), (10, 100)),
        (AtOffset(100), Latest(), (100, 100)),
        (GroupOffset("g"), Latest(), (42, 100)),
        (GroupOffset("g"), GroupOffset("h"), (42, 77)),
        (Earliest(), GroupOffset("h"), (10, 77)),
        (FromCheckpoint(), AtOffset(50), (60, 60)),
        (FromCheckpoint(), AtTime(5), (60, 60)),
        (FromCheckpoint(), Latest(), (60, 100)),
        (FromCheckpoint(), AtTime(6), (60, 70)),
        (FromCheckpoint(), AtOffset(80), (60, 80)),
    ],
)
def test_each_kind_of_bound_resolves_on_its_side(
    lower: Bound, upper: Bound, expected: tuple[int, int]
) -> None:
    result = resolved(
        request(lower, upper),
        log(),
        checkpoint={P0: LogMark(60, "A")},
        times=TIMES,
        groups=GROUPS,
    )
    assert result == ResolvedRequest((Range(P0, *expected, "A"),))


REPLICA = replace(log(), leader=Leader(B1, is_replica=True))


@pytest.mark.parametrize("lower", [Earliest(), AtOffset(23), AtTime(5), AtTime(9)])
@pytest.mark.parametrize("at_time", [None, 100, 130])
def test_a_backfill_does_not_end_by_time_where_only_a_replica_ends(
    lower: Bound, at_time: int | None
) -> None:
    """No later run lands what the replica lacks."""
    times = {**TIMES, (P0, 9): at_time}
    backfill = request(lower, AtTime(9), unreachable=Action.HOLD)
    result = resolved(backfill, REPLICA, times=times)
    assert (offsets(result), lost(result.held)) == ([], [(0, 100, 100, LossKind.UNREACHABLE)])
    assert "no record at or after 1970-01-01T00:00:00.009" in result.held[0].evidence
    assert "a replica that may lag" in result.held[0].evidence
    with pytest.raises(Unreachable, match="t/0 cannot be read now"):
        resolved(request(lower, AtTime(9)), REPLICA, times=times)


@pytest.mark.parametrize("lower", [AtOffset(120), GroupOffset("far")])
def test_a_backfill_that_begins_after_the_end_of_a_replica_may_be_tried_again(lower: Bound) -> None:
    """The replica may only lag: its leader may have these offsets, and a record that late."""
    groups: dict[tuple[Partition, str], int | None] = {(P0, "far"): 120}
    known: Any = {"times": TIMES, "groups": groups}
    with pytest.raises(Unreachable, match=r"^t/0 cannot be read now") as caught:
        resolved(request(lower, AtTime(9)), REPLICA, **known)
    assert "the log ends at 100" in caught.value.why
    held = resolved(request(lower, AtTime(9), unreachable=Action.HOLD), REPLICA, **known).held
    assert lost(held) == [(0, 100, 120, LossKind.UNREACHABLE)]
    # The end is known, or the leader says where the log ends.
    for upper, of_leader in ((AtTime(6), REPLICA), (AtTime(9), log())):
        with pytest.raises(JobFileError, match="after its end"):
            resolved(request(lower, upper), of_leader, **known)


@pytest.mark.parametrize(
    ("lower", "upper", "expected"),
    [
        (Earliest(), AtTime(6), (10, 70)),  # the replica has a record that late
        (FromCheckpoint(), AtTime(9), (60, 100)),  # the next run continues
        (Earliest(), Latest(), (10, 100)),
    ],
)
def test_a_replica_is_read_where_what_it_lacks_is_in_no_range_or_in_the_next(
    lower: Bound, upper: Bound, expected: tuple[int, int]
) -> None:
    result = resolved(request(lower, upper), REPLICA, checkpoint={P0: LogMark(60)}, times=TIMES)
    assert result == ResolvedRequest((Range(P0, *expected),))


def test_a_time_past_a_stable_end_stops_at_the_end() -> None:
    # The lookup by time sees records that are not stable yet; a plan may not name them.
    result = resolved(request(Earliest(), AtTime(7)), log(), times={(P0, 7): 130})
    assert offsets(result) == [(0, 10, 100)]


@pytest.mark.parametrize(
    ("lower", "upper"),
    [
        (AtOffset(50), AtOffset(40)),
        (Latest(), Earliest()),
        (Latest(), AtOffset(99)),
        (AtTime(6), AtTime(5)),
        (AtTime(9), AtTime(5)),
        (AtOffset(71), AtTime(6)),
        (GroupOffset("h"), GroupOffset("g")),
        (AtOffset(150), AtOffset(140)),
        (Earliest(), AtOffset(9)),
    ],
)
def test_a_range_that_ends_before_it_begins_is_a_mistake_and_not_an_empty_run(
    lower: Bound, upper: Bound
) -> None:
    with pytest.raises(JobFileError, match="t/0: the range begins at") as caught:
        resolved(request(lower, upper), log(), times=TIMES, groups=GROUPS)
    assert caught.value.facts["from_offset"] > caught.value.facts["until_offset"]


def test_offsets_of_two_times_that_contradict_each_other_are_no_mistake_of_the_job() -> None:
    times: dict[tuple[Partition, int], int | None] = {(P0, 7): 70, (P0, 8): 30}
    with pytest.raises(Unreachable, match="the log changed meanwhile"):
        resolved(request(AtTime(7), AtTime(8)), log(), times=times)


def test_times_asked_backwards_are_a_mistake_even_where_both_find_nothing() -> None:
    times: dict[tuple[Partition, int], int | None] = {(P0, 5): None, (P0, 6): None}
    with pytest.raises(JobFileError, match="the range begins"):
        resolved(request(AtTime(6), AtTime(5)), log(), times=times)


def test_until_checkpoint_is_refused() -> None:
    with pytest.raises(JobFileError, match="the beginning of a range"):
        resolved(request(Earliest(), FromCheckpoint()), log())


def test_a_group_without_a_committed_offset_is_refused_by_name() -> None:
    for groups in (GROUPS, {}):
        with pytest.raises(JobFileError, match="group none has no committed offset for t/0"):
            resolved(request(GroupOffset("none"), Latest()), log(), groups=groups)


@pytest.mark.parametrize("side", ["from", "until"])
def test_a_partition_that_is_not_there_is_named_with_those_that_are(side: str) -> None:
    listed = Bounds(Earliest(), {P2: AtOffset(20)})
    asked = request(listed, Latest()) if side == "from" else request(Earliest(), listed)
    with pytest.raises(JobFileError, match=r"t/2.*partitions 0, 1"):
        resolved(asked, log(P0), log(P1))


def test_a_topic_that_is_not_of_the_job_is_distinguished_from_a_missing_partition() -> None:
    listed = Bounds(Earliest(), {Partition("u", 0): AtOffset(2)})
    with pytest.raises(JobFileError, match="topic u is not among"):
        resolved(request(listed, Latest()), log())


def test_a_survey_without_partitions_is_a_mistake() -> None:
    with pytest.raises(JobFileError, match="no partition to read"):
        resolved(request(Earliest(), Latest()))


def test_only_listed_partitions_are_asked_for() -> None:
    listed = Bounds(Earliest(), {P1: AtOffset(20)}, only_listed=True)
    assert offsets(resolved(request(listed, Latest()), log(P0), log(P1))) == [(1, 20, 100)]
    assert offsets(resolved(request(Earliest(), listed), log(P0), log(P1))) == [(1, 10, 20)]


def test_ranges_come_sorted_by_partition_whatever_the_survey() -> None:
    result = resolved(request(Earliest(), Latest()), log(P2), log(P0), log(P1))
    assert [r.partition for r in result.ranges] == [P0, P1, P2]


# --- the checkpoint ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("first_run", "expected"),
    [(Earliest(), 10), (Latest(), 100), (AtTime(5), 30), (GroupOffset("g"), 42)],
)
def test_before_the_first_landing_checkpoint_means_first_run(
    first_run: Bound, expected: int
) -> None:
    asked = request(FromCheckpoint(), Latest(), first_run)
    assert offsets(resolved(asked, log(), times=TIMES, groups=GROUPS)) == [(0, expected, 100)]


def test_a_partition_that_appears_after_the_first_landing_is_read_from_its_beginning() -> None:
    asked = request(FromCheckpoint(), Latest(), Latest())
    result = resolved(asked, log(P0), log(P1, 0, 7), checkpoint={P0: LogMark(60, "A")})
    assert offsets(result) == [(0, 60, 100), (1, 0, 7)]


# --- losses -----------------------------------------------------------------------------

CHECKPOINTED = request(FromCheckpoint(), Latest())


class Case(NamedTuple):
    """A request that loses offsets of P0, and the range that is left of it under skip."""

    asked: RangeRequest
    loss: tuple[int, int, LossKind]
    left: tuple[int, int]
    log: LogState = log()
    mark: int | None = None

    @property
    def checkpoint(self) -> dict[Partition, LogMark]:
        return {} if self.mark is None else {P0: LogMark(self.mark, "A")}

    def resolved(self, action: Action, *others: LogState) -> ResolvedRequest:
        asked = self.asked
        policy = Policy(**{self.loss[2].value: action})
        lower = Bounds(asked.from_bounds.default, {one.partition: Earliest() for one in others})
        upper = Bounds(asked.until_bounds.default, {one.partition: Latest() for one in others})
        whole = RangeRequest(lower, upper, asked.first_run, policy)
        return resolved(whole, self.log, *others, checkpoint=self.checkpoint, groups=GROUPS)


EXPIRED, TRUNCATED, RECREATED = LossKind.EXPIRED, LossKind.TRUNCATED, LossKind.RECREATED
BY_GROUP = request(GroupOffset("g"), Latest())
LOSSES = {
    "below": Case(request(AtOffset(3), Latest()), (3, 10, EXPIRED), (3, 100)),
    "all-gone": Case(request(AtOffset(3), AtOffset(8)), (3, 8, EXPIRED), (3, 8)),
    "expired": Case(CHECKPOINTED, (4, 10, EXPIRED), (4, 100), mark=4),
    "expired-and-empty": Case(CHECKPOINTED, (4, 50, EXPIRED), (4, 50), log(P0, 50, 50), mark=4),
    "group-expired": Case(BY_GROUP, (42, 50, EXPIRED), (42, 100), log(start=50)),
    "until-beyond": Case(request(AtOffset(90), AtOffset(130)), (100, 130, TRUNCATED), (90, 100)),
    "all-beyond": Case(request(AtOffset(110), AtOffset(130)), (110, 130, TRUNCATED), (110, 110)),
    "from-beyond": Case(request(AtOffset(110), Latest()), (100, 110, TRUNCATED), (110, 110)),
    "truncated": Case(CHECKPOINTED, (100, 120, TRUNCATED), (120, 120), mark=120),
    "truncated-until-passed": Case(
        request(FromCheckpoint(), AtOffset(110)), (100, 120, TRUNCATED), (120, 120), mark=120
    ),
    "truncated-until-reached": Case(
        request(FromCheckpoint(), AtOffset(120)), (100, 120, TRUNCATED), (120, 120), mark=120
    ),
    "recreated": Case(CHECKPOINTED, (60, 60, RECREATED), (10, 100), log(topic_id="B"), mark=60),
    "recreated-and-shorter": Case(
        CHECKPOINTED, (60, 60, RECREATED), (0, 5), log(P0, 0, 5, "B"), mark=60
    ),
}
each_loss = pytest.mark.parametrize("case", LOSSES.values(), ids=LOSSES)


@each_loss
def test_a_loss_under_fail_names_partition_offsets_cause_and_remedy(case: Case) -> None:
    with pytest.raises(RangeLost) as caught:
        case.resolved(Action.FAIL)
    start, end, kind = case.loss
    assert caught.value.what == f"t/0 [{start}, {end}) {kind.value}"
    assert kind.value in caught.value.do or kind is TRUNCATED
    fact = caught.value.facts["losses"][0]
    assert (fact["from_offset"], fact["until_offset"], fact["verdict"]) == (start, end, kind)
    assert fact["evidence"]


@each_loss
def test_a_loss_under_skip_is_reported_beside_the_range(case: Case) -> None:
    result = case.resolved(Action.SKIP)
    assert lost(result.losses) == [(0, *case.loss)]
    assert offsets(result) == [(0, *case.left)]
    assert result.held == ()


def up_to(uncommitted_end: int) -> OffsetLookups:
    return OffsetLookups(uncommitted_ends={P0: uncommitted_end})


@pytest.mark.parametrize("name", ["until-beyond", "all-beyond", "from-beyond"])
@pytest.mark.parametrize("action", [Action.FAIL, Action.SKIP])
def test_what_an_open_transaction_holds_back_is_waited_for(name: str, action: Action) -> None:
    """Committed records end at 100. The log ends at 130, or before what was asked for."""
    case = LOSSES[name]
    asked = replace(case.asked, policy=Policy(truncated=action))
    reached = replace(survey(log()), lookups=up_to(case.loss[1]))
    with pytest.raises(Unreachable, match="t/0 cannot be read now: a transaction is open"):
        unless_failing(resolve(asked, reached, JobPosition()))
    short = replace(survey(log()), lookups=up_to(case.loss[1] - 1))
    found = resolve(replace(asked, policy=Policy(truncated=Action.SKIP)), short, JobPosition())
    assert lost(found.losses) == [(0, *case.loss)]


def test_a_partition_that_waits_for_a_transaction_may_be_held() -> None:
    asked = request(Earliest(), Bounds(Latest(), {P0: AtOffset(130)}), unreachable=Action.HOLD)
    seen = replace(survey(log(P0), log(P1)), lookups=up_to(130))
    found = resolve(asked, seen, JobPosition())
    assert offsets(found) == [(1, 10, 100)]
    assert lost(found.held) == [(0, 100, 130, LossKind.UNREACHABLE)]


@each_loss
def test_a_loss_under_hold_leaves_that_partition_and_keeps_the_others(case: Case) -> None:
    result = case.resolved(Action.HOLD, log(P1))
    assert lost(result.held) == [(0, *case.loss)]
    assert result.losses == ()
    assert offsets(result) == [(1, 10, 100)]


def test_all_losses_of_all_partitions_are_in_one_error() -> None:
    checkpoint = {P0: LogMark(4, "A"), P1: LogMark(120, "A"), P2: LogMark(60, "Z")}
    with pytest.raises(RangeLost) as caught:
        resolved(CHECKPOINTED, log(P0), log(P1), log(P2), checkpoint=checkpoint)
    text = " ".join(str(caught.value).split())
    for words in ("t/0 [4, 10) expired;", "t/1 [100, 120) truncated;", "t/2 [60, 60) recreated"):
        assert words in text
    for kind in ("expired", "truncated", "recreated"):
        assert f"policy: {{{kind}: skip}}" in text
    kinds = {x["partition"]: x["verdict"] for x in caught.value.facts["losses"]}
    assert kinds == {0: "expired", 1: "truncated", 2: "recreated"}


def test_an_unknown_topic_id_on_either_side_is_not_a_recreation() -> None:
    for mark, now in ((None, "B"), ("A", None), (None, None)):
        result = resolved(CHECKPOINTED, log(topic_id=now), checkpoint={P0: LogMark(60, mark)})
        assert offsets(result) == [(0, 60, 100)]


def test_a_checkpointed_partition_that_is_gone_has_vanished() -> None:
    checkpoint = {P0: LogMark(60, "A"), P1: LogMark(5, "A")}
    with pytest.raises(RangeLost, match=r"t/1 \[5, 5\) vanished"):
        resolved(CHECKPOINTED, log(P0), checkpoint=checkpoint)
    for action in (Action.SKIP, Action.HOLD):
        asked = request(FromCheckpoint(), Latest(), vanished=action)
        result = resolved(asked, log(P0), checkpoint=checkpoint)
        assert offsets(result) == [(0, 60, 100)]
        told = result.losses if action is Action.SKIP else result.held
        assert lost(told) == [(1, 5, 5, LossKind.VANISHED)]


@pytest.mark.parametrize("others", [(), (log(P0),)])
@pytest.mark.parametrize("lower", [FromCheckpoint(), Earliest()])
def test_a_named_topic_that_has_a_checkpoint_and_is_gone_has_vanished(
    others: tuple[LogState, ...], lower: Bound
) -> None:
    checkpoint = {GONE: LogMark(60, "B")}
    asked = replace(request(lower, Latest()), topics=("t", "gone"))
    with pytest.raises(RangeLost, match=r"gone/0 \[60, 60\) vanished: .* names this topic"):
        resolved(asked, *others, checkpoint=checkpoint)
    for action in (Action.SKIP, Action.HOLD):
        asked = replace(request(lower, Latest(), vanished=action), topics=("t", "gone"))
        result = resolved(asked, *others, checkpoint=checkpoint)
        assert len(result.ranges) == len(others)
        told = result.losses if action is Action.SKIP else result.held
        assert [loss.partition for loss in told] == [GONE]


def test_a_gone_partition_that_a_range_names_has_vanished_where_it_has_a_checkpoint() -> None:
    listed = Bounds(Earliest(), {GONE: AtOffset(7)}, only_listed=True)
    asked = replace(request(listed, Latest()), topics=("gone",))
    with pytest.raises(RangeLost, match="gone/0"):
        resolved(asked, checkpoint={GONE: LogMark(60, "B")})
    with pytest.raises(JobFileError, match="gone/0, which does not exist"):
        resolved(asked, log(P0))


def test_a_first_run_by_time_says_where_that_is_not_exact() -> None:
    about = OffsetLookups({(P0, 5): 10}, inexact_times=frozenset({(P0, 5)}))
    seen = replace(survey(log(P0)), lookups=about)
    first = request(FromCheckpoint(), Latest(), first_run=AtTime(5))
    notes = resolve(first, seen, JobPosition()).notes
    assert len(notes) == 2
    assert "earlier records of that time may have expired" in notes[0]
    assert "only knows when segments of its log were written" in notes[1]
    assert resolve(first, seen, JobPosition({P0: LogMark(20, "A")})).notes == ()


def test_a_number_alone_is_that_partition_of_each_broker_but_of_those_that_are_named() -> None:
    mine = [Partition("t", n, b) for n, b in ((0, "a"), (0, "b"), (0, "c"), (1, "a"))]
    logs = [log(p) for p in mine]
    listed = {Partition("t", 0): AtOffset(20), Partition("t", 0, "b"): AtOffset(30)}
    found = resolved(request(Bounds(Earliest(), listed, only_listed=True), Latest()), *logs)
    assert [(r.partition.broker, r.from_offset) for r in found.ranges] == [
        ("a", 20),
        ("b", 30),
        ("c", 20),
    ]
    beyond = Bounds(Earliest(), {Partition("t", 2): AtOffset(20)}, only_listed=True)
    with pytest.raises(JobFileError, match=r"t/2, which does not exist.* a-0, b-0, c-0, a-1"):
        resolved(request(beyond, Latest()), *logs)


def test_a_topic_that_was_taken_out_of_the_job_has_not_vanished() -> None:
    asked = replace(request(FromCheckpoint(), Latest()), topics=("t",))
    result = resolved(asked, log(P0), checkpoint={GONE: LogMark(60, "B")})
    assert (offsets(result), result.losses) == ([(0, 10, 100)], ())
    with pytest.raises(JobFileError, match="no partition to read"):
        resolved(asked, checkpoint={GONE: LogMark(60, "B")})


def test_a_partition_that_was_not_asked_for_has_not_vanished() -> None:
    checkpoint = {P0: LogMark(60, "A"), P1: LogMark(5, "A"), Partition("old", 0): LogMark(1, "C")}
    only = Bounds(Latest(), {P0: AtOffset(70)}, only_listed=True)
    result = resolved(request(FromCheckpoint(), only), log(P0), checkpoint=checkpoint)
    assert (offsets(result), result.losses) == ([(0, 60, 70)], ())
    result = resolved(request(Earliest(), Latest()), log(P0), checkpoint=checkpoint)
    assert (offsets(result), result.losses) == ([(0, 10, 100)], ())


@pytest.mark.parametrize(
    ("landed", "still_lost"),
    [
        ((0, 10), None),
        ((0, 200), None),
        ((3, 7), (7, 10)),
        ((0, 5), (5, 10)),
        ((6, 10), (3, 6)),
        ((50, 60), (3, 10)),
    ],
)
def test_what_has_landed_is_not_lost_when_it_expires(
    landed: tuple[int, int], still_lost: tuple[int, int] | None
) -> None:
    # The same backfill twice, the second after retention: nothing of it is missing.
    asked = request(AtOffset(3), AtOffset(20), expired=Action.SKIP)
    result = resolve(asked, survey(log()), JobPosition({}, coverage_of([Range(P0, *landed, "A")])))
    expected = [] if still_lost is None else [(0, *still_lost, LossKind.EXPIRED)]
    assert lost(result.losses) == expected


def test_what_an_earlier_incarnation_of_the_topic_has_landed_does_not_hide_a_loss() -> None:
    asked = request(AtOffset(3), AtOffset(20))
    with pytest.raises(RangeLost, match=r"t/0 \[3, 10\) expired"):
        unless_failing(
            resolve(
                asked,
                survey(log(topic_id="B")),
                JobPosition({}, coverage_of([Range(P0, 0, 50, "A")])),
            )
        )


# --- what a survey must look up ---------------------------------------------------------


def test_the_survey_looks_up_every_time_and_group_once() -> None:
    lower = Bounds(AtTime(9), {P0: GroupOffset("g"), P1: AtTime(5)})
    upper = Bounds(GroupOffset("h"), {P1: AtTime(9)})
    asked = request(lower, upper, AtTime(1))
    assert times_asked(asked) == [1, 5, 9]
    assert groups_asked(asked) == ["g", "h"]
    assert groups_asked(request(Earliest(), Latest(), GroupOffset("f"))) == ["f"]


@pytest.mark.parametrize(
    ("bound", "words"),
    [
        (Earliest(), "earliest"),
        (Latest(), "latest"),
        (AtOffset(4), "offset 4"),
        (AtTime(1_769_839_200_005), "2026-01-31T06:00:00.005Z"),
        (FromCheckpoint(), "checkpoint"),
        (GroupOffset("g"), "group:g"),
    ],
)
def test_a_bound_is_described_in_the_words_of_a_job_file(bound: Bound, words: str) -> None:
    assert describe_bound(bound) == words


def test_a_partition_that_the_job_leaves_out_has_not_vanished() -> None:
    checkpoint = {P0: LogMark(60, "A"), P1: LogMark(5, "A")}
    survey = Survey(1, {P0: log(P0)}, absent=AbsentPartitions(frozenset({P1})))
    assert resolve(CHECKPOINTED, survey, JobPosition(checkpoint)).losses == ()
