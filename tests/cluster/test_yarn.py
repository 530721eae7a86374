"""A driver inside the cluster, on a real YARN: it has what was sent with it and no more."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rangeland.testing.kafka import KafkaCluster
from rangeland.testing.processes import remove_directory, temporary_directory
from tests.chaos.invariants import write_job
from tests.cluster.conftest import COUNT, PARTITIONS
from tests.cluster.spark_submit import (
    JOBS,
    Submitted,
    each_once,
    offsets_in,
    rangeland_submit,
    start_submit,
)
from tests.cluster.yarn import YarnCluster

pytestmark = pytest.mark.slow
# What a driver imports, and what that needs; the whole of an environment that tests are run in
# takes a node minutes to unpack.
ONLY = [
    *("annotated-types", "cramjam", "crc32c", "markdown-it-py", "mdurl", "numpy", "pyarrow"),
    *("pydantic", "pydantic-core", "pygments", "pyyaml", "rich", "typing-extensions"),
    "typing-inspection",
]
IN_CLUSTER = ("--master", "yarn", "--deploy-mode", "cluster", "--delta", "jars")


@pytest.fixture(scope="module")
def yarn() -> Iterator[YarnCluster]:
    folder = temporary_directory("rangeland-yarn-")
    with YarnCluster(folder) as cluster:
        yield cluster
    remove_directory(folder)


def submitted(yarn: YarnCluster, job: Path, folder: Path, *flags: str) -> Submitted:
    out = ("--entry", str(JOBS / "land.py"), "--out", str(folder / "dist"))
    made = rangeland_submit(job, *IN_CLUSTER, *out, *flags)
    command = [*made["command"], "--json"]
    return start_submit(yarn, folder / "submit", command, yarn.settings())


def answer(yarn: YarnCluster) -> dict[str, Any]:
    """Of the newest driver: it is in the container's log, and spark-submit has none."""
    found: dict[str, Any] = json.loads(yarn.driver_outputs()[-1].splitlines()[-1])
    return found


@pytest.mark.parametrize("env", ["zip", "packed"])
def test_a_driver_in_a_container_lands_the_job_that_was_sent(
    yarn: YarnCluster, job: Path, folder: Path, table: Path, env: str
) -> None:
    child = folder / "child.yaml"  # what it extends stays here
    child.write_text("extends: job.yaml\njob: chaos\n")
    python = ["--python", sys.executable]
    packed = [word for name in ONLY for word in ("--only", name)]
    run = submitted(yarn, child, folder, "--env", env, *(python if env == "zip" else packed))
    assert run.wait() == 0, run.process.log_tail(60)
    assert (answer(yarn)["state"], answer(yarn)["landed"]) == ("landed", PARTITIONS * COUNT)
    assert offsets_in(table) == each_once(PARTITIONS, COUNT)


def test_what_spark_submit_ends_with_is_not_what_the_driver_ended_with(
    yarn: YarnCluster, broker: KafkaCluster, folder: Path, table: Path
) -> None:
    job = write_job(folder / "job.yaml", broker.bootstrap, "nowhere", table)
    once = ("--conf", "spark.yarn.maxAppAttempts=1")
    run = submitted(yarn, job, folder, "--python", sys.executable, *once)
    assert run.wait() == 1
    assert run.stdout.read_text() == ""
    assert "User application exited with status 78" in run.process.log_tail(60)
    assert (answer(yarn)["error"], answer(yarn)["exit"]) == ("JobFileError", 78)
    assert not table.exists()
