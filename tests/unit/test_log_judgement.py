"""What is concluded about logs after they were read, from each answer that a cluster may give."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from rangeland.loss import Loss, LossKind
from rangeland.model import (
    AbsentPartitions,
    Address,
    Isolation,
    Leader,
    LogState,
    Partition,
    Range,
    Slice,
    Survey,
)
from rangeland.planning.incarnation import LogMark
from rangeland.planning.log_identity import (
    AskFingerprints,
    AskSurvey,
    Changed,
    Deleted,
    FinalJudgement,
    LogEvidence,
    OtherBytes,
    PartRead,
    Unchanged,
    Unconfirmed,
    judge_logs,
    offsets_to_compare,
)
from rangeland.planning.plan import Plan

P, Q = Partition("orders", 0), Partition("orders", 1)
LEADER = Leader(Address("b", 9092), 7, "id-1", copies=3)
MARK = LogMark(100, "id-1", 7)
DOWN = AbsentPartitions(unreachable={P: "no leader"})
METADATA = LogEvidence({P: LEADER}, AbsentPartitions(), {}, {P: 99})
NAMELESS = LogMark(100)
OLD_LEADER = Leader(Address("b", 9092))


def seen(log: LogState) -> Survey:
    return Survey(0, {log.partition: log})


def log(end: int, leader: Leader = LEADER, start: int = 0) -> LogState:
    return LogState(P, leader, start, end)


def elected(survey: Survey | None = None, **more: Any) -> LogEvidence:
    """Another leader since, and what it answers."""
    return replace(METADATA, leaders={P: replace(LEADER, epoch=8)}, survey=survey, **more)


def test_the_same_id_and_epoch_are_enough() -> None:
    assert judge_logs({P: MARK}, METADATA) == Unchanged()


def test_after_an_election_the_logs_are_surveyed_that_it_concerns() -> None:
    evidence = replace(elected(), leaders={P: replace(LEADER, epoch=8), Q: LEADER})
    assert judge_logs({P: MARK, Q: MARK}, evidence) == AskSurvey({P: MARK})
    whole = seen(replace(log(100, replace(LEADER, epoch=8)), epoch_end=100))
    assert judge_logs({P: MARK, Q: MARK}, replace(evidence, survey=whole)) == Unchanged()


def test_a_leader_that_is_slow_to_catch_up_is_asked_again_until_its_time_is_over() -> None:
    behind = seen(log(60, replace(LEADER, epoch=8)))
    assert judge_logs({P: MARK}, elected(behind)) == AskSurvey({P: MARK})
    caught_up = seen(log(100, replace(LEADER, epoch=8)))
    assert judge_logs({P: MARK}, elected(caught_up)) == Unchanged()
    changed = judge_logs({P: MARK}, elected(behind, leader_has_time=False))
    assert isinstance(changed, Changed)
    ((loss, epoch),) = changed.losses.items()
    assert (loss.kind, loss.interval, loss.is_sure) == (LossKind.TRUNCATED, (60, 100), False)
    assert epoch == 8


def test_metadata_of_an_earlier_epoch_than_the_log_was_read_in_confirms_nothing() -> None:
    """The broker that names the planned leader has not heard of the next one."""
    evidence = replace(METADATA, known_epochs={P: 8})
    assert judge_logs({P: MARK}, replace(METADATA, known_epochs={P: 7})) == Unchanged()
    assert judge_logs({P: MARK}, evidence) == AskSurvey({P: MARK})
    deposed = replace(evidence, survey=seen(log(500)))
    why = "its leader of epoch 7 answers, but it was read in a later one"
    assert judge_logs({P: MARK}, deposed) == Unconfirmed(P, why)
    leader = replace(LEADER, epoch=8)
    whole = replace(evidence, survey=seen(replace(log(500, leader), epoch_end=100)))
    assert judge_logs({P: MARK}, whole) == Unchanged()
    rewritten = replace(evidence, survey=seen(replace(log(500, leader), epoch_end=60)))
    assert isinstance(judge_logs({P: MARK}, rewritten), Changed)


def test_the_epoch_of_the_last_batch_does_not_name_a_deposed_leader() -> None:
    """Brokers before 2.1 report no other; it may be cut off behind what was read."""
    survey = seen(replace(log(500, replace(OLD_LEADER, epoch=6)), epoch_is_read=True))
    marks = {P: LogMark(100, None, 7, epoch_is_later=True)}
    evidence = replace(old_log({P: None}, fingerprints={P: 18}), survey=survey)
    assert judge_logs(marks, replace(evidence, known_epochs={P: 7})) == Unchanged()


def test_an_unclean_election_is_a_change_however_long_the_log_is_now() -> None:
    rewritten = replace(log(500, replace(LEADER, epoch=8)), epoch_end=60)
    changed = judge_logs({P: MARK}, elected(seen(rewritten)))
    assert isinstance(changed, Changed)
    assert [(x.kind, *x.interval) for x in changed.losses] == [(LossKind.TRUNCATED, 60, 100)]


def test_a_topic_with_another_id_is_a_change() -> None:
    other = replace(LEADER, topic_id="id-2", epoch=0)
    evidence = replace(METADATA, leaders={P: other})
    assert judge_logs({P: MARK}, evidence) == AskSurvey({P: MARK})
    changed = judge_logs({P: MARK}, replace(evidence, survey=seen(log(500, other))))
    assert isinstance(changed, Changed)
    assert [x.kind for x in changed.losses] == [LossKind.RECREATED]


def test_a_topic_that_is_gone_after_it_was_read_is_deleted() -> None:
    assert judge_logs({P: MARK}, elected(Survey(0, {}))) == Deleted(P)


@pytest.mark.parametrize(
    "evidence",
    [
        pytest.param(replace(METADATA, leaders={}, absent=DOWN), id="metadata"),
        pytest.param(elected(Survey(0, {}, absent=DOWN)), id="survey"),
    ],
)
def test_a_broker_that_is_down_confirms_nothing(evidence: LogEvidence) -> None:
    assert judge_logs({P: MARK}, evidence) == Unconfirmed(P, "its broker does not answer")


def test_a_log_that_is_read_from_a_replica_is_surveyed_though_its_broker_did_not_list_it() -> None:
    """As a RocketMQ queue whose master is down: its slave may not know all queues, but has this
    one."""
    of_a, of_b = (Partition("orders", 0, broker) for broker in ("a", "b"))
    replica, master = Leader(Address("a-2", 1), is_replica=True), Leader(Address("b", 1))
    absent = AbsentPartitions(answered_brokers=frozenset({"b"}))
    metadata = LogEvidence(
        {of_a: replica, of_b: master}, absent, {of_a: 7, of_b: 8}, {of_a: 99, of_b: 99}
    )
    marks = {of_a: NAMELESS, of_b: NAMELESS}
    assert judge_logs(marks, metadata) == AskSurvey(marks)
    logs = {p: LogState(p, leader, 0, 100) for p, leader in metadata.leaders.items()}
    surveyed = replace(metadata, survey=Survey(0, logs, absent=absent))
    assert judge_logs(marks, surveyed) == AskFingerprints(metadata.leaders)
    same = replace(surveyed, fingerprints=metadata.fingerprints_before)
    assert judge_logs(marks, same) == Unchanged()
    other = replace(surveyed, fingerprints={of_a: 6, of_b: 8})
    assert judge_logs(marks, other) == OtherBytes(of_a)
    gone = replace(metadata, leaders={of_b: master})
    unlisted = replace(same, leaders=gone.leaders, survey=Survey(0, {of_b: logs[of_b]}))
    assert judge_logs(marks, gone) == AskSurvey({of_b: NAMELESS})
    assert judge_logs(marks, unlisted) == Unconfirmed(of_a, "its broker does not answer")


def test_a_loss_is_reported_although_another_broker_is_down() -> None:
    evidence = replace(elected(), absent=AbsentPartitions(unreachable={Q: "no leader"}))
    assert judge_logs({P: MARK, Q: MARK}, evidence) == AskSurvey({P: MARK})
    lost = replace(evidence, survey=seen(log(60, replace(LEADER, epoch=8))), leader_has_time=False)
    assert isinstance(judge_logs({P: MARK, Q: MARK}, lost), Changed)
    whole = replace(evidence, survey=seen(log(100, replace(LEADER, epoch=8))))
    assert judge_logs({P: MARK, Q: MARK}, whole) == Unconfirmed(Q, "its broker does not answer")


# --- topics without ids -------------------------------------------------------------------


def old_log(before: dict[Partition, int | None], **more: Any) -> LogEvidence:
    """A log of brokers that have neither topic ids nor leader epochs."""
    found = seen(LogState(P, OLD_LEADER, 0, 500))
    return LogEvidence({P: OLD_LEADER}, AbsentPartitions(), before, {P: 99}, found, **more)


def test_without_ids_bytes_are_compared() -> None:
    assert judge_logs({P: NAMELESS}, old_log({P: 17})) == AskFingerprints({P: OLD_LEADER})
    assert judge_logs({P: NAMELESS}, old_log({P: 17}, fingerprints={P: 17})) == Unchanged()
    assert judge_logs({P: NAMELESS}, old_log({P: 17}, fingerprints={P: 18})) == OtherBytes(P)


def test_a_log_without_a_batch_to_compare_before_it_was_read_counts_as_unchanged() -> None:
    assert judge_logs({P: NAMELESS}, old_log({P: None}, fingerprints={P: 18})) == Unchanged()


@pytest.mark.parametrize("now", [{}, {P: None}, {P: 17}])
def test_a_log_whose_bytes_were_not_known_before_it_was_read_is_unconfirmed(
    now: dict[Partition, int | None],
) -> None:
    why = "its broker did not answer before it was read"
    assert judge_logs({P: NAMELESS}, old_log({}, fingerprints=now)) == Unconfirmed(P, why)


@pytest.mark.parametrize("now", [{}, {P: None}])
def test_a_broker_that_does_not_return_what_was_read_confirms_nothing(
    now: dict[Partition, int | None],
) -> None:
    why = "its broker does not return what was read"
    evidence = old_log({P: 17}, fingerprints=now)
    assert judge_logs({P: NAMELESS}, evidence) == Unconfirmed(P, why)


def test_only_a_leader_shows_that_what_was_read_has_expired() -> None:
    expired = replace(
        old_log({P: 17}, fingerprints={P: None}), survey=seen(log(500, OLD_LEADER, start=100))
    )
    assert judge_logs({P: NAMELESS}, expired) == Unchanged()
    replica = replace(OLD_LEADER, is_replica=True)
    behind = replace(expired, survey=seen(log(500, replica, start=100)))
    assert isinstance(judge_logs({P: NAMELESS}, behind), Unconfirmed)


@pytest.mark.parametrize("now", [{}, {P: None}, {P: 17}])
def test_a_replica_confirms_nothing_without_bytes_to_compare(
    now: dict[Partition, int | None],
) -> None:
    """Its end and epoch are not compared, since it may lag."""
    why = "its leader is down, and a replica may lag: there were no bytes to compare"
    replica = seen(log(50, replace(OLD_LEADER, is_replica=True)))
    evidence = replace(old_log({P: None}, fingerprints=now), survey=replica)
    assert judge_logs({P: NAMELESS}, evidence) == Unconfirmed(P, why)
    part = PartRead(frozenset({P}), {P: None})
    shared = replace(evidence, fingerprints_before={P: 17}, fingerprints={P: 17}, parts=(part,))
    assert judge_logs({P: NAMELESS}, shared) == Unconfirmed(P, why)


@pytest.mark.parametrize(("end", "is_there"), [(99, False), (100, True)])
def test_a_replica_that_lacks_what_was_read_confirms_nothing_where_bytes_are_not_compared(
    end: int, is_there: bool
) -> None:
    replica = seen(log(end, replace(OLD_LEADER, is_replica=True)))
    evidence = replace(old_log({}), fingerprints_before=None, survey=replica)
    why = "its leader is down, and the replica may lag"
    judgement = Unchanged() if is_there else Unconfirmed(P, why)
    assert judge_logs({P: NAMELESS}, evidence) == judgement


OF_P = PartRead(frozenset({P}), {P: 17})
NO_FINGERPRINT = "part of it was read, but no fingerprint was kept"


@pytest.mark.parametrize(
    ("part", "judgement"),
    [
        (OF_P, Unchanged()),
        (replace(OF_P, fingerprints={P: 16}), OtherBytes(P)),
        (replace(OF_P, fingerprints={P: None}), Unchanged()),
        (replace(OF_P, fingerprints={}), Unconfirmed(P, NO_FINGERPRINT)),
        (PartRead(frozenset({Q}), {}), Unchanged()),
    ],
    ids=["same", "other", "nothing to compare", "none kept", "another partition"],
)
def test_each_part_of_a_plan_was_read_from_the_log_as_it_is_now(
    part: PartRead, judgement: FinalJudgement
) -> None:
    evidence = old_log({P: 17}, fingerprints={P: 17}, parts=(OF_P, part))
    assert judge_logs({P: NAMELESS}, evidence) == judgement


def test_topic_ids_show_that_a_part_is_of_the_same_log() -> None:
    evidence = replace(METADATA, parts=(PartRead(frozenset({P}), {}),))
    assert judge_logs({P: MARK}, evidence) == Unchanged()


# --- reading again ------------------------------------------------------------------------


def test_a_second_reading_is_compared_with_the_epochs_of_the_change() -> None:
    lost = Loss(P, 60, 100, LossKind.TRUNCATED, "epoch 7 ended at 60")
    marks = Changed({lost: 8}).marks_since({P: MARK, Q: MARK})
    assert marks == {P: replace(MARK, epoch=8), Q: MARK}
    assert Changed({lost: None}).marks_since({P: MARK}) == {P: MARK}


def test_bytes_are_compared_at_the_last_offset_read_or_where_the_last_slice_begins() -> None:
    slices = (Slice(0, P, 0, 60), Slice(1, P, 60, 100))
    plan = Plan(
        "j", "rangeland/j", 1, "kafka", Isolation.READ_COMMITTED, (Range(P, 0, 100),), slices
    )
    assert offsets_to_compare(plan, offsets_are_bytes=False) == {P: 99}
    assert offsets_to_compare(plan, offsets_are_bytes=True) == {P: 60}
