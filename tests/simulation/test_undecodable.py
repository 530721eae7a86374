"""Records that cannot be decoded, in whole runs on the models of all dialects: the others land,
what is quarantined lands once its schema is corrected, and ``verify`` finds each record once.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from rangeland.model import Counts, Partition
from rangeland.planning.plan_kind import PlanKind
from rangeland.progress_events import NoProgress
from rangeland.queries.verify_and_find import verify
from rangeland.run import redrive
from tests.simulation.replaced import Stage, simulated
from tests.simulation.typed_lake import Place, TypedLake, as_json

STRICT, LAX = "id BIGINT NOT NULL, name STRING", "id BIGINT, name STRING"
GOOD = as_json([{"id": n, "name": f"n{n}"} for n in range(4)])
BAD = as_json([{"name": "without an id"}])[0]
NEVER = b"{"
DIALECTS = ("kafka", "jafka", "rocketmq")


@pytest.fixture
def stage() -> Iterator[Stage]:
    with simulated() as stage:
        yield stage


@pytest.fixture(params=DIALECTS)
def lake(stage: Stage, request: pytest.FixtureRequest) -> TypedLake:
    return TypedLake(stage, dialect=request.param)


def filled(lake: TypedLake) -> tuple[list[Place], list[Place], list[Place]]:
    """Where records are that a strict schema decodes, those that only a lax one does, and those
    that none does. A packed set of Jafka is one entry; in other logs each of its records has an
    offset."""
    first = lake.produce("orders", [GOOD[0], BAD, BAD, GOOD[1]])
    second = lake.produce("orders", [GOOD[2], BAD, GOOD[3]], packed=True)
    third = lake.produce("orders", [NEVER, GOOD[0]])
    good = [first[0], first[3], second[0], second[2], third[1]]
    return good, [first[1], first[2], second[1]], [third[0]]


def is_proved(lake: TypedLake, job: Any) -> bool:
    found = lake.alone(lambda spark: verify(job, spark, NoProgress()))
    return not (found.audit.holes or found.audit.duplicates or found.audit.unknown_rows)


def redriven(lake: TypedLake, job: Any) -> Any:
    return lake.alone(lambda spark: redrive(job, spark, NoProgress()))


def width(lake: TypedLake, places: list[Place]) -> int:
    """In offsets: of a log whose offsets are bytes, those of whole entries."""
    entries = {entry.base: entry.until for entry in lake.cluster.topics["orders"].logs[0].entries}
    if not lake.cluster.offsets_are_bytes:
        return len(places)
    return sum(entries[base] - base for base in {offset for _, offset, _ in places})


def test_records_that_are_skipped_are_lost_and_all_others_land(lake: TypedLake) -> None:
    good, bad, never = filled(lake)
    job = lake.job(STRICT, policy={"undecodable": "skip"})
    (found,) = lake.land(job)
    assert lake.places() == sorted(good)
    assert found.counts == Counts(landed=len(good), lost=width(lake, bad + never))
    assert is_proved(lake, job)
    assert lake.land(job)[0].state == "nothing"
    shown = " ".join(loss.loss.evidence for loss in found.losses)
    assert "the field id is missing" in shown


def test_what_is_quarantined_lands_once_with_another_schema(lake: TypedLake) -> None:
    _, bad, never = filled(lake)
    policy = {"undecodable": "quarantine"}
    job, other = (lake.job(schema, policy=policy) for schema in (STRICT, LAX))
    (found,) = lake.land(job)
    # An entry of several records is kept whole: they have one offset.
    entries = {place[:2] for place in bad + never}
    kept = [place for place in lake.written if place[:2] in entries]
    assert lake.places() == sorted(place for place in lake.written if place not in kept)
    assert found.counts == Counts(
        landed=len(lake.written) - len(kept), quarantined=width(lake, bad + never)
    )
    assert is_proved(lake, job)

    assert redriven(lake, job).done.state == "nothing"
    first = redriven(lake, other)
    assert first.done.landed == len(kept) - len(never)
    (left,) = first.still_quarantined
    assert left.batch.range.partition.of_any_broker == Partition("orders", 0)
    assert left.batch.range.from_offset == never[0][1]
    assert "value: " in left.why
    assert lake.places() == sorted(place for place in lake.written if place not in never)
    values = {(r["topic"], r["offset"], r.get("position") or 0): r["value"] for r in lake.rows()}
    assert [values[place]["name"] for place in bad] == ["without an id"] * len(bad)
    assert redriven(lake, other).done.state == "nothing"
    assert is_proved(lake, other)
    (more,) = lake.land(other, kind=PlanKind.BACKFILL)
    assert more.landed == 0


@pytest.mark.parametrize("later", [[BAD] * 3, [GOOD[0], BAD], [BAD] * 5], ids=len)
def test_what_two_incarnations_of_a_topic_have_in_quarantine_lands_together(
    stage: Stage, later: list[bytes]
) -> None:
    lake = TypedLake(stage)
    policy = {"undecodable": "quarantine", "recreated": "skip"}
    strict, lax = (lake.job(schema, policy=policy) for schema in (STRICT, LAX))
    lake.produce("orders", [BAD] * 3)
    lake.land(strict)
    lake.cluster.recreate("orders")
    lake.produce("orders", later)
    lake.land(strict)
    assert redriven(lake, strict).done.state == "nothing"
    found = redriven(lake, lax)
    assert (found.done.landed, found.still_quarantined) == (3 + later.count(BAD), ())
    offsets = [*range(3), *range(len(later))]
    assert sorted(row["offset"] for row in lake.rows()) == sorted(offsets)
    assert is_proved(lake, lax)
    assert lake.land(lax)[0].state == "nothing"
