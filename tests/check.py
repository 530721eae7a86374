"""The one command: ``python -m tests.check`` runs what must hold before a change lands.

Each step prints its command before it runs, so any of them can be run alone, and what it
said when it has ended. Nothing is passed over and nothing is tried twice: a step that fails
decides the exit code, after all have run. Of the rings that start Spark or brokers two run side by
side, and the jars that they need are fetched meanwhile.

``--quick`` leaves those rings out. ``--slow`` runs the tests marked ``slow`` in place of the
others, one ring after the other: soaks, every variant of what the ordinary run checks once, a
real Airflow. Run it before a release, and after changes in what it covers.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

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
PURE = [[PYTHON, "-m", "pytest", "-q", "-n", "2", "-m", "not slow", *QUICK_RINGS]]
SLOW_RINGS = ["property", "brokers", "chaos", "cluster", "airflow", "spark"]


RINGS = ["spark", "brokers", "cluster", "chaos"]
"""The longest first: whichever of two ends before the other takes the next one."""
AT_ONCE = 2


def main(arguments: list[str]) -> int:
    if "--quick" in arguments:
        failed = _run([*STATIC, *PURE])
    elif "--slow" in arguments:
        failed = _run([FETCH, *(_ring(name, "slow") for name in SLOW_RINGS)])
    else:
        with ThreadPoolExecutor(1) as beside, ThreadPoolExecutor(AT_ONCE) as pool:
            fetching = beside.submit(_run, [FETCH])
            failed = _run([*STATIC, *PURE])
            for found in pool.map(lambda name: _run([_ring(name)]), RINGS):
                failed += found
            failed += fetching.result()
    for command in failed:
        print(f"failed: {_line(command)}", flush=True)
    return 1 if failed else 0


def _ring(name: str, marked: str = "not slow") -> list[str]:
    options = ["-q", "-m", marked, "--durations=15"]
    return [PYTHON, "-m", "pytest", *options, f"tests/{name}"]


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
