"""Failed connections: what ``socket_stream`` and ``broker_connection`` raise; callers decide."""

from __future__ import annotations

from typing import Any

from rangeland.errors import Unreachable


class ConnectionLost(Unreachable):
    """The connection failed: refused, broken, or without a response for too long."""


class NoResponse(ConnectionLost):
    """The peer did not answer in time."""


class NotABroker(ConnectionLost):
    """The peer speaks another protocol."""


class ConnectionClosed(ConnectionLost):
    """The peer closed the connection. ``is_unwelcome``: at the first request, after it had
    answered as a broker, and without a login."""

    VALUES = (*ConnectionLost.VALUES, "is_unwelcome")

    def __init__(self, what: str, *, is_unwelcome: bool = False, **others: Any) -> None:
        super().__init__(what, **others)
        self.is_unwelcome = is_unwelcome

    @property
    def facts(self) -> dict[str, Any]:
        return {name: fact for name, fact in super().facts.items() if name != "is_unwelcome"}


class TokenUnavailable(ConnectionLost):
    """A login is not possible now because no token is available. It may be later."""
