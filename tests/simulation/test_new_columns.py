"""Columns that a landing adds, on the models: a driver is killed at each of its steps, or two of
them add columns at the same time. In each version of the table a reader finds the new column with
its rows, or neither.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from rangeland.delta.table_schema.arrow_schema import delta_type
from rangeland.errors import TableRefused
from rangeland.job import Job
from rangeland.planning.plan_kind import PlanKind
from tests.simulation.replaced import Stage, simulated
from tests.simulation.typed_lake import KEY, TypedLake, as_json, columns_of
from tests.simulation.world import Crash, Fault

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


def orders(first: int, count: int, **more: Any) -> list[bytes]:
    return as_json([{"id": n, **more} for n in range(first, first + count)])


def prepared(stage: Stage) -> TypedLake:
    """The table has rows, and the log has more, with a new field."""
    lake = TypedLake(stage)
    lake.produce("orders", orders(1, BEFORE))
    lake.land(lake.job(OLD))
    lake.produce("orders", orders(9, AFTER, price=7))
    return lake


def torn(stage: Stage) -> TypedLake:
    """The table has lost its rows, which were landed without a field that the log has."""
    lake = TypedLake(stage)
    lake.produce("orders", orders(1, BEFORE, price=7))
    lake.land(lake.job(OLD))
    for path in lake.versions[-1].files:
        del lake.store.files[f"{KEY}/{path}"]
    return lake


CASES = {PlanKind.RUN: prepared, PlanKind.HOLES: torn}


@pytest.mark.parametrize("kind", CASES)
def test_all_steps_of_a_landing_are_known(stage: Stage, kind: PlanKind) -> None:
    lake = CASES[kind](stage)
    (found,), process = lake.drivers([(lake.job(NEW), kind)])
    assert (found.landed, found.added_columns) == (len(lake.written) - BEFORE or BEFORE, (PRICE,))
    assert set(process.counts) - {"spark.read"} == {*STEPS}
    lake.check_versions()
    lake.check_all_landed()


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize(
    ("kind", "then"), [(PlanKind.RUN, NEW), (PlanKind.RUN, OLD), (PlanKind.HOLES, NEW)]
)
def test_a_driver_killed_at_any_step_leaves_columns_and_rows_together(
    stage: Stage, step: str, kind: PlanKind, then: str
) -> None:
    kills = 0
    while True:
        lake = CASES[kind](stage)
        (found,) = lake.land(lake.job(NEW), faults=[Fault(step, kills + 1, "crash")], kind=kind)
        if not isinstance(found, Crash):
            break
        kills += 1
        lake.check_versions()
        lake.land(lake.job(then), kind=kind)
        lake.check_versions()
        lake.land(lake.job(NEW), kind=kind)
        assert len(lake.rows()) == len(lake.written)
        lake.check_all_landed()
    assert kills > 0


def two_topics(stage: Stage, seed: int, schema: str, price: object) -> tuple[TypedLake, list[Job]]:
    """Two jobs that land in one table, each with a new field of the same name."""
    lake = TypedLake(stage, seed)
    for name in ("orders", "returns"):
        lake.produce(name, orders(1, BEFORE))
        lake.land(lake.job(OLD, name))
    lake.produce("orders", orders(9, AFTER, price=7))
    lake.produce("returns", orders(9, AFTER, price=price))
    return lake, [lake.job(NEW), lake.job(schema, "returns")]


def test_two_drivers_add_the_same_column_once(stage: Stage) -> None:
    added = set()
    for seed in range(SCHEDULES):
        lake, jobs = two_topics(stage, seed, NEW, 7)
        found = lake.land(*jobs)
        lake.check_versions()
        lake.check_all_landed()
        # A driver also commits what the other one has prepared, if it comes first.
        landed = [one.landed for one in found]
        assert (sum(landed), set(landed) - {AFTER} - {0, 2 * AFTER}) == (2 * AFTER, set())
        for one in found:
            assert one.state == ("landed" if one.landed else "already-landed")
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
        topic = jobs[late].name
        landed = [place for place in lake.written if place[0] != topic or place[1] < BEFORE]
        assert lake.places() == sorted(landed)
        # What it has prepared is not landed as it is, but read again without that field.
        files = {path for path in lake.store.files if path.startswith(f"{KEY}/part-")}
        were_prepared.add(len(files) > len(lake.versions[-1].files))
        were_late.add(late)
        again = lake.land(jobs[late])
        assert isinstance(again[0], TableRefused)
        (corrected,) = lake.land(lake.job(OLD, topic))
        assert corrected.landed == AFTER
        lake.check_versions()
        assert lake.places() == sorted(lake.written)
    assert were_late == {0, 1}
    assert were_prepared == {False, True}


def test_of_two_drivers_with_a_wider_type_files_have_the_column_s_type(stage: Stage) -> None:
    """If the wider one comes first, the other reads its records again; otherwise it is refused."""
    ends = set()
    for seed in range(SCHEDULES):
        lake, jobs = two_topics(stage, seed, "id BIGINT, price INT", 7)
        found = lake.land(*jobs)
        lake.check_versions()
        kind = columns_of(lake.versions[-1])["price"]
        for path in lake.versions[-1].files:
            (value,) = [
                f.type for f in lake.store.files[f"{KEY}/{path}"].table.schema if f.name == "value"
            ]
            if "price" in value.names:
                assert delta_type(value.field("price").type) == kind
        ends.add((kind, *(type(one).__name__ for one in found)))
    assert ends == {("long", "RunResult", "RunResult"), ("integer", "TableRefused", "RunResult")}
