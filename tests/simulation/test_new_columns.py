"""Columns that a landing adds, on the models: a driver is killed at each of its steps, or two of
them add columns at the same time. In each version of the table a reader finds the new column with
its rows, or neither.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest

from rangeland.delta.table_path import TablePath
from rangeland.errors import TableRefused
from rangeland.job import Job
from rangeland.planning.plan import PlanKind
from rangeland.progress_events import NoProgress
from rangeland.run import Runner
from tests.simulation.delta import Tables, Version
from tests.simulation.dialects import TABLE
from tests.simulation.files import MemoryStore
from tests.simulation.group_model import Groups
from tests.simulation.kafka import Cluster
from tests.simulation.logs import Log
from tests.simulation.replaced import Stage, simulated
from tests.simulation.spark import SimulatedSpark
from tests.simulation.world import Crash, Fault, Process, World

KEY = TablePath.parse(TABLE).key
OLD, NEW = "id BIGINT", "id BIGINT, price BIGINT"
PRICE = "value.price"
BEFORE, AFTER = 4, 5
"""Records that land before the column is there, and with it."""
STEPS = ("delta.load", "delta.commit", "delta.write", "delta.history", "delta.files")
STEPS += ("store.open", "store.close", "store.read", "store.list")
STEPS += ("net.connect", "net.send", "net.receive", "task.start", "task.end")
SCHEDULES = 16
"""In how many orders two drivers take their turns."""


@pytest.fixture
def stage() -> Iterator[Stage]:
    with simulated() as stage:
        yield stage


@dataclass
class Lake:
    """One history: topics with JSON, and a table that their jobs land in."""

    stage: Stage
    seed: int = 0

    def __post_init__(self) -> None:
        world = World(self.seed)
        self.stage.world = self.world = world
        self.stage.tables = self.tables = Tables(world, needs_lock=True)
        self.stage.groups = Groups(world)
        self.stage.store = self.store = MemoryStore(world, self.tables.logs)
        self.stage.cluster = self.cluster = Cluster(world, "4", per_answer=2)
        self.written: dict[tuple[str, int], dict[str, Any]] = {}

    def produce(self, topic: str, values: Sequence[dict[str, Any]]) -> None:
        if topic not in self.cluster.topics:
            self.cluster.create(topic, 1, compacts=False)
        log: Log = self.cluster.topics[topic].logs[0]
        for value in values:
            self.written[topic, log.end] = value
            log._add([(log.end, json.dumps(value).encode())], self.world.now_ms, "none")

    def land(self, *jobs: Job, faults: Sequence[Fault] = (), kind: PlanKind = PlanKind.RUN) -> Any:
        """The results of drivers side by side, or the errors that ended them. Faults strike the
        first."""
        return self.drivers([(job, kind) for job in jobs], faults)[0]

    def drivers(
        self, asked: Sequence[tuple[Job, PlanKind]], faults: Sequence[Fault] = ()
    ) -> tuple[list[Any], Process]:
        processes = [Process(f"driver {n}") for n in range(len(asked))]
        processes[0].faults = list(faults)

        def work(job: Job, kind: PlanKind) -> Any:
            spark = SimulatedSpark(self.world, self.tables, self.store, is_local=True)
            return Runner(job, spark, NoProgress(), kind).run()

        acts: list[Callable[[], Any]] = [partial(work, *one) for one in asked]
        found = self.world.run(list(zip(processes, acts, strict=True)))
        for one in found:
            if isinstance(one, BaseException) and not isinstance(one, Crash | TableRefused):
                raise one
        return found, processes[0]

    # --- what readers see -----------------------------------------------------------------

    @property
    def versions(self) -> list[Version]:
        return self.tables.logs[KEY].versions

    def rows(self, version: Version) -> list[dict[str, Any]]:
        files = [self.store.files.get(f"{KEY}/{path}") for path in version.files]
        return [row for file in files if file is not None for row in file.rows]

    def check_versions(self) -> None:
        """No row is in a version twice, or with a field that is no column there; and a column is
        added by the commit that has the first rows with it."""
        had: set[str] = set()
        for version in self.versions:
            rows = self.rows(version)
            names = columns_of(version)
            places = Counter((row["topic"], row["offset"]) for row in rows)
            assert not [place for place, n in places.items() if n > 1]
            filled = {name for row in rows for name, item in row["value"].items() if item}
            assert filled <= names
            assert not (names - had - filled) or version.number == 0
            had = names

    def check_all_landed(self) -> None:
        names = columns_of(self.versions[-1])
        found = {
            (row["topic"], row["offset"]): {n: row["value"].get(n) for n in names}
            for row in self.rows(self.versions[-1])
        }
        assert found == {
            place: {name: value.get(name) for name in names}
            for place, value in self.written.items()
        }


def columns_of(version: Version) -> set[str]:
    """The fields of the values."""
    fields = json.loads(version.schema_json)["fields"]
    value = next(f for f in fields if f["name"] == "value")
    return {f["name"] for f in value["type"]["fields"]}


def job(schema: str, name: str = "orders", **sections: Any) -> Job:
    document = {
        "job": name,
        "source": {"servers": Cluster.servers.split(", "), "topics": [name]},
        "decode": {"value": {"format": "json", "schema": schema}},
        "sink": {"table": TABLE},
        **sections,
    }
    return Job.parse(json.dumps(document))


def orders(first: int, count: int, **more: Any) -> list[dict[str, Any]]:
    return [{"id": n, **more} for n in range(first, first + count)]


def prepared(stage: Stage) -> Lake:
    """The table has rows, and the log has more, with a new field."""
    lake = Lake(stage)
    lake.produce("orders", orders(1, BEFORE))
    lake.land(job(OLD))
    lake.produce("orders", orders(9, AFTER, price=7))
    return lake


def torn(stage: Stage) -> Lake:
    """The table has lost its rows, which were landed without a field that the log has."""
    lake = Lake(stage)
    lake.produce("orders", orders(1, BEFORE, price=7))
    lake.land(job(OLD))
    for path in lake.versions[-1].files:
        del lake.store.files[f"{KEY}/{path}"]
    return lake


CASES = {PlanKind.RUN: prepared, PlanKind.MISSING: torn}


@pytest.mark.parametrize("kind", CASES)
def test_all_steps_of_a_landing_are_known(stage: Stage, kind: PlanKind) -> None:
    lake = CASES[kind](stage)
    (found,), process = lake.drivers([(job(NEW), kind)])
    assert (found.landed, found.added_columns) == (len(lake.written) - BEFORE or BEFORE, (PRICE,))
    assert set(process.counts) - {"spark.read"} == {*STEPS}
    lake.check_versions()
    lake.check_all_landed()


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize(
    ("kind", "then"), [(PlanKind.RUN, NEW), (PlanKind.RUN, OLD), (PlanKind.MISSING, NEW)]
)
def test_a_driver_killed_at_any_step_leaves_columns_and_rows_together(
    stage: Stage, step: str, kind: PlanKind, then: str
) -> None:
    kills = 0
    while True:
        lake = CASES[kind](stage)
        (found,) = lake.land(job(NEW), faults=[Fault(step, kills + 1, "crash")], kind=kind)
        if not isinstance(found, Crash):
            break
        kills += 1
        lake.check_versions()
        lake.land(job(then), kind=kind)
        lake.check_versions()
        lake.land(job(NEW), kind=kind)
        assert len(lake.rows(lake.versions[-1])) == len(lake.written)
        lake.check_all_landed()
    assert kills > 0


def two_topics(stage: Stage, seed: int, schema: str, price: object) -> tuple[Lake, list[Job]]:
    """Two jobs that land in one table, each with a new field of the same name."""
    lake = Lake(stage, seed)
    for name in ("orders", "returns"):
        lake.produce(name, orders(1, BEFORE))
        lake.land(job(OLD, name))
    lake.produce("orders", orders(9, AFTER, price=7))
    lake.produce("returns", orders(9, AFTER, price=price))
    return lake, [job(NEW), job(schema, "returns")]


def test_two_drivers_add_the_same_column_once(stage: Stage) -> None:
    added = set()
    for seed in range(SCHEDULES):
        lake, jobs = two_topics(stage, seed, NEW, 7)
        found = lake.land(*jobs)
        lake.check_versions()
        lake.check_all_landed()
        assert [one.landed for one in found] == [AFTER, AFTER]
        added.add(tuple(len(one.added_columns) for one in found))
    assert added == {(1, 0), (0, 1)}


def test_of_two_drivers_with_other_types_the_later_is_refused_until_it_is_corrected(
    stage: Stage,
) -> None:
    were_late, were_prepared = set(), set()
    for seed in range(SCHEDULES):
        lake, jobs = two_topics(stage, seed, "id BIGINT, price STRING", "7")
        found = lake.land(*jobs)
        lake.check_versions()
        (late,) = [n for n, one in enumerate(found) if isinstance(one, TableRefused)]
        old, new = ("STRING", "BIGINT")[:: 1 if late == 0 else -1]
        text = str(found[late])
        assert f"column {PRICE} of table" in text
        assert f"is {old}: the rows have {new} there" in text
        topic = jobs[late].job
        newest = lake.versions[-1]
        places = {(row["topic"], row["offset"]) for row in lake.rows(newest)}
        assert places == {place for place in lake.written if place[0] != topic or place[1] < BEFORE}
        # What it has prepared is not landed as it is, but read again without that field.
        files = {path for path in lake.store.files if path.startswith(f"{KEY}/part-")}
        were_prepared.add(len(files) > len(newest.files))
        were_late.add(late)
        again = lake.land(jobs[late])
        assert isinstance(again[0], TableRefused)
        (corrected,) = lake.land(job(OLD, topic))
        assert corrected.landed == AFTER
        lake.check_versions()
        ids = [
            (row["topic"], row["offset"], row["value"]["id"])
            for row in lake.rows(lake.versions[-1])
        ]
        assert sorted(ids) == sorted((*place, one["id"]) for place, one in lake.written.items())
    assert were_late == {0, 1}
    assert were_prepared == {False, True}
