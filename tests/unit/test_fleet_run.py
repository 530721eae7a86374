"""Many jobs in one session: what is wrong with one of them stays its own."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyspark.errors import AnalysisException

from rangeland.cluster_access.cluster_lookup import cluster_of_brokers, look_up_cluster
from rangeland.errors import Conflict, RangelandError, StorageFailed, Unreachable
from rangeland.fleet import fleet_run, shared_survey, topic_jobs
from rangeland.fleet.fleet_result import FleetResult, JobResult
from rangeland.fleet.fleet_run import (
    Fleet,
    NoJobsProgress,
    fleet_of,
    mirror_checkpoints,
    preview_job,
    run_all,
)
from rangeland.fleet.shared_survey import SharedSurveys
from rangeland.fleet.table_job import TableJob
from rangeland.fleet.topic_jobs import LoadedFile, load_files
from rangeland.job import Job
from rangeland.job.connection_settings import request_for_range
from rangeland.job.job_text import parse_job_text
from rangeland.model import Address, Leader, LogState, Partition, Survey
from rangeland.planning.plan_kind import PlanKind
from rangeland.progress_events import NoProgress
from rangeland.results import RunResult
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
        self.topics: tuple[str, ...] = ()
        """The topics that have landed."""

    def open_landing(
        self, job: Job, spark: Any, progress: Any, kind: Any, survey_of: Any = None
    ) -> Any:
        position = SimpleNamespace(topics=self.topics, checkpoint={})
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


def test_a_table_with_another_topic_is_neither_landed_in_nor_planned_for(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fleet_run, "preview_plan", lambda context: context.job.name)
    found = replace(table_job("a"), template=table_job("a").job)
    for topics in ((), ("t",)):
        session.topics = topics
        assert preview(found) == "a"
    session.topics = ("older", "t")
    with pytest.raises(Conflict, match="lake/a has older, not t"):
        preview(found)
    (result,) = run_all(Fleet((found,)), cast(Any, None), NoJobsProgress()).jobs
    assert isinstance(result.error, Conflict)
    assert session.landed == []


def preview(found: TableJob) -> object:
    return preview_job(found, cast(Any, None), NoProgress(), PlanKind.RUN)


# --- which jobs there are -------------------------------------------------------------------


def test_a_catalog_that_is_down_fails_the_file_that_needs_it_alone() -> None:
    def is_down(name: str) -> bool:
        raise AnalysisException("Unable to instantiate SessionHiveMetaStoreClient")

    spark = SimpleNamespace(catalog=SimpleNamespace(databaseExists=is_down))
    found = fleet_of([in_catalog(), loaded("a")], [], cast(Any, spark), NoJobsProgress())
    assert [table_job.name for table_job in found.jobs] == ["a"]
    (failed,) = found.failed
    assert (failed.job, failed.error.exit_code) == ("all", 75)
    assert "could not list the tables of main.events.{topic}: Unable" in str(failed.error)


def test_an_unforeseen_error_of_one_file_is_that_file_s(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def fail(*_: object) -> Any:
        raise KeyError("odd")

    monkeypatch.setattr(topic_jobs, "landed_topics", fail)
    found = fleet_of([in_catalog(), loaded("a")], [], cast(Any, None), NoJobsProgress())
    assert [table_job.name for table_job in found.jobs] == ["a"]
    assert [one.error.exit_code for one in found.failed] == [70]

    monkeypatch.setattr(topic_jobs, "topics_of", fail)
    paths = {tmp_path / "b": in_catalog(), tmp_path / "a": loaded("a")}
    files, failed = load_files(
        paths, lambda path: (paths[path].job, paths[path].text), asks_cluster=True
    )
    assert [file.job.name for file in files] == ["a"]
    assert [(one.name, one.error.exit_code) for one in failed] == [(str(tmp_path / "b"), 70)]


def in_catalog() -> LoadedFile:
    source = {"servers": ["k:9092"], "topic_pattern": ".*"}
    values = {"job": "all", "source": source, "sink": {"table": "main.events.{topic}"}}
    text = parse_job_text(json.dumps(values), "all.yaml")
    return LoadedFile(Job.of(text), text, topics=("t",))


def loaded(name: str) -> LoadedFile:
    return LoadedFile(table_job(name).job, parse_job_text("{}", f"{name}.yaml"))


# --- the group of a template ----------------------------------------------------------------

CheckpointNow = Callable[[], dict[Partition, int]]

TEMPLATE = Job.parse(
    "{job: all, source: {servers: [k:9092], topics: [a, b, c]}, "
    "sink: {table: 'lake/{topic}'}, group: {id: g}}"
)


class MirroredTables:
    """The tables of a template that have been run, and what is committed to its group."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.checkpoints: dict[str, int | Exception] = {"a": 5, "b": 6, "c": 7}
        self.pushed: list[dict[Partition, int]] = []
        self.warned: list[str] = []
        self.step = self.job_done = lambda *_: None
        monkeypatch.setattr(fleet_run, "checkpoint_offsets", self.checkpoint_offsets)
        monkeypatch.setattr(fleet_run, "push_offsets", self.push_offsets)

    def warn(self, text: str) -> None:
        self.warned.append(text)

    def checkpoint_offsets(self, topic: Any) -> dict[Partition, int]:
        offset = self.checkpoints[topic]
        if isinstance(offset, Exception):
            raise offset
        return {Partition(topic, 0): offset}

    def push_offsets(self, job: Job, cluster: Any, checkpoint_now: CheckpointNow) -> None:
        self.pushed.append(checkpoint_now())

    def mirror(self, **errors: RangelandError) -> dict[str, tuple[str, ...] | None]:
        """Mirrors after runs, of which these have failed. Returns the warnings of each result."""
        jobs = [self.opened(topic) for topic in self.checkpoints]
        results = tuple(self.result(topic, errors.get(topic)) for topic in self.checkpoints)
        found = mirror_checkpoints(results, jobs, self)
        return {
            table.removeprefix("lake/"): one.result and one.result.warnings
            for one in found
            if (table := one.table) is not None
        }

    def opened(self, topic: str) -> Any:
        text = f"{{job: all, source: {{servers: [k:9092], topics: [{topic}]}}, "
        job = Job.parse(text + f"sink: {{table: lake/{topic}}}}}")
        table_job = TableJob(job, cast(Any, None), TEMPLATE)
        nothing = cast(Any, None)
        return fleet_run.OpenedJob(table_job, cast(Any, topic), nothing, nothing, nothing)

    def result(self, topic: str, error: RangelandError | None) -> JobResult[RunResult]:
        table = f"lake/{topic}"
        landed = RunResult("all", "rangeland/all", 1, "landed", table, 1, (), 0.0)
        return JobResult("all", table, None if error else landed, error, 0.0)


