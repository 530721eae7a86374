"""Clients that write to Jafka brokers and read from them, for tests and the demo.

`JafkaClient` is a socket that uses the dialect's messages; `produce` writes with it. A broker does
not acknowledge writes, so `produce` asks for the end of the log on the same connection, which is
answered after the write.

`console_produce`, `console_consume` and `ConsoleConsumer` are Jafka's own tools: Rangeland must
read what they write, and must agree with them about offsets.
"""

from __future__ import annotations

import gzip
import subprocess
import zlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from rangeland.dialects.jafka.messages import (
    ENTRY_HEADER,
    LATEST_TIME,
    EntryHeader,
    OffsetsRequest,
    ProduceRequest,
    Request,
)
from rangeland.dialects.jafka.session import JafkaSession
from rangeland.errors import Unreachable
from rangeland.testing.context_managers import Closing
from rangeland.testing.frame_client import FrameClient
from rangeland.testing.local_server import java_command
from rangeland.testing.processes import PATIENCE_S, Process, remove_directory, temporary_directory

_JARS = "jafka-3.0.6"
_HEADER_BYTES = ENTRY_HEADER.size - 4  # the length does not count itself


def message(value: bytes, *, codec: int = 0) -> bytes:
    """One entry of a log."""
    length = _HEADER_BYTES + len(value)
    return ENTRY_HEADER.write(EntryHeader(length, 1, codec, zlib.crc32(value))) + value


def message_set(values: Iterable[bytes], *, packed: bool = False) -> bytes:
    """Plain entries, or the one entry that holds them in gzip."""
    plain = b"".join(message(value) for value in values)
    return message(gzip.compress(plain), codec=1) if packed else plain


class JafkaClient(FrameClient):
    """One connection to ``host:port``, to be closed or used by ``with``."""

    def __init__(self, address: str) -> None:
        super().__init__(address)
        self._session = JafkaSession("testing")

    def send(self, request: Request) -> None:
        self.send_raw(self._session.encode(request)[1])

    def receive(self) -> Any:
        """The answer to the oldest request that has none yet. Raises `Unreachable` if the
        broker closes the connection."""
        return self._session.decode(self.receive_raw())[1]

    def ask(self, request: Request) -> Any:
        self.send(request)
        return self.receive()

    def end_offset(self, topic: str, partition: int = 0) -> int:
        """Where the log ends, 0 where there is none."""
        question = OffsetsRequest(
            topic=topic, partition=partition, time_ms=LATEST_TIME, max_count=1
        )
        return max(self.ask(question).offsets, default=0)


def produce(
    address: str,
    topic: str,
    values: Sequence[bytes],
    partition: int = 0,
    *,
    packed: bool = False,
    batch: int = 200,
) -> int:
    """Appends ``values`` to a partition of one broker, which has to flush every write; gives
    where the log ends then. ``packed``: in gzip, ``batch`` of them in one entry. Raises
    `Unreachable` if the broker does not take them."""
    with JafkaClient(address) as client:
        size = client.end_offset(topic, partition)
        for start in range(0, len(values), batch):
            data = message_set(values[start : start + batch], packed=packed)
            size += len(data)
            client.send(ProduceRequest(topic=topic, partition=partition, messages=memoryview(data)))
        end = client.end_offset(topic, partition)
    if end < size:
        raise Unreachable(
            f"{topic}/{partition} at {address} was not written",
            why=f"its log ends at {end}, not at {size}",
            do="See the broker's log, and that it flushes every write",
        )
    return end


# --- upstream's own tools ---------------------------------------------------------------


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
