"""One survey for the jobs of many tables, and when a job takes its own."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rangeland.errors import Unreachable
from rangeland.fleet.shared_survey import SharedSurveys, merge_requests, part_of
from rangeland.job import Job
from rangeland.job.connection_settings import request_for_range
from rangeland.landing.plan_surveys import FRESH_SECONDS
from rangeland.model import (
    Absences,
    Address,
    AtOffset,
    Bounds,
    Earliest,
    Latest,
    Leader,
    LogState,
    OffsetLookups,
    Partition,
    Survey,
)
from rangeland.planning.incarnation import LogMark
from rangeland.survey.survey_request import SurveyRequest


def job_of(topic: str, servers: str = "[k:9092]", more: str = "") -> Job:
    source = f"{{servers: {servers}, topics: [{topic}]}}"
    return Job.parse(f"job: all\nsource: {source}\nsink: {{table: lake/{topic}}}\n{more}")


def survey_for(wanted: SurveyRequest) -> Survey:
    leader = Leader(1, Address("k", 9092))
    places = [Partition(topic, 0) for topic in wanted.topics]
    return Survey(
        taken_at_ms=0,
        logs={p: LogState(p, leader, 0, 10, None) for p in places},
        lookups=OffsetLookups({(p, t): 5 for p in places for t in wanted.times_ms}),
        absent=Absences(
            unreachable={Partition(topic, 1): "no leader" for topic in wanted.topics},
            unseen_topics=frozenset(wanted.topics),
        ),
    )


class Cluster:
    """Responses surveys, counts them, and has a clock."""

    def __init__(self) -> None:
        self.asked: list[SurveyRequest] = []
        self.now = 0.0
        self.surveys = SharedSurveys(self.take, lambda: self.now)

    def take(self, job: Job, wanted: SurveyRequest) -> Survey:
        self.asked.append(wanted)
        return survey_for(wanted)

    def announce(self, *jobs: Job) -> None:
        self.surveys.announce((job, request_for_range(job)) for job in jobs)

    def ask(self, job: Job) -> Survey:
        return self.surveys.survey_of(job, request_for_range(job))


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


def test_many_jobs_cost_one_survey_and_each_gets_its_part(cluster: Cluster) -> None:
    jobs = [job_of(f"t{n}") for n in range(100)]
    cluster.announce(*jobs)
    for job in jobs:
        assert cluster.ask(job) == survey_for(request_for_range(job))
    assert len(cluster.asked) == 1


def test_a_second_survey_of_a_job_is_its_own(cluster: Cluster) -> None:
    one, other = job_of("a"), job_of("b")
    cluster.announce(one, other)
    cluster.ask(one)
    cluster.ask(one)
    assert [w.topics for w in cluster.asked] == [("a", "b"), ("a",)]


def test_an_old_survey_is_taken_again_for_those_that_wait(cluster: Cluster) -> None:
    jobs = [job_of(name) for name in "abc"]
    cluster.announce(*jobs)
    cluster.ask(jobs[0])
    cluster.now = FRESH_SECONDS + 1
    cluster.ask(jobs[1])
    cluster.ask(jobs[2])
    assert [w.topics for w in cluster.asked] == [("a", "b", "c"), ("b", "c")]


def test_other_clusters_have_their_own_survey(cluster: Cluster) -> None:
    jobs = [job_of("a"), job_of("b", "[other:9092]"), job_of("c")]
    cluster.announce(*jobs)
    for job in jobs:
        cluster.ask(job)
    assert sorted(w.topics for w in cluster.asked) == [("a", "c"), ("b",)]


def test_policies_of_topics_do_not_keep_jobs_apart_and_holding_does(cluster: Cluster) -> None:
    jobs = [
        job_of("a"),
        job_of("b", more="policy: {expired: skip}"),
        job_of("c", more="policy: {unreachable: hold}"),
    ]
    cluster.announce(*jobs)
    for job in jobs:
        cluster.ask(job)
    assert sorted(w.topics for w in cluster.asked) == [("a", "b"), ("c",)]


@pytest.mark.parametrize(
    "more",
    [
        "range: {from: 'group:g'}",
        "",
    ],
    ids=["a group's offsets", "some partitions"],
)
def test_a_job_that_asks_for_more_takes_its_own(cluster: Cluster, more: str) -> None:
    job = job_of("a", more=more)
    wanted = (
        request_for_range(job) if more else replace(request_for_range(job), partitions={"a": [0]})
    )
    cluster.surveys.announce([(job, wanted)])
    assert cluster.surveys.ahead(job) is None
    cluster.surveys.survey_of(job, wanted)
    assert cluster.asked == [wanted]


def test_a_job_that_asks_for_something_else_than_announced_takes_its_own(cluster: Cluster) -> None:
    job = job_of("a")
    cluster.announce(job)
    other = replace(request_for_range(job), times_ms=(7,))
    cluster.surveys.survey_of(job, other)
    assert cluster.asked[-1] == other


def test_where_the_shared_survey_fails_each_fails_or_succeeds_by_itself() -> None:
    asked: list[tuple[str, ...]] = []

    def take(job: Job, wanted: SurveyRequest) -> Survey:
        asked.append(wanted.topics)
        if "bad" in wanted.topics:
            raise Unreachable("the topics bad have no partitions yet")
        return survey_for(wanted)

    surveys = SharedSurveys(take)
    good, bad = job_of("good"), job_of("bad")
    surveys.announce((job, request_for_range(job)) for job in (good, bad))
    assert surveys.ahead(good) is None
    assert list(surveys.survey_of(good, request_for_range(good)).logs) == [Partition("good", 0)]
    with pytest.raises(Unreachable):
        surveys.survey_of(bad, request_for_range(bad))
    assert asked == [("good", "bad"), ("good",), ("bad",)]


def test_a_merged_request_has_what_each_asks_for() -> None:
    mark = LogMark(5, None)
    every, named = Bounds(Latest()), Bounds(Earliest(), {Partition("b", 0): AtOffset(3)})
    one = SurveyRequest(("a",), times_ms=(3,), known=frozenset({"a"}), bounds=(every, every))
    other = SurveyRequest(
        ("b", "a"), times_ms=(1, 3), checkpoint={Partition("b", 0): mark}, bounds=(named, every)
    )
    found = merge_requests([one, other])
    assert (found.topics, found.times_ms, found.known) == (("a", "b"), (1, 3), frozenset({"a"}))
    assert found.checkpoint == {Partition("b", 0): mark}
    assert found.bounds == (named,)


def test_a_part_says_nothing_about_other_topics() -> None:
    both = survey_for(SurveyRequest(("a", "b"), times_ms=(1,)))
    assert part_of(both, ["b"]) == survey_for(SurveyRequest(("b",), times_ms=(1,)))
