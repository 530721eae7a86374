"""Where the seconds of a short run go, told by its own log.

``python -m tests.bench.start_up --rounds 5``: a landing of 1,000 records into a new table and a run
with nothing new, as whole processes. A step lasts from the line of the log before it to the line
that ends it; the survey, and what else needs no JVM, goes on while the JVM starts.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from itertools import pairwise
from pathlib import Path

from rangeland.testing.kafka import KafkaCluster
from rangeland.testing.processes import remove_directory, temporary_directory
from rangeland.testing.producer import fill
from tests.bench.measuring import load_average, spread
from tests.bench.short_commands import TOPIC, job_file

ENDS = {
    "Started the JVM of Spark": "Python starts, imports, reads the job",
    "Connected to the JVM of Spark": "the JVM starts; survey meanwhile",
    "Spark and Delta are supported": "versions are checked",
    "Made plan": "table and ledger are opened, the plan is made",
    "Made the SparkContext": "the SparkContext starts",
    "Created a table": "a table is created",
    "Entered plan": "the plan is entered in the ledger",
    "Task started": "Spark starts a task",
    "Task ended": "tasks read and write",
    "Spark job ended": "Spark ends the job",
    "Prepared outcome": "the outcome is proved and prepared",
    "Committed plan": "the commit",
}
LAST = "the process ends"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--records", type=int, default=1_000)
    given = parser.parse_args()
    folder = temporary_directory("rangeland-start-")
    landing: list[dict[str, float]] = []
    nothing_new: list[dict[str, float]] = []
    try:
        with KafkaCluster() as kafka:
            fill(kafka.bootstrap, TOPIC, given.records, partitions=2)
            for number in range(given.rounds + 1):
                job = job_file(
                    folder / f"job-{number}.yaml", folder / f"table-{number}", kafka.bootstrap
                )
                steps = steps_of(job), steps_of(job)
                print(f"{load_average():5.2f}  {number}: {steps}", flush=True)
                if number > 0:  # the first one makes what later ones find
                    landing.append(steps[0])
                    nothing_new.append(steps[1])
    finally:
        remove_directory(folder)
    for title, rounds in (("A landing", landing), ("Nothing new", nothing_new)):
        show(title, rounds)


def steps_of(job: Path) -> dict[str, float]:
    """Seconds of each step, in order. A step that occurs several times is summed up."""
    command = [sys.executable, "-m", "rangeland", "run", str(job), "--log-format", "json"]
    environment = {**os.environ, "RANGELAND_MASTER": "local[2]", "SPARK_LOCAL_IP": "127.0.0.1"}
    began = time.time()
    done = subprocess.run(
        [*command, "--log-level", "debug"],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    ended = time.time()
    marks = [("", began)]
    for line in done.stderr.splitlines():
        if not line.startswith("{"):
            continue
        record = json.loads(line)
        step = next((ENDS[text] for text in ENDS if record["message"].startswith(text)), None)
        if step is not None:
            marks.append((step, datetime.fromisoformat(record["ts"]).timestamp()))
    marks.append((LAST, ended))
    taken: dict[str, float] = {}
    for (_, start), (step, end) in pairwise(marks):
        taken[step] = round(taken.get(step, 0.0) + end - start, 3)
    return taken


def show(title: str, rounds: Sequence[Mapping[str, float]]) -> None:
    print(f"\n{title}: {spread([sum(one.values()) for one in rounds])} s")
    for step in (*ENDS.values(), LAST):
        each = [one.get(step, 0.0) for one in rounds]
        if any(each):
            print(f"  {step:48} {spread(each)}")


if __name__ == "__main__":
    main()
