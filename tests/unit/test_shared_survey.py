"""One survey for the jobs of many tables, and when a job takes its own."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rangeland.errors import Unreachable
from rangeland.fleet.shared_survey import SharedSurveys, SurveyTicket, merge_requests, part_of
from rangeland.job import Job
from rangeland.job.connection_settings import request_for_range
from rangeland.landing.plan_surveys import FRESH_S
from rangeland.model import (
    AbsentPartitions,
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
        absent=AbsentPartitions(
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

    def announce(self, *jobs: Job) -> list[SurveyTicket]:
        return announced(self.surveys, *jobs)

    def ask(self, ticket: SurveyTicket) -> Survey:
        return ticket.survey_of(ticket.job, request_for_range(ticket.job))


def announced(surveys: SharedSurveys, *jobs: Job) -> list[SurveyTicket]:
    tickets = [SurveyTicket(job, surveys) for job in jobs]
    for ticket in tickets:
        ticket.announce(request_for_range(ticket.job))
    return tickets


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


def test_many_jobs_cost_one_survey_and_each_gets_its_part(cluster: Cluster) -> None:
    jobs = [job_of(f"t{n}") for n in range(100)]
    for ticket in cluster.announce(*jobs):
        assert cluster.ask(ticket) == survey_for(request_for_range(ticket.job))
    assert len(cluster.asked) == 1


def test_a_second_survey_of_a_job_is_its_own(cluster: Cluster) -> None:
    one, _ = cluster.announce(job_of("a"), job_of("b"))
    cluster.ask(one)
    cluster.ask(one)
    assert [w.topics for w in cluster.asked] == [("a", "b"), ("a",)]


def test_an_old_survey_is_taken_again_for_those_that_wait(cluster: Cluster) -> None:
    first, second, third = cluster.announce(*(job_of(name) for name in "abc"))
    cluster.ask(first)
    cluster.now = FRESH_S + 1
    cluster.ask(second)
    cluster.ask(third)
    assert [w.topics for w in cluster.asked] == [("a", "b", "c"), ("b", "c")]


def test_other_clusters_have_their_own_survey(cluster: Cluster) -> None:
    jobs = [job_of("a"), job_of("b", "[other:9092]"), job_of("c")]
    for ticket in cluster.announce(*jobs):
        cluster.ask(ticket)
    assert sorted(w.topics for w in cluster.asked) == [("a", "c"), ("b",)]


def test_policies_of_topics_do_not_keep_jobs_apart_and_holding_does(cluster: Cluster) -> None:
    jobs = [
        job_of("a"),
        job_of("b", more="policy: {expired: skip}"),
        job_of("c", more="policy: {unreachable: hold}"),
    ]
    for ticket in cluster.announce(*jobs):
        cluster.ask(ticket)
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
    ticket = SurveyTicket(job, cluster.surveys)
    ticket.announce(wanted)
    assert ticket.ahead() is None
    ticket.survey_of(job, wanted)
    assert cluster.asked == [wanted]


def test_a_job_that_asks_for_something_else_than_announced_takes_its_own(cluster: Cluster) -> None:
    job = job_of("a")
    (ticket,) = cluster.announce(job)
    other = replace(request_for_range(job), times_ms=(7,))
    ticket.survey_of(job, other)
    assert cluster.asked[-1] == other


def test_where_the_shared_survey_fails_each_fails_or_succeeds_by_itself() -> None:
    asked: list[tuple[str, ...]] = []

    def take(job: Job, wanted: SurveyRequest) -> Survey:
        asked.append(wanted.topics)
        if "bad" in wanted.topics:
            raise Unreachable("the topics bad have no partitions yet")
        return survey_for(wanted)

    surveys = SharedSurveys(take)
    good, bad = announced(surveys, job_of("good"), job_of("bad"))
    assert good.ahead() is None
    found = good.survey_of(good.job, request_for_range(good.job))
    assert list(found.logs) == [Partition("good", 0)]
    with pytest.raises(Unreachable):
        bad.survey_of(bad.job, request_for_range(bad.job))
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
    assert part_of(both, SurveyRequest(("b",))) == survey_for(SurveyRequest(("b",), times_ms=(1,)))


# --- jobs that read one topic ---------------------------------------------------------------

P = Partition("orders", 0)
EARLIER, LATER = LogMark(500, "id", 3), LogMark(800, "id", 4)


def of_table(table: str, source: str = "", more: str = "") -> Job:
    servers = f"servers: [k:9092], topics: [orders]{source}"
    return Job.parse(f"job: {table}\nsource: {{{servers}}}\nsink: {{table: lake/{table}}}\n{more}")


def announce_at(cluster: Cluster, job: Job, *marks: LogMark, p: Partition = P) -> SurveyTicket:
    checkpoint = dict.fromkeys([p], *marks) if marks else {}
    ticket = SurveyTicket(job, cluster.surveys)
    ticket.announce(request_for_range(job, {x.topic for x in checkpoint}, checkpoint))
    return ticket


def take_as_announced(ticket: SurveyTicket) -> Survey:
    assert ticket.request is not None
    return ticket.survey_of(ticket.job, ticket.request)


@pytest.mark.parametrize("marks", [(EARLIER, LATER), (LATER, EARLIER)])
def test_jobs_that_have_reached_different_epochs_of_a_topic_take_two_surveys(
    cluster: Cluster, marks: tuple[LogMark, LogMark]
) -> None:
    jobs = [of_table("raw"), of_table("typed")]
    tickets = [announce_at(cluster, *pair) for pair in zip(jobs, marks, strict=True)]
    for ticket in tickets:
        take_as_announced(ticket)
    assert [w.checkpoint for w in cluster.asked] == [{P: mark} for mark in marks]


@pytest.mark.parametrize(
    "other",
    [
        replace(EARLIER, until_offset=501),
        replace(EARLIER, topic_id="other"),
        replace(EARLIER, epoch=4),
        replace(EARLIER, epoch_is_later=True),
        None,
    ],
    ids=["offset", "topic id", "epoch", "later epoch", "nothing landed"],
)
def test_every_difference_between_two_checkpoints_keeps_jobs_apart(
    cluster: Cluster, other: LogMark | None
) -> None:
    first = announce_at(cluster, of_table("raw"), EARLIER)
    second = announce_at(cluster, of_table("typed"), *([other] if other else []))
    take_as_announced(first)
    take_as_announced(second)
    assert len(cluster.asked) == 2
    assert cluster.asked[1].known == (frozenset({"orders"}) if other else frozenset())


def test_jobs_that_have_reached_the_same_share_one_survey(cluster: Cluster) -> None:
    for ticket in [announce_at(cluster, of_table(name), EARLIER) for name in ("raw", "typed")]:
        take_as_announced(ticket)
    assert [w.checkpoint for w in cluster.asked] == [{P: EARLIER}]


def test_the_checkpoint_of_a_topic_that_a_job_has_left_is_not_shared(cluster: Cluster) -> None:
    left = announce_at(cluster, job_of("other"), EARLIER)
    reads = announce_at(cluster, of_table("typed"), LATER)
    for ticket in (left, reads):
        take_as_announced(ticket)
    (request,) = cluster.asked
    assert (request.topics, request.checkpoint) == (("other", "orders"), {P: LATER})
    assert merge_requests([r for r in (left.request,) if r is not None]).known == frozenset()


@pytest.mark.parametrize("source", [", cluster: prod", ", zookeeper: 'z:2181/kafka'"])
def test_jobs_that_name_their_cluster_differently_take_two_surveys(
    cluster: Cluster, source: str
) -> None:
    for ticket in cluster.announce(job_of("a"), of_table("raw", source)):
        cluster.ask(ticket)
    assert len(cluster.asked) == 2


def test_only_the_job_that_names_an_offset_is_told_of_an_open_transaction_before_it() -> None:
    survey = survey_for(SurveyRequest(("orders",)))
    survey = replace(survey, lookups=OffsetLookups(uncommitted_ends={P: 30}))
    beyond = Bounds(AtOffset(20))
    request = SurveyRequest(("orders",), bounds=(Bounds(Earliest()), beyond))
    assert part_of(survey, request).lookups.uncommitted_ends == {P: 30}
    assert part_of(survey, SurveyRequest(("orders",))).lookups.uncommitted_ends == {}
