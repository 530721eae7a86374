"""The processor time of a Spark session: its driver, JVM and Python workers, without the servers.

Where other work has the same cores, ratios of it say more than those of seconds.
"""

from __future__ import annotations

import psutil

SERVERS = frozenset({"kafka.Kafka", "io.quarkus.runner.GeneratedMain"})


def cpu_seconds() -> float:
    """Of this process and those below it so far, including those that have ended."""
    own = psutil.Process()
    return sum(_spent(one) for one in (own, *own.children(recursive=True)))


def _spent(process: psutil.Process) -> float:
    try:
        return 0.0 if SERVERS & set(process.cmdline()) else sum(process.cpu_times()[:4])
    except (psutil.NoSuchProcess, psutil.ZombieProcess):
        return 0.0
