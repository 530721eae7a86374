"""RocketMQ on this machine: name servers, masters and slaves, small and short-lived.

`RocketmqCluster` starts with ``start`` or ``with``. Its processes have names: ``namesrv-1``,
``broker-a`` (a master), ``broker-a-slave``. Each can be killed, stopped, paused and restarted,
on the same port and store. Nothing is left behind: stores and logs are below one folder.

The settings are those of a test: small heaps and files, frequent heartbeats. See
`rocketmq_clients` for what writes and reads.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from rangeland.dialects.rocketmq.codes import SUCCESS
from rangeland.dialects.rocketmq.messages import Answer, create_topic, route
from rangeland.dialects.rocketmq.routes import MASTER, read_route
from rangeland.errors import Unreachable, UsageError
from rangeland.jvm.jars import class_path, fetch_jars
from rangeland.jvm.java import SMALL_JVM, find_java
from rangeland.testing.ports import free_ports, is_free
from rangeland.testing.processes import Process, remove_directory, temporary_directory
from rangeland.testing.rocketmq_clients import RocketmqClient

START_TIMEOUT_S = 60
COMMIT_LOG_BYTES = 4 << 20
SLAVE = "-slave"

# Numbers that make a test quick and small; each would be wrong in production.
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
}


class RocketmqCluster:
    """``brokers`` masters (``broker-a``, ``broker-b``, ...), each with a slave if ``slaves``.

    ``properties`` go to every broker and win over the settings here; ``name_server`` to every
    name server. A temporary directory is made and removed unless ``directory`` is given; a
    given one keeps configuration and logs, and loses the stores at the end."""

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
        if version not in self.versions:
            known = ", ".join(self.versions)
            raise UsageError(f"RocketMQ {version} is not in the table", do=f"Use one of: {known}")
        if brokers < 1 or name_servers < 1:
            raise UsageError("A cluster of no brokers or name servers was asked for")
        self.version = version
        self.name_servers = [f"namesrv-{n}" for n in range(1, name_servers + 1)]
        self.masters = [f"broker-{chr(ord('a') + n)}" for n in range(brokers)]
        self.slaves = [master + SLAVE for master in self.masters] if slaves else []
        self.heap_mb = heap_mb
        self.ports: dict[str, int] = {}
        self._ha_ports: dict[str, int] = {}
        self._properties = dict(properties or {})
        self._name_server = dict(name_server or {})
        self._jvm = jvm
        self._given_directory = directory
        self._directory: Path | None = None
        self._nodes: dict[str, Process] = {}

    # --- life --------------------------------------------------------------------------

    def start(self) -> Self:
        """Starts everything and returns when the name servers know all brokers. Raises
        `Unreachable` with the last lines of a log if not."""
        if self._directory is not None:
            raise UsageError("The cluster is already started", do="Use restart for one broker")
        fetch_jars(self._jars)  # before anything is made: the first time takes a while
        self._directory = self._given_directory or temporary_directory("rangeland-rocketmq-")
        self._directory.mkdir(parents=True, exist_ok=True)
        try:
            self._choose_ports()
            # A broker that finds no name server registers itself 10 s later.
            for names in (self.name_servers, self.brokers):
                for name in names:
                    self._write_config(name)
                    self._nodes[name] = self._start(name)
                for name in names:
                    self._nodes[name].wait_for_port(self.ports[name], START_TIMEOUT_S)
            for name in self.brokers:
                self._wait_for(name)
        except BaseException:
            self.close()
            raise
        return self

    def close(self) -> None:
        """Ends all processes at once and removes the stores; a given directory keeps logs."""
        for process in self._nodes.values():
            process.kill()
        self._nodes.clear()
        if self._directory is not None and self._given_directory is None:
            remove_directory(self._directory)
        elif self._directory is not None:
            remove_directory(self._directory / "data")
        self._directory = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # --- what tests do to it -----------------------------------------------------------

    @property
    def brokers(self) -> list[str]:
        """The names of all masters and slaves, up or not."""
        return [*self.masters, *self.slaves]

    @property
    def names(self) -> list[str]:
        """Of all processes, name servers first."""
        return [*self.name_servers, *self.brokers]

    @property
    def servers(self) -> list[str]:
        """As job files name them: ``host:port`` of each name server."""
        return [self.address(name) for name in self.name_servers]

    @property
    def running(self) -> list[str]:
        """The names of those whose process is there, paused ones too."""
        return [name for name, process in self._nodes.items() if process.running]

    def address(self, name: str = "broker-a") -> str:
        return f"127.0.0.1:{self.ports[name]}"

    def process(self, name: str = "broker-a") -> Process:
        """Of one, for its pid, log and memory."""
        if name not in self._nodes:
            known = ", ".join(self._nodes) or "none, it is not started"
            raise UsageError(f"There is no {name}", do=f"There are: {known}")
        return self._nodes[name]

    def kill(self, name: str = "broker-a") -> None:
        """SIGKILL: a crash. Port and store are kept for `restart`."""
        self.process(name).kill()

    def stop(self, name: str = "broker-a") -> None:
        """SIGTERM: it unregisters and flushes."""
        self.process(name).stop()

    def pause(self, name: str = "broker-a") -> None:
        """SIGSTOP: connections stay open and nothing is answered."""
        self.process(name).pause()

    def resume(self, name: str = "broker-a") -> None:
        self.process(name).resume()

    def restart(self, name: str = "broker-a", *, wait: bool = True) -> None:
        """Starts one again on its port and store; stops it first if it runs. Returns when the
        name servers know it, or at once. A broker is known about 15 s after its crash."""
        self.process(name).stop()
        self._nodes[name] = self._start(name)
        if wait:
            self._nodes[name].wait_for_port(self.ports[name], START_TIMEOUT_S)
            if name in self.brokers:
                self._wait_for(name)

    def create_topic(self, topic: str, queues: int = 2, brokers: list[str] | None = None) -> None:
        """On ``brokers`` (masters), or all, and on their slaves, which else hear of it within
        a minute. Returns when the name servers know it."""
        chosen = self.masters if brokers is None else brokers
        for name in self.brokers:
            if name.removesuffix(SLAVE) in chosen:
                with RocketmqClient(self.address(name)) as client:
                    client.ask(create_topic(topic, queues))
        for server in self.name_servers:
            self.process(server).wait_until(
                lambda at=server: set(chosen) <= set(self._route(at, topic)),  # type: ignore[misc]
                f"{topic} to be known",
                START_TIMEOUT_S,
            )

    # --- how it is done ----------------------------------------------------------------

    @property
    def directory(self) -> Path:
        """Where configuration, ``logs`` and ``data`` of a started cluster are."""
        if self._directory is None:
            raise UsageError("The cluster is not started", do="Call start() or use `with`")
        return self._directory

    @property
    def _jars(self) -> str:
        return f"rocketmq-{self.version}"

    def store(self, name: str = "broker-a") -> Path:
        """Where a broker has its commit log and queues."""
        return self.directory / "data" / name

    def _config(self, name: str) -> Path:
        return self.directory / f"{name}.conf"

    def _choose_ports(self) -> None:
        self.ports = dict(zip(self.name_servers, free_ports(len(self.name_servers)), strict=True))
        self._ha_ports = dict(zip(self.brokers, free_ports(len(self.brokers)), strict=True))
        for name in self.brokers:
            self.ports[name] = _port_of_two()

    def _write_config(self, name: str) -> None:
        if name in self.name_servers:
            settings: dict[str, object] = {"listenPort": self.ports[name], **self._name_server}
        else:
            store = self.store(name)
            store.mkdir(parents=True, exist_ok=True)
            settings = {
                **_SETTINGS,
                "brokerName": name.removesuffix(SLAVE),
                "brokerId": 1 if name.endswith(SLAVE) else MASTER,
                "brokerRole": "SLAVE" if name.endswith(SLAVE) else "ASYNC_MASTER",
                "namesrvAddr": ";".join(self.servers),
                "listenPort": self.ports[name],
                "haListenPort": self._ha_ports[name],
                "storePathRootDir": store,
                "storePathCommitLog": store / "commitlog",
                **self._properties,
            }
        self._config(name).write_text("".join(f"{k}={v}\n" for k, v in settings.items()))

    def _start(self, name: str) -> Process:
        logs = self.directory / "logs"
        home = self.directory / "homes" / name
        for folder in (logs, home):
            folder.mkdir(parents=True, exist_ok=True)
        is_server = name in self.name_servers
        heap_mb = 96 if is_server else self.heap_mb
        main = "namesrv.NamesrvStartup" if is_server else "broker.BrokerStartup"
        command = [
            find_java(),
            f"-Xms{heap_mb // 4}m",
            f"-Xmx{heap_mb}m",
            f"-XX:MaxDirectMemorySize={64 if is_server else 128}m",
            *SMALL_JVM,
            f"-Drocketmq.home.dir={home}",
            f"-Duser.home={home}",
            *self._jvm,
            "-cp",
            class_path(self._jars),
            f"org.apache.rocketmq.{main}",
            "-c",
            str(self._config(name)),
        ]
        return Process(name, command, log=logs / f"{name}.log", directory=self.directory)

    def _wait_for(self, name: str) -> None:
        """Every broker has a topic of its own name."""
        broker = name.removesuffix(SLAVE)
        number = 1 if name.endswith(SLAVE) else MASTER
        for server in self.name_servers:
            self._nodes[name].wait_until(
                lambda at=server: number in self._route(at, broker).get(broker, ()),  # type: ignore[misc]
                f"it to be registered at {server}",
                START_TIMEOUT_S,
            )

    def _route(self, server: str, topic: str) -> dict[str, list[int]]:
        """The numbers of the brokers that a name server knows for a topic, by broker name."""
        try:
            with RocketmqClient(self.address(server)) as client:
                answer: Answer = client.ask(route(topic), check=False)
        except Unreachable:
            return {}
        if answer.code != SUCCESS:
            return {}
        return {name: list(at) for name, (_, at) in read_route(answer.body).brokers.items()}


def _port_of_two() -> int:
    """A port whose second one before is free as well: a broker listens on both."""
    for _ in range(100):
        (port,) = free_ports(1)
        if is_free(port - 2):
            return port
    raise Unreachable("There are no two free ports at a distance of 2")
