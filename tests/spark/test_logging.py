"""Tasks log to the same stderr as the driver, in the same way, and name themselves."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from rangeland.testing.processes import PATIENCE_S
from tests import sample_results as made

pytestmark = pytest.mark.spark

SCRIPT = """
import logging

from rangeland import open_spark
from rangeland.logging_setup import LogFormat, LogLevel, LogSettings, configure
from rangeland.spark.task_context import with_task_logging


def work(numbers):
    logger = logging.getLogger("rangeland.fetch.fetch_loop")
    for number in numbers:
        logger.debug("not wanted")
        logger.info("leader moved", extra={"topic": "orders", "partition": number})
        yield number


configure(LogSettings(LogLevel.INFO, LogFormat.JSON))
spark = open_spark("logging")
numbers = spark.sparkContext.parallelize([0, 1], 2)
print(sorted(numbers.mapPartitions(with_task_logging(work)).collect()))
spark.stop()
"""


SOURCE_SCRIPT = """
import json
import sys

from rangeland import open_spark

spark = open_spark("logging")
options = {"servers": "127.0.0.1:1", "topics": "orders", "plan": sys.argv[1]}
frame = spark.read.format("rangeland").options(**options, logLevel="info", logFormat="json")
print(frame.load().count())
spark.stop()
"""


def run_script(script: str, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", script, *arguments]
    return subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )


def test_lines_of_tasks_are_on_stderr_with_their_fields(tmp_path: Path) -> None:
    done = run_script(SCRIPT, tmp_path)
    assert done.stdout.split("\n")[0] == "[0, 1]", done.stderr
    assert "not wanted" not in done.stderr
    found = [json.loads(line) for line in done.stderr.splitlines() if '"leader moved"' in line]
    assert sorted(record["partition"] for record in found) == [0, 1]
    assert {record["level"] for record in found} == {"info"}
    assert all(record["task"].count(".") == 2 for record in found)


@pytest.mark.slow
def test_tasks_of_the_data_source_log_as_its_options_say(tmp_path: Path) -> None:
    plan = json.dumps(made.a_plan([]).to_json())
    done = run_script(SOURCE_SCRIPT, tmp_path, plan)
    assert done.stdout.split("\n")[0] == "0", done.stderr
    found = [json.loads(line) for line in done.stderr.splitlines() if '"Task ' in line]
    assert [record["message"] for record in found] == ["Task started", "Task ended"]
    assert all(record["task"].count(".") == 2 for record in found)
