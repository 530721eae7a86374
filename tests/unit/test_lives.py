"""Whether a log still is the one that was landed, by ids and by leader epochs."""

from __future__ import annotations

import pytest

from rangeland.dialects.kafka import epoch_of, read_epochs
from rangeland.dialects.kafka import messages as m
from rangeland.errors import RangeLost
from rangeland.model import (
    Address,
    Bounds,
    Earliest,
    FromCheckpoint,
    Latest,
    Leader,
    LogState,
    Partition,
    Range,
    Survey,
)
from rangeland.planning.bounds import Request, Resolved, resolve
from rangeland.planning.lives import Mark, recreated
from rangeland.planning.plan import advance
from rangeland.planning.policy import Action, Loss, Policy, Verdict

P = Partition("t", 0)
B1 = Address("b1", 9092)


def log(start: int, end: int, epoch: int | None = None, topic_id: str | None = None) -> LogState:
    return LogState(P, Leader(B1, epoch, topic_id), start, end)


def found(
    now: LogState, mark: Mark, epoch_end: int | None = None, policy: Policy | None = None
) -> Resolved:
    ends = {} if epoch_end is None else {P: epoch_end}
    request = Request(
        Bounds(FromCheckpoint()), Bounds(Latest()), Earliest(), policy or Policy(), topics=("t",)
    )
    return resolve(request, Survey(0, {P: now}, epoch_ends=ends), {P: mark})


def lost(
    now: LogState, mark: Mark, epoch_end: int | None = None, policy: Policy | None = None
) -> tuple[str, int, int]:
    with pytest.raises(RangeLost) as caught:
        found(now, mark, epoch_end, policy)
    (loss,) = caught.value.facts["losses"]
    return loss["verdict"], loss["from_offset"], loss["until_offset"]


def test_a_log_that_was_cut_and_has_grown_past_the_checkpoint_is_truncated() -> None:
    assert lost(log(0, 50, 3), Mark(30, None, 2), 10) == ("truncated", 10, 30)
    assert lost(log(0, 50, 3, "A"), Mark(30, "A", 2), 10) == ("truncated", 10, 30)


def test_a_policy_that_skips_a_truncation_goes_on_at_the_checkpoint() -> None:
    policy = Policy(truncated=Action.SKIP)
    went_on = found(log(0, 50, 3), Mark(30, None, 2), 10, policy)
    assert went_on.ranges == (Range(P, 30, 50),)
    ((loss,),) = (went_on.losses,)
    assert (loss.from_offset, loss.until_offset, loss.verdict) == (10, 30, Verdict.TRUNCATED)
    assert "leader epoch 2 end at 10" in loss.evidence


@pytest.mark.parametrize("epoch_end", [None, 30, 40])
def test_an_epoch_that_ends_at_or_behind_the_checkpoint_is_no_loss(epoch_end: int | None) -> None:
    assert found(log(0, 50, 3), Mark(30, None, 2), epoch_end).ranges == (Range(P, 30, 50),)


def test_a_log_that_is_shorter_than_the_checkpoint_is_one_loss_and_not_two() -> None:
    assert lost(log(0, 20, 3), Mark(30, None, 2), 10) == ("truncated", 20, 30)


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
def test_without_ids_the_leader_epoch_tells_a_new_life(
    start: int, end: int, now: int | None, is_anew: bool
) -> None:
    mark = Mark(30, None, 2)
    assert recreated(mark, log(start, end, now)) is is_anew
    assert not recreated(Mark(30), log(start, end, now))
    if is_anew:
        assert lost(log(start, end, now), mark) == ("recreated", 30, 30)
        with pytest.raises(RangeLost) as caught:
            found(log(start, end, now), mark)
        assert ("or an unclean election" in str(caught.value)) is (now == 2)


def test_ids_settle_it_where_both_are_known() -> None:
    assert recreated(Mark(30, "A", 2), log(0, 90, 9, "B"))
    assert not recreated(Mark(30, "A", 2), log(0, 20, 0, "A"))


def test_a_nameless_new_life_is_never_skipped_into_the_same_table() -> None:
    """Its offsets would count as landed, and its records would be left out in silence."""
    skips = Policy(recreated=Action.SKIP)
    assert lost(log(0, 90, 0), Mark(30, None, 2), policy=skips) == ("recreated", 30, 30)
    with pytest.raises(RangeLost, match="another table"):
        found(log(0, 90, 0), Mark(30, None, 2), policy=skips)
    assert found(log(0, 90, 0, "B"), Mark(30, "A", 2), policy=skips).ranges == (
        Range(P, 0, 90, "B"),
    )


def test_what_only_a_replica_has_not_got_is_out_of_reach_and_no_loss() -> None:
    behind = LogState(P, Leader(B1, is_replica=True), 0, 20)
    held = found(behind, Mark(30), policy=Policy(unreachable=Action.HOLD))
    assert [loss.verdict for loss in held.held] == [Verdict.UNREACHABLE]
    assert (held.ranges, held.losses) == ((), ())


def test_the_checkpoint_keeps_the_epoch_of_what_landed_last() -> None:
    moved = advance({P: Mark(30, None, 2)}, (Range(P, 30, 50),), {P: 3})
    assert moved == {P: Mark(50, None, 3)}
    behind = advance({P: Mark(30, None, 2)}, (Range(P, 10, 20),), {P: 3})
    assert behind == {P: Mark(30, None, 2)}


# --- what brokers say of epochs -------------------------------------------------------------


def test_epochs_that_a_broker_does_not_tell_are_left_out() -> None:
    parts = tuple(
        m.EpochEnd(error_code=code, partition=number, leader_epoch=1, end_offset=end)
        for number, (code, end) in enumerate([(0, 7), (0, -1), (74, -1), (0, 0)])
    )
    answer = m.OffsetForLeaderEpochResponse(topics=(m.EpochEndTopic(topic="t", partitions=parts),))
    assert read_epochs([answer]) == {P: 7, Partition("t", 3): 0}


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
    assert epoch_of(memoryview(header)) == epoch


def test_a_loss_is_told_in_numbers() -> None:
    loss = Loss(P, 10, 30, Verdict.TRUNCATED, "x")
    assert (loss.width, str(loss)) == (20, "t/0 [10, 30) is truncated")
