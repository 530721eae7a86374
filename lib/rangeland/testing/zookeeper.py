"""kazoo's own client, for looking into a ZooKeeper without the code under test."""

from __future__ import annotations

import logging

from kazoo.client import KazooClient

# Servers that are down are normal here, so what the client logs about them is not shown.
_silent = logging.Logger("rangeland.testing.zookeeper", level=logging.CRITICAL)


class Visitor:
    """A client for one ``with`` block, at whose end its ephemeral nodes are gone. A ``session``,
    given by id and password, is taken over, and ends as well."""

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
