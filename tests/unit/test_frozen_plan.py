"""What a data frame reads: the plan that is made for it, or the given one."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest

from rangeland.dataframe import frozen_plan
from rangeland.errors import RangeLost, Unreachable
from rangeland.job import Job
from rangeland.model import AbsentPartitions, Address, Cluster, Leader, LogState, Partition, Survey

P0, P1 = Partition("orders", 0), Partition("orders", 1)
B1 = Address("b", 1)


def job_of(**sections: Any) -> Job:
    source = {"servers": ["b:1"], "topics": ["orders"]}
    document = {"job": "hourly", "source": source, "range": {"from": "earliest"}}
    return Job.parse(json.dumps({**document, "sink": {"table": "t"}, **sections}))


@pytest.fixture
def survey(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The survey that a frame's plan is made from, as keyword arguments."""
    logs = {p: LogState(p, Leader(B1, 3, "id"), 0, 10, 100) for p in (P0, P1)}
    fields: dict[str, Any] = {"logs": logs, "cluster": Cluster("c-1", ("b:1",))}
    monkeypatch.setattr(frozen_plan, "survey_of", lambda *_: Survey(1_000, **fields))
    return fields


def test_a_partition_that_a_policy_would_hold_is_an_error(survey: dict[str, Any]) -> None:
    del survey["logs"][P1]
    survey["absent"] = AbsentPartitions(unreachable={P1: "it has no leader"})
    with pytest.raises(Unreachable, match="orders/1 cannot be read now") as caught:
        frozen_plan.freeze(job_of(policy={"unreachable": "hold"}))
    assert "it has no leader" in caught.value.why
    assert "a data frame cannot record that it leaves out what `policy` holds" in caught.value.why
    assert "unreachable: hold" not in caught.value.do, "that is what it says already"


def test_offsets_that_a_policy_would_hold_are_an_error(survey: dict[str, Any]) -> None:
    survey["logs"][P1] = LogState(P1, Leader(B1, 3, "id"), 5, 10, 100)
    bounds = {"from": {"orders": {"0": 0, "1": 0}}}
    with pytest.raises(RangeLost, match=r"orders/1 \[0, 5\) expired"):
        frozen_plan.freeze(job_of(range=bounds, policy={"expired": "hold"}))


def test_what_the_plan_skips_is_logged(
    survey: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    survey["logs"][P1] = LogState(P1, Leader(B1, 3, "id"), 5, 10, 100)
    bounds = {"from": {"orders": {"0": 0, "1": 0}}}
    with caplog.at_level(logging.WARNING, "rangeland"):
        plan, _ = frozen_plan.freeze(job_of(range=bounds, policy={"expired": "skip"}))
    assert [(s.partition, s.interval) for s in plan.slices] == [(P0, (0, 10)), (P1, (5, 10))]
    (line,) = caplog.messages
    assert line.startswith("Applied policy skip: orders/1 [0, 5)")
