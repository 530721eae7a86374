"""A single ZooKeeper server on this machine, small and short-lived.

Start `ZooKeeperServer` with ``start`` or ``with``. It can be stopped, killed, paused and started
again on the same port and with the same data, and leaves nothing behind. Sessions may be as short
as two ticks, so that tests see within a second what happens to a lost session.

``dump`` shows what is stored, read with a separate client instead of the code under test.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from kazoo.client import KazooClient

from rangeland.errors import UsageError
from rangeland.jvm.jars import class_path, fetch_jars
from rangeland.jvm.java import SMALL_JVM, find_java
from rangeland.testing.context_managers import Startable
from rangeland.testing.ports import free_ports
from rangeland.testing.probe import ephemeral_nodes
from rangeland.testing.processes import Process, remove_directory, temporary_directory

START_TIMEOUT_S = 60
TICK_MS = 200
HEAP_MB = 96

_MAIN = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
_LOG4J = """log4j.rootLogger=WARN, stdout
log4j.appender.stdout=org.apache.log4j.ConsoleAppender
log4j.appender.stdout.layout=org.apache.log4j.PatternLayout
log4j.appender.stdout.layout.ConversionPattern=%d %p %m (%c)%n
"""

# What the client logs about servers that are down is expected here.
_silent = logging.Logger("rangeland.testing.zookeeper", level=logging.CRITICAL)


@dataclass(frozen=True, slots=True)
class StoredZnode:
    """One node as `ZooKeeperServer.dump` saw it."""

    content: str
    is_ephemeral: bool
    version: int


class ZooKeeperServer(Startable):
    """One ZooKeeper server. Its address is ``address``; ``chroots`` are made at the start."""

    versions = ("3.9.3",)

    def __init__(
        self,
        version: str = "3.9.3",
        *,
        tick_ms: int = TICK_MS,
        chroots: tuple[str, ...] = (),
    ) -> None:
        if version not in self.versions:
            known = ", ".join(self.versions)
            raise UsageError(f"ZooKeeper {version} is not in the table", do=f"Use one of: {known}")
        self.version = version
        self.tick_ms = tick_ms
        self.port = 0
        self._chroots = chroots
        self._directory: Path | None = None
        self._process: Process | None = None

    # --- life --------------------------------------------------------------------------

    def start(self) -> Self:
        """Starts it, the first time on a free port and without data, later on the same port
        and data; returns when it answers. Raises `Unreachable` if it does not come up."""
        if self._process is not None and self._process.running:
            raise UsageError("The ZooKeeper is already started", do="Stop or kill it first")
        is_first = self._directory is None
        if is_first:
            fetch_jars(self._jars)
            self._directory = temporary_directory("rangeland-zookeeper-")
            (self.port,) = free_ports(1)
        try:
            self._process = self._start()
            self._process.wait_until(self._answers, "it to answer", START_TIMEOUT_S)
            if is_first:
                for chroot in self._chroots:
                    self.put(chroot)
        except BaseException:
            self.close()
            raise
        return self

    def stop(self) -> None:
        """SIGTERM. Sessions outlive it, if it is started again before they end."""
        self.process.stop()

    def kill(self) -> None:
        """SIGKILL: a crash. Port and data are kept for `start`."""
        self.process.kill()

    def pause(self) -> None:
        """SIGSTOP: connections stay open and nothing is answered."""
        self.process.pause()

    def resume(self) -> None:
        self.process.resume()

    def close(self) -> None:
        """Ends it at once and removes its data."""
        if self._process is not None:
            self._process.kill()
        if self._directory is not None:
            remove_directory(self._directory)
        self._process, self._directory = None, None

    # --- what is in it -----------------------------------------------------------------

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def process(self) -> Process:
        if self._process is None:
            raise UsageError("The ZooKeeper is not started", do="Call start() or use `with`")
        return self._process

    def ephemeral_nodes(self) -> set[str]:
        """The paths that sessions hold."""
        return ephemeral_nodes(self.port)

    def dump(self, path: str = "/") -> dict[str, StoredZnode]:
        """All nodes below a path and itself, by path; empty where it is not there."""
        with _Visitor(self.address) as client:
            found: dict[str, StoredZnode] = {}
            _walk(client, path, found)
        return found

    def put(self, path: str, content: str = "") -> None:
        """Writes a persistent node, with its parents; for what tests want to be there."""
        with _Visitor(self.address) as client:
            client.ensure_path(path)
            client.set(path, content.encode())

    def remove(self, path: str) -> None:
        """Deletes a node and all below it, no matter who created it."""
        with _Visitor(self.address) as client:
            client.delete(path, recursive=True)

    def end_session(self, session: tuple[int, bytes]) -> None:
        """Ends a session as its expiry would: its nodes are deleted and its client is notified. A
        session is its id and its password."""
        with _Visitor(self.address, session):
            pass

    def visit(self) -> _Visitor:
        """kazoo's own client, by ``with``; what it holds is gone at the end."""
        return _Visitor(self.address)

    # --- how it is done ----------------------------------------------------------------

    @property
    def _jars(self) -> str:
        return f"zookeeper-{self.version}"

    def _start(self) -> Process:
        assert self._directory is not None
        data = self._directory / "data"
        data.mkdir(exist_ok=True)
        config = self._directory / "zookeeper.properties"
        config.write_text("".join(f"{k}={v}\n" for k, v in self._settings(data).items()))
        log4j = self._directory / "log4j.properties"
        log4j.write_text(_LOG4J)
        command = [find_java(), f"-Xms{HEAP_MB // 3}m", f"-Xmx{HEAP_MB}m", *SMALL_JVM]
        command += [f"-Djava.io.tmpdir={data}", f"-Dlog4j.configuration={log4j.as_uri()}"]
        command += ["-cp", class_path(self._jars), _MAIN, str(config)]
        log = self._directory / "zookeeper.log"
        return Process("zookeeper", command, log=log, directory=self._directory)

    def _settings(self, data: Path) -> dict[str, object]:
        return {
            "tickTime": self.tick_ms,
            "minSessionTimeout": 2 * self.tick_ms,
            "maxSessionTimeout": 60_000,
            "dataDir": data,
            "clientPort": self.port,
            "clientPortAddress": "127.0.0.1",
            "maxClientCnxns": 0,
            # It would listen on a port of its own.
            "admin.enableServer": "false",
            "4lw.commands.whitelist": "dump,ruok",
        }

    def _answers(self) -> bool:
        try:
            with _Visitor(self.address, timeout_s=1):
                return True
        except _Visitor.timeout:
            return False


def visit(address: str) -> _Visitor:
    """kazoo's own client at any ZooKeeper, by ``with``."""
    return _Visitor(address)


class _Visitor:
    """A client for one look; given a session it takes that over, and ends it."""

    timeout = KazooClient().handler.timeout_exception

    def __init__(
        self, address: str, session: tuple[int, bytes] | None = None, timeout_s: float = 10
    ) -> None:
        self._client = KazooClient(
            hosts=address, client_id=session, timeout=timeout_s, logger=_silent
        )
        self._timeout_s = timeout_s

    def __enter__(self) -> KazooClient:
        self._client.start(timeout=self._timeout_s)
        return self._client

    def __exit__(self, *_: object) -> None:
        self._client.stop()
        self._client.close()


def _walk(client: KazooClient, path: str, found: dict[str, StoredZnode]) -> None:
    if client.exists(path) is None:
        return
    content, stat = client.get(path)
    found[path] = StoredZnode(content.decode(), stat.ephemeralOwner != 0, stat.version)
    for child in sorted(client.get_children(path)):
        _walk(client, f"{path.rstrip('/')}/{child}", found)
