"""Records that cannot be decoded, in whole runs on the models of all dialects: the others land,
what is quarantined lands once its schema is corrected, and ``verify`` finds each record once.
"""

from __future__ import annotations

import errno
import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest

from rangeland.delta.quarantine.quarantine_table import FOLDER
from rangeland.delta.stores.table_path import TablePath
from rangeland.delta.table_metadata import CommitMetadata
from rangeland.errors import (
    Conflict,
    RangelandError,
    StorageFailed,
    TableRefused,
    Unreachable,
)
from rangeland.job import Job
from rangeland.loss import Action, LossKind
from rangeland.model import Counts, Partition
from rangeland.planning.plan_kind import PlanKind
from rangeland.progress_events import NoProgress
from rangeland.queries.verify_and_find import verify
from rangeland.run import redrive
from tests.simulation.dialects import TABLE
from tests.simulation.replaced import Stage, simulated
from tests.simulation.typed_lake import KEY, Place, TypedLake, as_json
from tests.simulation.world import Crash, Fault

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


def redriven(lake: TypedLake, job: Any, **options: bool) -> Any:
    return lake.alone(lambda spark: redrive(job, spark, NoProgress(), **options))


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


def dies(lake: TypedLake, job: Job) -> None:
    """A driver enters a plan of what is in quarantine, and dies before its outcome."""
    (found,), _ = lake.drivers([(job, PlanKind.REDRIVE)], [Fault("task.end", 1, "crash")])
    assert isinstance(found, Crash)


def require_keys(lake: TypedLake) -> None:
    """ALTER TABLE ... ALTER COLUMN key SET NOT NULL."""
    now = lake.tables.logs[KEY].newest
    schema = json.loads(now.schema_json)
    next(f for f in schema["fields"] if f["name"] == "key")["nullable"] = False
    made = CommitMetadata(now.number + 1, lake.world.clock_ms(), "CHANGE COLUMN", {})
    like = replace(now, schema_json=json.dumps(schema))
    lake.tables.change(KEY, removed=(), added=(), made=made, like=like)


def one_in_quarantine(stage: Stage) -> tuple[TypedLake, Job, Job]:
    """A record without a key and without what the first of these jobs requires of its value."""
    lake = TypedLake(stage)
    lake.produce("orders", GOOD[:1])
    log = lake.cluster.topics["orders"].logs[0]
    log._value = lambda offset: BAD  # type: ignore[method-assign]
    log.append(1, lake.world.now_ms, keys=[None])  # type: ignore[list-item]
    strict, lax = (lake.job(x, policy={"undecodable": "quarantine"}) for x in (STRICT, LAX))
    (found,) = lake.land(strict)
    assert found.counts == Counts(landed=1, quarantined=1)
    return lake, strict, lax


def lands_what_is_new(lake: TypedLake, job: Job) -> Sequence[str]:
    """The warnings of a run."""
    written = lake.produce("orders", GOOD[1:2])
    before = lake.places()
    (found,) = lake.land(job)
    assert not isinstance(found, RangelandError), found
    assert lake.places() == sorted([*before, *written])
    assert lake.land(job)[0].state == "nothing"
    warnings: Sequence[str] = found.warnings
    return warnings


def test_what_the_table_refuses_of_the_quarantine_stays_there_and_runs_go_on(stage: Stage) -> None:
    lake, _, lax = one_in_quarantine(stage)
    require_keys(lake)
    for _ in range(2):
        with pytest.raises(TableRefused, match="1 rows have no key"):
            redriven(lake, lax)
        assert lands_what_is_new(lake, lax) == ()


def test_what_the_table_refuses_by_the_next_run_stays_in_quarantine(stage: Stage) -> None:
    lake, _, lax = one_in_quarantine(stage)
    dies(lake, lax)
    require_keys(lake)
    (warning,) = lands_what_is_new(lake, lax)
    assert "was given up, its records stay in quarantine: 1 rows have no key" in warning


