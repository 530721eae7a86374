"""What a view of the cluster shows of the partitions that a survey wants."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from rangeland.dialects.cluster_values import ClusterView, TopicView
from rangeland.dialects.error_meaning import ErrorMeaning
from rangeland.errors import AccessDenied, Unreachable
from rangeland.model import AbsentPartitions, Address, Leader, Partition
from rangeland.planning.incarnation import LogMark
from rangeland.survey.survey_request import SurveyRequest
from rangeland.survey.wanted_partitions import (
    NO_LEADER,
    ChangedMeanwhile,
    UnknownTopic,
    WantedPartitions,
    may_be_given_up,
    silent_brokers,
    wanted_partitions,
    why_incomplete,
)

B1, B2 = Address("b1", 9092), Address("b2", 9092)
P0, P1, P2 = (Partition("t", number) for number in range(3))
MINE, OTHERS = Partition("t", 0, "1"), Partition("t", 0, "2")
ASKED = SurveyRequest(("t",))


def topic(*partitions: Partition, name: str = "t", **more: Any) -> TopicView:
    leaders = {p: Leader(B1) for p in partitions}
    meaning, code = more.pop("meaning", ErrorMeaning.OK), more.pop("code_name", "")
    return TopicView(name, meaning, code, leaders=leaders, **more)


def cluster(*topics: TopicView, **more: Any) -> ClusterView:
    return ClusterView((B1, B2), {one.name: one for one in topics}, **more)


UNKNOWN = topic(meaning=ErrorMeaning.FIND_LEADER, code_name="UNKNOWN_TOPIC", is_unknown=True)


def test_without_a_restriction_all_partitions_of_a_topic_are_wanted() -> None:
    found = wanted_partitions(cluster(topic(P0, P1), topic(name="other")), ASKED)
    assert found == WantedPartitions(
        {P0: Leader(B1), P1: Leader(B1)}, {}, frozenset({"t"}), AbsentPartitions()
    )


def test_a_partition_without_a_leader_is_wanted_and_leaderless() -> None:
    view = cluster(replace(topic(), leaders={P0: Leader(B1), P1: Leader(None)}))
    found = wanted_partitions(view, ASKED)
    assert (found.leaders, found.leaderless) == ({P0: Leader(B1)}, {P1: "it has no leader"})


@pytest.mark.parametrize(
    ("leader", "mark", "is_stale"),
    [
        (Leader(B1, 5, "A"), LogMark(9, "A", 6), True),
        (Leader(B1, 6, "A"), LogMark(9, "A", 6), False),
        (Leader(B1, 5, "B"), LogMark(9, "A", 6), False),  # another log, with epochs of its own
        (Leader(B1, 5), LogMark(9, None, 6), False),  # perhaps another log
        (Leader(B1, None, "A"), LogMark(9, "A", 6), False),
        (Leader(B1, 5, "A"), LogMark(9, "A"), False),
    ],
)
def test_a_leader_of_an_earlier_epoch_than_the_checkpoint_is_not_asked(
    leader: Leader, mark: LogMark, is_stale: bool
) -> None:
    view = cluster(replace(topic(), leaders={P0: leader}))
    found = wanted_partitions(view, replace(ASKED, checkpoint={P0: mark}))
    assert (P0 in found.leaderless, P0 in found.leaders) == (is_stale, not is_stale)
    if is_stale:
        why = (
            "the metadata is stale: it names b1:9092, the leader of epoch 5, "
            "but epoch 6 is already known"
        )
        assert why_incomplete(found.leaderless, {}) == f"no leader for 1 partition: t/0 ({why})"


@pytest.mark.parametrize("mark", [LogMark(9, "A", 5), LogMark(9, "A")])
def test_a_leader_of_an_earlier_epoch_than_a_known_one_is_not_asked(mark: LogMark) -> None:
    request = replace(ASKED, checkpoint={P0: mark}, known_epochs={P0: 6})
    for epoch, topic_id, is_stale in ((5, "A", True), (6, "A", False), (5, "B", False)):
        view = cluster(replace(topic(), leaders={P0: Leader(B1, epoch, topic_id)}))
        found = wanted_partitions(view, request)
        assert (P0 in found.leaderless, P0 in found.leaders) == (is_stale, not is_stale)


@pytest.mark.parametrize(
    ("only", "mine", "excluded"),
    [((1,), {P1}, {P0, P2}), ((0, 2), {P0, P2}, {P1}), ((), {P0, P1, P2}, set())],
)
def test_partitions_that_the_job_leaves_out_are_excluded_not_missing(
    only: Any, mine: set[Partition], excluded: set[Partition]
) -> None:
    found = wanted_partitions(cluster(topic(P0, P1, P2)), replace(ASKED, partitions={"t": only}))
    assert found.leaders.keys() == mine
    assert found.absent.excluded == excluded


@pytest.mark.parametrize(("only", "mine"), [((0,), {MINE, OTHERS}), (("2-0",), {OTHERS})])
def test_a_number_is_the_partition_of_every_broker_that_numbers_its_own(
    only: Any, mine: set[Partition]
) -> None:
    request = replace(ASKED, partitions={"t": only})
    view = cluster(topic(MINE, OTHERS))
    assert wanted_partitions(view, request, numbered_per_broker=True).leaders.keys() == mine


def test_a_partition_that_a_topic_lacks_is_unknown_unless_a_silent_broker_may_have_it() -> None:
    request = replace(ASKED, partitions={"t": (0, 7)})
    with pytest.raises(UnknownTopic, match="topic t has no partition 7: it has 0, 1"):
        wanted_partitions(cluster(topic(P0, P1)), request)
    view = cluster(topic(P0, P1), unreachable={"2": "refused"})
    assert wanted_partitions(view, request).leaders.keys() == {P0}


# --- topics -----------------------------------------------------------------------------


def test_a_pattern_matches_topics_that_are_not_internal_and_those_landed_before() -> None:
    names = ("t", "t-2", "u")
    visible = [topic(Partition(name, 0), name=name) for name in names]
    internal = topic(Partition("t-3", 0), name="t-3", is_internal=True)
    request = SurveyRequest(topic_pattern="t.*", known=frozenset({"t-9", "u-9"}))
    found = wanted_partitions(cluster(*visible, internal), request)
    assert {p.topic for p in found.leaders} == {"t", "t-2"}
    assert found.topics == {"t", "t-2", "t-9"}


def test_a_pattern_that_matches_nothing_is_wrong_unless_it_matched_before() -> None:
    view, request = cluster(topic(P0)), SurveyRequest(topic_pattern="x.*")
    with pytest.raises(UnknownTopic, match=r"no topic matches x\.\*: the cluster has 1 topic"):
        wanted_partitions(view, request)
    found = wanted_partitions(view, replace(request, known=frozenset({"x-1"})))
    assert (found.leaders, found.topics) == ({}, {"x-1"})


@pytest.mark.parametrize(
    ("shown", "kind", "why"),
    [
        ((), UnknownTopic, "there is no topic t: the cluster answered nothing"),
        ((UNKNOWN,), UnknownTopic, "there is no topic t: the cluster answered UNKNOWN_TOPIC"),
        (
            (topic(meaning=ErrorMeaning.DENIED, code_name="TOPIC_AUTHORIZATION_FAILED"),),
            AccessDenied,
            "may not read the topic t: TOPIC_AUTHORIZATION_FAILED",
        ),
        (
            (topic(meaning=ErrorMeaning.RETRY, code_name="LEADER_NOT_AVAILABLE"),),
            Unreachable,
            "the topic t is not ready: LEADER_NOT_AVAILABLE",
        ),
        ((topic(),), Unreachable, "the topics t have no partitions yet"),
    ],
)
def test_a_topic_that_cannot_be_read_is_an_error_of_its_cause(
    shown: tuple[TopicView, ...], kind: type[Exception], why: str
) -> None:
    with pytest.raises(kind, match=why):
        wanted_partitions(cluster(*shown), ASKED)


@pytest.mark.parametrize("request_", [ASKED, SurveyRequest(topic_pattern="t.*")])
def test_a_topic_may_exist_while_no_broker_is_registered(request_: SurveyRequest) -> None:
    with pytest.raises(Unreachable, match="no broker is registered"):
        wanted_partitions(cluster(UNKNOWN, has_no_brokers=True), request_)


@pytest.mark.parametrize(("hidden", "unseen"), [(True, {"t"}), (False, set())])
def test_a_topic_that_was_landed_before_is_gone_and_perhaps_only_hidden(
    hidden: bool, unseen: set[str]
) -> None:
    view = cluster(replace(UNKNOWN, may_be_hidden=hidden))
    found = wanted_partitions(view, replace(ASKED, known=frozenset({"t"})))
    assert (found.leaders, found.topics, found.absent.unseen_topics) == ({}, {"t"}, unseen)


def test_a_topic_without_partitions_may_be_on_a_broker_that_is_down() -> None:
    request = SurveyRequest(("t", "u"))
    view = cluster(topic(MINE), topic(name="u"))
    with pytest.raises(Unreachable, match="the topics u have no partitions yet"):
        wanted_partitions(view, request)
    found = wanted_partitions(view, request, numbered_per_broker=True)
    assert found.leaders.keys() == {MINE}


# --- brokers ----------------------------------------------------------------------------


def test_brokers_have_answered_unless_they_are_silent() -> None:
    view = cluster(topic(MINE), unreachable={"2": "refused"}, registered=frozenset({"4"}))
    absent = wanted_partitions(view, ASKED, ["2", "3"], numbered_per_broker=True).absent
    assert absent.answered_brokers == {"1", "3", "4"}
    assert absent.unanswered_brokers == {"2": "refused"}


@pytest.mark.parametrize(
    ("only", "silent"),
    [
        ({}, {"2", "3"}),
        ({"t": ("2-0",)}, {"2"}),
        ({"t": ("1-0",)}, set()),
        ({"t": (0,)}, {"2", "3"}),  # each broker may have it
    ],
)
def test_a_silent_broker_counts_if_it_may_have_wanted_partitions(
    only: Any, silent: set[str]
) -> None:
    view = cluster(topic(MINE), unreachable={"2": "refused", "3": "reset"})
    assert silent_brokers(view.unreachable, replace(ASKED, partitions=only)).keys() == silent


# --- what is missing --------------------------------------------------------------------


def found(**absent: Any) -> WantedPartitions:
    leaders = {P0: Leader(B1, topic_id="A"), P1: Leader(B1, topic_id="A")}
    return WantedPartitions(leaders, {P2: NO_LEADER}, frozenset({"t"}), AbsentPartitions(**absent))


def test_what_is_missing_is_named() -> None:
    assert (
        why_incomplete(dict.fromkeys([P0, P1], NO_LEADER), {"2": "refused"})
        == "no leader for 2 partitions: t/0, t/1"
    )
    assert why_incomplete({}, {"2": "refused"}) == "broker 2 cannot be asked: refused"
    assert why_incomplete({}, {}) is None


@pytest.mark.parametrize(
    ("left", "total", "tolerates", "may"),
    [([P0], 2, True, True), ([P0, P1], 2, True, False), ([P0], 2, False, False)],
)
def test_partitions_are_given_up_if_a_policy_holds_them_and_others_are_left(
    left: list[Partition], total: int, tolerates: bool, may: bool
) -> None:
    request = replace(ASKED, tolerates_missing_leaders=tolerates)
    assert may_be_given_up(left, total, request) is may


def test_what_is_given_up_is_unreachable_with_its_reason() -> None:
    given_up = found().give_up({P2: "it has no leader"}).give_up({P1: "it is silent"})
    assert given_up.reachable.keys() == {P0}
    assert given_up.absent.unreachable == {P2: "it has no leader", P1: "it is silent"}


def test_a_later_view_moves_leaders_and_brings_nothing_back() -> None:
    before = found(unreachable={P1: "it is silent", P2: "it has no leader"})
    leaders = {p: Leader(B2, topic_id="A") for p in (P1, P2, Partition("t", 3))}
    later = WantedPartitions(
        leaders, {}, frozenset({"t"}), AbsentPartitions(unseen_topics=frozenset({"u"}))
    )
    moved = before.move_to(later)
    assert moved.leaders == {P0: Leader(B1, topic_id="A"), P1: Leader(B2, topic_id="A")}
    assert moved.reachable.keys() == {P0}
    assert moved.absent == replace(later.absent, unreachable=before.absent.unreachable)


def test_a_leader_of_another_incarnation_is_not_moved_to() -> None:
    later = WantedPartitions(
        {P0: Leader(B1, topic_id="B")}, {}, frozenset({"t"}), AbsentPartitions()
    )
    with pytest.raises(ChangedMeanwhile, match="its id was A and is B"):
        found().move_to(later)
    nameless = replace(later, leaders={P0: Leader(B2)})
    assert found().move_to(nameless).leaders[P0] == Leader(B2)
