"""What of a landing is in its table, and which commits remove all rows of one."""

from __future__ import annotations

import itertools

import pytest

from rangeland.delta.ledger.ledger_table import Ledger
from rangeland.delta.parquet_files.file_statistics import may_hold
from rangeland.delta.table_metadata import AddedFile, CommitMetadata
from rangeland.errors import Conflict, Unreachable
from rangeland.planning.plan import Plan
from tests.unit import test_landing_target
from tests.unit.test_landing_target import (
    APP,
    Drivers,
    LakeInMemory,
    columns_are_there,
    land_until_30,
    plan,
)

drivers, lake = test_landing_target.drivers, test_landing_target.lake


@pytest.mark.parametrize(
    ("operation", "parameters", "is_whole"),
    [
        ("WRITE", {"mode": "Append", "partitionBy": "[]"}, False),
        ("WRITE", {"mode": "Overwrite", "partitionBy": "[]"}, True),
        ("WRITE", {"mode": "Overwrite", "canOverwriteSchema": "true"}, True),
        ("WRITE", {"mode": "Overwrite", "predicate": "(topic = 'c')"}, False),
        ("WRITE", {"mode": "Overwrite", "isDynamicPartitionOverwrite": "true"}, False),
        ("WRITE", {}, False),
        ("DELETE", {"predicate": '["(value#2304 = 3)"]'}, False),
        ("DELETE", {"predicate": "[]"}, True),
        ("DELETE", {"predicate": '["true"]'}, True),
        ("CREATE OR REPLACE TABLE AS SELECT", {}, True),
        ("REPLACE TABLE", {}, True),
        ("TRUNCATE", {}, True),
        ("OPTIMIZE", {"predicate": "[]"}, False),
        ("MERGE", {"predicate": '["(a = b)"]'}, False),
        ("CREATE TABLE", {}, False),
    ],
)
def test_what_takes_out_all_rows_is_distinguished_from_what_takes_some(
    operation: str, parameters: dict[str, str | None], is_whole: bool
) -> None:
    assert CommitMetadata(3, 0, operation, {}, None, parameters).replaces_all is is_whole


def file(stats: str | None, **partition_values: str) -> AddedFile:
    return AddedFile("part-1.parquet", 1, 1, stats, partition_values)


BOUNDS = '{"numRecords":2,"minValues":{"topic":"b"},"maxValues":{"topic":"d"}}'


@pytest.mark.parametrize(
    ("found", "may"),
    [
        (file(BOUNDS), True),
        (file(BOUNDS.replace('"b"', '"d"').replace('"d"},"max', '"cc"},"max')), False),
        (file(BOUNDS.replace('"d"', '"bz"')), False),
        (file('{"numRecords":0}'), False),
        (file('{"numRecords":2}'), True),
        (file(None), True),
        (file(None, topic="c"), True),
        (file(BOUNDS, topic="d"), False),
    ],
)
def test_a_file_may_hold_a_topic_unless_its_statistics_deny_it(found: AddedFile, may: bool) -> None:
    assert may_hold(found, "topic", "c") is may


def test_what_reads_a_landed_table_without_its_ledger_does_not_advise_to_land_first(
    lake: LakeInMemory, drivers: Drivers, monkeypatch: pytest.MonkeyPatch
) -> None:
    columns_are_there(monkeypatch)
    target = drivers.another()
    assert target.writer.enter(plan(), [])
    land_until_30(target, plan())
    del lake.tables[f"{drivers.path}/_rangeland/ledger"]
    with pytest.raises(Conflict, match="it has 1 landing of rangeland/orders") as caught:
        drivers.another().history.landings()
    assert "rangeland adopt" in caught.value.do


