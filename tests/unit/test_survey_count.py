"""How often the cluster is surveyed: a run in a group surveys it once where that is enough."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import patch

import pytest

from rangeland import run
from rangeland.dataframe import frozen_plan
from rangeland.delta.quarantine.quarantine_table import QuarantinedBatch
from rangeland.fetch.read_settings import ReadSettings
from rangeland.job import Job
from rangeland.job_group import run_lease
from rangeland.landing import landing_steps, plan_surveys
from rangeland.landing.drafts import planner
from rangeland.landing.execution.plan_settings import look_up_plan_settings
from rangeland.landing.special_plans import redrive
from rangeland.landing.target.job_history import EnteredPlan
from rangeland.landing.target.landing_target import LandingTarget
from rangeland.loss import DamagedBytes
from rangeland.model import (
    Address,
    Isolation,
    Leader,
    LogState,
    OffsetLookups,
    Partition,
    Range,
    Survey,
)
from rangeland.planning.plan import Plan
from rangeland.planning.plan_draft import PlanDraft
from rangeland.planning.plan_kind import PlanKind
from rangeland.planning.retention_risk import ReadSpeed
from rangeland.progress_events import NoProgress
from rangeland.results import QuarantinedRange
from tests.fakes.landing import landing_context
from tests.unit import test_landing_target
from tests.unit.test_landing_target import P0, Drivers, plan

drivers, lake = test_landing_target.drivers, test_landing_target.lake


class Clock:
    now = 0.0

    def monotonic(self) -> float:
        return self.now


class Cluster:
    """Its log has grown by ten records whenever it is looked at; joining takes a while."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.looks = 0
        self.joining_s = 3.0
        self.group_offsets: dict[tuple[Partition, str], int | None] = {}
        self.claimed: list[Partition] = []
        self.known: object = None
        self.clock = Clock()
        monkeypatch.setattr(planner, "time", self.clock)
        monkeypatch.setattr(planner, "wall_ms", lambda: 1_000)
        monkeypatch.setattr(plan_surveys, "time", self.clock)
        monkeypatch.setattr(run, "survey_of", self.survey)
        monkeypatch.setattr(run_lease, "hold_lease", self.join)
        monkeypatch.setattr(run, "wait_for_workers", lambda context: None)
        monkeypatch.setattr(landing_steps, "check_table_and_ledger_agree", lambda context: None)

    def survey(self, *about: object, **more: object) -> Survey:
        self.looks += 1
        leader = Leader(Address("b", 1), epoch=3, topic_id="id")
        logs = {P0: LogState(P0, leader, 0, 10 * self.looks, 100)}
        return Survey(
            1_000,
            logs,
            lookups=OffsetLookups(of_groups=self.group_offsets),
            reports_versions={leader.address: False},
        )

    @contextmanager
    def join(self, job: Job, settings: Any, partitions: Any, *about: object) -> Iterator[None]:
        self.claimed = list(partitions)
        self.known = settings.reports_versions
        self.clock.now += self.joining_s
        yield None


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    return Cluster(monkeypatch)


class Grouped(landing_steps.LandingSteps):
    """A driver of a group; ``outrun`` says how often another enters a plan first."""

    def __init__(
        self, target: LandingTarget, outrun: int = 0, kind: PlanKind = PlanKind.RUN
    ) -> None:
        source = {"servers": ["b:1"], "topics": ["orders"]}
        document = {"job": "orders", "source": source, "sink": {"table": target.table.name}}
        job = Job.parse(json.dumps({**document, "group": {"id": "orders"}}))
        spark = SimpleNamespace(sparkContext=SimpleNamespace(defaultParallelism=1))
        history, speed = target.history, ReadSpeed()
        surveys = plan_surveys.PlanSurveys(job, history, NoProgress(), run.survey_of, speed)
        context = landing_context(target, job, kind, surveys=surveys, spark=spark)
        super().__init__(context)
        self.target, self.surveys = target, surveys
        self.outrun = outrun
        self.landed: list[Plan] = []
        self._committer = cast(Any, self)

    def run(self) -> None:
        with patch.object(run, "LandingSteps", lambda *about: self):
            run._with_lease(self._context, lambda steps: steps.land_until_done())

    def draft(self) -> PlanDraft:
        return self._planner.draft()

    def finish_new(self, plan: Plan) -> Any:
        self.landed.append(plan)
        return plan

    def finish_entered(self, entered: EnteredPlan) -> Any:
        test_landing_target.land_until_30(self.target, entered.plan)
        return entered.plan

    def _enter(self, plan: Plan, *about: object) -> bool:
        self.outrun -= 1
        return self.outrun < 0

    def result(self, *about: object) -> Any: ...

    @property
    def ends(self) -> list[int]:
        return [r.until_offset for plan in self.landed for r in plan.ranges]


def test_the_first_plan_is_made_of_the_look_that_the_group_was_joined_with(
    drivers: Drivers, cluster: Cluster
) -> None:
    driver = Grouped(drivers.another())
    driver.run()
    assert (cluster.looks, driver.ends, cluster.claimed) == (1, [10], [P0])


