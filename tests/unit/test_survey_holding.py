"""What a survey holds back, with fake leaders that do not answer every question."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import pytest

from rangeland.cluster_settings import ClusterSettings
from rangeland.connection.pool import ConnectionPool
from rangeland.dialects.capabilities import Capabilities
from rangeland.dialects.cluster_values import ClusterView, OffsetResult, TopicView
from rangeland.dialects.error_meaning import ErrorMeaning
from rangeland.dialects.protocol_session import BrokerRequest
from rangeland.errors import Unreachable
from rangeland.loss import Action, LossKind
from rangeland.model import (
    Address,
    AtTime,
    Bound,
    Bounds,
    Earliest,
    Isolation,
    Latest,
    Leader,
    Partition,
    Survey,
)
from rangeland.planning.bound_resolution import RangeRequest, resolve
from rangeland.planning.job_position import JobPosition
from rangeland.planning.policy import Policy
from rangeland.survey.cluster_survey import take_survey
from rangeland.survey.survey_request import SurveyRequest

B1 = Address("b1", 9092)
P0, P1 = Partition("t", 0), Partition("t", 1)
Silent = Callable[[Partition, Any], bool]


class Cluster:
    """One broker that leads two logs of offsets 10 to 20; of any time the offset is 15. It is
    a dialect and the connections at once, so questions need no bytes."""

    capabilities = Capabilities()

    def __init__(self, silent: Silent) -> None:
        self.dialect = self
        self.silent = silent
        self.requests = 0
        self.settings = ClusterSettings("kafka", (B1,), survey_ms=300)

    def find_leaders(self, *asked: object) -> Any:
        leaders = {P0: Leader(B1), P1: Leader(B1)}
        view = TopicView("t", ErrorMeaning.OK, "", is_internal=False, leaders=leaders)
        yield from ()
        return ClusterView((B1,), {"t": view})

    def call_all(self, address: Address, questions: Sequence[BrokerRequest]) -> list[Any]:
        return [question.message for question in questions]

    def offsets_requests(
        self, leaders: Mapping[Partition, Leader], when: Any, isolation: Isolation
    ) -> list[BrokerRequest]:
        return [BrokerRequest((tuple(leaders), when))]

    def read_offsets(self, responses: Sequence[Any]) -> dict[Partition, OffsetResult]:
        ((partitions, when),) = responses
        return {p: self._answer(p, when) for p in partitions}

    def _answer(self, partition: Partition, when: Any) -> OffsetResult:
        if self.silent(partition, when):
            return OffsetResult(ErrorMeaning.RETRY, "REQUEST_TIMED_OUT", None)
        offset = 10 if when == Earliest() else 20 if when == Latest() else 15
        return OffsetResult(ErrorMeaning.OK, "", offset)

    def sizes_requests(self, logs: Mapping[Partition, tuple[int, int]]) -> list[BrokerRequest]:
        return []

    def read_sizes(self, responses: Sequence[Any]) -> dict[Partition, int]:
        return {}


def look(action: Action, silent: Silent) -> Survey:
    cluster = cast(ConnectionPool, Cluster(silent))
    holds = Policy(unreachable=action).tolerates_missing_leaders
    wanted = SurveyRequest(("t",), times_ms=(5,), tolerates_missing_leaders=holds)
    return take_survey(cluster, wanted)


def no_times(partition: Partition, when: Any) -> bool:
    return partition == P1 and isinstance(when, AtTime)


@pytest.mark.parametrize(
    ("lower", "upper", "interval"),
    [(AtTime(5), Latest(), (15, 20)), (Earliest(), AtTime(5), (10, 15))],
)
def test_a_partition_whose_time_could_not_be_looked_up_is_held_and_not_taken_for_empty(
    lower: Bound, upper: Bound, interval: tuple[int, int]
) -> None:
    survey = look(Action.HOLD, no_times)
    assert set(survey.logs) == {P0}
    assert "REQUEST_TIMED_OUT" in survey.absent.unreachable[P1]
    request = RangeRequest(
        Bounds(lower), Bounds(upper), Earliest(), Policy(unreachable=Action.HOLD), topics=("t",)
    )
    found = resolve(request, survey, JobPosition())
    assert [(r.partition, r.from_offset, r.until_offset) for r in found.ranges] == [(P0, *interval)]
    assert [(x.partition, x.kind) for x in found.held] == [(P1, LossKind.UNREACHABLE)]


class WithoutEnd(Cluster):
    """Its leader reports no error for the end of partition 1, and no offset."""

    def _answer(self, partition: Partition, when: Any) -> OffsetResult:
        answer = super()._answer(partition, when)
        return replace(answer, offset=None) if (partition, when) == (P1, Latest()) else answer


def test_a_log_whose_end_is_not_reported_is_not_taken_for_an_empty_one() -> None:
    with pytest.raises(Unreachable, match="offsets of t/1") as caught:
        take_survey(cast(ConnectionPool, WithoutEnd(lambda *_: False)), SurveyRequest(("t",)))
    assert "without an offset" in caught.value.why


def test_a_time_that_cannot_be_looked_up_fails_the_survey_where_nothing_is_held() -> None:
    with pytest.raises(Unreachable, match="offsets of t/1"):
        look(Action.FAIL, no_times)


def test_a_partition_that_all_is_known_of_is_in_the_survey() -> None:
    survey = look(Action.HOLD, lambda partition, when: False)
    assert (set(survey.logs), survey.absent.unreachable) == ({P0, P1}, {})
    assert survey.lookups.for_times == {(P0, 5): 15, (P1, 5): 15}


class Recreated(Cluster):
    """Its topic is created again, with fewer records, whenever the end of partition 1 is asked for,
    as many times as it is told; that request then has no response."""

    def __init__(self, times: int) -> None:
        super().__init__(self._recreate)
        self.settings = replace(self.settings, survey_ms=1_000)
        self.left = times
        self.incarnation = 0

    def _recreate(self, partition: Partition, when: Any) -> bool:
        if partition == P0 or when != Latest() or self.left == 0:
            return False
        self.left -= 1
        self.incarnation += 1
        return True

    def find_leaders(self, *asked: object) -> Any:
        view = yield from super().find_leaders(*asked)
        leaders = {p: Leader(B1, topic_id=f"id-{self.incarnation}") for p in (P0, P1)}
        return replace(view, topics={"t": replace(view.topics["t"], leaders=leaders)})

    def _answer(self, partition: Partition, when: Any) -> OffsetResult:
        answer = super()._answer(partition, when)
        offset = answer.offset if answer.offset is None else answer.offset - self.incarnation
        return replace(answer, offset=offset)


def test_a_survey_is_of_one_incarnation_of_a_topic() -> None:
    survey = take_survey(cast(ConnectionPool, Recreated(1)), SurveyRequest(("t",)))
    found = {
        (log.leader.topic_id, log.start_offset, log.end_offset) for log in survey.logs.values()
    }
    assert found == {("id-1", 9, 19)}


def test_a_topic_that_is_recreated_again_and_again_cannot_be_surveyed_now() -> None:
    with pytest.raises(Unreachable):
        take_survey(cast(ConnectionPool, Recreated(100)), SurveyRequest(("t",)))
