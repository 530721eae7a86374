"""Single histories, written by hand, of commands beside ``run``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.simulation.history import Counts, play
from tests.simulation.replaced import Stage, simulated
from tests.simulation.scenario import Happening, Scenario, scenario
from tests.simulation.world import Fault

PRODUCE = Happening("produce", 7)


@pytest.fixture
def stage() -> Iterator[Stage]:
    with simulated() as stage:
        yield stage


def driver(command: str, *faults: Fault) -> Happening:
    return Happening("run", 1, (faults,), (command,))


def played(stage: Stage, *happenings: Happening) -> Counts:
    setup = replace(scenario(0).setup, max_records=None)
    counts = Counts()
    play(Scenario(0, setup, happenings), stage, counts)
    return counts


def test_verify_of_a_ledger_without_a_table_finds_that_nothing_has_landed(stage: Stage) -> None:
    refused = Fault("delta.create", 1, "refused")
    counts = played(stage, PRODUCE, driver("run", refused), driver("verify"))
    assert counts.ends["StorageFailed"] == 1
    assert counts.ends["VerifyResult"] == 2


@pytest.mark.parametrize("harm", ["restore", "overwrite", "delete", "lose-file"])
def test_rows_that_others_remove_are_landed_again(stage: Stage, harm: str) -> None:
    again = [Happening(harm, 3), driver("verify"), driver("missing"), driver("verify")]
    counts = played(stage, PRODUCE, driver("run"), *again, driver("run"))
    assert counts.ends["VerifyResult"] == 3


def test_a_replacement_leaves_each_record_once(stage: Stage) -> None:
    counts = played(stage, PRODUCE, driver("run"), PRODUCE, driver("replace"), driver("verify"))
    assert counts.ends["landed"] >= 2


def test_a_reviewed_plan_is_applied_once(stage: Stage) -> None:
    counts = played(stage, PRODUCE, driver("plan"), driver("apply"), driver("apply"))
    assert counts.ends["ReviewedPlan"] == 1
    assert counts.ends["landed"] >= 1
