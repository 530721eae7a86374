"""The address, the settings and the login for a ZooKeeper: values only."""

from __future__ import annotations

from dataclasses import dataclass, field

from rangeland.cluster_settings import TlsSettings

SECTION = "source.security.zookeeper"


@dataclass(frozen=True, slots=True)
class ZooKeeperLogin:
    """A login to ZooKeeper. ``uses_sasl``: SASL with DIGEST-MD5, which the server checks at once.
    Otherwise ZooKeeper's scheme `digest` is used, in which a wrong password only means that access
    lists do not match."""

    username: str
    password: str = field(repr=False)
    uses_sasl: bool = False


@dataclass(frozen=True, slots=True)
class ZooKeeperAccess:
    """The settings for reaching a ZooKeeper; by default without TLS or login."""

    servers: str
    """``host:port[,host:port...][/chroot]``."""
    tls: TlsSettings | None = None
    login: ZooKeeperLogin | None = None
    connect_ms: int = 10_000
    """The time limit for connecting, and for each later request."""
