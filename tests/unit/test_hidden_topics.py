"""Topics that old brokers do not list: deleted, or no longer visible to this client."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest

from rangeland.connection.pool import ConnectionPool
from rangeland.dialects.cluster_values import ClusterView, TopicView
from rangeland.dialects.error_meaning import ErrorMeaning
from rangeland.errors import RangeLost
from rangeland.job import Job
from rangeland.landing.plan_surveys import PlanSurveys
from rangeland.loss import Action, LossKind
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
from rangeland.planning.bound_resolution import RangeRequest, resolve
from rangeland.planning.coverage import coverage_of
from rangeland.planning.incarnation import LogMark
from rangeland.planning.job_position import JobPosition
from rangeland.planning.policy import Policy
from rangeland.planning.retention_risk import ReadSpeed
from rangeland.progress_events import NoProgress
from rangeland.survey import survey_attempt
from rangeland.survey.cluster_survey import take_survey
from rangeland.survey.survey_attempt import SurveyAttempt
from rangeland.survey.survey_request import SurveyRequest
from rangeland.survey.wanted_partitions import ChangedMeanwhile, UnknownTopic, wanted_partitions
from tests.fakes.planning import unless_failing
from tests.unit.test_connection import peer, settings_of
from tests.unit.test_old_kafka_brokers import old

GONE = Partition("gone", 0)
CHECKPOINT = {GONE: LogMark(7)}


def asked(action: Action) -> RangeRequest:
    return RangeRequest(
        Bounds(FromCheckpoint()),
        Bounds(Latest()),
        Earliest(),
        Policy(vanished=action),
        topics=("gone",),
    )


def test_a_topic_that_an_old_broker_may_hide_is_never_skipped() -> None:
    with peer(old([])) as address, ConnectionPool(settings_of(address)) as brokers:
        survey = take_survey(
            brokers, SurveyRequest(("gone",), known=frozenset({"gone"}), checkpoint=CHECKPOINT)
        )
    assert survey.absent.unseen_topics == {"gone"}
    for action in (Action.SKIP, Action.FAIL):
        with pytest.raises(RangeLost) as caught:
            unless_failing(resolve(asked(action), survey, JobPosition(CHECKPOINT)))
        assert "or this client may not see it any more" in str(caught.value.facts)
    (held,) = resolve(asked(Action.HOLD), survey, JobPosition(CHECKPOINT)).held
    assert held.kind is LossKind.VANISHED
    assert "or this client may not see it any more" in held.evidence


# --- landed by backfills alone ----------------------------------------------------------------


BACKFILLED = coverage_of([Range(GONE, 0, 7)])
BACKFILL = replace(asked(Action.FAIL), from_bounds=Bounds(Earliest()))
HERE = Partition("here", 0)
OTHERS = Survey(0, {HERE: LogState(HERE, Leader(Address("b1", 9092)), 0, 5)})


@pytest.mark.parametrize(
    "position", [JobPosition(covered=BACKFILLED), JobPosition(landed_again=BACKFILLED)]
)
@pytest.mark.parametrize("survey", [Survey(0, {}), OTHERS])
def test_a_topic_that_only_backfills_have_landed_is_not_the_jobs_mistake(
    survey: Survey, position: JobPosition
) -> None:
    with pytest.raises(RangeLost, match=r"gone/0.*vanished"):
        unless_failing(resolve(BACKFILL, survey, position))
    holding = replace(BACKFILL, policy=Policy(vanished=Action.HOLD))
    (held,) = resolve(holding, survey, position).held
    assert (held.partition, held.kind) == (GONE, LossKind.VANISHED)


def test_without_any_topic_of_a_pattern_those_that_were_landed_are_missing() -> None:
    by_pattern = replace(BACKFILL, topics=(), topic_pattern="g.*")
    position = JobPosition(covered=BACKFILLED)
    with pytest.raises(RangeLost, match=r"gone/0.*vanished"):
        unless_failing(resolve(by_pattern, Survey(0, {}), position))
    found = unless_failing(resolve(replace(by_pattern, topic_pattern=".*"), OTHERS, position))
    assert [r.partition for r in found.ranges] == [HERE]


@pytest.mark.parametrize(
    "asked_for",
    [
        replace(BACKFILL, topics=("here",)),
        replace(BACKFILL, topics=("here", "gone"), partitions={"gone": [1]}),
    ],
    ids=["its topic", "its partition"],
)
def test_what_only_another_job_has_landed_is_not_missing(asked_for: RangeRequest) -> None:
    found = resolve(asked_for, OTHERS, JobPosition(covered=BACKFILLED))
    assert (found.failing, len(found.ranges)) == (None, 1)


def test_a_plan_is_made_from_a_survey_that_knows_what_backfills_have_landed() -> None:
    job = Job.parse("job: j\nsource: {servers: [b1:9092], topics: [gone]}\nsink: {table: lake/t}\n")
    speed, unused = cast(ReadSpeed, None), cast(Any, None)
    surveys = PlanSurveys(job, unused, NoProgress(), unused, speed)
    for position in (JobPosition(covered=BACKFILLED), JobPosition(landed_again=BACKFILLED)):
        request = surveys.request_for_plan(position)
        assert (request.known, request.landed) == ({"gone"}, {GONE})


def test_a_missing_topic_of_which_only_another_job_has_landed_partitions_is_unknown() -> None:
    """Its own partition has never been landed, so nothing could report it as lost."""
    text = "job: j\nsource: {servers: [b1:9092], topics: [here, gone], partitions: {gone: [1]}}\n"
    job = Job.parse(f"{text}sink: {{table: lake/t}}\n")
    speed, unused = cast(ReadSpeed, None), cast(Any, None)
    position = JobPosition({HERE: LogMark(5)}, coverage_of([Range(GONE, 0, 7), Range(HERE, 0, 5)]))
    request = PlanSurveys(job, unused, NoProgress(), unused, speed).request_for_plan(position)
    assert (request.known, request.landed) == ({"here"}, {HERE})
    gone = TopicView("gone", ErrorMeaning.FIND_LEADER, "UNKNOWN_TOPIC", is_unknown=True)
    here = TopicView("here", ErrorMeaning.OK, "", leaders={HERE: Leader(Address("b1", 9092))})
    with pytest.raises(UnknownTopic, match="there is no topic gone") as caught:
        wanted_partitions(ClusterView((), {"here": here, "gone": gone}), request)
    assert caught.value.exit_code == 78
    own = replace(position, covered=coverage_of([Range(replace(GONE, number=1), 0, 7)]))
    surveys = PlanSurveys(job, unused, NoProgress(), unused, speed)
    assert surveys.request_for_plan(own).known == {"here", "gone"}


# --- a survey that starts over ----------------------------------------------------------------


def test_a_survey_that_starts_over_believes_the_broker_that_it_asks_then(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It asks an old broker first, which may hide the topic, then one that would say so."""
    monkeypatch.setattr(survey_attempt, "PAUSE_MS", 0)
    gone = TopicView("gone", ErrorMeaning.FIND_LEADER, "UNKNOWN_TOPIC", is_unknown=True)
    views = [
        ClusterView((), {"gone": replace(gone, may_be_hidden=hides)}) for hides in (True, False)
    ]
    monkeypatch.setattr(survey_attempt, "ask_metadata", lambda *about: views.pop(0))
    brokers = ConnectionPool(settings_of(Address("b1", 9092)))
    attempt = SurveyAttempt(brokers, SurveyRequest(("gone",), known=frozenset({"gone"})))
    seen = []
    for _ in range(2):
        attempt.find_leaders()
        assert not attempt.partitions.leaders
        seen.append(attempt.partitions.absent.unseen_topics)
        attempt.start_over(ChangedMeanwhile("a leader has moved"))
    assert seen == [{"gone"}, set()]


def test_a_topic_that_a_newer_broker_denies_is_gone_and_may_be_skipped() -> None:
    (loss,) = resolve(asked(Action.SKIP), Survey(0, {}), JobPosition(CHECKPOINT)).losses
    assert loss.evidence == "the cluster no longer names this topic"
