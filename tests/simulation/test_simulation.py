"""Histories of the simulation in the ordinary run: more of them with ``python -m
tests.simulation --seeds N --from S``."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from rangeland import clock
from tests.simulation.displaced import DISPLACEMENTS
from tests.simulation.history import play
from tests.simulation.replaced import Stage, simulated
from tests.simulation.scenario import (
    CLUSTER_ACTS,
    COMMANDS,
    FAULTS,
    RARE_ACTS,
    long_scenario,
    scenario,
)
from tests.simulation.shrinking import explain, failure_of
from tests.simulation.table_faults import TABLE_ACTS
from tests.simulation.tally import Counts
from tests.simulation.transactions import TRANSACTION_ACTS

SEEDS = 20_000
AT_ONCE = 2_500
FAILED_ONCE = (
    *(50_010_570, 50_012_592, 52_014_884, 53_002_592),
    *(60_010_068, 60_015_548, 60_087_643, 60_101_931),
    *(70_001_296, 70_050_072, 110_010_963, 110_031_159, 110_134_683, 130_011_948),
    *(140_008_513, 142_021_817),
)
"""Seeds beyond ``SEEDS`` that have shown a defect."""
AT_LEAST = 1
"""How often each operation, change and kind of fault occurs in ``AT_ONCE`` histories."""


@pytest.fixture
def stage() -> Iterator[Stage]:
    with simulated() as stage:
        yield stage


def test_everything_is_put_back() -> None:
    with simulated():
        assert clock.time is not time
    assert clock.time is time


@pytest.mark.parametrize("first", range(0, SEEDS, AT_ONCE))
def test_histories_land_every_record_once_whatever_fails(stage: Stage, first: int) -> None:
    counts = Counts()
    for seed in range(first, first + AT_ONCE):
        found = failure_of(scenario(seed), stage, counts)
        if found is not None:
            pytest.fail(explain(scenario(seed), found, stage))
    assert not _missing(counts)
    assert counts.checks["compacted"] > 0


def _missing(counts: Counts) -> dict[str, list[str]]:
    """What has not happened ``AT_LEAST`` times."""
    wanted = {
        "operations": (counts.operations, set(COMMANDS)),
        "changes": (
            counts.changes,
            {*CLUSTER_ACTS, *RARE_ACTS, *TABLE_ACTS, *DISPLACEMENTS, *TRANSACTION_ACTS, "lag"},
        ),
        "faults": (
            counts.fault_kinds,
            {kind for _, _, kinds in FAULTS for kind in kinds},
        ),
        "places": (counts.fault_places, {tag for tag, _, _ in FAULTS}),
    }
    found = {
        name: sorted(one for one in kinds if seen[one] < AT_LEAST)
        for name, (seen, kinds) in wanted.items()
    }
    return {name: rare for name, rare in found.items() if rare}


@pytest.mark.parametrize("seed", FAILED_ONCE)
def test_a_history_that_failed_once_passes(stage: Stage, seed: int) -> None:
    found = failure_of(scenario(seed), stage, Counts())
    if found is not None:
        pytest.fail(explain(scenario(seed), found, stage))


def test_a_seed_replays_exactly(stage: Stage) -> None:
    for drawn in (scenario, long_scenario):
        traces = [play(drawn(5), stage, Counts(), is_traced=True).world.trace for _ in range(2)]
        assert traces[0] == traces[1]
