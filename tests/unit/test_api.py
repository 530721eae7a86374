"""The Python interface refuses what the command line refuses."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any, cast

import pytest

import rangeland
from rangeland import api
from rangeland.dataframe import frozen_plan
from rangeland.errors import UsageError
from rangeland.job import Job
from rangeland.job.job_text import parse_job_text
from rangeland.model import Address, Leader, LogState, Partition, Survey
from tests import sample_results as made

NO_SPARK = cast(Any, None)


@pytest.mark.parametrize("replace", [False, True])
def test_a_backfill_does_not_follow_the_checkpoint(replace: bool) -> None:
    job = Job.of(parse_job_text(made.JOB_YAML, "orders.yaml"))
    with pytest.raises(UsageError, match="a backfill does not follow the checkpoint"):
        rangeland.backfill(job, NO_SPARK, replace=replace)


def test_missing_rows_and_a_replaced_range_are_two_backfills() -> None:
    job = Job.of(parse_job_text(made.JOB_YAML, "orders.yaml"))
    with pytest.raises(UsageError, match="not both"):
        rangeland.backfill(job, NO_SPARK, missing=True, replace=True)


def test_all_public_names_are_listed_and_can_be_loaded() -> None:
    assert set(rangeland.__all__) <= set(dir(rangeland))
    assert all(getattr(rangeland, name) is not None for name in rangeland.__all__)


def test_a_plan_is_read_at_the_rate_of_its_job(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[Any] = []
    monkeypatch.setattr(api, "plan_frame", lambda spark, tasks, settings: read.append(settings))
    spark = cast(Any, SimpleNamespace(sparkContext=SimpleNamespace(defaultParallelism=2)))
    leader = Address("b", 1)
    logs = {
        p: LogState(p, Leader(leader, 3, "id"), 0, 10, 1 << 30)
        for p in (Partition("orders", 0), Partition("orders", 1))
    }
    source = {"servers": ["b:1"], "topics": ["orders"]}
    document = {"job": "hourly", "source": source, "range": {"from": "earliest"}}
    limits = {"broker_bytes_per_second": "8MiB"}
    text = json.dumps({**document, "sink": {"table": "t"}, "limits": limits})
    job = Job.parse(text)
    monkeypatch.setattr(frozen_plan, "survey_of", lambda *_: Survey(1_000, logs))
    plan, _ = frozen_plan.freeze(job)
    preview = cast(Any, SimpleNamespace(draft=SimpleNamespace(plan=plan), row_format=None))
    api.FrozenPlan(job, preview).read(spark)
    (settings,) = read
    assert dict(settings.rates) == {leader: 4 << 20}
