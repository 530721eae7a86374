"""Many partitions or many topics with few records each: what a run costs before it reads.

``python -m tests.bench.wide_logs --topics 1 --partitions 10000``, or ``--topics 1000 --partitions
10``: one table of all of them, on the three brokers of franz-go's own cluster, which needs Go. The
survey in this process; each command as a whole process, in turn with a plain Spark session that
counts one row.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import yaml

from rangeland.cluster_access.cluster_lookup import look_up_cluster
from rangeland.connection.pool import ConnectionPool
from rangeland.job import Job
from rangeland.survey.cluster_survey import take_survey
from rangeland.survey.survey_request import SurveyRequest
from rangeland.testing.processes import remove_directory, temporary_directory
from rangeland.testing.producer import page_views, spread
from tests.bench.measuring import load_average
from tests.bench.measuring import spread as in_words
from tests.bench.short_commands import BARE, Taken, measured, measuring_process, show
from tests.brokers.kfake.cluster import FakeCluster


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--topics", type=int, default=1)
    parser.add_argument("--partitions", type=int, default=10_000, help="of each topic")
    parser.add_argument("--records", type=int, default=10, help="in each partition")
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    folder = temporary_directory("rangeland-wide-")
    topics = [f"wide-{number:04}" for number in range(given.topics)]
    try:
        with FakeCluster() as cluster:
            for topic in topics:
                cluster.create_topic(topic, given.partitions)
                pairs = page_views(given.records * given.partitions)
                spread(cluster.bootstrap, topic, pairs, given.partitions, codec="none")
            print(f"{given.topics} topics of {given.partitions:,} partitions are filled")
            show_survey(write_job(folder, cluster.bootstrap, 0), topics, given.rounds)
            show(measure_commands(folder, cluster.bootstrap, given.rounds))
    finally:
        remove_directory(folder)


def write_job(folder: Path, bootstrap: Sequence[str], number: int) -> Path:
    """A job with a table of its own for each round."""
    job = {
        "job": "bench-wide",
        "source": {"servers": list(bootstrap), "topic_pattern": "wide-.*"},
        "sink": {"table": str(folder / f"table-{number}")},
    }
    path = folder / f"job-{number}.yaml"
    path.write_text(yaml.safe_dump(job))
    return path


def show_survey(job: Path, topics: Sequence[str], rounds: int) -> None:
    taken: list[float] = []
    for _ in range(rounds):
        began = time.perf_counter()
        with ConnectionPool(look_up_cluster(Job.load(job))) as brokers:
            seen = take_survey(brokers, SurveyRequest(topics=tuple(topics)))
        taken.append(time.perf_counter() - began)
    print(f"survey: {in_words(taken)} s, {len(seen.logs):,} partitions, {seen.requests} requests")


def measure_commands(folder: Path, bootstrap: Sequence[str], rounds: int) -> dict[str, list[Taken]]:
    environment = {**os.environ, "RANGELAND_MASTER": "local[2]", "SPARK_LOCAL_IP": "127.0.0.1"}
    ours = [sys.executable, "-m", "rangeland"]
    taken: dict[str, list[Taken]] = {}
    with measuring_process() as pool:
        for number in range(rounds):
            job = str(write_job(folder, bootstrap, number))
            sides = {
                "bare session": [sys.executable, "-c", BARE],
                "plan": [*ours, "plan", job, "--quiet"],
                "run, all is new": [*ours, "run", job, "--quiet"],
                "run, nothing new": [*ours, "run", job, "--quiet"],
                "verify": [*ours, "verify", job, "--quiet"],
            }
            for name, command in sides.items():
                took = pool.submit(measured, command, 0, environment).result()
                taken.setdefault(name, []).append(took)
                print(f"{load_average():5.2f}  {name}: {took}", flush=True)
    return taken


if __name__ == "__main__":
    main()
