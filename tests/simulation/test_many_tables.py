"""A table for each topic of a pattern, on the models: topics come, go, and lose their leaders."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from rangeland.fleet.fleet_result import FleetResult
from rangeland.fleet.fleet_run import NoJobsProgress, fleet_of, run_all
from rangeland.fleet.topic_jobs import load_files
from rangeland.job.command_line_overrides import load_job
from rangeland.planning.plan_kind import PlanKind
from rangeland.results import RunResult
from tests.simulation.happenings import Scenario
from tests.simulation.history import History
from tests.simulation.logs import fill
from tests.simulation.replaced import Stage, simulated
from tests.simulation.scenario import long_scenario
from tests.simulation.spark import SimulatedSpark
from tests.simulation.tally import Counts
from tests.simulation.world import NEVER_MS, Fault, Process

NOBODY = 7
"""A broker that never comes back."""


class ManyTables:
    """A cluster with topics, and runs of a job with a table for each of them."""

    def __init__(self, stage: Stage, folder: Path, **sections: Any) -> None:
        setup = replace(long_scenario(0, "4").setup, max_records=None, transactions=False)
        self._history = History(Scenario(0, setup, ()), stage, Counts())
        self._world = self._history.world
        self._random = random.Random(1)
        self.cluster = self._history.cluster
        self.cluster.topics.clear()
        self.path = folder / "etl.yaml"
        source = {"servers": ["b1:9092", "b2:9092"], "topic_pattern": "etl-.*"}
        job = {"job": "etl", "source": source, "sink": {"table": "mem://lake/{topic}"}, **sections}
        self.path.write_text(yaml.safe_dump(job))

    def create(self, *names: str) -> None:
        for name in names:
            self.cluster.create(name, 1, compacts=False)
            self.produce(name)

    def produce(self, name: str) -> None:
        fill(self.cluster.topics[name].logs[0], self._random, 0, transactions=False)

    def delete(self, name: str) -> None:
        for log in self.cluster.topics.pop(name).logs:
            log.delete()

    def hide_until_tables_are_listed(self, name: str) -> Fault:
        """A fault for a run, at first of which no broker knows the topic."""
        topics = self.cluster.topics
        hidden = topics.pop(name)
        self._world.act = lambda kind, arg: topics.update({name: hidden})
        return Fault("store.list", 1, "act:show")

    def end_of(self, name: str) -> int:
        return self.cluster.topics[name].logs[0].end

    def take_leader(self, name: str) -> None:
        self.cluster.down[NOBODY] = NEVER_MS
        self.cluster.topics[name].logs[0].leader = NOBODY

    def run(
        self, *settings: str, faults: Sequence[Fault] = (), kind: PlanKind = PlanKind.RUN
    ) -> FleetResult[RunResult]:
        driver = Process("driver", faults=list(faults))
        (found,) = self._world.run([(driver, lambda: self._run(settings, kind))])
        assert isinstance(found, FleetResult), found
        return found

    def _run(self, settings: tuple[str, ...], kind: PlanKind) -> FleetResult[RunResult]:
        history = self._history
        spark: Any = SimulatedSpark(history.world, history.tables, history.store, is_local=True)
        files, failed = load_files(
            [self.path], lambda path: load_job(path, settings), asks_cluster=True
        )
        fleet = fleet_of(files, failed, spark, NoJobsProgress())
        return run_all(fleet, spark, NoJobsProgress(), parallel=1, kind=kind)


@pytest.fixture
def stage() -> Iterator[Stage]:
    with simulated() as stage:
        yield stage


def ends(found: FleetResult[RunResult]) -> list[tuple[str | None, int]]:
    return [(one.table and one.table.rpartition("/")[2], one.exit_code) for one in found.jobs]


def landed(found: FleetResult[RunResult]) -> list[str]:
    return [str(one.range) for job in found.jobs if job.result for one in job.result.ranges]


def test_a_topic_without_a_leader_is_the_trouble_of_its_own_table(
    stage: Stage, tmp_path: Path
) -> None:
    tables = ManyTables(stage, tmp_path)
    tables.create("etl-a", "etl-b")
    tables.take_leader("etl-b")
    found = tables.run()
    assert ends(found) == [("etl-a", 0), ("etl-b", 75)]
    assert landed(found) == [f"etl-a/0 [0, {tables.end_of('etl-a')})"]
    assert "no leader for 1 partition: etl-b/0" in str(found.jobs[1].error)
    assert found.exit_code == 75


def test_topics_of_a_pattern_that_are_all_gone_follow_the_policy(
    stage: Stage, tmp_path: Path
) -> None:
    tables = ManyTables(stage, tmp_path)
    tables.create("etl-a")
    assert ends(tables.run()) == [("etl-a", 0)]
    tables.delete("etl-a")
    found = tables.run()
    assert ends(found) == [("etl-a", 66)]
    assert "vanished" in str(found.jobs[0].error)
    assert ends(tables.run("policy.vanished=skip")) == [("etl-a", 0)]


@pytest.mark.parametrize("kind", [PlanKind.BACKFILL, PlanKind.REPLACE, PlanKind.RUN])
def test_a_topic_that_only_backfills_have_landed_and_that_is_gone_follows_the_policy(
    stage: Stage, tmp_path: Path, kind: PlanKind
) -> None:
    tables = ManyTables(stage, tmp_path)
    tables.create("etl-a")
    assert ends(tables.run("range.from=earliest", kind=PlanKind.BACKFILL)) == [("etl-a", 0)]
    tables.delete("etl-a")
    settings = () if kind is PlanKind.RUN else ("range.from=earliest",)
    found = tables.run(*settings, kind=kind)
    assert ends(found) == [("etl-a", 66)]
    assert "vanished" in str(found.jobs[0].error)
    assert "asked twice" in str(found.jobs[0].error)
    assert ends(tables.run(*settings, "policy.vanished=hold", kind=kind)) == [("etl-a", 0)]


def test_brokers_that_do_not_know_the_topics_of_a_pattern_yet_are_not_believed(
    stage: Stage, tmp_path: Path
) -> None:
    tables = ManyTables(stage, tmp_path)
    tables.create("etl-a")
    tables.run()
    before = tables.end_of("etl-a")
    tables.produce("etl-a")
    end = tables.end_of("etl-a")
    hidden = tables.hide_until_tables_are_listed("etl-a")
    found = tables.run("policy.vanished=skip", faults=[hidden])
    assert landed(found) == [f"etl-a/0 [{before}, {end})"]


def test_a_pattern_that_no_topic_and_no_table_matches_is_a_mistake(
    stage: Stage, tmp_path: Path
) -> None:
    found = ManyTables(stage, tmp_path).run()
    assert ends(found) == [(None, 78)]
    assert "no topic matches etl-.*: the cluster has 0 topics" in str(found.jobs[0].error)
    assert "asked twice, with metadata from b1:9092 and b2:9092" in str(found.jobs[0].error)


LATEST = {"range": {"first_run": "latest"}}


def test_a_topic_that_comes_after_the_first_run_begins_at_its_beginning(
    stage: Stage, tmp_path: Path
) -> None:
    tables = ManyTables(stage, tmp_path, **LATEST)
    tables.create("etl-a")
    assert landed(tables.run()) == []
    before = tables.end_of("etl-a")
    tables.create("etl-b")
    tables.produce("etl-a")
    assert landed(tables.run()) == [
        f"etl-a/0 [{before}, {tables.end_of('etl-a')})",
        f"etl-b/0 [0, {tables.end_of('etl-b')})",
    ]
    assert landed(tables.run()) == []


def test_in_the_first_run_all_topics_begin_where_it_says(stage: Stage, tmp_path: Path) -> None:
    tables = ManyTables(stage, tmp_path, **LATEST)
    tables.create("etl-a", "etl-b")
    assert landed(tables.run()) == []
    assert landed(tables.run()) == []


def test_a_table_of_another_job_begins_where_the_first_run_says(
    stage: Stage, tmp_path: Path
) -> None:
    tables = ManyTables(stage, tmp_path, **LATEST)
    tables.create("etl-a", "etl-b")
    tables.run("job=other", "source.topic_pattern=etl-b")
    tables.produce("etl-b")
    tables.run("source.topic_pattern=etl-a")
    assert landed(tables.run()) == []


def test_a_new_topic_begins_at_its_beginning_although_its_first_run_was_killed(
    stage: Stage, tmp_path: Path
) -> None:
    """Between the making of its table and the first plan."""
    tables = ManyTables(stage, tmp_path, **LATEST)
    tables.create("etl-a")
    tables.run()
    tables.create("etl-b")
    with pytest.raises(AssertionError):
        tables.run(faults=[Fault("delta.commit", 1, "crash")])
    assert landed(tables.run()) == [f"etl-b/0 [0, {tables.end_of('etl-b')})"]
