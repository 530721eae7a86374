"""Jobs given to a cluster as people do it: ``rangeland submit`` makes the command, and
spark-submit runs it in a process of its own, with nothing of this checkout on any path.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from rangeland.testing.processes import PATIENCE_S, Process
from tests.cluster.yarn import YarnCluster
from tests.servers.sparkcluster import SparkCluster

ROOT = Path(__file__).parents[2]
JOBS, LIB = ROOT / "jobs", ROOT / "lib"
SMALL = {
    "spark.cores.max": "2",
    "spark.driver.memory": "512m",
    "spark.executor.cores": "1",
    "spark.executor.memory": "512m",
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
}


def rangeland_submit(
    job: Path, *flags: str, environment: dict[str, str] | None = None
) -> dict[str, Any]:
    """What ``rangeland submit JOB --json`` prints."""
    done = subprocess.run(
        [sys.executable, "-m", "rangeland", "submit", str(job), *flags, "--json"],
        env={**os.environ, "PYTHONPATH": str(LIB), **(environment or {})},
        cwd=job.parent,
        stdout=subprocess.PIPE,
        check=False,
        timeout=PATIENCE_S,
        text=True,
    )
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert done.returncode == 0, answer
    return answer


def with_settings(command: list[str], settings: dict[str, str]) -> list[str]:
    """The command with more settings; later ones win."""
    more = [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
    script = next(n for n, word in enumerate(command) if n > 0 and word.endswith(".py"))
    return [*command[:script], *more, *command[script:]]


@dataclass
class Submitted:
    """One spark-submit, under way or over."""

    process: Process
    stdout: Path

    def wait(self) -> int:
        return self.process.wait_for_end(PATIENCE_S)

    def answer(self) -> dict[str, Any]:
        """The last line of stdout, once it is over."""
        self.wait()
        lines = self.stdout.read_text().splitlines()
        assert lines, self.process.log_tail(60)
        try:
            found: dict[str, Any] = json.loads(lines[-1])
        except ValueError:
            raise AssertionError("\n".join([*lines[-40:], self.process.log_tail(40)])) from None
        return found

    def landed(self) -> dict[str, Any]:
        """The answer of a run that ended well."""
        answer = self.answer()
        assert "error" not in answer, f"{answer}\n{self.process.log_tail(40)}"
        assert self.process.exit_code == 0
        return answer

    def refused(self) -> dict[str, Any]:
        """The answer of a run that ended in an error, whose exit code is spark-submit's."""
        answer = self.answer()
        assert "error" in answer, answer
        assert self.process.exit_code == answer["exit"], self.process.log_tail(40)
        return answer


def start_submit(
    cluster: SparkCluster | YarnCluster,
    folder: Path,
    command: list[str],
    settings: dict[str, str] | None = None,
    environment: dict[str, str] | None = None,
) -> Submitted:
    """Runs the command in ``folder``; Python finds nothing but what the command ships."""
    folder.mkdir(parents=True, exist_ok=True)
    stdout = folder / "stdout"
    words = with_settings(command, {**SMALL, **(settings or {})})
    process = Process(
        "spark-submit",
        ["/bin/sh", "-c", 'exec "$@" >"$0"', str(stdout), *words],
        log=folder / "stderr",
        environment={
            **cluster.submit_environment(folder),
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": "",
            **(environment or {}),
        },
        directory=folder,
    )
    return Submitted(process, stdout)


# --- what the table holds ---------------------------------------------------------------


def live_files(table: Path) -> list[Path]:
    """The files of the newest version, by the table's own log. For short logs."""
    live: set[str] = set()
    for entry in sorted(Path(table, "_delta_log").glob("*.json")):
        for line in entry.read_text().splitlines():
            action = json.loads(line)
            if "add" in action:
                live.add(action["add"]["path"])
            if "remove" in action:
                live.discard(action["remove"]["path"])
    return [table / path for path in sorted(live)]


def offsets_in(table: Path) -> list[tuple[int, int]]:
    """(partition, offset) of each row, in order; what is there twice is listed twice."""
    found: list[tuple[int, int]] = []
    for file in live_files(table):
        rows = pq.read_table(file, columns=["partition", "offset"], partitioning=None)
        found += zip(rows["partition"].to_pylist(), rows["offset"].to_pylist(), strict=True)
    return sorted(found)


def each_once(partitions: int, count: int) -> list[tuple[int, int]]:
    return [(partition, offset) for partition in range(partitions) for offset in range(count)]


def written_files(table: Path) -> list[Path]:
    """Data files in the table's folder, committed or not."""
    found = table.rglob("*.parquet")
    return [f for f in found if not any(p.startswith("_") for p in f.relative_to(table).parts)]
