"""Reads topics of RocketMQ brokers with the library's own fetch package: survey, slices, receipts;
and runs upstream's own clients.
"""

from __future__ import annotations

import functools
import os
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rangeland.cluster_settings import ClusterSettings
from rangeland.dialects.rocketmq import messages as m
from rangeland.fetch.fetch_size import FetchLimits
from rangeland.fetch.read_settings import ReadSettings
from rangeland.fetch.receipt_builder import ReceiptBuilder
from rangeland.fetch.slice_reading import read_slices
from rangeland.jvm.jars import class_path, jar_files
from rangeland.jvm.java import SMALL_JVM, find_java
from rangeland.model import Counts, LogState, Partition, Slice
from rangeland.planning.slice_receipt import Receipt
from rangeland.testing.broker_jars import BROKER_JARS
from rangeland.testing.processes import PATIENCE_S, remove_directory, temporary_directory
from rangeland.testing.rocketmq import RocketmqCluster
from rangeland.testing.rocketmq_clients import RocketmqClient
from rangeland.untrusted import parse_address
from tests.brokers.surveys import look, slices_of

CLIENTS = Path(__file__).with_name("RocketmqClients.java")
_JARS = BROKER_JARS["rocketmq-5.5.0"]
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


def log_of(
    settings: ClusterSettings, topic: str, number: int = 0, broker: str = "broker-a"
) -> LogState:
    return look(settings, topics=(topic,)).logs[Partition(topic, number, broker)]


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
    slices: Sequence[Slice],
    settings: ClusterSettings,
    patience: FetchLimits | None = None,
    **chosen: Any,
) -> Read:
    """``chosen``: what the task's settings have beside the cluster."""
    tally = ReceiptBuilder(slices)
    rows: list[Row] = []
    for chunk in read_slices(slices, ReadSettings(settings, **chosen), patience):
        tally.add(chunk)
        if chunk.rows is not None:
            rows += chunk.rows.to_pylist()
    rows.sort(key=lambda row: (row["broker"], row["partition"], row["offset"]))
    return Read(rows, tally.receipts())


def read_topic(cluster: RocketmqCluster, topic: str) -> Read:
    settings = settings_of(cluster)
    return read(slices_of(look(settings, topics=(topic,))), settings)


def wait_for_slave(cluster: RocketmqCluster, topic: str, end: int) -> None:
    """Until the slave has all messages: it is at most seconds behind."""
    deadline = time.monotonic() + PATIENCE_S
    queue = Partition(topic, 0, "broker-a")
    with RocketmqClient(cluster.address("broker-a-slave")) as client:
        while int(client.ask(m.max_offset(queue)).fields["offset"]) < end:
            assert time.monotonic() < deadline, "the slave does not get the messages"
            time.sleep(0.1)


@functools.cache
def _compiled() -> Path:
    """The folder with the classes of our Java file, for all tests of this process."""
    folder = temporary_directory("rangeland-rocketmq-classes-")
    command = [find_java(), *SMALL_JVM, "-m", "jdk.compiler/com.sun.tools.javac.Main"]
    jars = os.pathsep.join(map(str, jar_files(_JARS)))
    command += ["-cp", jars, "-d", str(folder), str(CLIENTS)]
    subprocess.run(command, check=True, timeout=PATIENCE_S, stderr=subprocess.DEVNULL)
    return folder


def clients_command(home: Path, *arguments: str, options: Sequence[str] = ()) -> list[str]:
    """The command that runs upstream's clients (see the Java file)."""
    command = [find_java(), "-Xmx128m", *SMALL_JVM, f"-Duser.home={home}", *options]
    classes = f"{class_path(_JARS)}{os.pathsep}{_compiled()}"
    return [*command, "-cp", classes, CLIENTS.stem, *arguments]


def run_clients(*arguments: str, options: Sequence[str] = ()) -> list[list[str]]:
    """Upstream's clients: what they print, as fields of lines."""
    with _temporary_home("rangeland-rocketmq-clients-") as home:
        printed = _printed_by(clients_command(home, *arguments, options=options))
    return [line.split("\t")[1:] for line in printed.splitlines() if line.startswith("@\t")]


def run_admin(cluster: RocketmqCluster, command: str, *arguments: str) -> str:
    """Upstream's tool for administrators, ``mqadmin``: what it prints. It also ends normally where
    it reports a failure."""
    with _temporary_home("rangeland-rocketmq-admin-") as home:
        java = [find_java(), "-Xmx128m", *SMALL_JVM, f"-Djava.io.tmpdir={home}"]
        java += [f"-Duser.home={home}", f"-Drocketmq.home.dir={home}", "-cp", class_path(_JARS)]
        main = "org.apache.rocketmq.tools.command.MQAdminStartup"
        return _printed_by([*java, main, command, *arguments, "-n", cluster.servers[0]])


@contextmanager
def _temporary_home(prefix: str) -> Iterator[Path]:
    home = temporary_directory(prefix)
    try:
        yield home
    finally:
        remove_directory(home)


def _printed_by(command: Sequence[str]) -> str:
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
        env=os.environ | {"LC_ALL": "C.UTF-8"},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
