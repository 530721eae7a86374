"""Jafka's own console tools: Rangeland must read what they write, and must agree with them about
offsets."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

from rangeland.errors import Unreachable
from rangeland.testing.broker_jars import BROKER_JARS
from rangeland.testing.context_managers import Closing
from rangeland.testing.processes import PATIENCE_S, Process, remove_directory, temporary_directory
from rangeland.testing.server_command import java_command

_JARS = BROKER_JARS["jafka-3.0.6"]


def console_produce(brokers: str, topic: str, lines: Sequence[str]) -> None:
    """Upstream's ConsoleProducer. ``brokers`` is a list like ``1:127.0.0.1:9092``, or a
    ZooKeeper as ``zookeeper=host:port``. Lines are not empty."""
    zookeeper = brokers.removeprefix("zookeeper=")
    where = ["--broker-list", brokers] if zookeeper == brokers else ["--zookeeper", zookeeper]
    text = "".join(f"{line}\n" for line in lines)
    _run(["io.jafka.console.ConsoleProducer", "--topic", topic, *where], text)


def console_consume(zookeeper: str, topic: str, group: str, idle_ms: int = 3000) -> list[str]:
    """The lines that upstream's ConsoleConsumer reads as a member of ``group``, from where the
    group stands, until nothing has come for ``idle_ms``; it commits when it ends."""
    arguments = _consumer(zookeeper, topic, group)
    return _run([*arguments, "--consumer-timeout-ms", str(idle_ms)], "").splitlines()


class ConsoleConsumer(Closing):
    """Upstream's ConsoleConsumer that goes on reading, as a member of ``group``, until it is
    closed. ``lines`` are what it has read so far."""

    def __init__(self, zookeeper: str, topic: str, group: str) -> None:
        self._directory = temporary_directory("rangeland-jafka-console-")
        self._log = self._directory / "console.log"
        command = [*_java(self._directory), *_consumer(zookeeper, topic, group)]
        self.process = Process("console-consumer", command, log=self._log)

    @property
    def lines(self) -> list[str]:
        return self._log.read_text(encoding="utf-8").splitlines()

    def stop(self) -> None:
        """SIGTERM: it commits and leaves its group."""
        self.process.stop()

    def close(self) -> None:
        self.process.kill()
        remove_directory(self._directory)


def _consumer(zookeeper: str, topic: str, group: str) -> list[str]:
    arguments = ["--zookeeper", zookeeper, "--topic", topic, "--group", group]
    return ["io.jafka.console.ConsoleConsumer", *arguments]


def _java(directory: Path) -> list[str]:
    """The beginning of a command; nothing is logged, so that only lines are printed."""
    log4j = directory / "log4j.properties"
    log4j.write_text("log4j.rootLogger=OFF\n")
    return java_command(_JARS, 64, properties={"log4j.configuration": log4j.as_uri()})


def _run(arguments: Sequence[str], text: str) -> str:
    """What the tool prints. A consumer that is idle for too long ends with an exception, which
    goes to the other output."""
    directory = temporary_directory("rangeland-jafka-console-")
    command = [*_java(directory), *arguments]
    try:
        done = subprocess.run(
            command, input=text, capture_output=True, text=True, timeout=PATIENCE_S
        )
    except subprocess.TimeoutExpired as error:
        why = f"not done after {PATIENCE_S} s"
        raise Unreachable(f"{arguments[0]} did not end", why=why) from error
    finally:
        remove_directory(directory)
    if done.returncode != 0 and "ConsumerTimeoutException" not in done.stderr:
        raise Unreachable(f"{arguments[0]} failed", why=done.stderr[-2000:])
    return done.stdout