@pytest.mark.parametrize("application", [APP, f"{APP}/backfill/0123"])
def test_what_landed_after_the_table_was_read_is_not_in_it(
    lake: LakeInMemory, drivers: Drivers, monkeypatch: pytest.MonkeyPatch, application: str
) -> None:
    """A first landing has no earlier transaction to go by, and the log of the table shows it."""
    columns_are_there(monkeypatch)
    first, entered = drivers.another(), plan(application=application)
    assert first.writer.enter(entered, [])
    outcome = first.writer.prepare_outcome(entered, (), (), {}).outcome
    second = drivers.another()
    first.writer.commit_outcome(outcome)
    assert second.history.landings() == []
    second.ledger.refresh()
    assert [found.sequence for found, _ in second.history.landings()] == [1]


def test_a_plan_that_was_made_after_the_table_was_read_is_not_in_it(
    lake: LakeInMemory, drivers: Drivers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A driver that was asleep reads the ledger again before the table."""
    columns_are_there(monkeypatch)
    asleep, first = drivers.another(), drivers.another()
    for number, (start, until) in enumerate([(0, 30), (30, 60)], start=1):
        made = plan(number, start, until)
        first.ledger.refresh()
        assert first.writer.enter(made, [])
        outcome = first.writer.prepare_outcome(made, (), (), {}).outcome
        first.writer.commit_outcome(outcome)
    asleep.ledger.require().refresh()
    assert asleep.identity.landed_sequence(APP) == 1


OTHER = "rangeland/others"


def land(drivers: Drivers, made: Plan) -> None:
    target = drivers.another()
    assert target.writer.enter(made, target.history.unfinished_plans())
    outcome = target.writer.prepare_outcome(made, (), (), {}).outcome
    target.writer.commit_outcome(outcome)


def test_a_plan_that_another_job_has_seen_in_the_table_is_missed_in_a_backup_of_it(
    lake: LakeInMemory, drivers: Drivers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was not among the unfinished ones: a second plan of its number would never land."""
    columns_are_there(monkeypatch)
    land(drivers, plan())
    land(drivers, plan(1, 0, 10, application=OTHER))
    backup = list(lake.tables[drivers.path].versions)
    land(drivers, plan(2, 100, 200))
    land(drivers, plan(2, 10, 20, application=OTHER))
    lake.tables[drivers.path].versions = backup
    target = drivers.another()
    with pytest.raises(
        Conflict, match=r"last plan of rangeland/orders is 1 in the table .*, and 2 in its ledger"
    ) as caught:
        target.history.position(APP)
    assert "restore both" in caught.value.do
    assert "rangeland adopt" in caught.value.do


def test_what_landed_and_was_followed_since_the_table_was_read_is_no_contradiction(
    lake: LakeInMemory, drivers: Drivers, monkeypatch: pytest.MonkeyPatch
) -> None:
    columns_are_there(monkeypatch)
    land(drivers, plan())
    asleep = drivers.another()
    land(drivers, plan(2, 100, 200))
    land(drivers, plan(1, 0, 50, application=OTHER))
    asleep.ledger.require().refresh()
    assert asleep.identity.landed_sequence(APP) == 1
    land(drivers, plan(3, 200, 300))
    asleep.ledger.require().refresh()
    assert asleep.identity.landed_sequence(APP) == 1
    asleep.ledger.refresh()
    assert asleep.identity.landed_sequence(APP) == 3


def test_ledger_and_table_are_read_again_until_they_are_of_one_moment(
    lake: LakeInMemory, drivers: Drivers, monkeypatch: pytest.MonkeyPatch
) -> None:
    columns_are_there(monkeypatch)
    first, second = drivers.another(), drivers.another()
    assert first.writer.enter(plan(), [])
    land_until_30(first, plan())
    second.ledger.refresh_as_one()
    assert [found.sequence for found, _ in second.history.landings()] == [1]
    assert second.table.version == lake.tables[drivers.path].versions[-1].version


def test_a_ledger_that_is_written_to_all_the_time_is_tried_again_later(
    lake: LakeInMemory, drivers: Drivers, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, version = drivers.another(), itertools.count()
    monkeypatch.setattr(Ledger, "version", property(lambda self: next(version)))
    with pytest.raises(Unreachable, match="was written to during each of 10 attempts"):
        target.ledger.refresh_as_one()
