"""Failed connections: what ``socket_stream`` and ``broker_connection`` raise; callers decide."""

from __future__ import annotations

from typing import Self

from rangeland.errors import RangelandError, Unreachable


class ConnectionLost(Unreachable):
    """The connection failed: refused, broken, or without a response for too long."""

    @classmethod
    def because_of(cls, error: RangelandError) -> Self:
        """The failure that this error amounts to for a connection: its words and facts."""
        return cls(error.what, why=error.why, do=error.do, **error.facts)


class NoResponse(ConnectionLost):
    """The peer did not answer in time."""


class NotABroker(ConnectionLost):
    """The peer speaks another protocol."""


class ConnectionClosed(ConnectionLost):
    """The peer closed the connection. ``is_unwelcome``: at the first request, after it had
    answered as a broker, and without a login."""

    is_unwelcome = False

    def as_unwelcome(self) -> Self:
        return self._copy(is_unwelcome=True)


class TokenUnavailable(ConnectionLost):
    """A login is not possible now because no token is available. It may be later."""