def test_what_can_no_longer_be_decoded_stays_in_quarantine_and_lands_later(stage: Stage) -> None:
    lake, strict, lax = one_in_quarantine(stage)
    dies(lake, lax)
    (warning,) = lands_what_is_new(lake, strict)
    assert "was given up, its records stay in quarantine: orders/0: the value" in warning
    assert redriven(lake, lax).done.landed == 1
    assert is_proved(lake, lax)


def test_a_run_goes_on_if_bytes_in_quarantine_are_gone(stage: Stage) -> None:
    lake, _, lax = one_in_quarantine(stage)
    dies(lake, lax)
    quarantine = TablePath.parse(TABLE).child(FOLDER).key
    del lake.tables.logs[quarantine]
    (warning,) = lands_what_is_new(lake, lax)
    assert "was given up" in warning
    assert "the quarantine has no bytes of orders/0 [1, 2)" in warning
    left = redriven(lake, lax)
    (gone,) = left.without_bytes
    assert (gone.batch.range.interval, gone.gone_files) == ((1, 2), ())
    assert (left.done.state, left.exit_code) == ("nothing", Conflict.exit_code)


@pytest.mark.parametrize("step", ["store.read", "store.open", "task.start", "task.end"])
def test_what_may_pass_gives_up_no_plan_of_the_quarantine(stage: Stage, step: str) -> None:
    for number in range(1, 9):
        lake, _, lax = one_in_quarantine(stage)
        dies(lake, lax)
        kind = "refused" if step.startswith("store") else "executor-lost"
        lake.drivers([(lax, PlanKind.RUN)], [Fault(step, number, kind)])
        lake.land(lax)
        assert len(lake.places()) == 2, number


def loses_what_it_prepared(lake: TypedLake, job: Job) -> None:
    """A driver reads the log again and dies before the table has the outcome that it has prepared.
    Its files are removed as those of nobody."""
    crash = Fault("delta.commit", 3, "crash")
    (found,), _ = lake.drivers([(job, PlanKind.REREAD)], [crash])
    assert isinstance(found, Crash)
    count = len(lake.store.files)
    lake.store.vacuum(KEY, lake.tables.logs[KEY].newest.files)
    assert len(lake.store.files) == count - 1


def test_what_was_prepared_from_the_log_and_is_gone_from_both_stays_in_quarantine(
    stage: Stage,
) -> None:
    lake, _, lax = one_in_quarantine(stage)
    loses_what_it_prepared(lake, lax)
    lake.cluster.topics["orders"].logs[0].expire(2)
    (written,) = lake.produce("orders", GOOD[1:2])
    (found,) = lake.land(lax)
    assert lake.places() == [("orders", 0, 0), written]
    assert found.warnings == ("1 prepared file is gone and is read from the log again",)
    (event,) = found.losses
    assert (event.loss.kind, event.loss.action) == (LossKind.EXPIRED, Action.HOLD)
    assert event.loss.interval == (1, 2)
    assert "the nearest valid offset is 2" in event.loss.evidence
    assert lake.land(lax)[0].state == "nothing"
    assert redriven(lake, lax).done.landed == 1
    assert is_proved(lake, lax)


def test_what_no_broker_serves_now_is_not_called_lost(stage: Stage) -> None:
    lake, _, lax = one_in_quarantine(stage)
    loses_what_it_prepared(lake, lax)
    lake.cluster.down = dict.fromkeys(range(10), lake.world.now_ms + 10_000_000)
    (found,) = lake.land(lax)
    assert isinstance(found, Unreachable)
    assert "orders/0 [1, 2) was prepared, its files are gone" in found.what
    lake.cluster.down.clear()
    (found,) = lake.land(lax)
    assert lake.places() == [("orders", 0, 0), ("orders", 1, 0)]


def quarantine_files(lake: TypedLake) -> list[str]:
    folder = TablePath.parse(TABLE).child(FOLDER).key
    return [name for name in lake.store.files if name.startswith(f"{folder}/part-")]


