"""The interface through which a run reports what it is doing.

A ``Progress`` decides nothing and must not delay the run: ``render.progress_view`` draws it for
people, tests count its calls, ``NoProgress`` ignores them.
"""

from __future__ import annotations

from typing import Protocol

from rangeland.model import Partition
from rangeland.planning.plan import Plan


class Progress(Protocol):
    """Receives the reports of a run. Only one thread at a time calls it."""

    def step(self, text: str) -> None:
        """Reports that a step begins, such as "asking 3 brokers"."""

    def planned(self, plan: Plan, recovered: bool) -> None:
        """Reports that this plan is read next. ``recovered``: an earlier driver had entered it."""

    def read(self, read_widths: dict[Partition, int]) -> None:
        """Reports how many offsets of each partition of the plan have been read so far."""

    def done(self) -> None:
        """Reports that reading has ended, successfully or not."""

    def warn(self, text: str) -> None:
        """Reports something that a person should know, but that does not end the run."""


class NoProgress:
    """A ``Progress`` that ignores all reports."""

    def step(self, text: str) -> None: ...

    def planned(self, plan: Plan, recovered: bool) -> None: ...

    def read(self, read_widths: dict[Partition, int]) -> None: ...

    def done(self) -> None: ...

    def warn(self, text: str) -> None: ...
