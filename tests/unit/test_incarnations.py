"""Whether a log still is the one that was landed, by topic ids and leader epochs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rangeland.dialects.kafka import messages as m
from rangeland.dialects.kafka.log_history import epoch_of, read_epochs
from rangeland.errors import RangeLost
from rangeland.loss import Action, DecidedLoss, Loss, LossKind
from rangeland.model import (
    Address,
    AtOffset,
    Bounds,
    Earliest,
    FromCheckpoint,
    Isolation,
    Latest,
    Leader,
    LogState,
    Partition,
    Range,
    Survey,
)
from rangeland.planning.bound_resolution import RangeRequest, ResolvedRequest, resolve
from rangeland.planning.coverage import coverage_of
from rangeland.planning.incarnation import (
    LogMark,
    checkpoint_after,
    is_recreated,
    is_still_lost,
    may_be_behind,
)
from rangeland.planning.job_position import JobPosition
from rangeland.planning.lagging_ends import (
    LAGGING_S,
    is_beyond_end,
    may_lag,
    must_survey_again,
)
from rangeland.planning.loss_errors import FailingLosses
from rangeland.planning.plan import Plan, advance
from rangeland.planning.plan_builder import PlanTerms, draft_new
from rangeland.planning.plan_draft import PlanDraft
from rangeland.planning.plan_kind import PlanKind
from rangeland.planning.policy import Policy
from rangeland.planning.run_limits import Limits
from rangeland.planning.slices import Slicing
from tests.fakes.planning import unless_failing
from tests.fetched_records import fetched_at

P = Partition("t", 0)
B1 = Address("b1", 9092)


def log(start: int, end: int, epoch: int | None = None, topic_id: str | None = None) -> LogState:
    return LogState(P, Leader(B1, epoch, topic_id), start, end)


def found(
    now: LogState, mark: LogMark, epoch_end: int | None = None, policy: Policy | None = None
) -> ResolvedRequest:
    request = RangeRequest(
        Bounds(FromCheckpoint()), Bounds(Latest()), Earliest(), policy or Policy(), topics=("t",)
    )
    survey = Survey(0, {P: replace(now, epoch_end=epoch_end)})
    return unless_failing(resolve(request, survey, JobPosition({P: mark})))


def lost(
    now: LogState, mark: LogMark, epoch_end: int | None = None, policy: Policy | None = None
) -> tuple[str, int, int]:
    with pytest.raises(RangeLost) as caught:
        found(now, mark, epoch_end, policy)
    (loss,) = caught.value.facts["losses"]
    return loss["verdict"], loss["from_offset"], loss["until_offset"]


def test_a_log_that_was_cut_and_has_grown_past_the_checkpoint_is_truncated() -> None:
    assert lost(log(0, 50, 3), LogMark(30, None, 2), 10) == ("truncated", 10, 30)
    assert lost(log(0, 50, 3, "A"), LogMark(30, "A", 2), 10) == ("truncated", 10, 30)


def test_a_policy_that_skips_a_truncation_goes_on_at_the_checkpoint() -> None:
    policy = Policy(truncated=Action.SKIP)
    went_on = found(log(0, 50, 3), LogMark(30, None, 2), 10, policy)
    assert went_on.ranges == (Range(P, 30, 50),)
    ((loss,),) = (went_on.losses,)
    assert (loss.from_offset, loss.until_offset, loss.kind) == (10, 30, LossKind.TRUNCATED)
    assert "leader epoch 2 end at 10" in loss.evidence


@pytest.mark.parametrize("epoch_end", [None, 30, 40])
def test_an_epoch_that_ends_at_or_after_the_checkpoint_is_not_a_loss(epoch_end: int | None) -> None:
    assert found(log(0, 50, 3), LogMark(30, None, 2), epoch_end).ranges == (Range(P, 30, 50),)


def test_a_log_that_is_shorter_than_the_checkpoint_is_one_loss_and_not_two() -> None:
    """What was written since below its end has offsets that have landed, too."""
    assert lost(log(0, 20, 3), LogMark(30, None, 2), 10) == ("truncated", 10, 30)
    assert lost(log(0, 20, 3), LogMark(30, None, 2)) == ("truncated", 20, 30)


@pytest.mark.parametrize(
    ("start", "end", "now", "is_anew"),
    [
        (0, 20, 0, True),  # shorter, and its epoch is lower
        (0, 90, 0, True),  # longer, and its epoch is lower
        (0, 20, 2, True),  # shorter, from 0, with no election in between
        (5, 20, 2, False),  # its head has expired since: the same log, cut short
        (0, 20, 3, False),  # an election in between
        (0, 90, 2, False),  # as far as can be told
        (0, 20, None, False),  # nothing is told
    ],
)
def test_without_ids_the_leader_epoch_tells_a_new_incarnation(
    start: int, end: int, now: int | None, is_anew: bool
) -> None:
    mark = LogMark(30, None, 2)
    assert is_recreated(mark, log(start, end, now)) is is_anew
    assert not is_recreated(LogMark(30), log(start, end, now))
    if is_anew:
        assert lost(log(start, end, now), mark) == ("recreated", 30, 30)
        with pytest.raises(RangeLost) as caught:
            found(log(start, end, now), mark)
        assert ("or an unclean election" in str(caught.value)) is (now == 2)


def test_ids_settle_it_where_both_are_known() -> None:
    assert is_recreated(LogMark(30, "A", 2), log(0, 90, 9, "B"))
    assert not is_recreated(LogMark(30, "A", 2), log(0, 20, 0, "A"))


def test_a_nameless_new_incarnation_is_never_skipped_into_the_same_table() -> None:
    """Its offsets would count as landed, and its records would be left out in silence."""
    skips = Policy(recreated=Action.SKIP)
    assert lost(log(0, 90, 0), LogMark(30, None, 2), policy=skips) == ("recreated", 30, 30)
    with pytest.raises(RangeLost, match="another table"):
        found(log(0, 90, 0), LogMark(30, None, 2), policy=skips)
    assert found(log(0, 90, 0, "B"), LogMark(30, "A", 2), policy=skips).ranges == (
        Range(P, 0, 90, "B"),
    )


@pytest.mark.parametrize(
    ("start", "end", "now", "is_anew", "may_wait"),
    [
        (0, 500, 5, False, False),  # cut behind the mark: its last batch is an older one
        (0, 90, 5, True, True),  # shorter, so another log, or a leader that is behind
        (0, 90, 6, True, True),
        (0, 90, 7, False, True),
        (0, 500, 6, False, False),
    ],
)
def test_an_epoch_read_from_the_last_batch_tells_a_new_incarnation_of_a_shorter_log_only(
    start: int, end: int, now: int, is_anew: bool, may_wait: bool
) -> None:
    """A limit has ended the landing at 100 of a log of 1000, whose last batch was of epoch 6."""
    mark = LogMark(100, None, 6, epoch_is_later=True)
    seen = replace(log(start, end, now), epoch_is_read=True)
    assert is_recreated(mark, seen) is is_anew
    assert may_be_behind(mark, seen) is may_wait
    if end > mark.until_offset:
        assert found(seen, mark).ranges == (Range(P, 100, end),)


def test_a_longer_log_of_a_lower_epoch_is_another_one_where_the_mark_was_at_the_end() -> None:
    mark = LogMark(100, None, 6)
    seen = replace(log(0, 500, 5), epoch_is_read=True)
    assert is_recreated(mark, seen)
    assert may_be_behind(mark, replace(seen, end_offset=90)), "its last batch is not seen yet"


@pytest.mark.parametrize(
    ("kind", "end", "again"),
    [
        (LossKind.RECREATED, 90, True),
        (LossKind.TRUNCATED, 90, True),
        (LossKind.RECREATED, 100, False),
        (LossKind.TRUNCATED, 100, False),
        (LossKind.EXPIRED, 90, False),
    ],
)
def test_a_run_looks_again_at_a_log_that_may_only_be_behind(
    kind: LossKind, end: int, again: bool
) -> None:
    survey = Survey(0, {P: log(0, end, 6)})
    lost = [Loss(P, 100, 100, kind, "x")]
    assert may_lag(lost, {P: LogMark(100, None, 6)}, survey) is again
    assert not may_lag(lost, {P: LogMark(100, "A", 6)}, Survey(0, {P: log(0, end, 6, "B")}))
    assert not may_lag([], {P: LogMark(100, None, 6)}, survey)


def test_a_log_that_was_not_surveyed_ends_nowhere() -> None:
    lost = Loss(P, 100, 200, LossKind.TRUNCATED, "x")
    assert not is_beyond_end(lost, Survey(0, {}))
    assert not may_lag([lost], {P: LogMark(200)}, Survey(0, {}))


@pytest.mark.parametrize(("copies", "again"), [(3, True), (1, False), (0, False)])
def test_a_run_looks_again_for_an_offset_that_was_asked_for_if_there_are_replicas(
    copies: int, again: bool
) -> None:
    """The high watermark of a new leader before 2.2 may lag, also for a job's first run."""
    asked = RangeRequest(
        Bounds(Earliest()), Bounds(Latest(), {P: AtOffset(100)}), Earliest(), Policy()
    )
    survey = Survey(0, {P: replace(log(0, 90), leader=Leader(B1, copies=copies))})
    failing = resolve(asked, survey, JobPosition()).failing
    assert failing is not None
    assert may_lag(failing.losses, {}, survey) is again


