"""Kafka clusters of one or more brokers on this machine, small and short-lived.

`KafkaCluster` uses KRaft: every node is both broker and controller. `KafkaZooKeeperCluster` uses
ZooKeeper, for 0.8 to 0.11. Start either with ``start`` or ``with``. Both can kill, stop, pause and
restart a broker by its id (1, 2, ...), and both leave nothing behind.

The settings are chosen for tests, not production: small heaps, fast elections, fast retention and
compaction, and failures that are detected within seconds.
"""

from __future__ import annotations

import base64
import json
import uuid
from collections.abc import Mapping
from pathlib import Path

from rangeland.testing.clusters import NumberedCluster
from rangeland.testing.ports import free_ports, is_listening
from rangeland.testing.probe import brokers_seen_by, is_registered
from rangeland.testing.processes import Process
from rangeland.testing.producer import wait_for_topic
from rangeland.testing.server_command import java_command, log4j_settings, write_settings
from rangeland.testing.zookeeper import Visitor

# Numbers that make tests quick; each would be wrong in production.
_SETTINGS: dict[str, object] = {
    "auto.create.topics.enable": "false",
    "num.network.threads": 1,
    "num.io.threads": 2,
    "num.recovery.threads.per.data.dir": 1,
    "offsets.topic.num.partitions": 2,
    "transaction.state.log.num.partitions": 2,
    "transaction.state.log.min.isr": 1,
    "min.insync.replicas": 1,
    "group.initial.rebalance.delay.ms": 0,
    "log.segment.bytes": 128 << 20,
    "log.cleaner.dedupe.buffer.size": 8 << 20,
    "log.cleaner.backoff.ms": 500,
    "log.retention.check.interval.ms": 1000,
    "log.segment.delete.delay.ms": 1000,
}
_KRAFT_SETTINGS: dict[str, object] = {
    "process.roles": "broker,controller",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "inter.broker.listener.name": "PLAINTEXT",
    "broker.session.timeout.ms": 4000,
    "broker.heartbeat.interval.ms": 500,
    "log.initial.task.delay.ms": 500,
}
_LOG4J2 = """status=error
appender.stdout.type=Console
appender.stdout.name=stdout
appender.stdout.layout.type=PatternLayout
appender.stdout.layout.pattern=%d %p %m (%c)%n
rootLogger.level=info
rootLogger.appenderRef.stdout.ref=stdout
"""
_formatted: dict[str, dict[str, bytes]] = {}
"""The files that the formatting tool has written, by version. It needs a JVM for each node, and
always writes the same files except for ids."""


class _Cluster(NumberedCluster):
    """The base of both kinds: how a broker is started, and when it is ready. ``{node}`` in the
    values of ``properties`` is replaced by the broker's id."""

    kind = "Kafka"
    usual_version = ""
    usual_heap_mb = 256

    def __init__(
        self,
        version: str = "",
        brokers: int = 1,
        heap_mb: int = 0,
        properties: Mapping[str, object] | None = None,
        directory: Path | None = None,
    ) -> None:
        version, heap_mb = version or self.usual_version, heap_mb or self.usual_heap_mb
        super().__init__(version, brokers, heap_mb, properties, directory)

    @property
    def bootstrap(self) -> list[str]:
        """``["127.0.0.1:port", ...]`` of all brokers, whether up or not, ordered by id."""
        return [self.address(node) for node in self.ids]

    # --- implementation ----------------------------------------------------------------

    def _start_all(self) -> None:
        """Returns once each broker sees all brokers."""
        super()._start_all()
        for node in self.ids:
            self._wait_until_seen(node, set(self.ids))

    def _start_one(self, name: int) -> Process:
        return self._java(f"kafka-{name}", self.heap_mb, "kafka.Kafka", str(self._config(name)))

    def _java(self, name: str, heap_mb: int, *arguments: str) -> Process:
        """Starts a class from the set of jars; native libraries are unpacked into our directory."""
        temporary = self.directory / "data" / "tmp"
        temporary.mkdir(parents=True, exist_ok=True)
        log4j2 = self.directory / "log4j2.properties"
        log4j2.write_text(_LOG4J2)
        properties = {
            "java.io.tmpdir": temporary,
            "kafka.logs.dir": self.directory / "logs",
            "log4j.configuration": log4j_settings(self.directory),
            "log4j2.configurationFile": log4j2,
        }
        command = java_command(self._jars, heap_mb, *arguments, properties=properties)
        return self._run(name, command)

    def _write_config(self, node: int, settings: Mapping[str, object]) -> None:
        replicas = min(3, len(self.ids))
        own = {
            "log.dirs": self.data_directory(node),
            "offsets.topic.replication.factor": replicas,
            "transaction.state.log.replication.factor": replicas,
        }
        all_settings = {**_SETTINGS, **own, **settings, **self.properties}
        node_settings = {k: str(v).replace("{node}", str(node)) for k, v in all_settings.items()}
        write_settings(self._config(node), node_settings)

    def _wait_for(self, name: int) -> None:
        """Waits until the broker is back in the cluster."""
        self._wait_until_seen(name, {name})

    def _wait_until_seen(self, node: int, brokers: set[int]) -> None:
        self._nodes[node].wait_until(
            lambda: brokers <= self._seen_by(node), "all brokers to be seen"
        )

    def _seen_by(self, node: int) -> set[int]:
        return set(brokers_seen_by(self.address(node)))


