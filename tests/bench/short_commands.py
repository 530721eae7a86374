"""Short commands as whole processes, in turn with a plain Spark session that counts one row.

``python -m tests.bench.short_commands --rounds 5``: a run with nothing new, ``verify``, ``plan``
and ``status`` of a small table, and a run whose broker is not there. For each: seconds from the
command line to its end, and the processor time of all its processes until the last of them is
gone, JVM included. Where other work has the same cores, processor time says more. ``--beside DIR``
measures the same with the ``lib`` folder of another checkout, in turn.
"""

from __future__ import annotations

import argparse
import ctypes
import multiprocessing
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import yaml

from rangeland.testing.kafka import KafkaCluster
from rangeland.testing.ports import free_ports
from rangeland.testing.processes import remove_directory, temporary_directory
from rangeland.testing.producer import fill
from tests.bench.measuring import load_average, ratio, spread

TOPIC = "short"
BARE = (
    "from pyspark.sql import SparkSession\n"
    "session = SparkSession.builder.master('local[2]').config('spark.ui.enabled', 'false')"
    ".config('spark.driver.host', '127.0.0.1').getOrCreate()\n"
    "assert session.range(1).count() == 1\n"
)
PR_SET_CHILD_SUBREAPER = 36


@dataclass(frozen=True, slots=True)
class Taken:
    """``seconds`` until the command has ended, ``cpu`` of it and all that it has started."""

    seconds: float
    cpu: float


def measured(command: Sequence[str], expected: int, environment: Mapping[str, str]) -> Taken:
    """What a process takes. For a process whose only children these are: what the command leaves
    behind becomes one, and is waited for, so that its time is counted."""
    began = time.monotonic()
    with subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=environment
    ) as process:
        _, status, own = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        seconds = time.monotonic() - began
        assert process.stderr is not None
        said = process.stderr.read().decode()
    assert process.returncode == expected, f"{process.returncode} of {command}: {said[-3000:]}"
    cpu = own.ru_utime + own.ru_stime
    with suppress(ChildProcessError):
        while True:
            used = os.wait3(0)[2]
            cpu += used.ru_utime + used.ru_stime
    return Taken(seconds, cpu)


def commands_of(folder: Path, bootstrap: Sequence[str]) -> dict[str, tuple[list[str], int]]:
    """Each command with the exit code it must have."""
    ours = [sys.executable, "-m", "rangeland"]
    table = folder / "table"
    job = str(job_file(folder / "job.yaml", table, bootstrap))
    dead = str(job_file(folder / "dead.yaml", table, [f"127.0.0.1:{free_ports(1)[0]}"]))
    return {
        "bare session": ([sys.executable, "-c", BARE], 0),
        "run, nothing new": ([*ours, "run", job, "--quiet"], 0),
        "verify": ([*ours, "verify", job, "--quiet"], 0),
        "plan": ([*ours, "plan", job, "--quiet"], 0),
        "status": ([*ours, "status", job, "--quiet"], 0),
        "run, no broker": ([*ours, "run", dead, "--quiet"], 75),
    }


def job_file(path: Path, table: Path, servers: Sequence[str]) -> Path:
    job = {
        "job": "bench-short",
        "source": {"servers": list(servers), "topics": [TOPIC]},
        "sink": {"table": str(table)},
    }
    path.write_text(yaml.safe_dump(job))
    return path


def measuring_process() -> ProcessPoolExecutor:
    context = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(1, mp_context=context, initializer=adopt_orphans)


def adopt_orphans() -> None:
    """What outlives its parent becomes a child of this process (Linux)."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--records", type=int, default=1_000)
    parser.add_argument("--only", nargs="*", default=[], help="names from the printed table")
    parser.add_argument("--beside", type=Path, help="the lib folder of another checkout")
    given = parser.parse_args()
    folder = temporary_directory("rangeland-short-")
    environment = {**os.environ, "RANGELAND_MASTER": "local[2]", "SPARK_LOCAL_IP": "127.0.0.1"}
    taken: dict[str, list[Taken]] = {}
    try:
        with KafkaCluster() as kafka, measuring_process() as pool:
            fill(kafka.bootstrap, TOPIC, given.records, partitions=2)
            sides = commands_of(folder, kafka.bootstrap)

            def measure(name: str, library: Path | None = None) -> Taken:
                other = {"PYTHONPATH": str(library.absolute())} if library else {}
                return pool.submit(measured, *sides[name], environment | other).result()

            measure("run, nothing new")  # lands the records
            for _ in range(given.rounds):
                for name in given.only or sides:
                    for library in (None, given.beside) if given.beside else (None,):
                        label = name if library is None else f"{name} (beside)"
                        took = measure(name, library)
                        taken.setdefault(label, []).append(took)
                        print(f"{load_average():5.2f}  {label}: {took}", flush=True)
    finally:
        remove_directory(folder)
    show(taken)


def show(taken: Mapping[str, Sequence[Taken]]) -> None:
    """Medians and ranges; ratios to the bare session, if that was measured."""
    bare = taken.get("bare session")
    for name, each in taken.items():
        line = f"{name:18} {spread([x.seconds for x in each])} s, "
        line += f"processor {spread([x.cpu for x in each])} s"
        if bare is not None and each is not bare:
            wall = ratio([x.seconds for x in each], [x.seconds for x in bare])
            cpu = ratio([x.cpu for x in each], [x.cpu for x in bare])
            line += f"; {wall} of a bare session, processor {cpu}"
        print(line)


if __name__ == "__main__":
    main()
