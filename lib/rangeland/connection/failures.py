"""Connections that are no good: what ``stream`` and ``broker`` raise, and others decide about."""

from __future__ import annotations

from rangeland.errors import Unreachable


class ConnectionLost(Unreachable):
    """This connection is no good: refused, broken, or silent for too long."""


class NoAnswer(ConnectionLost):
    """The peer has not answered in time."""


class NotABroker(ConnectionLost):
    """Whoever listens there speaks another protocol."""


class ConnectionClosed(ConnectionLost):
    """The peer closed the connection. ``is_unwelcome``: at the first request, after it had
    said that it is a broker, and nobody had logged in."""

    is_unwelcome = False


class TokenUnavailable(ConnectionLost):
    """Who we are cannot be told now: no token is to be had. It may be later."""