def draft_of(action: Action, end: int, copies: int = 3) -> tuple[PlanDraft, Survey]:
    """The draft of a run from the log's beginning to offset 100, for a log that ends at ``end``."""
    until = Bounds(Latest(), {P: AtOffset(100)})
    asked = RangeRequest(Bounds(Earliest()), until, Earliest(), Policy(truncated=action))
    survey = Survey(0, {P: replace(log(0, end), leader=Leader(B1, copies=copies))})
    terms = PlanTerms(
        "j", "j", "kafka", Isolation.READ_COMMITTED, asked, Limits(), Slicing(), PlanKind.RUN
    )
    return draft_new(terms, survey, JobPosition()), survey


@pytest.mark.parametrize("action", [Action.FAIL, Action.SKIP, Action.HOLD])
def test_a_draft_waits_for_a_log_that_may_lag_whatever_the_policy(action: Action) -> None:
    draft, survey = draft_of(action, end=90)
    assert must_survey_again(draft, {}, survey, waited_s=0)
    assert must_survey_again(draft, {}, survey, waited_s=LAGGING_S)
    assert not must_survey_again(draft, {}, survey, waited_s=LAGGING_S + 0.1)
    reached, survey = draft_of(action, end=100)
    assert not must_survey_again(reached, {}, survey, waited_s=0)
    alone, survey = draft_of(action, end=90, copies=1)
    assert not must_survey_again(alone, {}, survey, waited_s=0)


