"""That the simulation finds mistakes, one at a time."""

from __future__ import annotations

import pytest

from tests.simulation.caught import CAUGHT_AT
from tests.simulation.mutating import Mutation, caught_at
from tests.simulation.mutations import MUTATIONS
from tests.simulation.test_simulation import SEEDS


def name_of(mutation: Mutation) -> str:
    return mutation.name


def test_a_seed_is_recorded_of_each_mutation_that_passes_without_it() -> None:
    assert sorted(CAUGHT_AT) == sorted(mutation.name for mutation in MUTATIONS)
    assert max(CAUGHT_AT.values()) < SEEDS


@pytest.mark.parametrize("mutation", MUTATIONS, ids=name_of)
def test_a_safeguard_that_is_left_out_is_missed(mutation: Mutation) -> None:
    """At its recorded seed. After a change of the histories, ``python -m
    tests.simulation.mutations`` finds others."""
    assert caught_at(mutation, [CAUGHT_AT[mutation.name]]) is not None
