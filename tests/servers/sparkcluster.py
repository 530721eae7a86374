"""A standalone Spark cluster on this machine: one master, and workers on different hosts.

Spark never starts a speculative copy of a task on the host of the first attempt, and handles
failed tasks differently with executors, so tests of this need a cluster. Each worker has its own
address (127.0.0.1, 127.0.0.2, ...), which Spark treats as different hosts.

Executors inherit the environment of their worker, not that of the driver. By default it contains
this package and ``python_path``; with ``bare`` it does not, as on a cluster that a job is
submitted to. ``submit_environment`` is for drivers of such clusters.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import psutil
import pyspark

import rangeland
from rangeland.jvm.java import SMALL_JVM
from rangeland.testing.context_managers import Closing
from rangeland.testing.ports import free_ports
from rangeland.testing.processes import PATIENCE_S, Process
from tests.servers.process_sessions import (
    command_of,
    kill_all,
    members_of,
    temporary_files_in,
)

SPARK_HOME = Path(pyspark.__file__).parent


class SparkCluster(Closing):
    """Started by the constructor. Each worker has ``cores`` and ``memory``; ``python`` is
    what tasks run where the driver names no Python; ``home`` is that of the cluster's Spark."""

    def __init__(
        self,
        folder: Path,
        workers: int = 2,
        *,
        cores: int = 1,
        memory: str = "1g",
        python: str = sys.executable,
        python_path: Sequence[Path] = (),
        bare: bool = False,
        environment: Mapping[str, str] | None = None,
        home: Path = SPARK_HOME,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder, self._home = folder, home
        ours = [] if bare else [Path(rangeland.__file__).parents[1], *python_path]
        self._environment = {
            "SPARK_HOME": str(home),
            "SPARK_LOCAL_DIRS": str(folder / "local"),
            "SPARK_DAEMON_MEMORY": "256m",
            **_small_jvm(folder / "tmp"),
            "PYSPARK_PYTHON": python,
            "PYTHONPATH": os.pathsep.join(map(str, ours)),
            **(environment or {}),
        }
        port, *others = free_ports(workers + 2)
        self.master = f"spark://127.0.0.1:{port}"
        self._processes = [
            self._start("master", "master.Master", "127.0.0.1", port, others[0]),
        ]
        limits = ("--cores", str(cores), "--memory", memory, "--work-dir", str(folder / "work"))
        try:
            self._processes[0].wait_for_port(port, PATIENCE_S)
            for number, web_port in enumerate(others[1:], 1):
                name, host = f"worker-{number}", f"127.0.0.{number}"
                worker = self._start(name, "worker.Worker", host, 0, web_port, *limits, self.master)
                self._processes.append(worker)
            for worker in self._processes[1:]:
                worker.wait_for_line("Successfully registered with master", PATIENCE_S)
        except BaseException:
            self.close()
            raise

    def _start(self, name: str, kind: str, host: str, port: int, web: int, *more: str) -> Process:
        return Process(
            name,
            [
                str(self._home / "bin" / "spark-class"),
                f"org.apache.spark.deploy.{kind}",
                *("--host", host, "--port", str(port), "--webui-port", str(web)),
                *more,
            ],
            log=self._folder / f"{name}.log",
            environment={**self._environment, "SPARK_LOCAL_IP": host},
            directory=self._folder,
        )

    def submit_environment(self, folder: Path) -> dict[str, str]:
        """For a process that submits to this cluster: reachable by its executors, of this
        Spark, with temporary files in ``folder``."""
        return {
            "SPARK_HOME": str(SPARK_HOME),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_LOCAL_DIRS": str(folder / "local"),
            **_small_jvm(folder / "tmp"),
        }

    def members(self) -> list[psutil.Process]:
        """All living processes: daemons, executors, Python workers."""
        return [member for process in self._processes for member in members_of(process)]

    def executors(self) -> list[psutil.Process]:
        """The JVMs that run tasks."""
        return [p for p in self.members() if "CoarseGrainedExecutorBackend" in command_of(p)]

    def launched(self) -> int:
        """How many executors the master has had started so far."""
        return self._processes[0].log.read_text(errors="replace").count("Launching executor app-")

    def close(self) -> None:
        """Ends the workers with their executors, then the master."""
        left = self.members()
        for process in reversed(self._processes):
            process.stop()
        _, alive = psutil.wait_procs(left, timeout=PATIENCE_S)
        kill_all(alive)
        assert not alive, f"the Spark cluster has left {[p.pid for p in alive]}"


def _small_jvm(folder: Path) -> dict[str, str]:
    """JVMs that compile little, since they end soon, and keep their files in ``folder``."""
    kept = temporary_files_in(folder)
    return kept | {"JAVA_TOOL_OPTIONS": " ".join([kept["JAVA_TOOL_OPTIONS"], *SMALL_JVM])}