def test_a_loss_that_a_policy_allows_is_not_waited_for_where_the_log_goes_on_after_it() -> None:
    checkpoint = {P: LogMark(100, None, 6)}
    survey = Survey(0, {P: log(0, 90, 6)})
    loss = Loss(P, 10, 20, LossKind.TRUNCATED, "other records were written there")
    draft, _ = draft_of(Action.FAIL, end=100)
    failing = FailingLosses((loss.with_action(Action.FAIL),))
    assert must_survey_again(replace(draft, failing=failing), checkpoint, survey, 0)
    skipped = (loss.with_action(Action.SKIP),)
    assert not must_survey_again(replace(draft, skipped_losses=skipped), checkpoint, survey, 0)


def test_a_draft_whose_losses_fail_has_no_effect() -> None:
    draft, _ = draft_of(Action.FAIL, end=90)
    assert draft.failing is not None
    assert [(x.interval, x.action) for x in draft.failing.losses] == [((90, 100), Action.FAIL)]
    assert draft.is_without_effect


@pytest.mark.parametrize(("limit", "is_later"), [(None, False), (100, True)])
def test_a_mark_knows_whether_its_epoch_is_of_a_later_record(
    limit: int | None, is_later: bool
) -> None:
    asked = RangeRequest(Bounds(FromCheckpoint()), Bounds(Latest()), Earliest(), Policy())
    terms = PlanTerms(
        "j",
        "j",
        "kafka",
        Isolation.READ_COMMITTED,
        asked,
        Limits(max_records=limit),
        Slicing(),
        PlanKind.RUN,
    )
    for is_read in (True, False):
        seen = Survey(0, {P: replace(log(0, 1000, 6), epoch_is_read=is_read)})
        plan = draft_new(terms, seen, JobPosition()).plan
        mark = LogMark(limit or 1000, None, 6, is_later and is_read)
        assert plan.checkpoint == {P: mark}
        assert Plan.from_json(plan.to_json()).checkpoint == {P: mark}
        assert advance(plan.checkpoint, (Range(P, 0, 50),), {P: 7}) == {P: mark}


