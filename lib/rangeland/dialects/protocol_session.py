"""One connection to a broker, without its socket: the requests, and the frames that carry them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any, Protocol

from rangeland.errors import AccessDenied, LocalProtocolError, RemoteProtocolError, Unreachable


@dataclass(frozen=True, slots=True)
class BrokerRequest:
    """A message to send. ``max_version`` is the highest version that may be used for it.
    ``wait_ms`` is how long its response may take, if that is longer than usual."""

    message: Any
    max_version: int | None = None
    wait_ms: int | None = None


class NoCommonVersion(RemoteProtocolError):
    """There is no version of a request that both the broker and this library support."""


class UnsupportedRequest(NoCommonVersion):
    """The broker does not know the request at all."""


class PeerClosed(Unreachable):
    """The peer closed the connection: a login may get this instead of a response."""


class LoginClosed(AccessDenied):
    """The peer closed the connection at this ``step`` of a login. It may do so because it refuses
    the login or because it is shutting down, so a refusal is certain only if it happens twice."""

    def __init__(
        self, what: str, *, step: int, why: str = "", do: str = "", **answers_and_facts: Any
    ) -> None:
        super().__init__(what, why=why, do=do, **answers_and_facts)
        self.step = step

    @property
    def facts(self) -> dict[str, Any]:
        return super().facts | {"closed_at": self.step}


class KerberosContext(Protocol):
    """The client's side of a single Kerberos login."""

    @property
    def who(self) -> str:
        """The name of the client that is logging in, for messages."""

    @property
    def is_complete(self) -> bool:
        """Whether both sides have proved their identity."""

    @property
    def first_token(self) -> bytes:
        """The token that begins the login."""

    def step(self, challenge: bytes) -> bytes:
        """Takes the broker's token and returns the next one, which may be empty."""

    def unwrap(self, message: bytes) -> bytes:
        """Unwraps a message that the broker has signed."""

    def wrap(self, message: bytes) -> bytes:
        """Wraps a message: it is signed but not encrypted."""


@dataclass(frozen=True, slots=True)
class Credentials:
    """The credentials for a login. Depending on the mechanism: ``username`` and ``password``, a
    ``token`` with ``extensions``, or a ``kerberos`` context. ``is_delegated``: name and password
    are a Kafka delegation token."""

    mechanism: str
    username: str = ""
    password: str = field(default="", repr=False)
    token: str = field(default="", repr=False)
    extensions: tuple[tuple[str, str], ...] = ()
    is_delegated: bool = False
    kerberos: KerberosContext | None = None


def unmatched_response_error(why: str, **facts: Any) -> RemoteProtocolError:
    """The error for a response that matches no request of its connection."""
    return RemoteProtocolError(
        "a response arrived that belongs to no request",
        why=why,
        do="run again; if it happens again, check the version of the broker",
        **facts,
    )


class ProtocolSession(ABC):
    """The state of one connection, without its socket. The defaults suit a protocol that has no
    opening and that all versions of its peers speak alike."""

    def open(self) -> bytes:
        """The first frame to send, before any request; empty if the protocol does not need one."""
        return b""

    def take_negotiation(self, response: memoryview) -> bytes | None:
        """Takes the response to the last opening frame. Returns the next frame, or None once the
        session is open."""
        raise LocalProtocolError("this protocol has no opening, so nothing can answer one")

    def skip_opening(self) -> bytes:
        """Call this if the peer closed the connection instead of answering the opening: from then
        on, the session uses the oldest versions. Returns a frame that such a peer answers and that
        has no effect; empty if the protocol has no opening."""
        return b""

    def version_probe(self) -> bytes:
        """A frame that peers of every version answer, though those that do not know the opening
        answer it differently; empty if the protocol has none."""
        return b""

    def is_too_old(self, response: memoryview) -> bool:
        """Takes the response to ``version_probe``. True: the peer does not know the opening."""
        raise LocalProtocolError("this protocol has no version probe, so nothing can answer one")

    @abstractmethod
    def encode(self, request: Any, max_version: int | None = None) -> tuple[int, bytes]:
        """The id that the response will carry, and a complete frame."""

    @abstractmethod
    def decode(self, response: memoryview) -> tuple[int, Any] | None:
        """The id and the response that this frame completes, perhaps with others
        (``also_completed``); responses may come in any order. None if more frames are needed, or if
        this frame is not a response. Raises RemoteProtocolError for a response that belongs to no
        request: then close the connection, since later responses cannot be matched either."""

    def also_completed(self) -> list[tuple[int, Any]]:
        """The other messages that the last frame has completed, if one may complete several: each
        with its id and its response."""
        return []

    def due(self) -> bytes:
        """A frame to send before waiting any longer; empty if there is none."""
        return b""