@pytest.fixture
def tables(monkeypatch: pytest.MonkeyPatch) -> MirroredTables:
    return MirroredTables(monkeypatch)


def test_all_tables_of_a_template_are_mirrored_in_one_go(tables: MirroredTables) -> None:
    assert tables.mirror() == {"a": (), "b": (), "c": ()}
    assert tables.pushed == [{Partition("a", 0): 5, Partition("b", 0): 6, Partition("c", 0): 7}]


def test_the_checkpoint_of_a_job_that_has_failed_is_not_mirrored(tables: MirroredTables) -> None:
    found = tables.mirror(b=Conflict("rows of lake/b were removed"))
    assert found == {"a": (), "b": None, "c": ()}
    assert tables.pushed == [{Partition("a", 0): 5, Partition("c", 0): 7}]
    assert tables.warned == []


def test_where_all_have_failed_the_group_is_left_alone(tables: MirroredTables) -> None:
    tables.mirror(**dict.fromkeys("abc", Unreachable("no broker answers")))
    assert (tables.pushed, tables.warned) == ([], [])


@pytest.mark.parametrize("error", [StorageFailed("the store is down"), KeyError("odd")])
def test_a_table_that_cannot_be_read_is_warned_of_and_the_others_are_mirrored(
    tables: MirroredTables, error: Exception
) -> None:
    tables.checkpoints["b"] = error
    found = tables.mirror()
    (warning,) = tables.warned
    assert warning.startswith("the checkpoint is not mirrored: ")
    assert found == {"a": (), "b": (warning,), "c": ()}
    assert tables.pushed == [{Partition("a", 0): 5, Partition("c", 0): 7}]


def test_a_table_that_can_no_longer_be_read_is_left_out_from_then_on(
    tables: MirroredTables, monkeypatch: pytest.MonkeyPatch
) -> None:
    def push_offsets(job: Job, cluster: Any, checkpoint_now: CheckpointNow) -> None:
        tables.push_offsets(job, cluster, checkpoint_now)
        for b in (StorageFailed("the store is down"), 8):
            tables.checkpoints |= {"a": 9, "b": b}
            tables.push_offsets(job, cluster, checkpoint_now)

    monkeypatch.setattr(fleet_run, "push_offsets", push_offsets)
    found = tables.mirror()
    (warning,) = tables.warned
    assert found == {"a": (), "b": (warning,), "c": ()}
    a, b, c = (Partition(topic, 0) for topic in "abc")
    assert tables.pushed == [{a: 5, b: 6, c: 7}, {a: 9, c: 7}, {a: 9, c: 7}]


def test_a_group_that_cannot_be_written_is_warned_of_once_and_in_each_result(
    tables: MirroredTables, monkeypatch: pytest.MonkeyPatch
) -> None:
    def push_offsets(*_: Any) -> None:
        raise Unreachable("the coordinator does not answer")

    monkeypatch.setattr(fleet_run, "push_offsets", push_offsets)
    found = tables.mirror(b=Conflict("rows of lake/b were removed"))
    (warning,) = tables.warned
    assert found == {"a": (warning,), "b": None, "c": (warning,)}
