"""A table that refuses is not taken for one that another writer has changed."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from rangeland.delta.ledger import compaction
from rangeland.delta.ledger.compaction import compact_files
from rangeland.delta.ledger.event_codec import SCHEMA
from rangeland.delta.table_metadata import AddedFile
from rangeland.delta.table_schema.arrow_schema import schema_json
from rangeland.delta.transaction_log import table_commit
from rangeland.delta.transaction_log.delta_kernel import DeltaKernel
from rangeland.delta.transaction_log.table_commit import CommittedOutcome
from rangeland.delta.transaction_log.table_snapshot import AlreadyCommitted, Snapshot
from rangeland.errors import Conflict, RangelandError, TableRefused
from rangeland.landing.target.identity_check import IdentityCheck
from rangeland.model import DataFile
from rangeland.progress_events import NoProgress
from rangeland.queries import job_status, verify_and_find
from tests.unit import test_job_status, test_landing_target
from tests.unit.test_failures_after_commit import LANDED, TABLE, Kernel, land
from tests.unit.test_landing_target import (
    Drivers,
    columns_are_there,
    land_until_30,
    plan,
)

drivers, lake = test_landing_target.drivers, test_landing_target.lake
no_broker = test_job_status.no_broker
DENIED = TableRefused("could not commit to lake/orders", why="permission denied")
CHANGED = Conflict("could not commit to lake/orders", why="the table has moved on")


# --- commits ----------------------------------------------------------------------------------


def compact(monkeypatch: pytest.MonkeyPatch, error: RangelandError) -> DataFile | None:
    """Compacts a ledger whose commit fails with this error."""
    monkeypatch.setattr(compaction, "MANY", 10)
    monkeypatch.setattr(compaction, "NEWEST", 4)
    one_row = json.dumps({"numRecords": 1})
    old = [AddedFile(f"part-ledger-plan-{n}.parquet", 9, n, one_row, {}) for n in range(12)]

    def commit(*about: object) -> None:
        raise error

    snapshot = SimpleNamespace(
        version=3,
        schema_json=schema_json(SCHEMA),
        files=lambda: iter(old),
        transaction_version=lambda application: None,
    )
    files = SimpleNamespace(rewrite=lambda paths: DataFile("compacted", 9, len(paths), None, 0))
    return compact_files(cast(Any, SimpleNamespace(commit=commit)), cast(Any, snapshot), files)  # type: ignore[arg-type]


def test_only_another_driver_makes_compacting_a_ledger_unnecessary(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert compact(monkeypatch, CHANGED) is not None
    with pytest.raises(TableRefused, match="permission denied"):
        compact(monkeypatch, DENIED)


def test_a_refused_commit_that_is_in_the_table_has_landed() -> None:
    """The store may deny the commit when it is sent again, after its response was lost."""
    there = SimpleNamespace(**vars(TABLE) | {"transaction_version": lambda _: LANDED.sequence})

    class SentAgain(Kernel):
        def commit(self, snapshot: object, *about: object) -> AlreadyCommitted:
            if snapshot is there:
                return AlreadyCommitted(4, LANDED.sequence)
            return super().commit()

    kernel = cast(DeltaKernel, SentAgain(DENIED, load=there))
    done = table_commit.commit_once(kernel, cast(Snapshot, TABLE), LANDED)
    assert done == CommittedOutcome(None, is_new=False)


def test_a_refused_commit_that_is_not_in_the_table_is_refused() -> None:
    with pytest.raises(TableRefused) as caught:
        land(DENIED, load=TABLE)
    assert caught.value.data == TableRefused.data


@pytest.mark.parametrize("error", [CHANGED, DENIED], ids=["changed", "denied"])
def test_only_a_table_of_another_writer_takes_the_place_of_a_new_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, error: RangelandError
) -> None:
    kernel = DeltaKernel.__new__(DeltaKernel)

    def create(*about: object) -> None:
        raise error

    monkeypatch.setattr(kernel, "_create", create)
    monkeypatch.setattr(kernel, "resolve", str)
    monkeypatch.setattr(kernel, "load", lambda path: TABLE)
    if error is CHANGED:
        assert kernel.create(str(tmp_path), "{}") is cast(Any, TABLE)
        return
    with pytest.raises(TableRefused, match="permission denied"):
        kernel.create(str(tmp_path), "{}")


# --- what has landed --------------------------------------------------------------------------


@pytest.fixture
def landed(drivers: Drivers, monkeypatch: pytest.MonkeyPatch) -> Drivers:
    """A table with one landing."""
    columns_are_there(monkeypatch)
    target = drivers.another()
    assert target.writer.enter(plan(), [])
    land_until_30(target, plan())
    return drivers


def landed_sequence_is(monkeypatch: pytest.MonkeyPatch, error: RangelandError) -> None:
    def landed_sequence(*about: object) -> int:
        raise error

    monkeypatch.setattr(IdentityCheck, "landed_sequence", landed_sequence)


def test_a_table_whose_log_cannot_be_read_is_not_adopted(
    landed: Drivers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Plans whose state is not known would count as landed."""
    history = landed.another().history
    landed_sequence_is(monkeypatch, CHANGED)
    assert history.known_unfinished_plans() == []
    landed_sequence_is(monkeypatch, DENIED)
    with pytest.raises(TableRefused, match="permission denied"):
        history.known_unfinished_plans()


def test_the_ledger_does_not_stand_in_for_a_table_that_refuses_to_be_read(
    landed: Drivers, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = landed.another()
    landed_sequence_is(monkeypatch, CHANGED)
    assert [outcome.sequence for _, outcome in target.history.landings()] == [1]
    assert verify_and_find._passed_over(target.history, landed.job) == ()
    landed_sequence_is(monkeypatch, DENIED)
    with pytest.raises(TableRefused, match="permission denied"):
        target.history.landings()
    with pytest.raises(TableRefused, match="permission denied"):
        verify_and_find._passed_over(target.history, landed.job)


@pytest.mark.parametrize("error", [CHANGED, DENIED], ids=["changed", "denied"])
def test_status_shows_what_the_ledger_has_and_why_the_table_is_not_known(
    landed: Drivers, monkeypatch: pytest.MonkeyPatch, error: RangelandError
) -> None:
    landed_sequence_is(monkeypatch, error)
    found = job_status.status(landed.job, cast(Any, None), NoProgress())
    assert found.sequence == 1
    assert found.warnings == (str(error),)
