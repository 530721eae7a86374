"""A real ZooKeeper with a port for TLS beside its plain one, and users who log in with SASL."""

from __future__ import annotations

from pathlib import Path

from rangeland.testing.ports import free_ports, is_listening
from tests.certificates import Authority, Issued
from tests.servers.zookeeper_server import ZooKeeperServer

USER, PASSWORD = "lander", "aB3/+x9-secret"
_PROVIDER = "org.apache.zookeeper.server.auth.SASLAuthenticationProvider"
_LOGIN = "org.apache.zookeeper.server.auth.DigestLoginModule"


class SecuredZooKeeper(ZooKeeperServer):
    """``accepts_all``: whether clients without a login may have a session. ``client_auth``: none,
    or need for clients with a certificate only."""

    def __init__(
        self,
        authority: Authority,
        issued: Issued,
        *,
        accepts_all: bool = True,
        client_auth: str = "none",
        has_users: bool = True,
    ) -> None:
        super().__init__()
        self._authority = authority
        self._issued = issued
        self._accepts_all = accepts_all
        self._client_auth = client_auth
        self._has_users = has_users
        (self.tls_port,) = free_ports(1)

    @property
    def tls_address(self) -> str:
        return f"127.0.0.1:{self.tls_port}"

    def _settings(self, data: Path) -> dict[str, object]:
        secured: dict[str, object] = {
            "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
            "secureClientPort": self.tls_port,
            "secureClientPortAddress": "127.0.0.1",
            "ssl.keyStore.location": self._issued.both,
            "ssl.keyStore.type": "PEM",
            "ssl.trustStore.location": self._authority.ca,
            "ssl.trustStore.type": "PEM",
            "ssl.clientAuth": self._client_auth,
        }
        if self._has_users:
            secured["authProvider.1"] = _PROVIDER
        if not self._accepts_all:
            secured |= {"enforce.auth.enabled": "true", "enforce.auth.schemes": "sasl"}
        return super()._settings(data) | secured

    def _properties(self, folder: Path) -> dict[str, object]:
        properties = super()._properties(folder)
        if not self._has_users:
            return properties
        users = folder / "users.conf"
        users.write_text(f'Server {{ {_LOGIN} required user_{USER}="{PASSWORD}"; }};')
        return {**properties, "java.security.auth.login.config": users}

    def _answers(self) -> bool:
        if not is_listening(self.tls_port):
            return False
        return not self._accepts_all or super()._answers()
