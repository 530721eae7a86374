"""Which jobs a command line means, before Spark is started."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rangeland.cli import command_line
from rangeland.cli.command_output import CommandOutput
from rangeland.cli.many_jobs import ManyJobs, _session, load_jobs
from rangeland.cluster_access import broker_check, job_survey
from rangeland.cluster_settings import ClusterSettings
from rangeland.errors import JobFileError, Unreachable, UsageError
from rangeland.fleet import fleet_run
from rangeland.fleet.job_folders import job_files
from rangeland.fleet.table_job import TableJob
from rangeland.job.command_line_overrides import load_job
from rangeland.model import Address
from rangeland.spark import spark_session
from rangeland.zookeeper.broker_registry import BrokerRegistry


def write(folder: Path, name: str, table: str = "lake/t", topics: str = "[t]") -> Path:
    path = folder / f"{name}.yaml"
    source = f"{{servers: ['127.0.0.1:1'], topics: {topics}}}"
    path.write_text(f"job: {name}\nsource: {source}\nsink: {{table: '{table}'}}\n")
    return path


def test_a_folder_means_its_own_job_files_by_name(tmp_path: Path) -> None:
    (tmp_path / "more").mkdir()
    write(tmp_path / "more", "deeper")
    paths = [write(tmp_path, name) for name in ("b", "a")]
    (tmp_path / "notes.txt").write_text("no job")
    assert job_files([tmp_path, paths[0]]) == sorted(paths)


def test_a_folder_without_jobs_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match="empty has no job files"):
        job_files([tmp_path / "empty"])


def test_what_is_not_there_is_refused_without_being_repeated(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="argument 2, not repeated here") as caught:
        job_files([write(tmp_path, "a"), Path("hunter2")])
    assert "hunter2" not in str(caught.value)


def test_one_job_of_one_table_is_what_it_always_was(tmp_path: Path) -> None:
    found = load_jobs([write(tmp_path, "a")], load_job)
    assert isinstance(found, TableJob)
    assert found.job.name == "a"


def test_a_table_for_each_topic_makes_many_of_one(tmp_path: Path) -> None:
    found = load_jobs([write(tmp_path, "a", "lake/{topic}", "[x, y]")], load_job)
    assert isinstance(found, ManyJobs)
    assert [file.topics for file in found.files] == [("x", "y")]


def test_a_folder_is_many_even_with_one_file(tmp_path: Path) -> None:
    write(tmp_path, "a")
    assert isinstance(load_jobs([tmp_path], load_job), ManyJobs)


def test_one_bad_file_is_an_error_alone_and_a_failure_among_others(tmp_path: Path) -> None:
    bad = write(tmp_path, "BAD")
    with pytest.raises(JobFileError):
        load_jobs([bad], load_job)
    found = load_jobs([write(tmp_path, "a"), bad], load_job)
    assert isinstance(found, ManyJobs)
    assert [file.job.name for file in found.files] == ["a"]
    assert [(one.name, one.error.exit_code) for one in found.failed] == [(str(bad), 78)]


def test_where_no_file_can_be_used_spark_is_not_started(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rangeland.spark.spark_session.open_deferred", _never)
    bad = [str(write(tmp_path, name)) for name in ("BAD", "WORSE")]
    assert command_line.main(["run", *bad, "--json"]) == 78
    answer = json.loads(capfd.readouterr().out)
    assert answer["exit"] == 78
    assert [(one["job"], one["table"], one["exit"]) for one in answer["jobs"]] == [
        (bad[0], None, 78),
        (bad[1], None, 78),
    ]


def test_a_cluster_that_cannot_be_reached_shows_before_spark_is_started(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rangeland.spark.spark_session.open_deferred", _never)
    path = write(tmp_path, "a", "lake/{topic}", "[]")
    text = path.read_text().replace("topics: []", "topic_pattern: t.*")
    path.write_text(text)
    settings = ["--set", "source.timeouts={survey_ms: 300, connect_ms: 200}"]
    assert command_line.main(["run", str(path), *settings, "--json"]) == 75
    (only,) = json.loads(capfd.readouterr().out)["jobs"]
    assert only["error"] == "Unreachable"


@pytest.mark.parametrize("command", ["run", "plan", "status"])
@pytest.mark.parametrize("names", [("a",), ("a", "b")])
def test_spark_is_not_started_where_no_broker_answers(
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    command: str,
    names: tuple[str, ...],
) -> None:
    monkeypatch.setattr("rangeland.spark.spark_session.open_deferred", _never)
    files = [str(write(tmp_path, name)) for name in names]
    settings = ["--set", "source.timeouts={survey_ms: 300, connect_ms: 200}"]
    assert command_line.main([command, *files, *settings, "--json"]) == 75
    answer = json.loads(capfd.readouterr().out)
    assert [one["error"] for one in answer.get("jobs", [answer])] == ["Unreachable"] * len(names)


def test_jobs_whose_cluster_answers_go_on_without_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def require(brokers: Any, *_: object, **__: object) -> None:
        (seed,) = brokers.settings.seeds
        asked.append(str(seed))
        if seed.port == 1:
            raise Unreachable("no broker answers")

    monkeypatch.setattr(broker_check, "check_brokers_can_be_reached", require)
    jobs = [load_job(write(tmp_path, name))[0] for name in "abc"]
    living = ["source.servers=['127.0.0.1:2']"]
    jobs[1:1] = [load_job(write(tmp_path, "d"), living)[0]]
    found = broker_check.find_unreachable(jobs)
    assert [error is None for error in found] == [False, True, False, False]
    assert sorted(asked) == ["127.0.0.1:1", "127.0.0.1:2"]


def test_a_table_is_surely_new_only_where_its_folder_can_be_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def is_new(table: str) -> bool:
        return broker_check.is_surely_new(load_job(write(tmp_path, "a", table))[0])

    for name in ("HADOOP_CONF_DIR", "YARN_CONF_DIR", "SPARK_CONF_DIR", "PYSPARK_GATEWAY_PORT"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "there").mkdir()
    new = str(tmp_path / "new")
    assert is_new(new)
    unknown = [str(tmp_path / "there"), "s3a://lake/new", "catalog.schema.new"]
    assert not any(map(is_new, unknown))
    monkeypatch.setenv("HADOOP_CONF_DIR", "/etc/hadoop")
    assert not is_new(new)


def test_the_topics_of_a_list_are_known_without_the_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_survey, "look_up_cluster", _never)
    job, _ = load_job(write(tmp_path, "a", "lake/{topic}", "[x, y]"))
    assert job_survey.topics_of(job) == ("x", "y")


def test_a_pattern_without_a_registered_topic_may_have_tables_of_topics_that_are_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.yaml"
    source = "{dialect: jafka, zookeeper: 'z:2181', topic_pattern: t.*}"
    path.write_text(f"job: a\nsource: {source}\nsink: {{table: 'lake/{{topic}}'}}\n")
    settings = ClusterSettings("jafka", (Address("b", 9092),))
    monkeypatch.setattr(job_survey, "look_up_cluster", lambda _: settings)
    registry = BrokerRegistry(topics={"u": {"1": 1}})
    monkeypatch.setattr(job_survey, "look_up_broker_registry", lambda _: registry)
    found = load_jobs([path], load_job)
    assert isinstance(found, ManyJobs)
    (file,) = found.files
    assert (file.topics, found.failed) == ((), [])
    assert "no topic matches t.*: 1 topic registered" in str(file.no_topic)


def _never(*_: object, **__: object) -> None:
    raise AssertionError("nobody should ask for this")


def test_a_topic_whose_table_has_another_one_is_not_planned_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """As ``run`` refuses it: ``apply`` would land what is in the plan."""
    position = SimpleNamespace(topics=("older",))
    history = SimpleNamespace(position=lambda _: position)
    context = SimpleNamespace(target=SimpleNamespace(history=history))
    monkeypatch.setattr(fleet_run, "open_landing", lambda *_: context)
    monkeypatch.setattr("rangeland.run.preview", _never)
    monkeypatch.setattr(broker_check, "find_unreachable", lambda jobs: [None for _ in jobs])
    monkeypatch.setattr("rangeland.spark.spark_session.open_deferred", lambda *_, **__: None)
    file = str(write(tmp_path, "a", "lake/{topic}"))
    plans = tmp_path / "plans"
    assert command_line.main(["plan", file, "--out", str(plans), "--json"]) == 73
    (answer,) = json.loads(capfd.readouterr().out)["jobs"]
    assert (answer["error"], answer["table"]) == ("Conflict", "lake/t")
    assert list(plans.iterdir()) == []


@pytest.mark.parametrize(
    ("tables", "stores"),
    [
        (["lake/t"], []),
        (["lake/t", "abfss://c@a.dfs.core.windows.net/t"], ["hadoop-azure"]),
        (["lake/t", "gs://b/t"], ["hadoop-gcp"]),
        (["s3a://b/t", "abfss://c@a.dfs.core.windows.net/t"], ["hadoop-azure", "hadoop-aws"]),
        (["s3a://b/t", "s3://b/u"], ["hadoop-aws"]),
    ],
)
def test_a_session_for_many_jobs_has_the_jars_for_all_their_stores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tables: list[str], stores: list[str]
) -> None:
    started: list[str] = []
    monkeypatch.setattr(spark_session, "jar_files", lambda jars: [Path(jars.name)])
    monkeypatch.setattr(spark_session, "find_java", lambda _: Path("java"))
    monkeypatch.setattr(
        spark_session,
        "open_deferred",
        lambda _, tables, **__: started.append(spark_session.local_settings(tables)["spark.jars"]),
    )
    for ordered in (tables, tables[::-1]):
        paths = [write(tmp_path, f"j{at}", table) for at, table in enumerate(ordered)]
        jobs = load_jobs([tmp_path, *paths], load_job)
        assert isinstance(jobs, ManyJobs)
        _session(CommandOutput(["run"], sys.stdout), jobs)
        _, *others = started.pop().split(",")
        assert [name.rpartition("-")[0] for name in others] == stores


def test_a_jar_that_two_stores_need_is_in_the_session_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Spark reports an error for a second file of the same name."""
    monkeypatch.setattr(spark_session, "jar_files", lambda jars: [Path(jars.name, "http.jar")])
    monkeypatch.setattr(spark_session, "find_java", lambda _: Path("java"))
    tables = ["s3a://b/t", "abfss://c@a.dfs.core.windows.net/t"]
    assert spark_session.local_settings(tables)["spark.jars"].count("http.jar") == 1
