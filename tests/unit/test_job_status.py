"""What ``status`` reports where table and ledger do not agree."""

from __future__ import annotations

import pytest

from rangeland.delta.table_metadata import CommitMetadata
from rangeland.job.group_section import Group
from rangeland.landing.target.landing_commits import Restored
from rangeland.landing.target.landing_target import LandingTarget
from rangeland.landing.target.row_removal import Removal, UnknownCommits
from rangeland.model import AbsentPartitions, Address, Counts, Leader, LogState, Survey
from rangeland.planning.plan import PlanId
from rangeland.planning.proof import prove
from rangeland.planning.slice_receipt import Receipt
from rangeland.progress_events import NoProgress
from rangeland.queries import job_status
from rangeland.render.status_view import render_status
from tests.fakes.group_backend import InMemoryGroupBackend, InMemoryGroups
from tests.unit import test_landing_target
from tests.unit.test_landing_target import (
    P0,
    Drivers,
    LakeInMemory,
    columns_are_there,
    land_until_30,
    plan,
)
from tests.unit.test_ledger_lost_responses import Version
from tests.unit.test_render import rendered

drivers, lake = test_landing_target.drivers, test_landing_target.lake


@pytest.fixture(autouse=True)
def no_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    log = LogState(P0, Leader(Address("b", 1), 7, "id"), 0, 100)
    monkeypatch.setattr(job_status, "survey_of", lambda *about, **more: Survey(0, {P0: log}))
    monkeypatch.setattr(job_status, "log_ends", lambda *about: {})


def landed_until_30(drivers: Drivers, monkeypatch: pytest.MonkeyPatch) -> LandingTarget:
    """A target whose first plan has landed up to there."""
    columns_are_there(monkeypatch)
    target = drivers.another()
    assert target.writer.enter(plan(), [])
    land_until_30(target, plan())
    return target


def test_a_table_that_was_dropped_and_created_again_is_reported(
    lake: LakeInMemory, drivers: Drivers, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = landed_until_30(drivers, monkeypatch)
    target.ledger.refresh()
    second = plan(2, 30, 40)
    assert target.writer.enter(second, [])
    receipts = {0: Receipt(0, P0, 30, 40, Counts(landed=10))}
    target.writer.commit_outcome(
        target.writer.prepare_outcome(second, prove(second, receipts), (), receipts).outcome
    )
    lake.tables[drivers.path].versions = [Version(drivers.path, 0)]
    found = job_status.status(drivers.job, None, NoProgress())
    (seen,) = found.partitions
    assert (seen.checkpoint, seen.landed, seen.lag) == (40, ((0, 40),), 60)
    assert (found.sequence, found.table_version, len(found.recent)) == (2, 0, 2)
    (warning,) = found.warnings
    assert "it is unknown whether rangeland/orders 2 has landed" in warning


def test_a_partition_that_the_cluster_does_not_show_is_reported(
    lake: LakeInMemory, drivers: Drivers, monkeypatch: pytest.MonkeyPatch
) -> None:
    landed_until_30(drivers, monkeypatch)
    absent = AbsentPartitions(unreachable={P0: "no leader"})
    for survey, kind in (
        (Survey(0, {}, absent=absent), "unreachable"),
        (Survey(0, {}), "vanished"),
    ):
        monkeypatch.setattr(job_status, "survey_of", lambda *about, seen=survey: seen)
        found = job_status.status(drivers.job, None, NoProgress())
        (warning,) = found.warnings
        assert warning.startswith(f"{P0} is {kind} and not listed: ")
        assert "everything is landed" not in rendered(render_status(found))


def test_a_table_of_a_template_has_its_offsets_in_the_group_of_the_template(
    lake: LakeInMemory, drivers: Drivers, monkeypatch: pytest.MonkeyPatch
) -> None:
    columns_are_there(monkeypatch)
    land_until_30(drivers.another(), plan())
    backend = InMemoryGroupBackend(InMemoryGroups(), "status")
    backend.commit("orders", {P0: 30})
    monkeypatch.setattr(job_status, "open_backend", lambda *about: backend)
    template = drivers.job.model_copy(update={"group": Group(id="orders")})
    assert drivers.job.group is None
    found = job_status.status(drivers.job, None, NoProgress(), template=template)
    assert [p.group_offset for p in found.partitions] == [30]
    assert found.group is not None
    assert found.group.id == "orders"


@pytest.mark.parametrize(
    ("removal", "said"),
    [
        (Restored(9, 4, 0, (PlanId("rangeland/orders", 3),)), "RESTORE at version 9 removed"),
        (Restored(9, None, 0, ()), "RESTORE at version 9 may have removed"),
        (CommitMetadata(9, 0, "WRITE", {}), "WRITE at version 9 removed or replaced"),
        (UnknownCommits(4, 40), "made for version 4, the table's log begins at 40"),
    ],
)
def test_a_removal_that_the_log_does_not_show_is_reported_as_possible(
    drivers: Drivers, monkeypatch: pytest.MonkeyPatch, removal: Removal, said: str
) -> None:
    monkeypatch.setattr(job_status, "find_removal", lambda *about: removal)
    (warning,) = job_status.disagreements(drivers.job, drivers.another(), None)
    assert said in warning
    assert "`rangeland verify JOB.yaml` shows whether any are missing" in warning
