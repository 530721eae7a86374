"""The one command: ``python -m tests.check`` runs what must hold before a change lands.

Each step prints its command before it runs, so any of them can be run alone. Nothing is
passed over: the first step that fails decides the exit code, after all have run.
``--quick`` leaves out the rings that start Spark or brokers.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import time

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
# Rings of their own, one after the other: each may fill all cores.
REAL = [
    [PYTHON, "-m", "pytest", "-q", "-m", "not slow", "tests/brokers"],
    [PYTHON, "-m", "pytest", "-q", "-m", "not slow", "tests/spark"],
    [PYTHON, "-m", "pytest", "-q", "-m", "not slow", "tests/cluster"],
    [PYTHON, "-m", "pytest", "-q", "-m", "not slow", "tests/chaos"],
]


def main(arguments: list[str]) -> int:
    steps = [*STATIC, *PURE] + ([] if "--quick" in arguments else REAL)
    failed: list[str] = []
    for command in steps:
        line = shlex.join(["python", *command[1:]])
        print(f"\n$ {line}", flush=True)
        started = time.monotonic()
        code = subprocess.run(command, env=_environment(), check=False).returncode
        print(f"-> {code} in {time.monotonic() - started:.0f} s", flush=True)
        if code != 0:
            failed.append(line)
    for line in failed:
        print(f"failed: {line}", flush=True)
    return 1 if failed else 0


def _environment() -> dict[str, str]:
    """The tests' own environment: a JVM that needs no network, no settings of a developer."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("SPARK_", "PYSPARK_"))}
    return kept | {"SPARK_LOCAL_IP": "127.0.0.1"}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
