"""RocketMQ on this machine: name servers, masters and slaves, small and short-lived.

Start `RocketmqCluster` with ``start`` or ``with``. Its processes have names: ``namesrv-1``,
``broker-a`` (a master), ``broker-a-slave``. Each can be killed, stopped, paused and restarted, on
the same port and with the same store. Stores and logs are in one folder, and nothing is left
behind.

The settings are chosen for tests: small heaps and files, frequent heartbeats. `rocketmq_clients`
writes and reads.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from pathlib import Path

from rangeland.dialects.rocketmq.error_codes import SUCCESS
from rangeland.dialects.rocketmq.messages import (
    RemotingRequest,
    RemotingResponse,
    create_topic,
    route,
)
from rangeland.dialects.rocketmq.routes import MASTER, read_route
from rangeland.errors import Unreachable, UsageError
from rangeland.model import Address
from rangeland.testing.clusters import LocalCluster
from rangeland.testing.ports import free_ports, take
from rangeland.testing.processes import Process
from rangeland.testing.rocketmq_clients import RocketmqClient
from rangeland.testing.server_command import java_command, write_settings
from rangeland.untrusted import parse_address

COMMIT_LOG_BYTES = 4 << 20
SLAVE = "-slave"

# Upstream: ``RequestCode``.
_DELETE_TOPIC_AT_BROKER = 215
_DELETE_TOPIC_AT_NAME_SERVER = 216

# Numbers that make tests quick and small; each would be wrong in production.
_SETTINGS: dict[str, object] = {
    "brokerClusterName": "testing",
    "brokerIP1": "127.0.0.1",
    "brokerIP2": "127.0.0.1",
    "flushDiskType": "ASYNC_FLUSH",
    "mappedFileSizeCommitLog": COMMIT_LOG_BYTES,
    "mappedFileSizeConsumeQueue": 60000,
    "maxIndexNum": 40000,
    "maxHashSlotNum": 10000,
    "autoCreateTopicEnable": "false",
    "autoCreateSubscriptionGroup": "true",
    "defaultTopicQueueNums": 2,
    "fileReservedTime": 72,
    "sendMessageThreadPoolNums": 1,
    "waitTimeMillsInSendQueue": 20000,
    "pullMessageThreadPoolNums": 2,
    "timerWheelEnable": "false",
    "slaveReadEnable": "true",
    "registerBrokerTimeoutMills": 6000,
    "registerNameServerPeriod": 10000,
    "brokerHeartbeatInterval": 1000,
    "flushConsumerOffsetInterval": 200,
    "diskMaxUsedSpaceRatio": 95,
    # Two threads of a broker wait in busy loops: one for this interval after its start (10 s by
    # default), the other forever once this interval has passed since a transaction (3 s). With
    # these values, the end of each transaction is written at once instead.
    "transactionMetricFlushInterval": 500,
    "transactionOpBatchInterval": 3_600_000,
    "transactionOpMsgMaxSize": 1,
}


class RocketmqCluster(LocalCluster[str]):
    """As many masters as ``brokers`` says (``broker-a``, ``broker-b``, ...), each with a slave if
    ``slaves`` is set, and their name servers.

    ``properties`` apply to every broker and take precedence over the settings here; ``name_server``
    applies to every name server. If a broker is not named, ``broker-a`` is meant.
    """

    kind = "RocketMQ"
    versions = ("5.5.0",)

    def __init__(
        self,
        version: str = "5.5.0",
        brokers: int = 1,
        *,
        slaves: bool = False,
        name_servers: int = 1,
        heap_mb: int = 192,
        properties: Mapping[str, object] | None = None,
        name_server: Mapping[str, object] | None = None,
        jvm: tuple[str, ...] = (),
        directory: Path | None = None,
    ) -> None:
        if brokers < 1 or name_servers < 1:
            raise UsageError(
                "a cluster needs brokers and name servers", do="ask for at least one of each"
            )
        self.name_servers = [f"namesrv-{n}" for n in range(1, name_servers + 1)]
        self.masters = [f"broker-{chr(ord('a') + n)}" for n in range(brokers)]
        self.slaves = [master + SLAVE for master in self.masters] if slaves else []
        super().__init__(version, [*self.name_servers, *self.brokers], "broker-a", directory)
        self.heap_mb = heap_mb
        self._ha_ports: dict[str, int] = {}
        self._properties = dict(properties or {})
        self._name_server = dict(name_server or {})
        self._jvm = jvm

    # --- for tests ---------------------------------------------------------------------

    @property
    def brokers(self) -> list[str]:
        """The names of all masters and slaves, whether up or not."""
        return [*self.masters, *self.slaves]

    @property
    def servers(self) -> list[str]:
        """The servers in the form that job files use: ``host:port`` of each name server."""
        return [self.address(name) for name in self.name_servers]

    def create_topic(
        self,
        topic: str,
        queues: int = 2,
        brokers: list[str] | None = None,
        attributes: str = "",
    ) -> None:
        """Creates a topic on ``brokers`` (masters), or on all of them, and on their slaves, which
        would otherwise take up to a minute to hear of it. Returns when all name servers list all of
        them for it."""
        masters = self.masters if brokers is None else brokers
        names = [name for name in self.brokers if name.removesuffix(SLAVE) in masters]
        for name in names:
            with RocketmqClient(self.address(name)) as client:
                client.ask(create_topic(topic, queues, attributes))
        for server, name in itertools.product(self.name_servers, names):
            self._wait_for_route(self.process(server), server, topic, name)

    def delete_topic(self, topic: str) -> None:
        """Deletes a topic with all its messages. Returns when the name servers have forgotten it.
        Needs the property ``timerWheelEnable``, without which brokers fail to delete topics."""
        at_broker = RemotingRequest(_DELETE_TOPIC_AT_BROKER, {"topic": topic})
        for name in self.brokers:
            with RocketmqClient(self.address(name)) as client:
                client.ask(at_broker)
        at_server = RemotingRequest(_DELETE_TOPIC_AT_NAME_SERVER, {"topic": topic})
        for server in self.name_servers:
            with RocketmqClient(self.address(server)) as client:
                client.ask(at_server)
            self.process(server).wait_until(
                lambda at=server: not self._route(at, topic),  # type: ignore[misc]
                f"{topic} to be forgotten",
            )

    # --- implementation ----------------------------------------------------------------

    def store(self, name: str = "broker-a") -> Path:
        """The folder of a broker's commit log and queues."""
        return self.directory / "data" / name

    def _config(self, name: str) -> Path:
        return self.directory / f"{name}.conf"

    def _start_all(self) -> None:
        self._choose_ports()
        # A broker that finds no name server tries to register itself again only 10 s later.
        for names in (self.name_servers, self.brokers):
            for name in names:
                self._write_config(name)
            self._start_together(names)

    def _choose_ports(self) -> None:
        self.ports = dict(zip(self.name_servers, free_ports(len(self.name_servers)), strict=True))
        self._ha_ports = dict(zip(self.brokers, free_ports(len(self.brokers)), strict=True))
        for name in self.brokers:
            self.ports[name] = _port_of_two()

    def _write_config(self, name: str) -> None:
        if name in self.name_servers:
            settings: dict[str, object] = {"listenPort": self.ports[name], **self._name_server}
        else:
            broker, number = _identity(name)
            store = self.store(name)
            store.mkdir(parents=True, exist_ok=True)
            settings = {
                **_SETTINGS,
                "brokerName": broker,
                "brokerId": number,
                "brokerRole": "ASYNC_MASTER" if number == MASTER else "SLAVE",
                "namesrvAddr": ";".join(self.servers),
                "listenPort": self.ports[name],
                "haListenPort": self._ha_ports[name],
                "storePathRootDir": store,
                "storePathCommitLog": store / "commitlog",
                **self._properties,
            }
        write_settings(self._config(name), settings)

    def _start_one(self, name: str) -> Process:
        home = self.directory / "homes" / name
        temporary = home / "tmp"  # RocksDB and TLS unpack their libraries there
        temporary.mkdir(parents=True, exist_ok=True)
        is_server = name in self.name_servers
        heap_mb = 96 if is_server else self.heap_mb
        main = "namesrv.NamesrvStartup" if is_server else "broker.BrokerStartup"
        command = java_command(
            self._jars,
            heap_mb,
            f"org.apache.rocketmq.{main}",
            "-c",
            str(self._config(name)),
            properties={
                "rocketmq.home.dir": home,
                "user.home": home,
                "java.io.tmpdir": temporary,
            },
            options=(f"-XX:MaxDirectMemorySize={64 if is_server else 128}m", *self._jvm),
        )
        return self._run(name, command)

    def _wait_for(self, name: str) -> None:
        """Waits until the name servers know a broker, which takes about 15 s after a crash. Every
        broker has a topic named after it."""
        self._nodes[name].wait_for_port(self.ports[name])
        if name in self.name_servers:
            return
        for server in self.name_servers:
            self._wait_for_route(self._nodes[name], server, name.removesuffix(SLAVE), name)

    def _wait_for_route(self, process: Process, server: str, topic: str, name: str) -> None:
        broker, number = _identity(name)
        address = parse_address(self.address(name))  # a slave may act under number 0
        process.wait_until(
            lambda: self._route(server, topic).get(broker, {}).get(number) == address,
            f"{name} to be registered for {topic} at {server}",
        )

    def _route(self, server: str, topic: str) -> dict[str, dict[int, Address]]:
        """The brokers that a name server lists for a topic, by name and number."""
        try:
            with RocketmqClient(self.address(server)) as client:
                response: RemotingResponse = client.ask(route(topic), check=False)
        except Unreachable:
            return {}
        if response.code != SUCCESS:
            return {}
        return {name: at for name, (_, at) in read_route(response.body).brokers.items()}


def _identity(name: str) -> tuple[str, int]:
    """The name and the number that a process has as a broker: a slave shares its master's name."""
    return name.removesuffix(SLAVE), 1 if name.endswith(SLAVE) else MASTER


def _port_of_two() -> int:
    """A port P such that P - 2 is free as well: a broker listens on both."""
    for _ in range(100):
        (port,) = free_ports(1)
        if take(port - 2):
            return port
    raise Unreachable(
        "No two ports at a distance of 2 are free", do="stop whatever is listening on them"
    )
