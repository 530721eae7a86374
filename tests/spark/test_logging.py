"""Tasks log to the same stderr as the driver, in the same way, and name themselves."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.spark

SCRIPT = """
import logging

from rangeland import open_spark
from rangeland.logs import LogFormat, LogLevel, LogSettings, configure
from rangeland.spark.task_logging import logged


def work(numbers):
    logger = logging.getLogger("rangeland.fetch.fetch_loop")
    for number in numbers:
        logger.debug("not wanted")
        logger.info("leader moved", extra={"topic": "orders", "partition": number})
        yield number


configure(LogSettings(LogLevel.INFO, LogFormat.JSON))
spark = open_spark("logging")
print(sorted(spark.sparkContext.parallelize([0, 1], 2).mapPartitions(logged(work)).collect()))
spark.stop()
"""


def test_lines_of_tasks_are_on_stderr_with_their_fields(tmp_path: Path) -> None:
    command = [sys.executable, "-c", SCRIPT]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.stdout.split("\n")[0] == "[0, 1]", done.stderr
    assert "not wanted" not in done.stderr
    found = [json.loads(line) for line in done.stderr.splitlines() if '"leader moved"' in line]
    assert sorted(record["partition"] for record in found) == [0, 1]
    assert {record["level"] for record in found} == {"info"}
    assert all(record["task"].count(".") == 2 for record in found)
