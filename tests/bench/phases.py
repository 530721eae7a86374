"""Where the time of one run goes, told by its own progress.

A phase lasts from the step that begins it to the next one. The names are those of the life
of a run; ``look`` is everything before the brokers are asked.
"""

from __future__ import annotations

import time
from itertools import pairwise

from rangeland.planning.plan import Plan
from rangeland.progress_events import NoProgress

PHASES = ("look", "plan", "enter", "read", "prove", "prepare", "commit")
_BEGINS = {
    "asking": "plan",
    "entering": "enter",
    "preparing": "prepare",
    "committing": "commit",
}


class Phases(NoProgress):
    """A Progress that keeps times, between ``begin`` and ``end``; ``taken`` are the
    milliseconds of each phase, 0 for one that was not reached."""

    def __init__(self) -> None:
        self._marks: list[tuple[str, float]] = []

    def begin(self) -> None:
        self._mark("look")

    def step(self, text: str) -> None:
        phase = _BEGINS.get(text.split(maxsplit=1)[0])
        if phase is not None:
            self._mark(phase)

    def planned(self, plan: Plan, recovered: bool) -> None:
        self._mark("read")

    def done(self) -> None:
        self._mark("prove")

    def end(self) -> None:
        self._mark("end")

    def _mark(self, phase: str) -> None:
        self._marks.append((phase, time.perf_counter()))

    @property
    def taken(self) -> dict[str, float]:
        found = dict.fromkeys(PHASES, 0.0)
        for (phase, start), (_, end) in pairwise(self._marks):
            found[phase] += (end - start) * 1000
        return {phase: round(ms, 1) for phase, ms in found.items()}
