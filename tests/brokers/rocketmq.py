"""Reads topics of RocketMQ brokers with the library's own fetch room: survey, slices, receipts;
and runs upstream's own clients.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rangeland.fetch.consumer import read_slices
from rangeland.fetch.pool import Brokers
from rangeland.fetch.settings import ClusterSettings
from rangeland.fetch.steps import Patience
from rangeland.fetch.survey import Wanted, take_survey
from rangeland.fetch.tally import Tally
from rangeland.job.words import parse_address
from rangeland.jvm.jars import class_path
from rangeland.jvm.java import SMALL_JVM, find_java
from rangeland.model import Counts, LogState, Receipt, Slice, Survey
from rangeland.testing.processes import remove_directory, temporary_directory
from rangeland.testing.rocketmq import RocketmqCluster

CLIENTS = Path(__file__).with_name("RocketmqClients.java")
Row = dict[str, Any]


def settings_of(cluster: RocketmqCluster, **changed: Any) -> ClusterSettings:
    """Settings with which a mistake shows within seconds."""
    base = ClusterSettings(
        "rocketmq",
        tuple(parse_address(server) for server in cluster.servers),
        connect_ms=2_000,
        request_ms=10_000,
        survey_ms=4_000,
        no_progress_ms=8_000,
    )
    return replace(base, **changed)


def look(settings: ClusterSettings, **wanted: Any) -> Survey:
    with Brokers(settings) as brokers:
        return take_survey(brokers, Wanted(**wanted))


def log_of(
    settings: ClusterSettings, topic: str, number: int = 0, broker: str = "broker-a"
) -> LogState:
    survey = look(settings, topics=(topic,))
    return next(
        log
        for p, log in survey.logs.items()
        if (p.topic, p.number, p.broker) == (topic, number, broker)
    )


def slice_of(
    log: LogState, from_offset: int | None = None, until_offset: int | None = None
) -> Slice:
    """``[from_offset, until_offset)`` of a queue, or all of it."""
    start = log.start_offset if from_offset is None else from_offset
    end = log.end_offset if until_offset is None else until_offset
    return Slice(0, log.partition, start, end, 0, None, log.leader.address)


def slices_of(survey: Survey) -> list[Slice]:
    """All that the survey saw, a slice per queue."""
    return [replace(slice_of(log), index=i) for i, log in enumerate(survey.logs.values())]


@dataclass(frozen=True)
class Read:
    """What came of a reading: rows by broker, queue and offset."""

    rows: list[Row]
    receipts: tuple[Receipt, ...]

    @property
    def values(self) -> list[bytes]:
        return [row["value"] for row in self.rows]

    @property
    def counts(self) -> Counts:
        return Counts.sum(receipt.counts for receipt in self.receipts)


def read(
    slices: Sequence[Slice], settings: ClusterSettings, patience: Patience | None = None
) -> Read:
    tally = Tally(slices)
    rows: list[Row] = []
    for chunk in read_slices(slices, settings, patience):
        tally.add(chunk)
        rows += chunk.batch.to_pylist() if chunk.batch is not None else []
    rows.sort(key=lambda row: (row["broker"], row["partition"], row["offset"]))
    return Read(rows, tally.receipts())


def read_topic(cluster: RocketmqCluster, topic: str) -> Read:
    settings = settings_of(cluster)
    return read(slices_of(look(settings, topics=(topic,))), settings)


def run_clients(*arguments: str, options: Sequence[str] = ()) -> list[list[str]]:
    """Upstream's clients (see the Java file): what they print, as fields of lines."""
    home = temporary_directory("rangeland-rocketmq-clients-")
    command = [find_java(), "-Xmx128m", *SMALL_JVM, f"-Duser.home={home}", *options]
    command += ["-cp", class_path("rocketmq-5.5.0"), str(CLIENTS), *arguments]
    environment = os.environ | {"LC_ALL": "C.UTF-8"}
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=120, check=False, env=environment
        )
    finally:
        remove_directory(home)
    assert done.returncode == 0, done.stdout + done.stderr
    return [line.split("\t")[1:] for line in done.stdout.splitlines() if line.startswith("@\t")]
