"""The result of many jobs: each as it would be alone, and the most severe exit code."""

from __future__ import annotations

import pytest

from rangeland import errors
from rangeland.errors import RangelandError, Unreachable
from rangeland.fleet.fleet_result import BY_SEVERITY, FleetResult, JobResult, most_severe
from rangeland.fleet.fleet_run import Fleet, NoJobsProgress, for_each
from rangeland.fleet.table_job import TableJob
from rangeland.fleet.topic_jobs import FailedFile
from rangeland.job import Job
from rangeland.job.job_text import parse_job_text
from rangeland.query_results import CheckResult


@pytest.mark.parametrize(
    ("codes", "expected"),
    [
        ([], 0),
        ([0, 0], 0),
        ([0, 75], 75),
        ([75, 66, 0], 66),
        ([73, 75], 73),
        ([66, 78], 78),
        ([70, 78, 64], 70),
        ([66, 1], 1),
    ],
)
def test_the_exit_code_is_the_most_severe_one(codes: list[int], expected: int) -> None:
    assert most_severe(codes) == expected


def table_job(name: str) -> TableJob:
    text = parse_job_text(
        f"job: {name}\nsource: {{servers: [k:9092], topics: [t]}}\nsink: {{table: lake/{name}}}\n",
        f"{name}.yaml",
    )
    return TableJob(Job.of(text), text)


def test_every_exit_code_has_its_place() -> None:
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type)]
    codes = {kind.exit_code for kind in kinds if issubclass(kind, RangelandError)}
    assert {kind.exit_code for kind in BY_SEVERITY} == codes


def work(one: TableJob) -> CheckResult:
    if one.job.name == "gone":
        raise Unreachable("no broker answers", do="start one")
    if one.job.name == "odd":
        raise KeyError("odd")
    return CheckResult(one.job.name)


def test_one_job_s_failure_is_its_own() -> None:
    jobs = [table_job(name) for name in ("a", "gone", "odd", "b")]
    failed = FailedFile("bad.yaml", Unreachable("bad"))
    found = for_each(Fleet(tuple(jobs), (failed,)), work, NoJobsProgress(), 2)
    assert [(o.job, o.exit_code) for o in found.jobs] == [
        ("bad.yaml", 75),
        ("a", 0),
        ("gone", 75),
        ("odd", 70),
        ("b", 0),
    ]
    assert found.exit_code == 70
    first, *_ = found.to_json()["jobs"][1:]
    assert (first["job"], first["table"], first["exit"], first["ok"]) == ("a", "lake/a", 0, True)
    gone = found.to_json()["jobs"][2]
    assert (gone["error"], gone["exit"], gone["table"]) == ("Unreachable", 75, "lake/gone")
    assert "no broker answers" in gone["message"].lower()


def test_nothing_to_do_is_well() -> None:
    assert FleetResult[CheckResult]((), 0.0).to_json() == {"jobs": [], "exit": 0, "seconds": 0.0}


def test_the_name_of_the_job_is_that_of_its_file_where_nothing_else_is_known() -> None:
    found = JobResult[CheckResult]("bad.yaml", None, None, Unreachable("bad"), 0.0)
    assert found.to_json()["table"] is None
