"""One measurement in a Spark process of its own: ``python -m tests.bench.child JSON``.

The parent says what to land and when it started the process; the last line of stdout is
the answer. Used where a process must be fresh (cold starts, peaks of memory) or must have
other cores than its parent.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tests.bench.competitors import SIDES, Ground, measure, tasks_of
from tests.bench.memory import WorkerMemory
from tests.bench.session import open_session, prepare_environment

TIMEOUT_S = 1800


@dataclass(frozen=True, slots=True)
class Order:
    """``cpus`` empty: all. ``target_bytes`` 0: the job's default slices."""

    side: str
    bootstrap: str
    topic: str
    partitions: int
    records: int
    folder: str
    times: int = 1
    master: str = "local[2]"
    cpus: tuple[int, ...] = ()
    target_bytes: int = 0
    started_at: float = 0.0


@dataclass(frozen=True, slots=True)
class Answer:
    """``session_seconds``: from the start of the process to a session with Delta.
    ``seconds``: each landing. ``peak_bytes``: of one Python worker, over all landings."""

    session_seconds: float
    seconds: tuple[float, ...]
    peak_bytes: int
    slice_bytes: int


def measure_in_child(order: Order) -> Answer:
    """Starts the process and waits for its answer. Raises RuntimeError with its last words."""
    prepare_environment()
    sent = asdict(order) | {"started_at": time.time()}
    command = [sys.executable, "-m", "tests.bench.child", json.dumps(sent)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S)
    if done.returncode != 0:
        raise RuntimeError(f"a measurement of {order.side} failed: {done.stderr[-2000:]}")
    answer = json.loads(done.stdout.splitlines()[-1])
    return Answer(**answer | {"seconds": tuple(answer["seconds"])})


def main(arguments: Sequence[str]) -> None:
    given: dict[str, Any] = json.loads(arguments[0])
    order = Order(**given | {"cpus": tuple(given["cpus"])})
    if order.cpus:
        os.sched_setaffinity(0, order.cpus)  # inherited by the JVM and the workers
    with tempfile.TemporaryDirectory(dir=order.folder, prefix="child-") as name:
        print(json.dumps(asdict(_obey(order, Path(name)))))


def _obey(order: Order, folder: Path) -> Answer:
    spark = open_session(order.master, folder)
    session_seconds = time.time() - order.started_at
    slicing = {"target_bytes": order.target_bytes, "min_slices": 1} if order.target_bytes else {}
    ground = Ground(
        order.bootstrap, order.topic, order.partitions, order.records, spark, slicing=slicing
    )
    side = SIDES[order.side]
    with WorkerMemory() as memory:
        landings = [measure(side, ground, folder / f"out{i}") for i in range(order.times)]
    largest = 0
    if order.side == "rangeland":
        largest = max(size for task in tasks_of(ground, folder / "none") for size in task)
    spark.stop()
    return Answer(session_seconds, tuple(x.seconds for x in landings), memory.peak_bytes, largest)


if __name__ == "__main__":
    main(sys.argv[1:])
