"""What a run tells while it works, to whoever wants to hear it.

A ``Progress`` decides nothing, and what it does must not hold up the run: ``pictures.progress``
draws it for people, tests count it, ``NoProgress`` passes it over.
"""

from __future__ import annotations

from typing import Protocol

from rangeland.model import Partition
from rangeland.planning.plan import Plan


class Progress(Protocol):
    """What a run tells while it works. All calls come from one thread at a time."""

    def step(self, text: str) -> None:
        """A new step begins, such as "asking 3 brokers"."""

    def planned(self, plan: Plan, recovered: bool) -> None:
        """This plan will now be read; ``recovered`` if an earlier driver had entered it."""

    def read(self, read_offsets: dict[Partition, int]) -> None:
        """How many offsets of each partition of the plan have been read so far."""

    def done(self) -> None:
        """Reading has ended, well or not."""

    def warn(self, text: str) -> None:
        """Something a person should know that does not end the run."""


class NoProgress:
    """A Progress that tells nobody."""

    def step(self, text: str) -> None: ...

    def planned(self, plan: Plan, recovered: bool) -> None: ...

    def read(self, read_offsets: dict[Partition, int]) -> None: ...

    def done(self) -> None: ...

    def warn(self, text: str) -> None: ...
