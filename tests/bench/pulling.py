"""RocketMQ's pull, in one process each: our reader against upstream's own clients.

All sides read the same queues of the same broker from the beginning to the end, in turn, round
by round; round 0 warms up and is dropped. Ours decodes into Arrow batches with all columns,
theirs into objects. Nothing is landed.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pyarrow.compute as pc

from rangeland.cluster_settings import ClusterSettings
from rangeland.connection.pool import ConnectionPool
from rangeland.fetch.read_settings import ReadSettings
from rangeland.fetch.slice_reading import read_slices
from rangeland.jvm.jars import class_path
from rangeland.jvm.java import find_java
from rangeland.model import Slice
from rangeland.survey.cluster_survey import take_survey
from rangeland.survey.survey_request import SurveyRequest
from rangeland.testing.broker_jars import BROKER_JARS
from rangeland.testing.rocketmq import RocketmqCluster
from rangeland.untrusted import parse_address
from tests.bench.measuring import load_average

CLIENTS = Path(__file__).with_name("RocketmqPull.java")
TOPIC = "views"
OURS = "rangeland"
LABELS = {
    OURS: "rangeland: read and decode into Arrow",
    "lite": "Java: DefaultLitePullConsumer",
    "ahead": "Java: DefaultMQPullConsumer, 64 pulls ahead",
}
_BROKER = {
    "mappedFileSizeCommitLog": 256 << 20,
    "mappedFileSizeConsumeQueue": 6_000_000,
    "pullMessageThreadPoolNums": 18,
    "sendMessageThreadPoolNums": 4,
    "transferMsgByHeap": "true",
}
"""As brokers are by default, where those of tests are smaller."""

Found = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Round:
    """``cpu_seconds`` are the reader's own, not the broker's."""

    seconds: float
    cpu_seconds: float
    messages: int
    body_bytes: int


def pull(records: int, rounds: int, queues: int, folder: Path, say: Callable[[str], None]) -> Found:
    found: Found = {"load": [load_average()], "samples": {}, "cpu": {}, "messages": records}
    with RocketmqCluster(heap_mb=768, properties=_BROKER) as cluster:
        cluster.create_topic(TOPIC, queues)
        server = cluster.servers[0]
        say(f"filling {queues} queues with {records:,} messages")
        _run_java(folder, "fill", server, TOPIC, str(queues), str(records))
        with _reader(folder, server) as theirs:
            sides = {OURS: lambda: read(server)} | {
                name: lambda name=name: theirs(name)  # type: ignore[misc]
                for name in LABELS
                if name != OURS
            }
            for number in range(rounds + 1):
                for name, side in sides.items():
                    say(f"pull, round {number} of {rounds}: {LABELS[name]}")
                    taken = side()
                    _check(name, taken, records, found)
                    if number:
                        found["samples"].setdefault(name, []).append(round(taken.seconds, 3))
                        found["cpu"].setdefault(name, []).append(round(taken.cpu_seconds, 3))
    found["load"].append(load_average())
    return found


def _check(name: str, taken: Round, records: int, found: Found) -> None:
    size = found.setdefault("body_bytes", taken.body_bytes)
    if (taken.messages, taken.body_bytes) != (records, size):
        raise RuntimeError(f"{name} read {taken} of {records} messages with {size} bytes")


# --- ours ---------------------------------------------------------------------------------


def read(server: str) -> Round:
    """As a task reads: slices in, batches out, with the survey outside the time, as theirs."""
    settings = ClusterSettings("rocketmq", (parse_address(server),))
    with ConnectionPool(settings) as brokers:
        survey = take_survey(brokers, SurveyRequest(topics=(TOPIC,)))
    slices = [
        Slice(n, p, log.start_offset, log.end_offset, log.size_bytes or 0, None, log.leader.address)
        for n, (p, log) in enumerate(survey.logs.items())
    ]
    messages = size = 0
    started, used = time.perf_counter(), time.process_time()
    for chunk in read_slices(slices, ReadSettings(settings)):
        if chunk.rows is not None:
            messages += chunk.rows.num_rows
            size += pc.sum(pc.binary_length(chunk.rows.column("value"))).as_py()
    taken, used = time.perf_counter() - started, time.process_time() - used
    return Round(taken, used, messages, size)


# --- theirs -------------------------------------------------------------------------------


def _command(folder: Path, *arguments: str) -> list[str]:
    jars = class_path(BROKER_JARS["rocketmq-5.5.0"])
    options = ["-Xmx1g", f"-Duser.home={folder}", "-Drocketmq.client.logLevel=ERROR"]
    return [find_java(), *options, "-cp", jars, str(CLIENTS), *arguments]


def _environment() -> dict[str, str]:
    return os.environ | {"LC_ALL": "C.UTF-8"}


def _run_java(folder: Path, *arguments: str) -> None:
    done = subprocess.run(
        _command(folder, *arguments),
        capture_output=True,
        text=True,
        check=False,
        env=_environment(),
    )
    if done.returncode != 0:
        raise RuntimeError(done.stdout + done.stderr)


@contextmanager
def _reader(folder: Path, server: str) -> Iterator[Callable[[str], Round]]:
    """A process of upstream's clients; called with the name of a side, it reads once."""
    trouble = folder / "java-errors.txt"
    with (
        trouble.open("w") as errors,
        subprocess.Popen(
            _command(folder, "read", server, TOPIC),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env=_environment(),
        ) as process,
    ):
        assert process.stdin is not None
        assert process.stdout is not None

        def answer() -> list[str]:
            assert process.stdout is not None
            for line in process.stdout:
                if line.startswith("@\t"):
                    return line.split("\t")[1:]
            raise RuntimeError(f"the Java client ended: {trouble.read_text()[-2000:]}")

        def ask(side: str) -> Round:
            assert process.stdin is not None
            before = psutil.Process(process.pid).cpu_times()
            process.stdin.write(side + "\n")
            process.stdin.flush()
            seconds, messages, size = answer()
            after = psutil.Process(process.pid).cpu_times()
            used = after.user + after.system - before.user - before.system
            return Round(float(seconds), used, int(messages), int(size))

        try:
            answer()
            yield ask
        finally:
            process.kill()
