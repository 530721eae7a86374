"""ZooKeeper's connect string, ``host:port,host:port/chroot``, as written in a job file.

Pure. The port may be left out, as in ZooKeeper's own tools, and an IPv6 host is in brackets. The
chroot is the node below which everything that belongs to a cluster is kept.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from rangeland.errors import JobFileError
from rangeland.model import Address
from rangeland.untrusted import is_quotable

DEFAULT_PORT = 2181
_SERVER = re.compile(
    r"(?:\[(?P<six>[0-9A-Fa-f:.%]+)\]|(?P<host>[^\s:/\[\]@]+))(?::(?P<port>[0-9]{1,5}))?"
)


@dataclass(frozen=True, slots=True)
class ConnectString:
    """The servers of a ZooKeeper, and a node in it. ``chroot`` is empty, or begins with ``/`` and
    does not end with it."""

    servers: tuple[Address, ...]
    chroot: str = ""

    def __str__(self) -> str:
        return ",".join(map(str, self.servers)) + self.chroot


def read_ensemble(text: str) -> ConnectString:
    """Reads a connect string. Raises JobFileError, which names the part of the text that is
    wrong."""
    servers, slash, path = text.strip().partition("/")
    parts = path.rstrip("/").split("/") if path.strip("/") else []
    if any(part in ("", ".", "..") or part != part.strip() for part in parts):
        raise _address_error(text, f"the path {slash + path!r} is not the path of a node")
    addresses = tuple(_read_server(text, server.strip()) for server in servers.split(","))
    return ConnectString(addresses, "".join(f"/{part}" for part in parts))


def _read_server(text: str, server: str) -> Address:
    match = _SERVER.fullmatch(server)
    if match is None:
        why = f"{server!r} is not host:port" if server else "a server is missing"
        raise _address_error(text, why)
    port = int(match["port"] or DEFAULT_PORT)
    if not 0 < port < 65_536:
        raise _address_error(text, f"{port} is not a port")
    return Address(match["six"] or match["host"], port)


def _address_error(text: str, why: str) -> JobFileError:
    if "@" in text:  # the part before it may be a password
        text, why = "the address", "user and password do not belong in it"
    elif not is_quotable(text):
        text, why = "the address", "it is not repeated here, since it may contain a secret"
    return JobFileError(
        f"{text} is not the address of a ZooKeeper",
        why=why,
        do="write source.zookeeper as host:port[,host:port...][/path]",
    )
