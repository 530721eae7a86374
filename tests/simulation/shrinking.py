"""Cuts a failing history down to few events and faults, and prints it."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from dataclasses import replace

from tests.simulation.happenings import Happening, Scenario
from tests.simulation.history import play
from tests.simulation.replaced import Stage
from tests.simulation.tally import Counts
from tests.simulation.world import Violation

MOST_TRIES = 300


def failure_of(scenario: Scenario, stage: Stage, counts: Counts) -> BaseException | None:
    try:
        play(scenario, stage, counts)
    except (Exception, Violation) as error:
        return error
    return None


def kind_of(error: BaseException) -> str:
    return error.rule if isinstance(error, Violation) else type(error).__name__


def shrunk(scenario: Scenario, error: BaseException, stage: Stage) -> Scenario:
    """A scenario as small as can be found that fails in the same way."""
    wanted, tries = kind_of(error), 0
    while True:
        for smaller in _smaller(scenario):
            tries += 1
            found = failure_of(smaller, stage, Counts())
            if found is not None and kind_of(found) == wanted:
                scenario = smaller
                break
            if tries >= MOST_TRIES:
                return scenario
        else:
            return scenario


def _smaller(scenario: Scenario) -> Iterator[Scenario]:
    happenings = scenario.happenings
    for at in range(len(happenings)):
        yield replace(scenario, happenings=happenings[:at] + happenings[at + 1 :])
    for at, one in enumerate(happenings):
        for less in _with_less(one):
            yield replace(scenario, happenings=(*happenings[:at], less, *happenings[at + 1 :]))
    setup = scenario.setup
    for simpler in (
        replace(setup, partitions=1),
        replace(setup, transactions=False),
        replace(setup, max_records=None),
        replace(setup, slice_bytes=100_000),
        replace(setup, per_response=100),
        replace(setup, is_local=True),
        replace(setup, has_group=False),
    ):
        if simpler != setup:
            yield replace(scenario, setup=simpler)


def _with_less(one: Happening) -> Iterator[Happening]:
    for number, faults in enumerate(one.faults):
        before, after = one.faults[:number], one.faults[number + 1 :]
        if len(one.faults) > 1:
            commands = one.commands[:number] + one.commands[number + 1 :]
            yield replace(one, faults=before + after, commands=commands)
        for which in range(len(faults)):
            left = faults[:which] + faults[which + 1 :]
            yield replace(one, faults=(*before, left, *after))


def explain(scenario: Scenario, error: BaseException, stage: Stage) -> str:
    """The failure, and the smallest history that shows it, step by step."""
    small = shrunk(scenario, error, stage)
    lines = [f"seed {scenario.seed}: {kind_of(error)}: {error}", f"smallest: {small.setup}"]
    lines += [f"  {happening}" for happening in small.happenings]
    try:
        play(small, stage, Counts(), is_traced=True)
    except BaseException as found:
        lines += [f"  | {line}" for line in found.__dict__.get("trace", ())]
        lines += traceback.format_exception(found)[-12:]
    return "\n".join(lines)
