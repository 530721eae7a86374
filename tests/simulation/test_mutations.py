"""That the simulation finds mistakes, one at a time."""

from __future__ import annotations

import pytest

from tests.simulation.caught import CAUGHT_AT
from tests.simulation.mutating import Mutation, applied, caught_after
from tests.simulation.mutations import MUTATIONS

SEEDS = 20_000
QUICK = (
    "an entry counts as written after a conflict",
    "an overwritten table is landed in",
    "losses are not recorded",
    "records before the position are landed again",
    "a held partition moves on",
    "unfinished plans stay unfinished",
    "what has landed is landed again",
)
"""Those that the ordinary run proves, at their recorded seeds alone."""


def name_of(mutation: Mutation) -> str:
    return mutation.name


@pytest.mark.parametrize("mutation", MUTATIONS, ids=name_of)
def test_the_code_that_a_mutation_replaces_is_there(mutation: Mutation) -> None:
    with applied(mutation):
        pass


def test_seeds_are_recorded_of_mutations_that_exist() -> None:
    assert {*CAUGHT_AT, *QUICK} <= {mutation.name for mutation in MUTATIONS}


@pytest.mark.parametrize("mutation", [m for m in MUTATIONS if m.name in QUICK], ids=name_of)
def test_a_safeguard_that_is_left_out_is_missed_at_once(mutation: Mutation) -> None:
    assert caught_after(mutation, 1, CAUGHT_AT[mutation.name]) is not None


@pytest.mark.slow
@pytest.mark.parametrize("mutation", MUTATIONS, ids=name_of)
def test_a_safeguard_that_is_left_out_is_missed(mutation: Mutation) -> None:
    """Begins where it was missed last, so it is quick until other histories are drawn."""
    assert caught_after(mutation, SEEDS, CAUGHT_AT.get(mutation.name, 0)) is not None
