"""Where the time of one run goes, told by its own progress.

A phase lasts from the step that begins it to the next one. The names are those of the life
of a run; ``look`` is everything before the brokers are asked.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from rangeland.model import Partition
from rangeland.planning.plan import Plan
from rangeland.results import Silent

PHASES = ("look", "plan", "enter", "read", "prove", "prepare", "commit")
_BEGINS = {
    "asking": "plan",
    "entering": "enter",
    "preparing": "prepare",
    "committing": "commit",
}


class Phases(Silent):
    """A Progress that keeps times. ``end`` closes the last phase and gives milliseconds."""

    def __init__(self) -> None:
        self._now: Callable[[], float] = time.perf_counter
        self._marks: list[tuple[str, float]] = [("look", self._now())]

    def step(self, text: str) -> None:
        phase = _BEGINS.get(text.split(maxsplit=1)[0])
        if phase is not None:
            self._begin(phase)

    def planned(self, plan: Plan, recovered: bool) -> None:
        self._begin("read")

    def read(self, read_offsets: dict[Partition, int]) -> None: ...

    def done(self) -> None:
        self._begin("prove")

    def _begin(self, phase: str) -> None:
        self._marks.append((phase, self._now()))

    def end(self) -> dict[str, float]:
        ends = [at for _, at in self._marks[1:]] + [self._now()]
        taken = dict.fromkeys(PHASES, 0.0)
        for (phase, start), end in zip(self._marks, ends, strict=True):
            taken[phase] += (end - start) * 1000
        return {phase: round(ms, 1) for phase, ms in taken.items()}