def test_what_a_look_has_learnt_of_brokers_goes_to_the_group_and_to_the_tasks(
    drivers: Drivers, cluster: Cluster
) -> None:
    driver = Grouped(drivers.another())
    driver.run()
    known = ((Address("b", 1), False),)
    assert cluster.known == known
    (entered,) = driver.landed
    unaware = test_landing_target.context_of(driver.target, NoProgress())
    assert look_up_plan_settings(unaware, entered).cluster.reports_versions == ()
    assert look_up_plan_settings(driver._context, entered).cluster.reports_versions == known
    # Without a group the tasks know it, too.
    alone = Grouped(drivers.another())
    alone.draft()
    assert alone.surveys.last.reports_versions == dict(known)


def test_a_look_from_before_a_long_wait_for_the_group_begins_no_plan(
    drivers: Drivers, cluster: Cluster
) -> None:
    cluster.joining_s = plan_surveys.FRESH_S + 1.0
    driver = Grouped(drivers.another())
    driver.run()
    assert (cluster.looks, driver.ends) == (2, [20])


def test_where_groups_stand_is_asked_once_more_when_nobody_else_can_move_them(
    drivers: Drivers, cluster: Cluster
) -> None:
    cluster.group_offsets = {(P0, "orders"): 4}
    driver = Grouped(drivers.another())
    driver.run()
    assert (cluster.looks, driver.ends) == (2, [20])


def test_a_look_is_used_once(drivers: Drivers, cluster: Cluster) -> None:
    driver = Grouped(drivers.another(), outrun=2)
    driver.run()
    assert (cluster.looks, driver.ends) == (3, [30])


def test_what_others_have_landed_meanwhile_is_not_held_against_an_older_look(
    drivers: Drivers, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    test_landing_target.columns_are_there(monkeypatch)
    target = drivers.another()
    assert target.writer.enter(plan(), [])
    target.ledger.refresh()
    cluster.looks = 3  # the next look would be from after that plan's end
    driver = Grouped(target)
    driver.run()
    assert (cluster.looks, driver.ends) == (5, [50])


def test_where_nothing_is_in_quarantine_nobody_is_asked_for_it(
    drivers: Drivers, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planner, "quarantined_ranges", lambda *about: [])
    driver = Grouped(drivers.another(), kind=PlanKind.REREAD)
    driver.run()
    assert (cluster.looks, driver.landed) == (0, [])


def test_what_is_in_quarantine_is_read_again_as_it_was_to_be_read_then(
    drivers: Drivers, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its isolation and tags are not those of the job any more."""
    batch = QuarantinedBatch(
        Range(P0, 0, 5, "id"), "app", 1, "bad", "b:1", 1, DamagedBytes(b"", (), "bad"), 1
    )
    left = QuarantinedRange(batch, Isolation.READ_UNCOMMITTED, "bad", ("A",))
    monkeypatch.setattr(planner, "quarantined_ranges", lambda *about: [left])
    read: list[ReadSettings] = []

    def whole(slices: object, settings: ReadSettings) -> list[Any]:
        read.append(settings)
        return []

    monkeypatch.setattr(redrive, "_read_on_trial", whole)
    made = Grouped(drivers.another(), kind=PlanKind.REREAD).draft()
    assert [(r.from_offset, r.until_offset) for r in made.plan.ranges] == [(0, 5)]
    assert (made.plan.isolation, made.plan.tags) == left.read_filter
    assert [(s.isolation, s.tags) for s in read] == [left.read_filter]
    assert [dict(s.cluster.reports_versions) for s in read] == [{Address("b", 1): False}]


def test_the_look_that_shows_schema_ids_makes_the_first_plan(
    drivers: Drivers, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So what is read was written before the schemas were fetched."""
    seen: list[Survey] = []
    monkeypatch.setattr(run, "schema_ids_in_logs", lambda _, survey: seen.append(survey) or {})
    monkeypatch.setattr(run, "look_up_row_format", lambda *about: None)
    driver = Grouped(drivers.another())
    decode = {"value": {"format": "avro"}, "registry": {"url": "http://r"}}
    text = {
        **json.loads(drivers.job.model_dump_json(exclude_defaults=True, by_alias=True)),
        "decode": decode,
    }
    job = Job.parse(json.dumps(text))
    row_format = run._row_format(job, PlanKind.RUN, driver.target, driver.surveys)
    assert (row_format, cluster.looks) == (None, 1)
    assert seen == [driver.surveys.last]
    driver.run()
    assert (cluster.looks, driver.ends) == (1, [10])


def test_a_frame_is_read_with_what_its_look_has_learnt_of_brokers(
    drivers: Drivers, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(frozen_plan, "survey_of", cluster.survey)
    _, settings = frozen_plan.freeze(drivers.job)
    assert dict(settings.cluster.reports_versions) == {Address("b", 1): False}