class KafkaCluster(_Cluster):
    """A KRaft cluster."""

    versions = ("4.1.0", "4.4.0", "3.9.1")
    usual_version = "4.1.0"

    def _prepare(self) -> None:
        controllers = dict(zip(self.ids, free_ports(len(self.ids)), strict=True))
        voters = ",".join(f"{node}@127.0.0.1:{port}" for node, port in controllers.items())
        for node in self.ids:
            broker, controller = self.address(node), f"127.0.0.1:{controllers[node]}"
            settings = {
                "node.id": node,
                "controller.quorum.voters": voters,
                "listeners": f"PLAINTEXT://{broker},CONTROLLER://{controller}",
                "advertised.listeners": f"PLAINTEXT://{broker}",
            }
            self._write_config(node, _KRAFT_SETTINGS | settings)
        self._format()

    def _format(self) -> None:
        """Writes the cluster's id to every node's data directory, which is required before the
        first start."""
        cluster = _new_id()
        nodes = list(self.ids)
        if self.version not in _formatted:
            _formatted[self.version] = self._format_with_tool(nodes.pop(0), cluster)
        for node in nodes:
            for name, content in _formatted[self.version].items():
                path = self.data_directory(node) / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
            ids = {"cluster.id": cluster, "directory.id": _new_id(), "node.id": node, "version": 1}
            write_settings(self.data_directory(node) / "meta.properties", ids)

    def _format_with_tool(self, node: int, cluster: str) -> dict[str, bytes]:
        """The contents of the files that the tool has written, by name."""
        # Option and value in one word: an id that begins with a dash would be taken for a flag.
        identity = f"--cluster-id={cluster}"
        arguments = ["format", identity, "-c", str(self._config(node))]
        tool = self._java(f"format-{node}", 64, "kafka.tools.StorageTool", *arguments)
        try:
            if tool.wait_for_end() != 0:
                raise tool.process_error("its data directory was not formatted")
        finally:
            tool.kill()
        data = self.data_directory(node)
        files = (path for path in data.rglob("*") if path.is_file())
        return {str(path.relative_to(data)): path.read_bytes() for path in files}


def _new_id() -> str:
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")


class KafkaZooKeeperCluster(_Cluster):
    """A cluster of Kafka 0.8 to 0.11, with the ZooKeeper that came with it at the address
    ``zookeeper``."""

    versions = ("0.8.2.2", "0.9.0.1", "0.10.2.2", "0.11.0.3")
    usual_version = "0.11.0.3"
    usual_heap_mb = 192
    zookeeper = ""
    _keeper: Process | None = None

    def _processes(self) -> list[Process]:
        return super()._processes() + ([self._keeper] if self._keeper else [])

    def _prepare(self) -> None:
        self._start_zookeeper()
        for node in self.ids:
            settings: dict[str, object] = {
                "broker.id": node,
                **self._listeners(node),
                "zookeeper.connect": self.zookeeper,
                "zookeeper.session.timeout.ms": 4000,
                "zookeeper.connection.timeout.ms": 20000,
            }
            self._write_config(node, settings)

    def _listeners(self, node: int) -> dict[str, object]:
        if self.version.startswith("0.8."):  # it has no listeners yet
            host = "127.0.0.1"
            port = self.ports[node]
            return {"host.name": host, "advertised.host.name": host, "port": port}
        address = f"PLAINTEXT://{self.address(node)}"
        return {"listeners": address, "advertised.listeners": address}

    def create_topic(
        self,
        topic: str,
        partitions: int = 1,
        replicas: int = 1,
        config: Mapping[str, object] | None = None,
    ) -> None:
        """Creates a topic as the brokers' own tool does, by writing the nodes that the controller
        watches: the oldest brokers have no request for it."""
        brokers = [self.ids[n % len(self.ids)] for n in range(len(self.ids) + partitions)]
        spread = {str(n): brokers[n : n + replicas] for n in range(partitions)}
        settings = {name: str(value) for name, value in (config or {}).items()}
        with Visitor(self.zookeeper) as keeper:
            path, content = f"/config/topics/{topic}", {"version": 1, "config": settings}
            keeper.create(path, json.dumps(content).encode(), makepath=True)
            content = {"version": 1, "partitions": spread}
            keeper.create(f"/brokers/topics/{topic}", json.dumps(content).encode(), makepath=True)
        wait_for_topic(self.bootstrap, topic, partitions)

    def _seen_by(self, node: int) -> set[int]:
        """The brokers that a broker knows. Brokers of version 0.8 know none before there is a
        topic."""
        if not self.version.startswith("0.8."):
            return super()._seen_by(node)
        if not is_listening(self.ports[node]):
            return set()
        return {broker for broker in self.ids if is_registered(self.zookeeper, broker)}

    def _start_one(self, name: int) -> Process:
        """Waits first, because a broker ends at once if the session of its crashed predecessor
        still holds its id."""
        assert self._keeper is not None
        self._keeper.wait_until(
            lambda: is_registered(self.zookeeper, name) is False, f"/brokers/ids/{name} to expire"
        )
        return super()._start_one(name)

    def _start_zookeeper(self) -> None:
        (port,) = free_ports(1)
        self.zookeeper = f"127.0.0.1:{port}"
        data = self.directory / "data" / "zookeeper"
        data.mkdir(parents=True, exist_ok=True)
        settings = {
            "tickTime": 1000,
            "dataDir": data,
            "clientPort": port,
            "clientPortAddress": "127.0.0.1",
            "maxClientCnxns": 0,
        }
        config = write_settings(self.directory / "zookeeper.properties", settings)
        main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
        self._keeper = self._java("zookeeper", 96, main, str(config))
        self._keeper.wait_for_port(port)
