"""Mistakes that the simulation has to find: one safeguard of the product left out at a time.

A mutation replaces a piece of one function's source. If that piece is no longer there, the
mutation is out of date and fails. ``python -m tests.simulation.mutations`` says after how many
histories each is caught.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tests.simulation.history import Counts
from tests.simulation.replaced import simulated
from tests.simulation.scenario import scenario
from tests.simulation.shrinking import failure_of


@dataclass(frozen=True)
class Mutation:
    """``where`` is module:function or module:Class.method."""

    name: str
    where: str
    old: str
    new: str


MUTATIONS = (
    Mutation(
        "plans may overlap",
        "rangeland.landing.plan_conflicts:overlapping",
        "if common(plan.ranges, coverage_of(other.plan.ranges)):",
        "if False:",
    ),
    Mutation(
        "a plan is entered whoever came first",
        "rangeland.delta.ledger.ledger_table:Ledger.enter",
        "if self.entered() != expected:",
        "expected = self.entered()\n    if False:",
    ),
    Mutation(
        "the outcome of the second driver counts",
        "rangeland.landing.target_state:LandingTarget._prepare",
        "return theirs, False",
        "return mine, True",
    ),
    Mutation(
        "what has landed is landed again",
        "rangeland.landing.job_history:JobHistory._coverage",
        "if self._ledger.found is None:",
        "if True:",
    ),
    Mutation(
        "a held partition moves on",
        "rangeland.planning.incarnation:stopped_at",
        "if loss.action is Action.HOLD or loss.verdict in STILL_TO_COME:",
        "if loss.verdict in STILL_TO_COME:",
    ),
    Mutation(
        "losses are not recorded",
        "rangeland.landing.target_state:LandingTarget._prepare",
        "if ledger.prepare(mine, self._with_columns(losses)):",
        "if ledger.prepare(mine, []):",
    ),
    Mutation(
        "every gap is compacted",
        "rangeland.fetch.offset_gaps:GapExplainer.explain",
        "return self.are_explained(topic)",
        "self._known[topic] = type(self._known[topic])(True, '')\n    return True",
    ),
)


@contextmanager
def applied(mutation: Mutation) -> Iterator[None]:
    module_name, _, path = mutation.where.partition(":")
    module: Any = importlib.import_module(module_name)
    *parents, name = path.split(".")
    owner = module
    for parent in parents:
        owner = getattr(owner, parent)
    before = getattr(owner, name)
    source = textwrap.dedent(inspect.getsource(before))
    found = source.count(mutation.old)
    if found != 1:
        raise LookupError(f"{mutation.where} has {mutation.old!r} {found} times")
    made: dict[str, Any] = {}
    text = "from __future__ import annotations\n" + source.replace(mutation.old, mutation.new)
    exec(compile(text, mutation.where, "exec"), vars(module), made)
    holders = [owner] if parents else _holders(before, name)
    for holder in holders:
        setattr(holder, name, made[name])
    try:
        yield
    finally:
        for holder in holders:
            setattr(holder, name, before)


def _holders(function: object, name: str) -> list[Any]:
    """The modules that have the function under its name."""
    modules = [m for key, m in sys.modules.items() if key.startswith("rangeland.")]
    return [module for module in modules if getattr(module, name, None) is function]


def caught_after(mutation: Mutation, most: int, first: int = 0) -> tuple[int, str] | None:
    """How many histories it took to find it, and how it showed; None if it was not found."""
    with simulated() as stage, applied(mutation):
        for number in range(most):
            found = failure_of(scenario(first + number), stage, Counts())
            if found is not None:
                return number + 1, f"{type(found).__name__}: {found}"
    return None


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.mutations")
    parser.add_argument("--seeds", type=int, default=20_000)
    parser.add_argument("--only", default="", help="part of a name")
    asked = parser.parse_args(arguments)
    missed = 0
    for mutation in MUTATIONS:
        if asked.only in mutation.name:
            found = caught_after(mutation, asked.seeds)
            missed += found is None
            print(f"{mutation.name}: {found or 'NOT CAUGHT'}"[:300], flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
