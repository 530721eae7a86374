"""How many examples property tests try per claim: few in the ordinary run, where each claim is
tried again with every change, and the examples are the same each time, so that only a change can
make it fail. `RANGELAND_EFFORT` multiplies them and draws new ones; the slow run sets it.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers

EFFORT = int(os.environ.get("RANGELAND_EFFORT", "1"))
USUAL = 25
"""Of a test that does not say."""


def tried(examples: int) -> settings:
    """How long an example takes says how busy the machine is, and nothing about the code."""
    return settings(
        max_examples=examples * EFFORT,
        deadline=None,
        database=None,
        derandomize=EFFORT == 1,
        suppress_health_check=[HealthCheck.too_slow],
    )


def draw_the_same_whatever_is_imported() -> None:
    """Hypothesis mixes constants of all modules of ours that are imported into its examples. Which
    ones are depends on the tests that ran before."""
    if EFFORT == 1:
        providers._get_local_constants = lambda: providers._local_constants