def lose_quarantine_file(lake: TypedLake) -> str:
    (name,) = quarantine_files(lake)
    del lake.store.files[name]
    return name


def test_a_file_of_the_quarantine_that_is_gone_is_no_reason_to_try_again(stage: Stage) -> None:
    lake, _, lax = one_in_quarantine(stage)
    dies(lake, lax)
    lose_quarantine_file(lake)
    (warning,) = lands_what_is_new(lake, lax)
    assert "was given up" in warning
    assert "the quarantine has no bytes of orders/0 [1, 2)" in warning
    left = redriven(lake, lax)
    (gone,) = left.without_bytes
    assert (gone.batch.range.interval, gone.decodes) == ((1, 2), False)
    assert (left.done.state, left.exit_code) == ("nothing", Conflict.exit_code)


def two_in_quarantine_of_which_one_is_gone(stage: Stage) -> tuple[TypedLake, Job, str]:
    """Offset 1, whose file is gone, and offset 2."""
    lake, strict, lax = one_in_quarantine(stage)
    name = lose_quarantine_file(lake)
    lake.produce("orders", [BAD])
    (found,) = lake.land(strict)
    assert found.counts == Counts(quarantined=1)
    return lake, lax, name.rpartition("/")[2]


def test_a_file_of_the_quarantine_that_is_gone_keeps_nothing_else_there(stage: Stage) -> None:
    lake, lax, name = two_in_quarantine_of_which_one_is_gone(stage)
    before = redriven(lake, lax, dry_run=True)
    (gone,) = before.without_bytes
    assert [(one.batch.range.interval, one.decodes) for one in before.still_quarantined] == [
        ((1, 2), False),
        ((2, 3), True),
    ]
    assert before.exit_code == Conflict.exit_code
    assert gone.gone_files == (name,)
    assert name in gone.why
    assert "the field id is missing" in gone.batch.reason

    after = redriven(lake, lax)
    assert (after.done.landed, after.still_quarantined) == (1, (gone,))
    assert after.exit_code == Conflict.exit_code
    assert lake.places() == [("orders", 0, 0), ("orders", 2, 0)]
    assert is_proved(lake, lax)


def test_what_is_gone_from_the_quarantine_is_landed_from_the_log(stage: Stage) -> None:
    lake, lax, _ = two_in_quarantine_of_which_one_is_gone(stage)
    found = redriven(lake, lax, from_log=True)
    assert (found.done.landed, found.still_quarantined, found.exit_code) == (2, (), 0)
    assert lake.places() == [("orders", offset, 0) for offset in range(3)]
    assert is_proved(lake, lax)


def test_what_is_gone_from_quarantine_and_log_is_not_called_landed(stage: Stage) -> None:
    lake, lax, _ = two_in_quarantine_of_which_one_is_gone(stage)
    lake.cluster.topics["orders"].logs[0].expire(2)
    found = redriven(lake, lax, from_log=True)
    (gone,) = found.still_quarantined
    assert gone.batch.range.interval == (1, 2)
    assert (found.done.landed, found.exit_code) == (1, Conflict.exit_code)
    (note,) = found.done.warnings
    assert note.startswith("orders/0 [1, 2) is expired")
    assert note.endswith("it stays in quarantine")
    assert lake.places() == [("orders", 0, 0), ("orders", 2, 0)]


def test_a_store_that_does_not_say_whether_a_quarantine_file_is_gone_is_tried_again(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake, _, lax = one_in_quarantine(stage)
    name = lose_quarantine_file(lake)
    info_of = lake.store._info

    def refuse(path: str) -> Any:
        if path == name:
            raise OSError(errno.EIO, "the store does not answer")
        return info_of(path)

    monkeypatch.setattr(lake.store, "_info", refuse)
    with pytest.raises(StorageFailed):
        redriven(lake, lax)
