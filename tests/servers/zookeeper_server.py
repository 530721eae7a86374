"""A single ZooKeeper server on this machine, small and short-lived.

Start `ZooKeeperServer` with ``start`` or ``with``. It can be stopped, killed, paused and started
again on the same port and with the same data, and leaves nothing behind. Sessions may be as short
as two ticks, so that tests see within a second what happens to a lost session.

``dump`` shows what is stored, read with a separate client instead of the code under test.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from kazoo.client import KazooClient

from rangeland.errors import UsageError
from rangeland.testing.probe import ephemeral_nodes
from rangeland.testing.server_command import java_command, log4j_settings, write_settings
from rangeland.testing.zookeeper import Visitor
from tests.jar_sets import TEST_JARS
from tests.servers.local_server import LocalServer

TICK_MS = 200
HEAP_MB = 96

_MAIN = "org.apache.zookeeper.server.quorum.QuorumPeerMain"


@dataclass(frozen=True, slots=True)
class StoredZnode:
    """One node as `ZooKeeperServer.dump` saw it."""

    content: str
    is_ephemeral: bool
    version: int


class ZooKeeperServer(LocalServer):
    """One ZooKeeper server. Its address is ``address``; ``chroots`` are made at the start. Sessions
    outlive it, if it is started again before they end."""

    kind = "ZooKeeper"
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
        super().__init__(TEST_JARS[f"zookeeper-{version}"])
        self.tick_ms = tick_ms
        self._chroots = chroots

    def _prepare(self) -> None:
        for chroot in self._chroots:
            self.put(chroot)

    # --- what is in it -----------------------------------------------------------------

    def ephemeral_nodes(self) -> set[str]:
        """The paths that sessions hold."""
        return ephemeral_nodes(self.address)

    def dump(self, path: str = "/") -> dict[str, StoredZnode]:
        """All nodes below a path and itself, by path; empty where it is not there."""
        with Visitor(self.address) as client:
            found: dict[str, StoredZnode] = {}
            _walk(client, path, found)
        return found

    def put(self, path: str, content: str = "") -> None:
        """Writes a persistent node, with its parents; for what tests want to be there."""
        with Visitor(self.address) as client:
            client.ensure_path(path)
            client.set(path, content.encode())

    def remove(self, path: str) -> None:
        """Deletes a node and all below it, no matter who created it."""
        with Visitor(self.address) as client:
            client.delete(path, recursive=True)

    def end_session(self, session: tuple[int, bytes]) -> None:
        """Ends a session as its expiry would: its nodes are deleted and its client is notified. A
        session is its id and its password."""
        with Visitor(self.address, session):
            pass

    def visit(self) -> Visitor:
        """kazoo's own client, by ``with``; what it holds is gone at the end."""
        return Visitor(self.address)

    # --- how it is done ----------------------------------------------------------------

    def _command(self, folder: Path) -> list[str]:
        data = folder / "data"
        data.mkdir(exist_ok=True)
        config = write_settings(folder / "zookeeper.properties", self._settings(data))
        properties = self._properties(folder)
        return java_command(self._jars, HEAP_MB, _MAIN, str(config), properties=properties)

    def _properties(self, folder: Path) -> dict[str, object]:
        """Those of its JVM."""
        log4j = log4j_settings(folder, "WARN")
        return {"java.io.tmpdir": folder / "data", "log4j.configuration": log4j}

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
            with Visitor(self.address, timeout_s=1):
                return True
        except Visitor.timeout:
            return False


def _walk(client: KazooClient, path: str, found: dict[str, StoredZnode]) -> None:
    if client.exists(path) is None:
        return
    content, stat = client.get(path)
    found[path] = StoredZnode(content.decode(), stat.ephemeralOwner != 0, stat.version)
    for child in sorted(client.get_children(path)):
        _walk(client, f"{path.rstrip('/')}/{child}", found)
