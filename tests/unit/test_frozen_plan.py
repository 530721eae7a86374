"""What a data frame reads: the plan that is made for it, or the given one."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest

from rangeland.cluster_settings import ClusterSettings
from rangeland.dataframe import datasource, frozen_plan
from rangeland.errors import Conflict, RangeLost, Unreachable, UsageError
from rangeland.job import Job
from rangeland.logging_setup import current_settings
from rangeland.model import AbsentPartitions, Address, Cluster, Leader, LogState, Partition, Survey
from rangeland.survey import log_comparison

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


def test_what_the_limits_of_a_run_leave_out_is_logged(
    survey: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "rangeland"):
        plan, _ = frozen_plan.freeze(job_of(limits={"max_records": 12}))
    assert plan.width == 12
    assert [line.split(":")[0] for line in caplog.messages] == ["Left out 8 offsets"]


# --- how fast it is read ------------------------------------------------------------------------


def test_the_tasks_of_a_frame_together_keep_to_the_rate_of_the_job(survey: dict[str, Any]) -> None:
    """Nobody knows how many of them run at the same time, so it is divided among all of them, and
    there are no more than are needed or asked for."""
    gib = 1 << 30
    survey["logs"] = {
        Partition("orders", n): LogState(
            Partition("orders", n), Leader(Address("b", 1 + n % 2), 3, "id"), 0, 10, gib
        )
        for n in range(8)
    }
    job = job_of(limits={"broker_bytes_per_second": "8MiB"})
    for min_tasks, of_each_broker in ((1, 1), (4, 2)):
        plan, settings = frozen_plan.freeze(job, min_tasks=min_tasks)
        reader = datasource._Reader(plan, settings, min_tasks, current_settings())
        assert len(reader.partitions()) == 2 * of_each_broker
        rate = (8 << 20) // of_each_broker
        assert dict(settings.rates) == {Address("b", 1): rate, Address("b", 2): rate}
    plan, settings = frozen_plan.freeze(job_of())
    reader = datasource._Reader(plan, settings, 1, current_settings())
    assert (len(reader.partitions()), settings.rates) == (len(plan.slices), ())


# --- a plan that is given -----------------------------------------------------------------------


@pytest.fixture
def planned(survey: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The JSON of a plan, as `rangeland plan --json` prints it. The cluster is the same later."""
    monkeypatch.setattr(log_comparison, "SurveyAttempt", lambda *_: ClusterNow(survey))
    plan, _ = frozen_plan.freeze(job_of())
    return {**plan.to_json(), "hash": plan.hash, "table": "t"}


class ClusterNow:
    """A survey that only finds out which cluster answers."""

    def __init__(self, fields: dict[str, Any]) -> None:
        self._fields = fields

    def find_leaders(self) -> None: ...

    def cluster(self) -> Cluster:
        found: Cluster = self._fields["cluster"]
        return found


def read_with(plan: object, **options: str) -> Any:
    """What the data source makes of a plan and of options."""
    text = plan if isinstance(plan, str) else json.dumps(plan)
    return datasource._plan_of({"servers": "b:1", "topics": "orders", "plan": text, **options})


def test_a_given_plan_is_read_as_it_is(planned: dict[str, Any]) -> None:
    plan, settings, _ = read_with(planned)
    assert plan.hash == planned["hash"]
    assert isinstance(settings.cluster, ClusterSettings)


def test_a_plan_of_another_dialect_is_a_conflict(planned: dict[str, Any]) -> None:
    with pytest.raises(Conflict, match="the plan is for kafka, and the source for rocketmq"):
        read_with(planned, dialect="rocketmq")


def test_a_plan_of_another_cluster_is_a_conflict(
    planned: dict[str, Any], survey: dict[str, Any]
) -> None:
    """The same offsets of a topic of that name have other records there."""
    survey["cluster"] = Cluster("c-2", ("b:1",))
    with pytest.raises(Conflict, match="belongs to another cluster"):
        read_with(planned)


def test_a_plan_that_reads_offsets_twice_is_a_conflict(planned: dict[str, Any]) -> None:
    again = {**planned["slices"][0], "index": 7}
    edited = {**planned, "slices": [*planned["slices"], again]}
    with pytest.raises(Conflict, match="two slices of orders/0 overlap"):
        read_with({key: value for key, value in edited.items() if key != "hash"})


def test_a_plan_that_does_not_match_its_hash_is_a_conflict(planned: dict[str, Any]) -> None:
    del planned["slices"][1], planned["ranges"][1]
    with pytest.raises(Conflict, match="was changed after it was made"):
        read_with(planned)


@pytest.mark.parametrize("text", ["", " ", "{"])
def test_what_is_no_plan_does_not_mean_a_new_one(survey: dict[str, Any], text: str) -> None:
    with pytest.raises(UsageError, match="option plan is not a plan"):
        read_with(text)
