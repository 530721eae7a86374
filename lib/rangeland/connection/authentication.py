"""Who we are towards one connection: what proves it, how long that holds, when it is due again.

No socket here. A token that cannot be had is no mistake of the job: at first it costs this one
connection, which is tried again as any other; later it is asked for again, as long as what was
said last still holds.
"""

from __future__ import annotations

import time

from rangeland.connection.cluster_settings import SaslSettings
from rangeland.connection.failures import TokenUnavailable
from rangeland.connection.tokens import fetch_token, forget_token
from rangeland.dialects.protocol_session import Credentials
from rangeland.errors import Unreachable

# Who we are is told again when this much of the time is over for which it holds.
RENEW_AT = 0.85
RENEW_PAUSE_S = 5.0
"""Before a token that could not be had is asked for again, while the last one holds."""


class Authentication:
    """Of one connection."""

    def __init__(self, sasl: SaslSettings, wait_ms: int) -> None:
        self._sasl = sasl
        self._wait_ms = wait_ms
        self._renew_at: float | None = None
        self._ends_at: float | None = None

    @property
    def is_due(self) -> bool:
        """Whether it must be said again."""
        return self._renew_at is not None and time.monotonic() >= self._renew_at

    def credentials(self) -> Credentials:
        """What to say. It is not due until it ``holds`` again. Raises Tokenless."""
        sasl, token = self._sasl, ""
        if sasl.token is not None:
            wait_ms = self._wait_ms
            if self._ends_at is not None:  # what holds still is not to end meanwhile
                left_ms = int((self._ends_at - time.monotonic()) * 1000 / 2)
                wait_ms = max(1, min(wait_ms, left_ms))
            try:
                token = fetch_token(sasl.token, wait_ms, anew=self._ends_at is not None)
            except Unreachable as error:
                raise TokenUnavailable(
                    error.what, why=error.why, do=error.do, **error.facts
                ) from error
        self._renew_at = None
        return Credentials(sasl.mechanism, sasl.username, sasl.password, token, sasl.extensions)

    def holds(self, lifetime_ms: int | None) -> None:
        """It was taken, for that time; None or 0: for good."""
        if lifetime_ms is not None and lifetime_ms > 0:
            now = time.monotonic()
            self._renew_at = now + lifetime_ms * RENEW_AT / 1000
            self._ends_at = now + lifetime_ms / 1000

    def put_off(self) -> bool:
        """It could not be said now. Whether there is time to try it again later."""
        now, end = time.monotonic(), self._ends_at or 0.0
        later = now + min(RENEW_PAUSE_S, (end - now) / 4)
        if end <= now or later >= end:
            return False
        self._renew_at = later
        return True

    def forget(self) -> None:
        """It was refused."""
        if self._sasl.token is not None:
            forget_token(self._sasl.token)
