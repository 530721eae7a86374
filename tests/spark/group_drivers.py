"""Drivers of one job in one process, for tests of a group: each a thread with a run of its own.

A driver can be held at a moment, or killed there as by SIGKILL: its group backend hears nothing
more from it, and no cleanup of its own runs.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from rangeland.cluster_settings import ClusterSettings
from rangeland.errors import RangelandError
from rangeland.job import Job
from rangeland.model import Partition
from rangeland.planning.plan import Plan
from rangeland.progress_events import NoProgress
from rangeland.results import RunResult
from rangeland.run import run
from rangeland.testing.processes import PATIENCE_S
from tests.fakes.group_backend import InMemoryGroupBackend, InMemoryGroups

PLANNED, READING, HANDING_IN = "planned", "reading", "handing in"
WAITING, WRITTEN, PREPARED = "waiting for", "preparing the outcome", "committing"


class Killed(BaseException):
    """The end of a driver's thread."""


class Driver(NoProgress):
    """One driver, and the progress that it tells. ``at`` says what to do at a moment."""

    def __init__(
        self, name: str, job: Job, spark: Any, at: Mapping[str, Callable[[], None]] | None = None
    ) -> None:
        self.name = name
        self.backend: InMemoryGroupBackend | None = None
        self.result: RunResult | None = None
        self.error: BaseException | None = None
        self.told: list[str] = []
        self.reached: dict[str, threading.Event] = {}
        self._at = dict(at or {})
        self._gates: list[threading.Event] = []
        self._width = 0
        self._thread = threading.Thread(target=self._run, args=(job, spark), name=name, daemon=True)

    def _run(self, job: Job, spark: Any) -> None:
        try:
            self.result = run(job, spark, self)
        except Killed:
            pass
        except BaseException as error:
            self.error = error

    # --- what a test does -----------------------------------------------------------------

    def start(self) -> Driver:
        self._thread.start()
        return self

    def holds_at(self, moment: str) -> Callable[[], None]:
        """Has it wait at a moment, until what this returns is called."""
        gate = threading.Event()

        def wait() -> None:
            assert gate.wait(PATIENCE_S), f"{self.name} was never let go on from {moment}"

        self._at[moment] = wait
        return gate.set

    def dies_at(self, moment: str) -> None:
        def die() -> None:
            assert self.backend is not None
            self.backend.is_cut = True
            raise Killed

        self._at[moment] = die

    def wait_at(self, moment: str) -> None:
        event = self.reached.setdefault(moment, threading.Event())
        deadline = time.monotonic() + PATIENCE_S
        while not event.wait(0.05):
            if not self._thread.is_alive():
                raise AssertionError(f"{self.name} ended before {moment}") from self.error
            assert time.monotonic() < deadline, f"{self.name} has not reached {moment}"

    def ended(self) -> None:
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive(), f"{self.name} is still at {self.told[-1:]}"

    def landed(self) -> RunResult:
        self.ended()
        if self.error is not None:
            raise self.error
        assert self.result is not None, f"{self.name} was killed"
        return self.result

    def refused(self) -> RangelandError:
        self.ended()
        assert isinstance(self.error, RangelandError), self.error
        return self.error

    # --- what the run tells -----------------------------------------------------------------

    def step(self, text: str) -> None:
        self.told.append(text)
        for moment in (HANDING_IN, WAITING, WRITTEN, PREPARED):
            if text.startswith(moment):
                self._reach(moment)

    def planned(self, plan: Plan, recovered: bool) -> None:
        self._width = plan.width
        self._reach(PLANNED)

    def read(self, read_widths: dict[Partition, int]) -> None:
        if 0 < sum(read_widths.values()) < self._width:
            self._reach(READING)

    def _reach(self, moment: str) -> None:
        self.reached.setdefault(moment, threading.Event()).set()
        action = self._at.pop(moment, None)
        if action is not None:
            action()


class GroupBackends:
    """Stands in for ``open_backend``: each driver has its own group backend, named after it."""

    def __init__(self) -> None:
        self.groups = InMemoryGroups()
        self.drivers: dict[str, Driver] = {}

    def driver(self, name: str, job: Job, spark: Any) -> Driver:
        self.drivers[name] = Driver(name, job, spark)
        return self.drivers[name]

    def open(self, job: Job, settings: ClusterSettings) -> InMemoryGroupBackend:
        name = threading.current_thread().name
        backend = InMemoryGroupBackend(self.groups, name)
        if name in self.drivers:
            self.drivers[name].backend = backend
        return backend
