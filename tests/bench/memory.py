"""How much memory the Python workers of a Spark session hold, sampled while they work.

Workers are the Python processes below this process's JVM. Resident memory counts pages that
forked workers share with their daemon, so the numbers are a little above a worker's own.
"""

from __future__ import annotations

import threading
from types import TracebackType
from typing import Self

import psutil

SAMPLE_S = 0.02


class WorkerMemory:
    """Samples inside ``with``; ``peaks`` maps the pid of each worker to its peak in bytes."""

    def __init__(self) -> None:
        self.peaks: dict[int, int] = {}
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="bench-memory", daemon=True)

    @property
    def peak_bytes(self) -> int:
        """The largest of all workers, 0 if none was seen."""
        return max(self.peaks.values(), default=0)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stopped.set()
        self._thread.join()

    def _run(self) -> None:
        workers: list[psutil.Process] = []
        rounds = 0
        while not self._stopped.wait(SAMPLE_S):
            if rounds % 10 == 0:  # walking the process tree costs more than a sample
                workers = _python_workers()
            rounds += 1
            for worker in workers:
                try:
                    size = worker.memory_info().rss
                except psutil.NoSuchProcess:
                    continue
                self.peaks[worker.pid] = max(self.peaks.get(worker.pid, 0), size)


def _python_workers() -> list[psutil.Process]:
    found = []
    for child in psutil.Process().children(recursive=True):
        try:
            if "pyspark.daemon" in " ".join(child.cmdline()):
                found.append(child)
        except (psutil.NoSuchProcess, psutil.ZombieProcess):
            continue
    return found
