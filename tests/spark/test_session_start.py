"""A command that starts Spark: it resolves no jars, and interrupted it leaves nothing behind.

These are real processes of the command line. The home directory of their JVM has broken Maven and
Ivy caches throughout.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
from pyspark.find_spark_home import _find_spark_home

from rangeland.jvm.java import SMALL_JVM
from rangeland.spark.supported_versions import installed_spark
from rangeland.testing.kafka import KafkaCluster
from rangeland.testing.processes import PATIENCE_S, Process, remove_directory, temporary_directory
from rangeland.testing.producer import create_topic
from tests.chaos.invariants import add_records
from tests.servers.process_sessions import command_of, members_of, temporary_files_in
from tests.spark_sessions import broken_home

pytestmark = [pytest.mark.spark, pytest.mark.brokers]

# A shell that starts the tests in its background has children ignore SIGINT.
COMMAND = (
    "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); "
    "from rangeland.cli.command_line import main; sys.exit(main(sys.argv[1:]))"
)
ENDS = {signal.SIGINT: 130, signal.SIGTERM: 143}
OF_JAVA = ("Exception", "\tat ", "Traceback", " WARN ", " ERROR ")


@dataclass(frozen=True)
class Started:
    """A command under way."""

    process: Process
    temporary: Path

    def java(self, *words: str) -> list[psutil.Process]:
        """Its JVMs with these words in their command lines."""
        found = [(p, command_of(p)) for p in members_of(self.process)]
        return [p for p, line in found if "bin/java" in line and all(w in line for w in words)]

    def interrupt(self, number: signal.Signals) -> dict[str, Any]:
        """Signals it and returns its answer; when it has ended nothing of it may be left."""
        return self.answer_after(number, self.end_by(number))

    def end_by(self, number: signal.Signals) -> int:
        os.kill(self.process.pid, number)
        return self.process.wait_for_end(PATIENCE_S)

    @property
    def has_result(self) -> bool:
        """Whether it has printed that it is done."""
        last = self.process.log.read_text().splitlines()[-1]
        return last.startswith("{") and "state" in json.loads(last)

    def answer_after(self, number: signal.Signals, code: int) -> dict[str, Any]:
        left = [command_of(p)[:300] for p in members_of(self.process)]
        printed = self.process.log.read_text()
        assert not left, f"{left}\n{printed}"
        assert code == ENDS[number], printed
        assert not [word for word in OF_JAVA if word in printed], printed
        assert not list(self.temporary.glob("rangeland-*"))
        answer: dict[str, Any] = json.loads(printed.splitlines()[-1])
        return answer


Start = Callable[..., Started]


@pytest.fixture
def folder() -> Iterator[Path]:
    path = temporary_directory("rangeland-starting-")
    yield path
    remove_directory(path)


@pytest.fixture
def start(folder: Path, kafka: KafkaCluster, topic: str) -> Iterator[Start]:
    """Starts ``rangeland run``, or another command, with a topic of nine records."""
    create_topic(kafka.bootstrap, topic, 1)
    add_records(kafka.bootstrap, topic, 1, 9)
    job = {
        "job": "starting",
        "source": {"servers": kafka.bootstrap, "topics": [topic]},
        "sink": {"table": str(folder / "table")},
    }
    (folder / "job.yaml").write_text(json.dumps(job))
    started: list[Process] = []

    def run(command: str = "run", *more: str) -> Started:
        temporary = folder / "tmp"
        environment = environment_in(folder, temporary)
        words = [sys.executable, "-c", COMMAND, command, str(folder / "job.yaml"), "--json", *more]
        log = folder / f"log-{len(started)}"
        started.append(Process("rangeland run", words, log=log, environment=environment))
        return Started(started[-1], temporary)

    yield run
    for process in started:
        process.kill()


def environment_in(folder: Path, temporary: Path) -> dict[str, str]:
    files = temporary_files_in(temporary)
    home = f"-Duser.home={broken_home(folder / 'home')}"
    options = " ".join([files.pop("JAVA_TOOL_OPTIONS"), *SMALL_JVM, home])
    return {**files, "JAVA_TOOL_OPTIONS": options, "RANGELAND_MASTER": "local[1]"}


# --- moments ----------------------------------------------------------------------------


def the_launcher_runs(started: Started) -> bool:
    return bool(started.java())


def the_jvm_runs(started: Started) -> bool:
    return bool(started.java("deploy.SparkSubmit"))


def the_jvm_listens(started: Started) -> bool:
    return any(jvm.net_connections() for jvm in started.java("deploy.SparkSubmit"))


def the_context_is_made(started: Started) -> bool:
    return any(started.temporary.glob("**/blockmgr-*"))


def the_first_job_runs(started: Started) -> bool:
    return any("pyspark.daemon" in command_of(p) for p in members_of(started.process))


@pytest.mark.parametrize(
    ("moment", "number"),
    [
        (the_launcher_runs, signal.SIGTERM),
        (the_jvm_runs, signal.SIGINT),
        (the_jvm_listens, signal.SIGTERM),
        (the_context_is_made, signal.SIGINT),
        (the_first_job_runs, signal.SIGTERM),
    ],
)
@pytest.mark.slow
def test_an_interrupted_start_leaves_nothing_behind(
    start: Start, moment: Callable[[Started], bool], number: signal.Signals
) -> None:
    started = start()
    started.process.wait_until(lambda: moment(started), moment.__name__, 120)
    answer = started.interrupt(number)
    assert (answer["error"], answer["exit"]) == ("Interrupted", ENDS[number])


@pytest.mark.slow
@pytest.mark.parametrize("number", ENDS)
def test_any_moment_of_a_start_will_do(start: Start, number: signal.Signals) -> None:
    for _ in range(12):
        started = start()
        started.process.wait_until(lambda: the_launcher_runs(started), "its launcher", 120)  # noqa: B023
        time.sleep(random.uniform(0, 8))
        if not started.process.running:
            continue
        code = started.end_by(number)
        # The signal may come too late: as the interpreter ends, after the result, or after that.
        if code != 0 and not started.has_result:
            started.answer_after(number, code)


# --- steps ------------------------------------------------------------------------------


@pytest.mark.slow
def test_what_a_command_does_not_need_is_not_started(start: Start) -> None:
    def steps(command: str) -> list[bool]:
        started = start(command, "--log-level", "info")
        assert started.process.wait_for_end(PATIENCE_S) == 0, started.process.log_tail(40)
        printed = started.process.log.read_text()
        assert "Connected to the JVM of Spark" in printed
        return [f"Made the {step}" in printed for step in ("SparkContext", "SparkSession")]

    assert steps("plan") == [False, False]
    assert steps("run") == [True, False]
    assert steps("run") == [False, False]
    assert steps("status") == [False, False]
    assert steps("verify") == [False, False]


# --- jars -------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_session_starts_where_no_jar_can_be_resolved(start: Start, folder: Path) -> None:
    started = start()
    assert started.process.wait_for_end(180) == 0, started.process.log_tail(40)
    answer = json.loads(started.process.log.read_text().splitlines()[-1])
    assert (answer["state"], answer["landed"]) == ("landed", 9)


def test_there_no_jar_can_be_resolved_indeed(folder: Path) -> None:
    submit = Path(_find_spark_home(), "bin", "spark-submit")
    given = environment_in(folder, folder / "tmp")
    done = subprocess.run(
        [str(submit), "--packages", installed_spark().delta.package, "--class", "none", "none.jar"],
        env={**os.environ, **given},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode != 0
    assert ".ivy2" in done.stderr, done.stderr


@pytest.mark.slow
def test_a_session_can_be_started_after_an_interrupted_one(folder: Path) -> None:
    """In one process, as in a notebook."""
    program = (
        "import signal, threading, sys, rangeland\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from rangeland.spark import gateway\n"
        "made = gateway.JvmStart.context_made\n"
        "def interrupted(self):\n"
        "    gateway.JvmStart.context_made = made\n"
        "    made(self)\n"
        "    signal.raise_signal(signal.SIGINT)\n"
        "gateway.JvmStart.context_made = interrupted\n"
        "try:\n"
        "    rangeland.open_spark()\n"
        "except KeyboardInterrupt:\n"
        "    print(rangeland.open_spark().range(7).count())\n"
    )
    given = environment_in(folder, folder / "tmp")
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, **given},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.stdout == "7\n", done.stderr