def test_another_log_is_not_waited_for() -> None:
    assert not may_be_behind(LogMark(100, "A", 6), log(0, 90, 6, "B"))
    assert not may_be_behind(LogMark(100, None, 6), log(0, 90, 5)), "its leader says so itself"
    assert may_be_behind(LogMark(100, "A", 6), log(0, 90, 6, "A"))


OLD = coverage_of([Range(P, 0, 1000)])
"""What was landed when the brokers had no ids."""


@pytest.mark.parametrize("end", [600, 1300])
@pytest.mark.parametrize("mark", [LogMark(1000, None, 7), LogMark(2000, "A", 7)])
def test_a_new_incarnation_is_not_left_out_as_landed_since_the_old_one_had_no_id(
    end: int, mark: LogMark
) -> None:
    skips = RangeRequest(
        Bounds(FromCheckpoint()), Bounds(Latest()), Earliest(), Policy(recreated=Action.SKIP)
    )
    survey = Survey(0, {P: log(0, end, 0, "B")})
    with pytest.raises(RangeLost, match=r"had no topic ids.*into another table"):
        unless_failing(resolve(skips, survey, JobPosition({P: mark}, OLD)))
    far = coverage_of([Range(P, 0, 1000, "A")])
    assert resolve(skips, survey, JobPosition({P: mark}, far)).ranges == (Range(P, 0, end, "B"),)


def test_brokers_that_begin_to_have_ids_make_no_new_incarnation() -> None:
    request = RangeRequest(
        Bounds(FromCheckpoint()), Bounds(Latest()), Earliest(), Policy(recreated=Action.SKIP)
    )
    for epoch in (7, 9):
        survey = Survey(0, {P: log(0, 1300, epoch, "B")})
        went_on = resolve(request, survey, JobPosition({P: LogMark(1000, None, 7)}, OLD))
        assert (went_on.ranges, went_on.losses) == ((Range(P, 1000, 1300, "B"),), ())


def test_what_only_a_replica_has_not_got_is_out_of_reach_and_no_loss() -> None:
    behind = LogState(P, Leader(B1, is_replica=True), 0, 20)
    held = found(behind, LogMark(30), policy=Policy(unreachable=Action.HOLD))
    assert [loss.kind for loss in held.held] == [LossKind.UNREACHABLE]
    assert (held.ranges, held.losses) == ((), ())


def test_the_checkpoint_keeps_the_epoch_of_what_landed_last() -> None:
    moved = advance({P: LogMark(30, None, 2)}, (Range(P, 30, 50),), {P: 3})
    assert moved == {P: LogMark(50, None, 3)}
    behind = advance({P: LogMark(30, None, 2)}, (Range(P, 10, 20),), {P: 3})
    assert behind == {P: LogMark(30, None, 2)}


# --- what brokers say of epochs -------------------------------------------------------------


