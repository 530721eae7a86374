"""Tables that earlier versions have landed in are read by this one."""

from __future__ import annotations

import shutil
import zipfile
from pathlib import Path
from typing import Any

import pytest

from rangeland.delta.ledger.events import LossEvent, PlanEvent
from rangeland.delta.ledger.ledger_table import Ledger
from rangeland.delta.transaction_log.delta_kernel import DeltaKernel
from rangeland.landing.target.landing_target import LandingTarget, open_target
from rangeland.landing.target.row_removal import find_removal
from rangeland.model import Isolation
from rangeland.planning.plan import Plan
from tests.golden.test_golden_landings import JOB, VERSIONS, entries_of
from tests.spark.landings import job_of

pytestmark = pytest.mark.spark


def unpacked(version: Path, target: Path) -> Path:
    with zipfile.ZipFile(version / "table.zip") as packed:
        packed.extractall(target)
    return target


@pytest.mark.parametrize("version", VERSIONS, ids=lambda version: version.name)
def test_a_ledger_is_opened_and_read(kernel: DeltaKernel, version: Path, tmp_path: Path) -> None:
    ledger = Ledger(kernel, str(unpacked(version, tmp_path / "orders")))
    assert ledger.exists()
    written = entries_of(version)
    plans = [entry for entry in written if isinstance(entry, PlanEvent)]
    assert sorted(ledger.view.plans(), key=lambda plan: plan.entered) == plans
    assert [outcome.sequence for outcome in ledger.view.outcomes(JOB)] == [4, 3, 2, 1]
    assert ledger.view.losses() == [entry for entry in written if isinstance(entry, LossEvent)]


def landing_target(spark: Any, table: Path) -> LandingTarget:
    return open_target(spark, job_of(["b:1"], table, "golden", name="golden"))


@pytest.mark.parametrize("version", VERSIONS, ids=lambda version: version.name)
def test_a_table_is_landed_in_and_distinguished_from_another_one_from_then_on(
    spark: Any, version: Path, tmp_path: Path
) -> None:
    table = unpacked(version, tmp_path / "orders")
    target = landing_target(spark, table)
    assert target.identity.disagreement_error() is None
    assert find_removal("golden", target.table, target.ledger) is None
    last = target.history.position(JOB).sequence - 1
    plan = Plan("golden", JOB, last + 1, "kafka", Isolation.READ_COMMITTED, (), ())
    assert target.writer.enter(plan, target.history.unfinished_plans())
    prepared = target.writer.prepare_outcome(plan, (), (), {})
    assert prepared.is_mine
    target.writer.commit_outcome(prepared.outcome)
    ledger = spark.read.format("delta").load(f"{table}/_rangeland/ledger")
    (named,) = ledger.where(f"event = 'plan' AND plan = '{plan.hash}'").select("table_id").collect()
    assert named.table_id == target.table.table_id
    target.ledger.refresh()
    assert target.identity.disagreement_error() is None
    assert target.identity.landed_sequence(JOB) == last + 1


@pytest.mark.parametrize("version", VERSIONS, ids=lambda version: version.name)
def test_a_new_table_beside_an_old_ledger_is_refused(
    spark: Any, version: Path, tmp_path: Path
) -> None:
    table = unpacked(version, tmp_path / "orders")
    log, other = table / "_delta_log", tmp_path / "other"
    shutil.rmtree(log)
    spark.createDataFrame([], "topic STRING").write.format("delta").save(str(other))
    (other / "_delta_log").rename(log)
    disagreement = landing_target(spark, table).identity.disagreement_error()
    assert disagreement is not None
    assert "is not the one that its ledger belongs to" in str(disagreement)
