"""The Python interface refuses what the command line refuses."""

from __future__ import annotations

import json
import logging
from types import SimpleNamespace
from typing import Any, cast

import pytest

import rangeland
from rangeland import api
from rangeland.dataframe import frozen_plan
from rangeland.errors import UsageError
from rangeland.job import Job
from rangeland.job.job_text import parse_job_text
from rangeland.model import AbsentPartitions, Address, Leader, LogState, Partition, Survey
from rangeland.planning.job_position import JobPosition
from rangeland.planning.plan import Plan
from rangeland.planning.plan_builder import draft_new
from tests import sample_results as made

NO_SPARK = cast(Any, None)


@pytest.mark.parametrize("replace", [False, True])
def test_a_backfill_does_not_follow_the_checkpoint(replace: bool) -> None:
    job = Job.of(parse_job_text(made.JOB_YAML, "orders.yaml"))
    with pytest.raises(UsageError, match="a backfill does not follow the checkpoint"):
        rangeland.backfill(job, NO_SPARK, replace=replace)


def test_missing_rows_and_a_replaced_range_are_two_backfills() -> None:
    job = Job.of(parse_job_text(made.JOB_YAML, "orders.yaml"))
    with pytest.raises(UsageError, match="cannot be combined"):
        rangeland.backfill(job, NO_SPARK, missing=True, replace=True)


def test_all_public_names_are_listed_and_can_be_loaded() -> None:
    assert set(rangeland.__all__) <= set(dir(rangeland))
    assert all(getattr(rangeland, name) is not None for name in rangeland.__all__)


def read_plan(
    monkeypatch: pytest.MonkeyPatch, survey: Survey, **sections: Any
) -> tuple[Plan, list[Any]]:
    """The plan of a job with these sections, and the settings with which a frame of it is read."""
    read: list[Any] = []
    monkeypatch.setattr(
        api, "plan_frame", lambda spark, tasks, settings, plan: read.append(settings)
    )
    spark = cast(Any, SimpleNamespace(sparkContext=SimpleNamespace(defaultParallelism=2)))
    source = {"servers": ["b:1"], "topics": ["orders"]}
    document = {"job": "hourly", "source": source, "range": {"from": "earliest"}}
    job = Job.parse(json.dumps({**document, "sink": {"table": "t"}, **sections}))
    draft = draft_new(frozen_plan._terms(job, 1), survey, JobPosition())
    preview = cast(Any, SimpleNamespace(draft=draft, row_format=None))
    api.FrozenPlan(job, preview).read(spark)
    return draft.plan, read


B1 = Address("b", 1)
LOGS = {
    p: LogState(p, Leader(B1, 3, "id"), 0, 10, 1 << 30)
    for p in (Partition("orders", 0), Partition("orders", 1))
}


def test_a_plan_is_read_at_the_rate_of_its_job(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = {"broker_bytes_per_second": "8MiB"}
    _, (settings,) = read_plan(monkeypatch, Survey(1_000, LOGS), limits=limits)
    assert dict(settings.rates) == {B1: 4 << 20}


def test_what_a_plan_leaves_out_is_logged_when_it_is_read(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    p0, p1 = LOGS
    absent = AbsentPartitions(unreachable={p1: "it has no leader"})
    survey = Survey(1_000, {p0: LOGS[p0]}, absent=absent)
    with caplog.at_level(logging.WARNING, "rangeland"):
        plan, _ = read_plan(monkeypatch, survey, policy={"unreachable": "hold"})
    assert {r.partition for r in plan.ranges} == {p0}
    (line,) = caplog.messages
    assert line.startswith("Applied policy hold: orders/1")
    assert "it has no leader" in line
