"""One wrong response is not believed: surveys of a fake cluster that is wrong once, or always."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import pytest

from rangeland.cluster_settings import ClusterSettings
from rangeland.connection.pool import ConnectionPool
from rangeland.dialects.capabilities import Capabilities
from rangeland.dialects.cluster_values import (
    ClusterView,
    LeaderRequest,
    NoSeedAnswered,
    OffsetResult,
    TopicView,
)
from rangeland.dialects.error_meaning import ErrorMeaning
from rangeland.dialects.protocol_session import BrokerRequest
from rangeland.errors import JobFileError, RangeLost, Unreachable
from rangeland.loss import Action, LossKind
from rangeland.model import (
    AbsentPartitions,
    Address,
    AtOffset,
    Bounds,
    Earliest,
    FromCheckpoint,
    GroupOffset,
    Isolation,
    Latest,
    Leader,
    LogState,
    OffsetLookups,
    Partition,
    Survey,
)
from rangeland.planning.bound_resolution import RangeRequest, ResolvedRequest, resolve
from rangeland.planning.incarnation import LogMark
from rangeland.planning.job_position import JobPosition
from rangeland.planning.policy import Policy
from rangeland.survey import cluster_survey as surveys
from rangeland.survey.cluster_survey import find_topics, take_survey
from rangeland.survey.metadata_lookup import ask_metadata
from rangeland.survey.survey_confirmation import merge_surveys, suspicions
from rangeland.survey.survey_request import SurveyRequest
from tests.fakes.planning import unless_failing

B1, B2 = Address("b1", 9092), Address("b2", 9092)
P0, P1 = Partition("t", 0), Partition("t", 1)
LIED = 8
"""An offset below the checkpoint."""

Lie = Callable[[Address, int, Any], Any]
"""Of a broker, which question of its kind to the cluster it is (from 0), and what is asked:
``"topics"`` or a bound. None: the truth."""


@dataclass
class Cluster:
    """Two brokers; the first leads two logs of offsets 5 to 20. A dialect and connections at
    once, so questions need no bytes."""

    lie: Lie
    settings: ClusterSettings = field(
        default_factory=lambda: ClusterSettings("kafka", (B1, B2), survey_ms=600)
    )
    asked: list[tuple[Address, Any]] = field(default_factory=list)
    requests = 0
    capabilities = Capabilities(has_transactions=True)

    @property
    def dialect(self) -> Cluster:
        return self

    def find_leaders(self, topics: Any, seeds: Sequence[Address], named_brokers: Any) -> Any:
        responses = yield LeaderRequest(tuple(seeds), (BrokerRequest("topics"),))
        if isinstance(responses, NoSeedAnswered):
            raise responses.as_error()
        return ClusterView((B1, B2), responses[0])

    def call_all(self, address: Address, questions: Sequence[BrokerRequest]) -> list[Any]:
        return [self._answer(address, question.message) for question in questions]

    def _answer(self, address: Address, request: Any) -> Any:
        what = request if request == "topics" else request[1]
        number = sum(1 for _, other in self.asked if other == what)
        self.asked.append((address, what))
        told = self.lie(address, number, what)
        if told is None:
            told = self._truth(what)
        return told if what == "topics" else (request[0], told)

    def _truth(self, what: Any) -> Any:
        if what == "topics":
            return topics(P0, P1)
        return {Earliest(): 5, "all": 30}.get(what, 20)

    def offsets_requests(
        self, leaders: Mapping[Partition, Leader], when: Any, isolation: Isolation
    ) -> list[BrokerRequest]:
        if isolation is Isolation.READ_UNCOMMITTED:
            return [BrokerRequest((tuple(leaders), "all"))]
        return [BrokerRequest((tuple(leaders), when))]

    def read_offsets(self, responses: Sequence[Any]) -> dict[Partition, OffsetResult]:
        ((partitions, offset),) = responses
        return {p: OffsetResult(ErrorMeaning.OK, "", offset) for p in partitions}

    def sizes_requests(self, logs: Any) -> list[BrokerRequest]:
        return []

    def read_sizes(self, responses: Sequence[Any]) -> dict[Partition, int]:
        return {}


def topics(*partitions: Partition, unknown: bool = False) -> dict[str, TopicView]:
    meaning, code = (
        (ErrorMeaning.FIND_LEADER, "UNKNOWN_TOPIC") if unknown else (ErrorMeaning.OK, "")
    )
    leaders = {p: Leader(B1) for p in partitions}
    return {"t": TopicView("t", meaning, code, False, leaders, is_unknown=unknown)}


@pytest.fixture(autouse=True)
def without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(surveys, "AGAIN_MS", 1)


MARKS = {P0: LogMark(10), P1: LogMark(10)}


def surveyed(lie: Lie, marks: Mapping[Partition, LogMark] = MARKS) -> tuple[Survey, Cluster]:
    cluster = Cluster(lie)
    wanted = SurveyRequest(("t",), known=frozenset(p.topic for p in marks), checkpoint=marks)
    return take_survey(cast(ConnectionPool, cluster), wanted), cluster


def resolved(
    survey: Survey, policy: Policy | None = None, marks: Mapping[Partition, LogMark] = MARKS
) -> ResolvedRequest:
    request = RangeRequest(
        Bounds(FromCheckpoint()), Bounds(Latest()), Earliest(), policy or Policy(), topics=("t",)
    )
    return unless_failing(resolve(request, survey, JobPosition(marks)))


def truthful(address: Address, number: int, what: Any) -> Any:
    return None


def once(response: Any, to: Any) -> Lie:
    """This response to the first question of a kind, and the truth after it."""
    return lambda address, number, what: response if what == to and number == 0 else None


def always(response: Any, to: Any) -> Lie:
    return lambda address, number, what: response if what == to else None


def test_what_is_not_odd_is_asked_once() -> None:
    survey, cluster = surveyed(truthful)
    assert cluster.asked == [(B1, "topics"), (B1, Earliest()), (B1, Latest())]
    assert survey.confirmed_by == {}


@pytest.mark.parametrize(
    "lie",
    [
        pytest.param(once(LIED, Latest()), id="an end below the checkpoint"),
        pytest.param(once(5, Latest()), id="an earliest given for a latest"),
        pytest.param(once(20, Earliest()), id="a latest given for an earliest"),
        pytest.param(once(topics(), "topics"), id="an empty partition list"),
        pytest.param(once(topics(P0), "topics"), id="a partition list that is short"),
        pytest.param(once(topics(unknown=True), "topics"), id="an unknown topic"),
        pytest.param(once({}, "topics"), id="no topic at all"),
    ],
)
def test_one_wrong_response_is_asked_again_and_not_believed(lie: Lie) -> None:
    survey, cluster = surveyed(lie)
    logs = {p: (log.start_offset, log.end_offset) for p, log in survey.logs.items()}
    assert logs == {P0: (5, 20), P1: (5, 20)}
    assert survey.confirmed_by == {}
    found = resolved(survey)
    assert [(r.from_offset, r.until_offset) for r in found.ranges] == [(10, 20)] * 2
    assert found.losses == ()
    assert [at for at, what in cluster.asked if what == "topics"] == [B1, B2]


def test_what_both_looks_say_becomes_a_loss_that_names_who_was_asked() -> None:
    survey, _ = surveyed(always(LIED, Latest()))
    with pytest.raises(RangeLost) as caught:
        resolved(survey)
    losses = caught.value.facts["losses"]
    assert [(x["verdict"], x["from_offset"], x["until_offset"]) for x in losses] == [
        ("truncated", 8, 10)
    ] * 2
    assert "asked twice, with metadata from b1:9092 and b2:9092" in losses[0]["evidence"]


@pytest.mark.parametrize(("mark", "expired"), [(None, []), (3, [(3, 5)]), (5, [])])
def test_a_log_whose_start_was_moved_into_an_open_transaction_is_empty(
    mark: int | None, expired: list[tuple[int, int]]
) -> None:
    """Its broker says that committed records end at 3, where the transaction began."""
    marks = {} if mark is None else dict.fromkeys((P0, P1), LogMark(mark))
    survey, _ = surveyed(always(3, Latest()), marks)
    logs = {p: (log.start_offset, log.end_offset) for p, log in survey.logs.items()}
    assert logs == {P0: (5, 5), P1: (5, 5)}
    found = resolved(survey, Policy(expired=Action.SKIP), marks)
    assert [(x.from_offset, x.until_offset) for x in found.losses] == expired * 2
    assert {x.kind for x in found.losses} <= {LossKind.EXPIRED}
    assert {r.until_offset for r in found.ranges} == {5}


def test_a_topic_that_both_brokers_deny_has_vanished() -> None:
    survey, _ = surveyed(always(topics(unknown=True), "topics"))
    with pytest.raises(RangeLost, match="vanished") as caught:
        resolved(survey)
    assert "asked twice" in caught.value.facts["losses"][0]["evidence"]


@pytest.mark.parametrize("lasts", [True, False])
def test_a_topic_that_only_backfills_have_landed_is_asked_for_twice(lasts: bool) -> None:
    unknown = topics(unknown=True)
    cluster = Cluster(always(unknown, "topics") if lasts else once(unknown, "topics"))
    wanted = SurveyRequest(("t",), known=frozenset({"t"}), landed=frozenset({P0}))
    survey = take_survey(cast(ConnectionPool, cluster), wanted)
    assert [at for at, what in cluster.asked if what == "topics"] == [B1, B2]
    assert (set(survey.logs), P0 in survey.confirmed_by) == (set() if lasts else {P0, P1}, lasts)


def test_a_topic_of_a_pattern_that_only_backfills_have_landed_may_be_gone() -> None:
    cluster = Cluster(truthful)
    other = frozenset({Partition("ta", 0)})
    wanted = SurveyRequest(topic_pattern="t.*", known=frozenset({"t", "ta"}), landed=other)
    take_survey(cast(ConnectionPool, cluster), wanted)
    assert [at for at, what in cluster.asked if what == "topics"] == [B1]


def test_a_second_look_that_is_wrong_does_not_make_a_loss_either() -> None:
    """The first is wrong of an end; the second knows one of the partitions only."""

    def lie(address: Address, number: int, what: Any) -> Any:
        if what == "topics":
            return topics(P0) if number == 1 else None
        return LIED if what == Latest() and number == 0 else None

    survey, _ = surveyed(lie, {P0: LogMark(10)})
    assert survey.logs[P0].end_offset == 20
    assert P1 in survey.logs
    assert survey.confirmed_by == {}


def test_a_topic_that_the_job_misspells_is_its_mistake_once_both_brokers_say_so() -> None:
    with pytest.raises(JobFileError, match=r"no topic t.*b1:9092 and b2:9092"):
        surveyed(always(topics(unknown=True), "topics"), {})


def test_a_new_topic_that_one_broker_has_not_heard_of_is_found_at_the_other() -> None:
    def stale(address: Address, number: int, what: Any) -> Any:
        return topics(unknown=True) if (address, what) == (B1, "topics") else None

    survey, _ = surveyed(stale, {})
    assert set(survey.logs) == {P0, P1}


def found_topics(cluster: Cluster) -> tuple[str, ...]:
    return find_topics(cast(ConnectionPool, cluster), "t.*")


def test_to_find_the_topics_of_a_pattern_nobody_is_asked_for_leaders_or_offsets() -> None:
    leaderless = {"t": replace(topics()["t"], leaders={P0: Leader(None)})}
    cluster = Cluster(always(leaderless, "topics"))
    assert found_topics(cluster) == ("t",)
    assert cluster.asked == [(B1, "topics")]


def test_a_broker_that_knows_no_topic_of_a_pattern_is_not_believed_alone() -> None:
    cluster = Cluster(once({}, "topics"))
    assert found_topics(cluster) == ("t",)
    assert cluster.asked == [(B1, "topics"), (B2, "topics")]
    with pytest.raises(JobFileError, match="asked twice, with metadata from b1:9092 and b2:9092"):
        found_topics(Cluster(always({}, "topics")))


def test_a_suspicion_is_asked_again_although_a_topic_was_unknown_before() -> None:
    def lie(address: Address, number: int, what: Any) -> Any:
        if what == "topics":
            return topics(unknown=True) if number == 0 else None
        return 3 if what == Latest() and number == 0 else None

    survey, _ = surveyed(lie, {})
    assert {(log.start_offset, log.end_offset) for log in survey.logs.values()} == {(5, 20)}


def test_a_topic_that_only_a_second_look_does_not_know_is_not_the_jobs_mistake() -> None:
    def lie(address: Address, number: int, what: Any) -> Any:
        if what == "topics":
            return topics(unknown=True) if number == 1 else None
        return 3 if what == Latest() and number == 0 else None

    survey, _ = surveyed(lie, {})
    assert {(log.start_offset, log.end_offset) for log in survey.logs.values()} == {(5, 20)}


def test_a_topic_without_partitions_is_waited_for_and_never_gone() -> None:
    with pytest.raises(Unreachable, match="no partitions yet"):
        surveyed(always(topics(), "topics"))


def test_what_is_skipped_says_who_was_asked_too() -> None:
    survey, _ = surveyed(always(LIED, Latest()))
    found = resolved(survey, Policy(truncated=Action.SKIP))
    assert all("asked twice" in loss.evidence for loss in found.losses)


def test_a_topic_that_the_job_has_dropped_is_not_missed() -> None:
    survey, cluster = surveyed(truthful, {**MARKS, Partition("dropped", 0): LogMark(5)})
    assert [at for at, what in cluster.asked if what == "topics"] == [B1]
    assert survey.confirmed_by == {}


GONE = Survey(0, {P0: LogState(P0, Leader(B1), 5, 20)})


@pytest.mark.parametrize(
    "first",
    [
        pytest.param(
            replace(GONE, absent=AbsentPartitions(unreachable={P1: "it has no leader"})),
            id="without a leader",
        ),
        pytest.param(
            replace(GONE, absent=AbsentPartitions(frozenset({P1}))), id="known, and not asked for"
        ),
    ],
)
@pytest.mark.parametrize(
    "second", [GONE, replace(GONE, logs={**GONE.logs, P1: LogState(P1, Leader(B1), 5, LIED)})]
)
def test_what_only_the_second_look_finds_odd_is_not_a_loss_though_nobody_served_it_in_the_first(
    first: Survey, second: Survey
) -> None:
    again = suspicions(second, MARKS, ["t"])
    assert P1 in again
    found = merge_surveys(first, second, suspicions(first, MARKS, ["t"]), again, "both")
    if first.absent.unreachable:
        held = resolved(found, Policy(unreachable=Action.HOLD))
        assert [(loss.partition, loss.kind) for loss in held.held] == [(P1, LossKind.UNREACHABLE)]
    elif P1 not in second.logs:
        assert resolved(found).losses == ()


def test_what_was_looked_up_in_a_log_is_from_the_same_survey_as_the_log() -> None:
    """The first survey knows the end of one log only; the second has no leader of the other."""

    def lookups(partition: Partition, offset: int) -> OffsetLookups:
        return OffsetLookups(
            for_times={(partition, 7): offset},
            inexact_times=frozenset({(partition, offset)}),
            of_groups={(partition, "g"): offset},
            entries={(partition, offset): (offset, offset + 1)},
            uncommitted_ends={partition: offset},
        )

    logs = {p: LogState(p, Leader(B1), 5, 20) for p in (P0, P1)}
    first = Survey(0, {**logs, P0: replace(logs[P0], end_offset=LIED)}, lookups(P1, 12))
    absent = AbsentPartitions(unreachable={P1: "it has no leader"})
    second = Survey(0, {P0: logs[P0]}, lookups(P0, 11), absent)
    odd = suspicions(first, MARKS, ["t"]), suspicions(second, MARKS, ["t"])
    assert (list(odd[0]), list(odd[1])) == ([P0], [])
    found = merge_surveys(first, second, *odd, "both")
    assert found.logs == logs
    for name in ("for_times", "inexact_times", "of_groups", "entries", "uncommitted_ends"):
        parts = [getattr(lookups(p, at), name) for p, at in ((P0, 11), (P1, 12))]
        assert getattr(found.lookups, name) == parts[0] | parts[1], name
    swapped = replace(first, lookups=lookups(P0, 9)), replace(second, lookups=lookups(P1, 9))
    found = merge_surveys(*swapped, *odd, "both")
    assert found.lookups == OffsetLookups(uncommitted_ends={P0: 9}), "it is not lost in both"


def test_the_offset_of_a_group_in_a_log_without_a_leader_since_is_known() -> None:
    request = RangeRequest(
        Bounds(GroupOffset("g")), Bounds(Latest()), Earliest(), Policy(), topics=("t",)
    )
    logs = {p: LogState(p, Leader(B1), 5, 20) for p in (P0, P1)}
    of_groups = {(p, "g"): 12 for p in logs}
    first = Survey(
        0, {**logs, P0: replace(logs[P0], end_offset=LIED)}, OffsetLookups(of_groups=of_groups)
    )
    absent = AbsentPartitions(unreachable={P1: "it has no leader"})
    second = Survey(0, {P0: logs[P0]}, OffsetLookups(of_groups={(P0, "g"): 12}), absent)
    found = merge_surveys(first, second, suspicions(first, MARKS, ["t"]), {}, "both")
    ranges = resolve(request, found, JobPosition(MARKS)).ranges
    assert [(r.partition, r.from_offset, r.until_offset) for r in ranges] == [
        (P0, 12, 20),
        (P1, 12, 20),
    ]


def test_who_told_is_known_though_somebody_else_was_silent_after_it() -> None:
    cluster = Cluster(lambda *about: None)

    def search(*about: Any) -> Any:
        yield LeaderRequest((B1,), (BrokerRequest("topics"),))
        silent = yield LeaderRequest((), (BrokerRequest("topics"),))
        assert isinstance(silent, NoSeedAnswered)
        return ClusterView((B1,), topics(P0))

    cluster.find_leaders = search  # type: ignore[method-assign]
    assert ask_metadata(cast(ConnectionPool, cluster), ["t"], [B1, B2]).answered_by == B1


@pytest.mark.parametrize(("offset", "asked"), [(20, False), (21, True), (40, True)])
def test_how_far_a_log_goes_is_asked_where_committed_records_end_before_a_named_offset(
    offset: int, asked: bool
) -> None:
    cluster = Cluster(lambda _, __, ___: None)
    bounds = (Bounds(Earliest()), Bounds(Latest(), {P1: AtOffset(offset)}))
    survey = take_survey(cast(ConnectionPool, cluster), SurveyRequest(("t",), bounds=bounds))
    assert survey.lookups.uncommitted_ends == ({P1: 30} if asked else {})
    assert ((B1, "all") in cluster.asked) is asked
