"""What becomes of a landing that Kernel refuses because of commits since its snapshot."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from rangeland.delta.transaction_log.table_commit import (
    CommittedOutcome,
    TableMoved,
    commit_once,
)
from rangeland.delta.transaction_log.table_snapshot import CommitRequest
from rangeland.errors import Conflict
from rangeland.landing.target.landing_commits import landed_at
from rangeland.planning.plan import PlanId
from tests.simulation.delta import SimulatedKernel, Tables
from tests.simulation.replaced import simulated
from tests.simulation.world import World

PATH = "mem://lake/orders"
JOB = "rangeland/a"
LANDED_BEFORE = CommittedOutcome(None, is_new=False)
SCHEMA = '{"type": "struct", "fields": []}'


@pytest.fixture
def kernel() -> Iterator[SimulatedKernel]:
    with simulated() as stage:
        stage.world = World(0)
        stage.tables = Tables(stage.world)
        yield SimulatedKernel(stage)


def test_a_plan_that_another_driver_landed_is_found_after_a_change_of_the_table(
    kernel: SimulatedKernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rangeland.delta.transaction_log.table_commit.gone_files", lambda *_: ())
    old = kernel.create(PATH, SCHEMA)
    kernel.commit(PATH, CommitRequest("people", 1, [], properties={"note": "x"}))
    assert commit_once(kernel, PATH, CommitRequest(JOB, 1, [])) == CommittedOutcome(2, is_new=True)
    assert commit_once(kernel, old, CommitRequest(JOB, 1, [])) == LANDED_BEFORE
    assert landed_at(kernel, PATH, PlanId(JOB, 1)) == 2
    with pytest.raises(Conflict):
        commit_once(kernel, old, CommitRequest(JOB, 2, []))


def test_what_was_landed_in_a_table_that_is_gone_is_not_landed(kernel: SimulatedKernel) -> None:
    kernel.create(PATH, SCHEMA)
    kernel.commit(PATH, CommitRequest(JOB, 1, []))
    held = kernel.load(PATH)
    assert held is not None
    kernel._tables.logs.clear()
    kernel.create(PATH, SCHEMA)
    kernel.commit(PATH, CommitRequest(JOB, 1, []))
    with pytest.raises(Conflict, match="dropped"):
        commit_once(kernel, held, CommitRequest(JOB, 1, []))


def test_a_later_sequence_lands_on_a_version_before_the_earlier_one(
    kernel: SimulatedKernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rangeland.delta.transaction_log.table_commit.gone_files", lambda *_: ())
    old = kernel.create(PATH, SCHEMA)
    assert commit_once(kernel, old, CommitRequest(JOB, 1, [])) == CommittedOutcome(1, is_new=True)
    assert commit_once(kernel, old, CommitRequest(JOB, 2, [])) == CommittedOutcome(2, is_new=True)
    assert commit_once(kernel, old, CommitRequest(JOB, 2, [])) == LANDED_BEFORE
    assert landed_at(kernel, PATH, PlanId(JOB, 2)) == 2


def test_a_landing_that_expects_a_version_does_not_follow_another(
    kernel: SimulatedKernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rangeland.delta.transaction_log.table_commit.gone_files", lambda *_: ())
    old = kernel.create(PATH, SCHEMA)
    request = CommitRequest(JOB, 1, [], expected_version=old.version)
    kernel.commit(PATH, CommitRequest("people", 1, []))
    moved = commit_once(kernel, old, request)
    assert isinstance(moved, TableMoved)
    assert moved.path == PATH
    newest = kernel.load(PATH)
    assert newest is not None
    request = replace(request, expected_version=newest.version)
    assert commit_once(kernel, newest, request) == CommittedOutcome(2, is_new=True)
    assert commit_once(kernel, newest, request) == LANDED_BEFORE
    assert landed_at(kernel, PATH, PlanId(JOB, 1)) == 2
