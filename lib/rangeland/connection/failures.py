"""Failures of connections, which ``socket_stream`` and ``broker_connection`` raise."""

from __future__ import annotations

from typing import Self

from rangeland.dialects.protocol_session import PeerClosed
from rangeland.errors import RangelandError, Unreachable


class ConnectionLost(Unreachable):
    """The connection was refused, broke, or received no response for too long."""

    @classmethod
    def because_of(cls, error: RangelandError) -> Self:
        """A failure of the connection with the words and facts of this error."""
        return cls(error.what, why=error.why, do=error.do, **error.facts)


class ResponseTimedOut(ConnectionLost):
    """The peer did not answer in time."""


class NotABroker(ConnectionLost):
    """The peer speaks another protocol."""


class ConnectionClosed(ConnectionLost, PeerClosed):
    """The peer closed the connection."""


class ClientUnwelcome(ConnectionClosed):
    """The peer closed the connection at the first request without a login, although it had answered
    as a broker before."""


class TokenUnavailable(ConnectionLost):
    """A login is not possible now because no token is available. It may be later."""
