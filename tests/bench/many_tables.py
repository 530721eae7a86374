"""Many topics into many tables by one command, against a command for one of them.

``python -m tests.bench.many_tables --topics 30 --records 2000``: whole processes from the command
line to their end, in turn, each into new tables. A hundred tables by a hundred commands are taken
as a hundred times one. The ratios say something; the seconds depend on the machine.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import yaml

from rangeland.testing.kafka import KafkaCluster
from rangeland.testing.processes import remove_directory, temporary_directory
from rangeland.testing.producer import fill

PREFIX = "bench-table-"


def seconds_of(job: Path, expected: int) -> tuple[float, float]:
    """How long the command takes, as a whole process, and by its own account; all of it must have
    landed."""
    environment = {**os.environ, "RANGELAND_MASTER": "local[2]", "SPARK_LOCAL_IP": "127.0.0.1"}
    command = [sys.executable, "-m", "rangeland", "run", str(job), "--json", "--quiet"]
    began = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-3000:]
    took = time.monotonic() - began
    answer = json.loads(done.stdout.splitlines()[-1])
    landed = sum(one["landed"] for one in answer.get("jobs", [answer]))
    assert landed == expected, answer
    return took, answer["seconds"]


def write_job(folder: Path, bootstrap: Sequence[str], topics: Sequence[str], lake: Path) -> Path:
    is_one = len(topics) == 1
    job = {
        "job": "bench-tables",
        "source": {"servers": list(bootstrap), "topics": list(topics)},
        "sink": {"table": f"{lake}/one" if is_one else f"{lake}/{{topic}}"},
    }
    path = folder / f"{lake.name}.yaml"
    path.write_text(yaml.safe_dump(job))
    return path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--topics", type=int, default=30)
    parser.add_argument("--records", type=int, default=2_000)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    names = [f"{PREFIX}{n:04}" for n in range(given.topics)]
    folder = temporary_directory("rangeland-many-tables-")
    took: dict[str, list[tuple[float, float]]] = {"one": [], "all": []}
    try:
        with KafkaCluster() as kafka:
            for name in names:
                fill(kafka.bootstrap, name, given.records, partitions=2)
            for turn in range(given.rounds):
                for side, topics in (("one", names[:1]), ("all", names)):
                    job = write_job(folder, kafka.bootstrap, topics, folder / f"{side}-{turn}")
                    took[side].append(seconds_of(job, given.records * len(topics)))
                    print(f"{side}: {took[side][-1][0]:.1f} s, itself {took[side][-1][1]:.1f} s")
    finally:
        remove_directory(folder)
    one, every = (statistics.median(whole for whole, _ in took[side]) for side in ("one", "all"))
    size = f"{given.topics} tables of {given.records:,} records"
    print(f"{size}: {every:.1f} s, {every / one:.1f} times one table's {one:.1f} s")
    print(f"{given.topics * one / every:.1f} times faster than a command for each")


if __name__ == "__main__":
    main()
