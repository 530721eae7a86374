"""The one command: ``python -m tests.check`` runs what must hold before a change lands.

Each step prints its command before it runs, so any of them can be run alone, and what it
said when it has ended. Nothing is passed over and nothing is tried twice: a step that fails
decides the exit code, after all have run. The suites run side by side, since those that start
Spark or brokers wait for them much of the time; jars are fetched meanwhile. At the end come
the ten slowest tests of all suites.

``--quick`` leaves out the suites that start Spark or brokers. ``--slow`` runs the tests marked
``slow`` in place of the others, one suite after the other: soaks, every variant of what the
ordinary run checks once, a real Airflow; and the quick suites with more examples. Run it before a
release, and after changes in what it covers.
"""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from xml.etree import ElementTree

from rangeland.errors import RangelandError
from tests import class_archive

PYTHON = sys.executable

CODE = ["lib", "jobs", "configs", "airflow_dags", "tests"]

STATIC = [
    [PYTHON, "-m", "ruff", "check", *CODE],
    [PYTHON, "-m", "ruff", "format", "--check", *CODE],
    [PYTHON, "-m", "mypy"],
    [PYTHON, "-c", "from importlinter.cli import lint_imports_command as run; run()"],
]
FETCH = [PYTHON, "-m", "tests.download"]
QUICK = ["unit", "property", "simulation", "contract", "golden"]
SLOW_SUITES = ["property", "brokers", "chaos", "cluster", "airflow", "spark"]
"""Those with tests marked ``slow``: pytest fails where it finds none."""
SLOW_EFFORT = 5

SUITES = ["spark", "brokers", "chaos", "cluster"]
"""The longest first: whichever ends first is followed by the next one."""
AT_ONCE = 3
SPLIT = {"spark": ["-n", "2", "--dist", "loadfile"]}
"""Suites that are split by file, each part with a Spark and brokers of its own."""
SLOWEST = 10
SAME_EACH_TIME: dict[str, object] = {
    "PYTEST_ADDOPTS": "--randomly-seed=1",
    "PYTHONHASHSEED": "0",
}
"""The order of tests, what they draw by chance, and the order of sets: the slow run varies them."""


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser("python -m tests.check", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--quick", action="store_true")
    which.add_argument("--slow", action="store_true")
    chosen = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        durations = Path(folder)
        if chosen.quick:
            failed = _run([*STATIC, _quick()], durations, SAME_EACH_TIME)
        elif chosen.slow:
            suites = [_pytest([f"tests/{name}"], "slow") for name in SLOW_SUITES]
            failed = _run([FETCH, _quick(), *suites], durations, {"RANGELAND_EFFORT": SLOW_EFFORT})
        else:
            failed = _run_ordinary(durations)
        print(f"The {SLOWEST} slowest tests:", *_slowest(durations), sep="\n", flush=True)
    for command in failed:
        print(f"failed: {_line(command)}", flush=True)
    return 1 if failed else 0


def _run_ordinary(durations: Path) -> list[list[str]]:
    """The commands that have failed."""
    suites = [_pytest([f"tests/{name}"], split=SPLIT.get(name, [])) for name in SUITES]
    with ThreadPoolExecutor(1) as beside, ThreadPoolExecutor(AT_ONCE) as pool:
        fetching = beside.submit(_run, [FETCH], durations)
        failed = _run(STATIC, durations)
        variables = SAME_EACH_TIME | _quick_sessions()
        work = [*suites, _quick()]
        for found in pool.map(lambda command: _run([command], durations, variables), work):
            failed += found
        return failed + fetching.result()


def _quick() -> list[str]:
    # The longest tests take minutes: whoever has nothing left takes some that wait elsewhere.
    return _pytest([f"tests/{name}" for name in QUICK], split=["-n", "2", "--dist", "worksteal"])


def _pytest(
    places: Sequence[str], marked: str = "not slow", split: Sequence[str] = ()
) -> list[str]:
    return [PYTHON, "-m", "pytest", "-q", *split, "-m", marked, *places]


def _run(
    steps: Sequence[list[str]], durations: Path, variables: dict[str, object] | None = None
) -> list[list[str]]:
    """The commands that have failed. How long tests took goes to ``durations``."""
    failed: list[list[str]] = []
    for command in steps:
        line = _line(command)
        print(f"$ {line}", flush=True)
        is_tests = "pytest" in command
        report = durations / f"{uuid.uuid4().hex}.xml"
        started = time.monotonic()
        done = subprocess.run(
            [*command, *([f"--junitxml={report}"] if is_tests else [])],
            env=_environment() | {k: str(v) for k, v in (variables or {}).items()},
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


def _slowest(durations: Path) -> list[str]:
    """A line for each of the slowest tests of all reports, with set-up and end."""
    found = [
        (float(case.get("time", 0)), f"{case.get('classname')}::{case.get('name')}")
        for report in durations.glob("*.xml")
        for case in ElementTree.parse(report).iter("testcase")
    ]
    return [f"{seconds:8.1f} s  {name}" for seconds, name in sorted(found, reverse=True)[:SLOWEST]]


def _line(command: Sequence[str]) -> str:
    return shlex.join(["python", *command[1:]])


def _environment() -> dict[str, str]:
    """The tests' own environment: a JVM that needs no network, no settings of a developer."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("SPARK_", "PYSPARK_"))}
    return kept | {"SPARK_LOCAL_IP": "127.0.0.1"}


def _quick_sessions() -> dict[str, object]:
    """For Spark sessions that live for seconds, if there is a Java for them."""
    try:
        return dict(class_archive.submit_options())
    except RangelandError:
        return {}  # The tests that need Java will say so.


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
