"""Jafka brokers on this machine (the Kafka 0.7 line), small and short-lived.

`JafkaCluster` consists of one or more brokers that do not know each other: each has its own
partitions, and only a ZooKeeper, if there is one, lists them. Start it with ``start`` or ``with``.
It can kill, stop, pause and restart a broker by its id (1, 2, ...), on the same port and with the
same data, and it leaves nothing behind.

The settings are chosen for tests: small heaps, and every write is flushed at once, since readers
see only flushed bytes. `jafka_clients` writes and reads.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

from rangeland.errors import Unreachable
from rangeland.testing.clusters import NumberedCluster
from rangeland.testing.probe import is_registered
from rangeland.testing.processes import PATIENCE_S, Process
from rangeland.testing.server_command import java_command, log4j_settings, write_settings

SEGMENT_BYTES = 4 << 20

# Numbers that make tests quick; each would be wrong in production.
_SETTINGS: dict[str, object] = {
    "hostname": "127.0.0.1",
    "num.threads": 1,
    "log.flush.interval": 1,
    "log.default.flush.interval.ms": 200,
    "log.default.flush.scheduler.interval.ms": 200,
    "log.cleanup.interval.mins": 1,
    "log.retention.hours": 168,
    "max.message.size": 1 << 20,
    "topic.autocreated": "true",
}
_ZOOKEEPER_SETTINGS: dict[str, object] = {
    "zk.connectiontimeout.ms": 20000,
    "zk.sessiontimeout.ms": 4000,
}


class JafkaCluster(NumberedCluster):
    """One or more Jafka brokers. ``zookeeper`` is the ``host:port`` of a running server, with or
    without a chroot. ``partitions`` is how many partitions each topic has at each broker."""

    kind = "Jafka"
    versions = ("3.0.6",)

    def __init__(
        self,
        version: str = "3.0.6",
        brokers: int = 1,
        *,
        zookeeper: str | None = None,
        partitions: int = 2,
        segment_bytes: int = SEGMENT_BYTES,
        heap_mb: int = 96,
        properties: Mapping[str, object] | None = None,
        directory: Path | None = None,
    ) -> None:
        own = {"num.partitions": partitions, "log.file.size": segment_bytes}
        super().__init__(version, brokers, heap_mb, {**own, **(properties or {})}, directory)
        self.zookeeper = zookeeper

    # --- for tests ---------------------------------------------------------------------

    @property
    def members(self) -> dict[str, str]:
        """The name of each broker (its id) and its ``127.0.0.1:port``, for all brokers, whether up
        or not."""
        return {str(broker): self.address(broker) for broker in self.ids}

    @property
    def servers(self) -> list[str]:
        """The servers in the form that upstream's tools and job files use: ``["1:127.0.0.1:port",
        ...]``."""
        return [f"{name}:{address}" for name, address in self.members.items()]

    def segments(self, topic: str, partition: int = 0, broker: int = 1) -> list[Path]:
        """The files of one log, in order; each is named after the offset of its first byte."""
        return sorted((self.data_directory(broker) / f"{topic}-{partition}").glob("*.jafka"))

    # --- implementation ----------------------------------------------------------------

    def _prepare(self) -> None:
        for broker in self.ids:
            self._write_config(broker)

    def _write_config(self, broker: int) -> None:
        data = self.data_directory(broker)
        data.mkdir(parents=True, exist_ok=True)
        settings: dict[str, object] = {
            "brokerid": broker,
            "port": self.ports[broker],
            "log.dir": data,
            "enable.zookeeper": "true" if self.zookeeper else "false",
        }
        if self.zookeeper:
            settings |= {"zk.connect": self.zookeeper, **_ZOOKEEPER_SETTINGS}
        write_settings(self._config(broker), {**_SETTINGS, **settings, **self.properties})

    def _start_one(self, name: int) -> Process:
        if name in self._nodes:
            self._wait_to_be_gone(name)
        properties = {"log4j.configuration": log4j_settings(self.directory)}
        main = ("io.jafka.Jafka", str(self._config(name)))
        command = java_command(self._jars, self.heap_mb, *main, properties=properties)
        return self._run(f"jafka-{name}", command)

    def _wait_for(self, name: int) -> None:
        process = self._nodes[name]
        process.wait_for_port(self.ports[name])
        process.wait_until(
            lambda: not self.zookeeper or is_registered(self.zookeeper, name) is True,
            "it to be registered in ZooKeeper",
        )

    def _wait_to_be_gone(self, broker: int) -> None:
        """Waits until ZooKeeper no longer lists the broker: a broker ends at once if the session of
        its crashed predecessor still holds its id."""
        deadline = time.monotonic() + PATIENCE_S
        while self.zookeeper and is_registered(self.zookeeper, broker) is not False:
            if time.monotonic() > deadline:
                raise Unreachable(
                    f"Broker {broker} was not restarted",
                    why=f"{self.zookeeper} still holds the session of its previous process, or "
                    "does not answer",
                    do="restart it once the session has expired",
                )
            time.sleep(0.1)