def test_epochs_that_a_broker_does_not_know_are_none_and_those_to_ask_again_are_left_out() -> None:
    parts = tuple(
        m.EpochEnd(error_code=code, partition=number, leader_epoch=1, end_offset=end)
        for number, (code, end) in enumerate([(0, 7), (0, -1), (74, -1), (0, 0), (31, -1)])
    )
    response = m.OffsetForLeaderEpochResponse(
        topics=(m.EpochEndTopic(topic="t", partitions=parts),)
    )
    unknown = {Partition("t", 1): None, Partition("t", 4): None}
    assert read_epochs([response]) == {P: 7, Partition("t", 3): 0, **unknown}


@pytest.mark.parametrize(
    ("header", "epoch"),
    [
        (bytes(12) + (5).to_bytes(4, "big") + b"\2", 5),
        (bytes(12) + b"\xff" * 4 + b"\2", None),
        (bytes(12) + (5).to_bytes(4, "big") + b"\1", None),
        (bytes(16), None),
        (b"", None),
    ],
)
def test_a_batch_tells_its_epoch_and_older_formats_do_not(header: bytes, epoch: int | None) -> None:
    assert epoch_of(fetched_at(header)) == epoch


def test_a_loss_is_reported_in_numbers() -> None:
    loss = Loss(P, 10, 30, LossKind.TRUNCATED, "x")
    assert (loss.width, str(loss)) == (20, "t/0 [10, 30) is truncated")


@pytest.mark.parametrize(
    ("kind", "start", "end", "topic_id", "holds"),
    [
        (LossKind.EXPIRED, 11, 20, "a", True),
        (LossKind.EXPIRED, 10, 20, "a", False),
        (LossKind.TRUNCATED, 0, 9, "a", True),
        (LossKind.TRUNCATED, 0, 10, "a", False),
        (LossKind.RECREATED, 0, 20, "b", True),
        (LossKind.RECREATED, 0, 20, "a", False),
        (LossKind.CORRUPT, 0, 11, "a", True),
        (LossKind.CORRUPT, 0, 10, "a", False),
        (LossKind.MISSING, 0, 11, "a", True),
        (LossKind.UNREACHABLE, 0, 20, "a", False),
    ],
)
def test_a_held_loss_counts_until_the_log_no_longer_shows_it(
    kind: LossKind, start: int, end: int, topic_id: str, holds: bool
) -> None:
    mark = LogMark(10, "a")
    assert is_still_lost(kind, mark, log(start, end, topic_id=topic_id)) is holds


@pytest.mark.parametrize(
    ("losses", "until_offset"),
    [
        ([(7, 10, LossKind.CORRUPT, Action.HOLD)], 7),
        ([(7, 10, LossKind.TRUNCATED, Action.SKIP)], 7),
        ([(4, 7, LossKind.TRUNCATED, Action.SKIP), (7, 10, LossKind.TRUNCATED, Action.SKIP)], 4),
        ([(4, 7, LossKind.CORRUPT, Action.HOLD), (7, 10, LossKind.TRUNCATED, Action.SKIP)], 4),
        ([(7, 10, LossKind.CORRUPT, Action.SKIP)], 10),
        ([(4, 7, LossKind.TRUNCATED, Action.SKIP)], 4),
        ([(10, 12, LossKind.TRUNCATED, Action.SKIP)], 10),
        ([], 10),
    ],
    ids=[
        "held",
        "ended",
        "ended slices",
        "held then ended",
        "skipped",
        "before landed",
        "after",
        "none",
    ],
)
def test_a_checkpoint_stays_where_a_partition_was_held_or_its_log_ended(
    losses: list[tuple[int, int, LossKind, Action]], until_offset: int
) -> None:
    found = [
        DecidedLoss(P, start, end, kind, "", action=action) for start, end, kind, action in losses
    ]
    after = checkpoint_after({P: LogMark(10, "id", 3)}, found)
    assert after == {P: LogMark(until_offset, "id", 3, epoch_is_later=until_offset < 10)}
