"""Saying who we are, before anything but ApiVersions is asked.

Upstream: SaslHandshakeRequest.json, SaslAuthenticateRequest.json and their responses. Brokers
before 1.0 know version 0 of the handshake alone, which is followed by frames that are tokens and
nothing else: ``BareToken``, answered as if it were a SaslAuthenticateRequest.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from rangeland.wire.encoding import Array, Bytes, Int16, Int64, String, message, since, struct


@struct
class SaslHandshakeResponse:
    """Source: SaslHandshakeResponse.json. With error 33 ``mechanisms`` says what there is."""

    error_code: Int16
    mechanisms: Array[String]


@message(key=17, versions=(0, 1), answer=SaslHandshakeResponse)
class SaslHandshakeRequest:
    """Source: SaslHandshakeRequest.json. Version 1 means that tokens go in SaslAuthenticate."""

    mechanism: String


@struct
class SaslAuthenticateResponse:
    """Source: SaslAuthenticateResponse.json. ``session_lifetime_ms`` 0: for good; otherwise the
    connection must say again who it is before that time is over."""

    error_code: Int16
    error_message: String | None = None
    auth_bytes: Bytes
    session_lifetime_ms: Int64 = since(1, default=0, ignorable=True)


@message(key=36, versions=(0, 2), flexible_from=2, answer=SaslAuthenticateResponse)
class SaslAuthenticateRequest:
    """Source: SaslAuthenticateRequest.json. ``auth_bytes`` are never to be printed."""

    auth_bytes: Bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class BareToken:
    """A frame of its own, without a header."""

    auth_bytes: bytes = field(repr=False)
