"""Our own parts of a kazoo session: sockets and threads, credentials, and its log."""

from __future__ import annotations

import logging
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

from kazoo.exceptions import (
    AuthFailedError,
    ConnectionDropped,
    SASLException,
    SessionClosedRequireSaslError,
)
from kazoo.handlers.threading import SequentialThreadingHandler

from rangeland.connection.tls import tls_context
from rangeland.connection.tls_probe import connect_with_tls
from rangeland.errors import MissingRequirement
from rangeland.zookeeper.zookeeper_access import SECTION, ZooKeeperAccess, ZooKeeperLogin


class KazooHandler(SequentialThreadingHandler):  # type: ignore[misc]  # kazoo has no types
    """Gives up on a server within ``limit_s``, early enough to try it again or to try the others:
    kazoo waits for each server as long as a session lasts, and by then the session is gone.
    ZooKeeper 3.9.3 neither answers nor closes a connection that it accepted while it was starting.

    TLS is ours too: kazoo would also trust the system's certificate authorities. And if a server
    ends a session because of the login, kazoo's thread would end with an error that nobody catches.
    """

    def __init__(
        self, limit_s: float, access: ZooKeeperAccess, on_failed_login: Callable[[], None]
    ) -> None:
        super().__init__()
        self._limit_s = limit_s
        self._tls = None if access.tls is None else tls_context(access.tls, f"{SECTION}.tls")
        self._on_failed_login = on_failed_login
        self._is_in_session = False

    def create_connection(self, *args: Any, timeout: float, **kwargs: Any) -> Any:
        limit_s = min(timeout, self._limit_s)
        self._is_in_session = False
        if self._tls is None:
            return super().create_connection(*args, timeout=limit_s, **kwargs)
        return connect_with_tls(kwargs["address"], kwargs["hostname"], self._tls, limit_s)

    def session_began(self) -> None:
        """Notes that the session has begun: from here on, kazoo's own limits apply."""
        self._is_in_session = True

    def select(self, *args: Any) -> Any:
        """Until a session has begun, waits no longer than our limit. The last of ``args`` is
        kazoo's own limit, in seconds."""
        *sockets, limit_s = args
        within_s = limit_s if self._is_in_session else min(limit_s, self._limit_s)
        return super().select(*sockets, within_s)

    def spawn(self, func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        def run(*run_args: Any, **run_kwargs: Any) -> None:
            try:
                func(*run_args, **run_kwargs)
            except (SessionClosedRequireSaslError, SASLException):
                self._on_failed_login()

        return super().spawn(run, *args, **kwargs)


def credentials(login: ZooKeeperLogin | None) -> dict[str, Any]:
    """The credentials in the form that kazoo takes. Raises MissingRequirement if the package that
    SASL needs is missing."""
    if login is None:
        return {}
    if not login.uses_sasl:
        return {"auth_data": {("digest", f"{login.username}:{login.password}")}}
    if find_spec("puresasl") is None:
        raise MissingRequirement(
            "SASL to a ZooKeeper needs the package pure-sasl, which this Python does not have",
            do="run pip install 'rangeland[zookeeper]' for the driver's Python",
        )
    user = {"username": login.username, "password": login.password}
    return {"sasl_options": {"mechanism": "DIGEST-MD5", **user}}


class LastKazooMessage(logging.Handler):
    """Keeps kazoo's last message about its connection, and prints nothing. ``login_was_cut``: the
    connection was closed during the login, without a response."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.last = ""
        self.login_was_cut = False
        self.logger = logging.Logger("kazoo of one session", logging.WARNING)
        self.logger.addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        for failed in record.args if isinstance(record.args, tuple) else ():
            if isinstance(failed, AuthFailedError):
                self.login_was_cut = isinstance(failed.__cause__, ConnectionDropped)
        message = record.getMessage()
        if message.startswith(("Connection", "Cannot resolve")):
            self.last = message[:1].lower() + message[1:]
