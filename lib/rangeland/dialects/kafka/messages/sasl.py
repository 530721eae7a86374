"""SASL authentication, which precedes all requests except ApiVersions.

Brokers before 1.0 know only version 0 of the handshake, which is followed by frames that contain
nothing but a token: ``BareToken``, whose response is decoded as a SaslAuthenticateResponse.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from rangeland.wire.declarations import *


@struct
class SaslHandshakeResponse:
    """``mechanisms`` lists those that the broker supports, even with error 33."""

    error_code: Int16
    mechanisms: Array[String]


@message(key=17, versions=(0, 1), response=SaslHandshakeResponse)
class SaslHandshakeRequest:
    """After a handshake in version 1, tokens are sent in SaslAuthenticate."""

    mechanism: String


@struct
class SaslAuthenticateResponse:
    """``session_lifetime_ms`` 0: unlimited; otherwise the connection must authenticate again within
    that time."""

    error_code: Int16
    error_message: String | None = None
    auth_bytes: Bytes
    session_lifetime_ms: Int64 = since(1, default=0, ignorable=True)


@message(key=36, versions=(0, 2), flexible_from=2, response=SaslAuthenticateResponse)
class SaslAuthenticateRequest:
    """``auth_bytes`` must never be printed."""

    auth_bytes: Bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class BareToken:
    """A frame without a header."""

    auth_bytes: bytes = field(repr=False)
