"""A table of typed rows on the models: topics with JSON, jobs that land them, and what readers see
in each version of the table."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from rangeland.delta.stores.table_path import TablePath
from rangeland.errors import RangelandError
from rangeland.job import Job
from rangeland.planning.plan_kind import PlanKind
from rangeland.progress_events import NoProgress
from rangeland.run import backfill
from tests.simulation.clusters import SimulatedCluster
from tests.simulation.delta import Tables, Version
from tests.simulation.dialects import MODELS, TABLE
from tests.simulation.files import MemoryStore
from tests.simulation.group_model import Groups
from tests.simulation.kafka import Cluster
from tests.simulation.replaced import Stage
from tests.simulation.spark import SimulatedSpark
from tests.simulation.world import Crash, Fault, Process, World

KEY = TablePath.parse(TABLE).key
Place = tuple[str, int, int]
"""Topic, offset, and position in the entry: 0 where records have offsets of their own."""


@dataclass
class TypedLake:
    """One history."""

    stage: Stage
    seed: int = 0
    dialect: str = Cluster.dialect

    def __post_init__(self) -> None:
        world = World(self.seed)
        self.stage.world = self.world = world
        self.stage.tables = self.tables = Tables(world, needs_lock=True)
        self.stage.groups = Groups(world)
        self.stage.store = self.store = MemoryStore(world, self.tables.logs)
        self.cluster: SimulatedCluster
        if self.dialect == Cluster.dialect:
            self.cluster = Cluster(world, "4", per_response=2)
        else:
            self.cluster = MODELS[self.dialect](world, per_response=2)
        self.stage.cluster = self.cluster
        self.written: dict[Place, bytes] = {}

    def produce(self, topic: str, values: Sequence[bytes], *, packed: bool = False) -> list[Place]:
        """Where these values are: one entry for each, or one for all of them."""
        if topic not in self.cluster.topics:
            self.cluster.create(topic, 1, compacts=False)
        log = self.cluster.topics[topic].logs[0]
        left = iter(values)
        log._value = lambda offset: next(left)  # type: ignore[method-assign]
        before = len(log.entries)
        for count in [len(values)] if packed else [1] * len(values):
            log.append(count, self.world.now_ms, "gzip" if packed else "none")
        written = {
            (topic, offset, number if self.cluster.offsets_are_bytes else 0): value
            for entry in log.entries[before:]
            for number, (offset, value) in enumerate(entry.records)
        }
        self.written |= written
        return list(written)

    def job(self, schema: str, topic: str = "orders", **sections: Any) -> Job:
        servers = self.cluster.servers.split(", ")
        document = {
            "job": topic,
            "source": {"dialect": self.dialect, "servers": servers, "topics": [topic]},
            "decode": {"value": {"format": "json", "schema": schema}},
            "sink": {"table": TABLE},
            **sections,
        }
        return Job.parse(json.dumps(document))

    def land(
        self, *jobs: Job, faults: Sequence[Fault] = (), kind: PlanKind = PlanKind.RUN
    ) -> list[Any]:
        """The results of drivers side by side, or the errors that ended them. Faults strike the
        first."""
        return self.drivers([(job, kind) for job in jobs], faults)[0]

    def drivers(
        self, asked: Sequence[tuple[Job, PlanKind]], faults: Sequence[Fault] = ()
    ) -> tuple[list[Any], Process]:
        processes = [Process(f"driver {n}") for n in range(len(asked))]
        processes[0].faults = list(faults)
        acts: list[Callable[[], Any]] = [
            partial(self.alone, lambda spark, job=job, kind=kind: run(job, spark, kind))
            for job, kind in asked
        ]
        found = self.world.run(list(zip(processes, acts, strict=True)))
        for one in found:
            if isinstance(one, BaseException) and not isinstance(one, Crash | RangelandError):
                raise one
        return found, processes[0]

    def alone(self, act: Callable[[SimulatedSpark], Any]) -> Any:
        """What a command gives in a session of its own."""
        return act(SimulatedSpark(self.world, self.tables, self.store, is_local=True))

    # --- what readers see -----------------------------------------------------------------

    @property
    def versions(self) -> list[Version]:
        return self.tables.logs[KEY].versions

    def rows(self, version: Version | None = None) -> list[dict[str, Any]]:
        """Of the newest version, if no other is given."""
        version = version or self.versions[-1]
        files = [self.store.files.get(f"{KEY}/{path}") for path in version.files]
        return [row for file in files if file is not None for row in file.rows]

    def places(self) -> list[Place]:
        return sorted(map(place_of, self.rows()))

    def check_versions(self) -> None:
        """No row is in a version twice, or with a field that is no column there; and a column is
        added by the commit that has the first rows with it."""
        had: set[str] = set()
        for version in self.versions:
            rows = self.rows(version)
            names = set(columns_of(version))
            assert not [place for place, n in Counter(map(place_of, rows)).items() if n > 1]
            filled = {name for row in rows for name, item in row["value"].items() if item}
            assert filled <= names
            assert not (names - had - filled) or version.number == 0
            had = names

    def check_all_landed(self) -> None:
        """With each column that the table has."""
        names = columns_of(self.versions[-1])
        found = {
            place_of(row): {name: row["value"].get(name) for name in names} for row in self.rows()
        }
        written = {place: json.loads(value) for place, value in self.written.items()}
        assert found == {
            place: {name: value.get(name) for name in names} for place, value in written.items()
        }


def run(job: Job, spark: SimulatedSpark, kind: PlanKind) -> Any:
    return backfill(job, spark, NoProgress(), kind)


def place_of(row: dict[str, Any]) -> Place:
    return row["topic"], row["offset"], row.get("position") or 0


def columns_of(version: Version) -> dict[str, Any]:
    """The fields of the values, with their types."""
    fields = json.loads(version.schema_json)["fields"]
    value = next(f for f in fields if f["name"] == "value")
    return {f["name"]: f["type"] for f in value["type"]["fields"]}


def as_json(values: Sequence[dict[str, Any]]) -> list[bytes]:
    return [json.dumps(value).encode() for value in values]
