"""The handle of a driver process: give it a task, wait for a moment, see how it ended.

Every wait has an end. ``leftovers`` looks at the whole session of processes that a driver
started, JVM, executors and Python workers: what is there after it has ended is an error.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import psutil

import rangeland
from rangeland.testing.context_managers import Closing
from rangeland.testing.processes import PATIENCE_S, Process, remove_directory, temporary_directory
from tests.servers.process_sessions import (
    command_of,
    kill_all,
    members_of,
    temporary_files_in,
    workers_among,
)

__all__ = ["Driver", "command_of", "kill_all", "members_of", "temporary_files_in", "workers_among"]

ROOT = Path(__file__).parents[2]


class Driver(Closing):
    """One driver process with a Spark session of its own. Starts at once, is ready later."""

    def __init__(
        self, folder: Path, master: str = "local[2]", settings: Mapping[str, str] | None = None
    ) -> None:
        folder.mkdir(parents=True)
        self.folder = folder
        self._number = -1
        library = Path(rangeland.__file__).parents[1]
        self.process = Process(
            f"driver {folder.name}",
            [
                sys.executable,
                "-m",
                "tests.chaos.driver",
                str(folder),
                master,
                json.dumps(dict(settings or {})),
            ],
            log=folder / "driver.log",
            environment={
                "PYTHONPATH": f"{library}{os.pathsep}{ROOT}",
                **temporary_files_in(folder / "tmp"),
            },
            directory=folder,
        )

    # --- tasks ------------------------------------------------------------------------

    def give(self, job: Path, command: str = "run", **at: str) -> None:
        """The next task. ``at`` says what is to happen at a moment: ``planned="kill"``,
        ``written="pause"``, ``entering="tell"`` (and go on), ``reading="stop 4711"`` (SIGSTOP
        to that process group)."""
        self._number += 1
        task = {"job": str(job), "command": command, "at": at}
        hidden = self.folder / "next"
        hidden.write_text(json.dumps(task))
        hidden.rename(self.folder / f"{self._number}.task")

    def wait_until_ready(self) -> None:
        self._wait(lambda: (self.folder / "ready").exists(), "its Spark session")

    def wait_at(self, moment: str) -> None:
        """Until the present task has reached the moment it was to do something at."""
        self._wait(lambda: self.has_reached(moment), f"the moment {moment}")

    def has_reached(self, moment: str) -> bool:
        return (self.folder / f"{self._number}.at-{moment}").exists()

    def go(self, moment: str) -> None:
        """Lets the present task go on from a pause."""
        (self.folder / f"{self._number}.go-{moment}").touch()

    @property
    def is_done(self) -> bool:
        return (self.folder / f"{self._number}.result").exists()

    @property
    def is_idle(self) -> bool:
        return self._number < 0 or self.is_done

    def result(self) -> dict[str, Any]:
        """What the present task came to."""
        self._wait(lambda: self.is_done, "its result")
        found: dict[str, Any] = json.loads((self.folder / f"{self._number}.result").read_text())
        return found

    def landed(self) -> dict[str, Any]:
        """The result of the present task, which must have ended well."""
        result = self.result()
        assert "error" not in result, f"{result}\n{self.process.log_tail(40)}"
        return result

    def _wait(self, happened: Callable[[], bool], what: str) -> None:
        self.process.wait_until(happened, what, PATIENCE_S)

    # --- its end ----------------------------------------------------------------------

    def wait_until_killed(self) -> None:
        """Until it has killed itself, and all that belonged to it has ended too."""
        code = self.process.wait_for_end()
        assert code == -signal.SIGKILL, f"ended with {code}:\n{self.process.log_tail(40)}"
        self.check_is_clean()

    def close(self) -> None:
        """Ends it in order, or else by force; in both cases nothing may stay."""
        if self.process.running:
            if self.is_idle:
                self.give(Path(), "end")
            else:
                self.process.kill()
            try:
                self.process.wait_for_end()
            finally:
                self.process.kill()
        self.check_is_clean()

    def members(self) -> list[psutil.Process]:
        """All living processes of its session: itself, its JVM, the Python workers."""
        return members_of(self.process)

    def check_is_clean(self) -> None:
        """Raises if any process of its session is still there after a while."""
        deadline = time.monotonic() + PATIENCE_S
        while left := self.members():
            if time.monotonic() > deadline:
                told = [f"{p.pid} {command_of(p)[:200]}" for p in left]
                kill_all(left)
                raise AssertionError(f"{self.process.name} has left processes: {told}")
            time.sleep(0.05)


StartDrivers = Callable[[int], list[Driver]]
"""So many drivers that are ready and idle. One that was killed, or that a failed test has left in
the middle of its task, is replaced for whoever asks next."""


@contextmanager
def living_drivers() -> Iterator[StartDrivers]:
    """All that were started are ended when it ends."""
    with ExitStack() as stack:
        folder = temporary_directory("rangeland-drivers-")
        stack.callback(remove_directory, folder)
        drivers: list[Driver] = []

        def start_drivers(count: int) -> list[Driver]:
            for driver in drivers:
                if not driver.is_idle:
                    driver.process.kill()
            alive = [driver for driver in drivers if driver.process.running]
            while len(alive) < count:
                alive.append(stack.enter_context(Driver(folder / f"driver-{len(drivers)}")))
                drivers.append(alive[-1])
            for driver in alive:
                driver.wait_until_ready()
            return alive[:count]

        yield start_drivers
