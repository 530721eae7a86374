"""Histories of the simulation in the ordinary run: more of them with ``python -m
tests.simulation --seeds N --from S``."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from rangeland.fetch import fetch_thread
from tests.simulation.history import Counts, play
from tests.simulation.replaced import Stage, simulated
from tests.simulation.scenario import scenario
from tests.simulation.shrinking import explain, failure_of

SEEDS = 600
AT_ONCE = 30


@pytest.fixture
def stage() -> Iterator[Stage]:
    with simulated() as stage:
        yield stage


def test_everything_is_put_back() -> None:
    with simulated():
        assert fetch_thread.time is not time
    assert fetch_thread.time is time


@pytest.mark.parametrize("first", range(0, SEEDS, AT_ONCE))
def test_histories_land_every_record_once_whatever_fails(stage: Stage, first: int) -> None:
    for seed in range(first, first + AT_ONCE):
        found = failure_of(scenario(seed), stage, Counts())
        if found is not None:
            pytest.fail(explain(scenario(seed), found, stage))


def test_a_seed_replays_exactly(stage: Stage) -> None:
    traces = [play(scenario(5), stage, Counts(), is_traced=True).world.trace for _ in range(2)]
    assert traces[0] == traces[1]
