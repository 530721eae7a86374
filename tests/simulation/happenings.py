"""A history as a value: its job, and what happens in it.

So a failing one can be cut down: each event and each fault has numbers of its own, and leaving one
out does not change the others.
"""

from __future__ import annotations

from dataclasses import dataclass

from tests.simulation.world import Fault

HOUR_MS = 3_600_000
PAUSES_MS = (1_000, 30_000, HOUR_MS)


@dataclass(frozen=True)
class Setup:
    """The job, and the cluster that it reads."""

    age: str
    partitions: int
    compacts: bool
    transactions: bool
    per_response: int
    is_local: bool
    policy: tuple[tuple[str, str], ...]
    max_records: int | None
    slice_bytes: int
    has_group: bool = False
    reads_uncommitted: bool = False


@dataclass(frozen=True)
class Happening:
    """``kind``: run, or a change of the cluster. ``faults``: of each driver that runs at the same
    time; ``commands``: what each of them does."""

    kind: str
    arg: int
    faults: tuple[tuple[Fault, ...], ...] = ()
    commands: tuple[str, ...] = ()

    def __str__(self) -> str:
        text = f"{self.kind}({self.arg})"
        for command, faults in zip(self.commands, self.faults, strict=True):
            text += f", {command}" + "".join(f" with {fault}" for fault in faults)
        return text


@dataclass(frozen=True)
class Scenario:
    """``is_short``: it ends as soon as everything has landed."""

    seed: int
    setup: Setup
    happenings: tuple[Happening, ...]
    is_short: bool = False

    @property
    def size(self) -> int:
        drivers = [faults for one in self.happenings for faults in one.faults]
        return len(self.happenings) + len(drivers) + sum(map(len, drivers))
