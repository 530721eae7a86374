"""That the simulation finds mistakes, one at a time."""

from __future__ import annotations

import pytest

from tests.simulation.mutating import Mutation, applied, caught_after
from tests.simulation.mutations import MUTATIONS

SEEDS = 20_000


def name_of(mutation: Mutation) -> str:
    return mutation.name


@pytest.mark.parametrize("mutation", MUTATIONS, ids=name_of)
def test_the_code_that_a_mutation_replaces_is_there(mutation: Mutation) -> None:
    with applied(mutation):
        pass


@pytest.mark.slow
@pytest.mark.parametrize("mutation", MUTATIONS, ids=name_of)
def test_a_safeguard_that_is_left_out_is_missed(mutation: Mutation) -> None:
    assert caught_after(mutation, SEEDS) is not None
