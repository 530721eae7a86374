"""The login of one connection: its credentials, how long it is valid, when it is due again.

There is no socket here. An unavailable token is not a mistake in the job. At the first login, only
this connection fails, and it is retried like any other; later, the token is requested again while
the last login is valid. A login is repeated between two requests, before it expires: a Kafka broker
closes an expired connection only at its next request.
"""

from __future__ import annotations

import time

from rangeland.cluster_settings import SaslSettings
from rangeland.connection.failures import TokenUnavailable
from rangeland.connection.kerberos_login import KerberosLogin
from rangeland.connection.tokens import fetch_token, forget_token
from rangeland.dialects.protocol_session import Credentials
from rangeland.errors import Unreachable

# The login is repeated after this fraction of its lifetime.
RENEW_AT = 0.85
RENEW_PAUSE_S = 5.0
"""The pause before an unavailable token is requested again, while the last login is valid."""


class Authentication:
    """The login of one connection."""

    def __init__(self, sasl: SaslSettings, wait_ms: int, host: str) -> None:
        self._sasl = sasl
        self._host = host
        self._wait_ms = wait_ms
        self._renew_at: float | None = None
        self._ends_at: float | None = None

    @property
    def is_due(self) -> bool:
        """Whether the login must be repeated."""
        return self._renew_at is not None and time.monotonic() >= self._renew_at

    def credentials(self) -> Credentials:
        """The credentials for the next login, which is then not due again before ``on_accepted``.
        Raises TokenUnavailable."""
        sasl = self._sasl
        token = ""
        if sasl.token is not None:
            wait_ms = self._wait_ms
            if self._ends_at is not None:  # the current login must not expire meanwhile
                left_ms = int((self._ends_at - time.monotonic()) * 1000 / 2)
                wait_ms = max(1, min(wait_ms, left_ms))
            try:
                token = fetch_token(sasl.token, wait_ms, refresh=self._ends_at is not None)
            except Unreachable as error:
                raise TokenUnavailable.because_of(error) from error
        self._renew_at = None
        return Credentials(
            sasl.mechanism,
            sasl.username,
            sasl.password,
            token,
            sasl.extensions,
            sasl.is_delegated,
            None if sasl.kerberos is None else KerberosLogin(sasl.kerberos, self._host),
        )

    def on_accepted(self, lifetime_ms: int | None) -> None:
        """Schedules the renewal of a login that is valid for this long; None or 0: forever."""
        if lifetime_ms is not None and lifetime_ms > 0:
            now = time.monotonic()
            self._renew_at = now + lifetime_ms * RENEW_AT / 1000
            self._ends_at = now + lifetime_ms / 1000

    def postpone(self) -> bool:
        """Postpones the next login, since no token is available now. False if there is no time to
        try again."""
        now = time.monotonic()
        end = self._ends_at or 0.0
        later = now + min(RENEW_PAUSE_S, (end - now) / 4)
        if end <= now or later >= end:
            return False
        self._renew_at = later
        return True

    def forget(self) -> None:
        """The login was refused: its token is not used again."""
        if self._sasl.token is not None:
            forget_token(self._sasl.token)
