"""A driver in a process of its own, which tests kill: one Spark session, many runs.

Tests control it through files in a folder, so that they can watch and kill it at any moment:
``N.task`` names a job file, a command and what is to happen at which moment. The driver writes
``N.at-MOMENT`` when it gets there, waits for ``N.go-MOMENT`` if it is to pause there, and writes
``N.result``. ``drivers`` is the other side.

A kill is SIGKILL to this process, by itself: no handler, no ``finally``, no flush.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
import traceback
from dataclasses import replace
from pathlib import Path
from typing import Any

from rangeland import run as commands
from rangeland.errors import RangelandError
from rangeland.job import Job
from rangeland.landing.target.landing_target import LandingTarget, open_target
from rangeland.landing.target.target_quarantine import TargetQuarantine
from rangeland.landing.target.target_writer import TargetWriter
from rangeland.model import Partition
from rangeland.planning.plan import Plan
from rangeland.progress_events import NoProgress, Progress

ENTERING, PLANNED, READING = "entering", "planned", "reading"
WRITTEN, PREPARED, KEPT, COMMITTED = "written", "prepared", "kept", "committed"
MOMENTS = (ENTERING, PLANNED, READING, WRITTEN, PREPARED, KEPT, COMMITTED)
"""About to enter a plan; the plan is entered; some slices are read and some are not; all
files are written; the outcome is prepared; the quarantine has what it kept, and the table has
not; the table has it, and nobody was told."""

POLL_S = 0.02
PARENT = os.getppid()
"""Whoever started it: a driver waits as long as that process lives, since a task may come late."""


class Moments(NoProgress):
    """A Progress that does at each moment what the task says, once."""

    def __init__(self, folder: Path, number: int, actions: dict[str, str]) -> None:
        self._prefix = f"{folder}/{number}"
        self._actions = dict(actions)
        self._width = 0

    def step(self, text: str) -> None:
        if text == "entering the plan":
            self.reach(ENTERING)
        elif text == "preparing the outcome":
            self.reach(WRITTEN)
        elif text.startswith(("committing", "keeping")):
            self.reach(PREPARED)

    def planned(self, plan: Plan, recovered: bool) -> None:
        self._width = plan.width
        self.reach(PLANNED)

    def read(self, read_widths: dict[Partition, int]) -> None:
        if 0 < sum(read_widths.values()) < self._width:
            self.reach(READING)

    def reach(self, moment: str) -> None:
        """Does what was asked for this moment: tell of it, pause, kill, or stop a process."""
        action = self._actions.pop(moment, None)
        if action is None:
            return
        if action.startswith("stop "):
            os.killpg(int(action.removeprefix("stop ")), signal.SIGSTOP)
        Path(f"{self._prefix}.at-{moment}").touch()
        if action == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if action == "pause":
            wait_for(Path(f"{self._prefix}.go-{moment}"))


class WatchedQuarantine(TargetQuarantine):
    """A quarantine that says when its commit has been made."""

    def commit(self, outcome: Any) -> Any:
        missing = super().commit(outcome)
        Watched.moments.reach(KEPT)
        return missing


class Watched(TargetWriter):
    """A writer that says when its commit has been made."""

    moments: Moments

    def commit_outcome(
        self, outcome: Any, gone: Any = (), expected_version: int | None = None
    ) -> Any:
        landed = super().commit_outcome(outcome, gone, expected_version)
        self.moments.reach(COMMITTED)
        return landed


def open_watched(spark: Any, job: Job) -> LandingTarget:
    target = open_target(spark, job)
    quarantine = WatchedQuarantine(target.table.location)
    writer = Watched(job, target.table, target.ledger)
    return replace(target, quarantine=quarantine, writer=writer)


def wait_for(path: Path) -> None:
    while not path.exists():
        if os.getppid() != PARENT:
            sys.exit(f"nobody is left to write {path.name}")
        time.sleep(POLL_S)


def perform(spark: Any, task: dict[str, Any], moments: Moments) -> dict[str, Any]:
    """The result of one command as the command line would print it, errors too."""
    job = Job.load(task["job"])
    progress: Progress = moments
    Watched.moments = moments
    command = {"run": commands.run, "backfill": commands.backfill}[task["command"]]
    try:
        return command(job, spark, progress).to_json()
    except RangelandError as error:
        return {"error": type(error).__name__, "message": str(error), "exit": error.exit_code}
    except Exception:
        return {"error": "foreign", "message": traceback.format_exc(), "exit": 1}


def main(folder: Path, master: str, settings: dict[str, str]) -> None:
    from tests.spark_sessions import open_session

    commands.open_target = open_watched
    spark = open_session(folder / "spark", master, settings)
    (folder / "ready").touch()
    number = 0
    while True:
        wait_for(folder / f"{number}.task")
        task = json.loads((folder / f"{number}.task").read_text())
        if task["command"] == "end":
            break
        result = perform(spark, task, Moments(folder, number, task["at"]))
        unfinished = folder / f"{number}.unfinished"
        unfinished.write_text(json.dumps(result))
        unfinished.rename(folder / f"{number}.result")
        number += 1
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], json.loads(sys.argv[3]))
