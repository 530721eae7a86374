"""Many jobs in one session: what is wrong with one of them stays its own."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from rangeland.cluster_access.cluster_lookup import cluster_of_brokers, look_up_cluster
from rangeland.errors import Unreachable
from rangeland.fleet import fleet_run, shared_survey
from rangeland.fleet.fleet_result import FleetResult
from rangeland.fleet.fleet_run import Fleet, NoJobsProgress, run_all
from rangeland.fleet.shared_survey import SharedSurveys
from rangeland.fleet.table_job import TableJob
from rangeland.job import Job
from rangeland.job.connection_settings import request_for_range
from rangeland.model import Address, Leader, LogState, Partition, Survey
from rangeland.survey.survey_request import SurveyRequest

SASL = "security: {sasl: {mechanism: PLAIN, username: a, password: '${env:NOT_THERE}'}}"
SOURCES = {
    "a": "{servers: [k:9092], topics: [t]}",
    "b": "{servers: [k:9092], topics: [u]}",
    "no-secret": f"{{servers: [k:9092], topics: [v], {SASL}}}",
    "no-zookeeper": "{zookeeper: 'z:2181', dialect: kafka, topics: [w]}",
}


def table_job(name: str) -> TableJob:
    text = f"job: {name}\nsource: {SOURCES[name]}\nsink: {{table: lake/{name}}}\n"
    return TableJob(Job.parse(text), None)


class Session:
    """In place of Spark and brokers: tables in which nothing has landed, and surveys."""

    def __init__(self) -> None:
        self.surveyed: list[tuple[str, ...]] = []
        self.landed: list[str] = []

    def open_landing(self, job: Job, spark: Any, progress: Any, kind: Any, survey_of: Any) -> Any:
        position = SimpleNamespace(topics=(), checkpoint={})
        return SimpleNamespace(
            job=job,
            survey_of=survey_of,
            target=SimpleNamespace(history=SimpleNamespace(position=lambda _: position)),
            surveys=SimpleNamespace(request_for_plan=lambda _: request_for_range(job)),
        )

    def land_plans(self, context: Any) -> Any:
        context.survey_of(context.job, request_for_range(context.job))
        self.landed.append(context.job.name)
        return SimpleNamespace(warnings=(), exit_code=0)

    def take_survey(self, job: Job, request: SurveyRequest) -> Survey:
        shared_survey.look_up_cluster(job)
        self.surveyed.append(request.topics)
        leader = Leader(1, Address("k", 9092))
        places = [Partition(topic, 0) for topic in request.topics]
        return Survey(taken_at_ms=0, logs={p: LogState(p, leader, 0, 10, None) for p in places})

    def run(self, *names: str) -> FleetResult[Any]:
        fleet = Fleet(tuple(table_job(name) for name in names))
        return run_all(fleet, cast(Any, None), NoJobsProgress(), parallel=1)


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> Session:
    found = Session()

    def look_up(job: Job) -> Any:
        if job.source.zookeeper:
            raise Unreachable("could not connect to the ZooKeeper at z:2181")
        return look_up_cluster(job)

    monkeypatch.setattr(fleet_run, "open_landing", found.open_landing)
    monkeypatch.setattr(fleet_run, "land_plans", found.land_plans)
    monkeypatch.setattr(fleet_run, "SharedSurveys", lambda: SharedSurveys(found.take_survey))
    monkeypatch.setattr(shared_survey, "look_up_cluster", look_up)
    return found


@pytest.mark.parametrize(
    ("bad", "exit_code", "why"),
    [("no-secret", 78, "NOT_THERE is not set"), ("no-zookeeper", 75, "z:2181")],
)
def test_a_job_whose_cluster_cannot_be_looked_up_fails_alone(
    session: Session, bad: str, exit_code: int, why: str
) -> None:
    found = session.run("a", bad, "b")
    assert session.landed == ["a", "b"]
    assert session.surveyed == [("t", "u")]
    assert [result.exit_code for result in found.jobs] == [0, exit_code, 0]
    assert why in str(found.jobs[1].error)


def test_an_unforeseen_error_of_one_look_up_is_that_job_s(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    def look_up(job: Job) -> Any:
        if job.name == "b":
            raise KeyError("odd")
        return cluster_of_brokers(job, job.source.named_brokers)

    monkeypatch.setattr(shared_survey, "look_up_cluster", look_up)
    assert [result.exit_code for result in session.run("a", "b").jobs] == [0, 70]
    assert session.landed == ["a"]


def test_an_unforeseen_error_of_a_shared_survey_is_that_of_the_job_which_causes_it(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    def take_survey(job: Job, request: SurveyRequest) -> Survey:
        if "u" in request.topics:
            raise KeyError("odd")
        return Session.take_survey(session, job, request)

    monkeypatch.setattr(fleet_run, "SharedSurveys", lambda: SharedSurveys(take_survey))
    assert [result.exit_code for result in session.run("a", "b").jobs] == [0, 70]
    assert session.landed == ["a"]
    assert session.surveyed == [("t",)]


def test_a_job_of_unknown_size_is_run(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    def offsets_to_read(job: fleet_run.OpenedJob) -> int:
        raise KeyError("odd")

    monkeypatch.setattr(fleet_run.OpenedJob, "offsets_to_read", offsets_to_read)
    assert session.run("a", "b").exit_code == 0
    assert session.landed == ["a", "b"]
