"""The one command: ``python -m tests.check`` runs what must hold before a change lands.

Each step prints its command before it runs, so any of them can be run alone, and what it
said when it has ended. Nothing is passed over: a step that fails decides the exit code, after
all have run. The rings that start Spark or brokers mostly wait, so they go in two lanes side
by side; the jars that they need are fetched meanwhile. ``--quick`` leaves them out.

Real brokers on a busy machine elect, expire and give up when they please. So a few tests that
fail in their ring are run once more, alone, when the lanes have ended. Those that hold then are
named as unsteady; their first failure stands above in full, and is to be looked into: the
test or the library has a defect. In all other rings a failure is final: they are the proof that
nothing is lost or landed twice.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

PYTHON = sys.executable
QUICK_RINGS = ["tests/unit", "tests/property", "tests/contract", "tests/golden"]

CODE = ["lib", "jobs", "configs", "airflow_dags", "tests"]

STATIC = [
    [PYTHON, "-m", "ruff", "check", *CODE],
    [PYTHON, "-m", "ruff", "format", "--check", *CODE],
    [PYTHON, "-m", "mypy"],
    [PYTHON, "-c", "from importlinter.cli import lint_imports_command as run; run()"],
]
FETCH = [PYTHON, "-m", "tests.fetch"]
PURE = [[PYTHON, "-m", "pytest", "-q", "-n", "2", *QUICK_RINGS]]


LANES = [["spark", "cluster"], ["brokers", "chaos"]]
TRIED_AGAIN = {"brokers"}
MOST_UNSTEADY = 5
"""Tests of one ring. When more fail it is no accident."""


def main(arguments: list[str]) -> int:
    if "--quick" in arguments:
        failed = _run([*STATIC, *PURE])
    else:
        with ThreadPoolExecutor(1) as beside:
            fetching = beside.submit(_run, [FETCH])
            failed = [*_run([*STATIC, *PURE]), *fetching.result()]
        with tempfile.TemporaryDirectory(prefix="rangeland-check-") as folder:
            failed += _run_lanes(Path(folder))
    for command in failed:
        print(f"failed: {_line(command)}", flush=True)
    return 1 if failed else 0


def _ring(name: str, folder: Path) -> list[str]:
    """It remembers in the folder which tests have failed."""
    options = ["-q", "-m", "not slow", "--durations=5", "-o", f"cache_dir={folder / name}"]
    return [PYTHON, "-m", "pytest", *options, f"tests/{name}"]


def _run_lanes(folder: Path) -> list[list[str]]:
    """The rings that have failed, and do so again."""
    lanes = [{name: _ring(name, folder) for name in lane} for lane in LANES]
    with ThreadPoolExecutor(len(lanes)) as pool:
        found = list(pool.map(lambda lane: _run([*lane.values()]), lanes))
    rings = {name: ring for lane in lanes for name, ring in lane.items()}
    failed = {name: ring for name, ring in rings.items() if any(ring in each for each in found)}
    return [ring for name, ring in failed.items() if not _holds_alone(name, ring, folder)]


def _holds_alone(name: str, ring: list[str], folder: Path) -> bool:
    kept = folder / name / "v" / "cache" / "lastfailed"
    unsteady = sorted(json.loads(kept.read_text())) if kept.exists() else []
    if name not in TRIED_AGAIN or not 0 < len(unsteady) <= MOST_UNSTEADY:
        return False
    if _run([[*ring, "--last-failed", "--last-failed-no-failures=none"]]):
        return False
    for test in unsteady:
        print(f"unsteady: {test} failed once, and held alone", flush=True)
    return True


def _run(steps: Sequence[list[str]]) -> list[list[str]]:
    """The commands that have failed."""
    failed: list[list[str]] = []
    for command in steps:
        line = _line(command)
        print(f"$ {line}", flush=True)
        started = time.monotonic()
        done = subprocess.run(
            command,
            env=_environment(),
            check=False,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
        seconds = time.monotonic() - started
        # In one write, so that lanes do not mix.
        print(f"{done.stdout}-> {done.returncode} in {seconds:.0f} s: {line}\n", flush=True)
        if done.returncode != 0:
            failed.append(command)
    return failed


def _line(command: Sequence[str]) -> str:
    return shlex.join(["python", *command[1:]])


def _environment() -> dict[str, str]:
    """The tests' own environment: a JVM that needs no network, no settings of a developer."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("SPARK_", "PYSPARK_"))}
    return kept | {"SPARK_LOCAL_IP": "127.0.0.1"}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
