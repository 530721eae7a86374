"""All processes that a process has started: those of its session, whatever happened to their
parents.

For Spark, whose daemons start executors, which start Python workers. Needs ``psutil`` from the
extra ``test``; nothing that runs a job imports this.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path

import psutil

from rangeland.testing.processes import Process


def temporary_files_in(folder: Path) -> dict[str, str]:
    """The environment that keeps temporary files of Python and Java in ``folder``: who is
    killed removes none, so they must be where the test removes them."""
    folder.mkdir(parents=True, exist_ok=True)
    java = f"-Djava.io.tmpdir={folder} -XX:-UsePerfData"
    return {"TMPDIR": str(folder), "JAVA_TOOL_OPTIONS": java}


def members_of(process: Process) -> list[psutil.Process]:
    """All living processes of the session that ``process`` leads or led."""
    # Any process may end between two looks at it; this iterator leaves out those that have.
    return [p for p in psutil.process_iter() if _session(p) == process.pid]


def kill_all(processes: Iterable[psutil.Process]) -> None:
    """Kills those that have not ended by themselves meanwhile."""
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()


def workers_among(members: list[psutil.Process]) -> list[psutil.Process]:
    """The Python workers that run tasks, without the daemons that fork them."""
    python = [p for p in members if "pyspark.daemon" in command_of(p)]
    pids = {p.pid for p in python}
    return [p for p in python if _parent(p) in pids]


def command_of(process: psutil.Process) -> str:
    """Its command line, empty once it has ended."""
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


def _session(process: psutil.Process) -> int:
    try:
        return -1 if process.status() == psutil.STATUS_ZOMBIE else os.getsid(process.pid)
    except (ProcessLookupError, PermissionError, psutil.Error):
        return -1


def _parent(process: psutil.Process) -> int:
    try:
        return int(process.ppid())
    except psutil.Error:
        return -1
