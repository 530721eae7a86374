"""The one command: ``python -m tests.check`` runs what must hold before a change lands.

Each step prints its command before it runs, so any of them can be run alone, and what it
said when it has ended. Nothing is passed over: a step that fails decides the exit code, after
all have run. The rings that start Spark or brokers mostly wait, so they go in two lanes side
by side. ``--quick`` leaves them out.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import time
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
PURE = [[PYTHON, "-m", "pytest", "-q", "-n", "2", *QUICK_RINGS]]


def _ring(name: str) -> list[str]:
    return [PYTHON, "-m", "pytest", "-q", "-m", "not slow", "--durations=5", f"tests/{name}"]


LANES = [[_ring("spark"), _ring("cluster")], [_ring("brokers"), _ring("chaos")]]


def main(arguments: list[str]) -> int:
    failed = _run([*STATIC, *PURE])
    if "--quick" not in arguments:
        with ThreadPoolExecutor(len(LANES)) as pool:
            failed += [line for found in pool.map(_run, LANES) for line in found]
    for line in failed:
        print(f"failed: {line}", flush=True)
    return 1 if failed else 0


def _run(steps: list[list[str]]) -> list[str]:
    """The commands that have failed."""
    failed: list[str] = []
    for command in steps:
        line = shlex.join(["python", *command[1:]])
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
            failed.append(line)
    return failed


def _environment() -> dict[str, str]:
    """The tests' own environment: a JVM that needs no network, no settings of a developer."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("SPARK_", "PYSPARK_"))}
    return kept | {"SPARK_LOCAL_IP": "127.0.0.1"}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
