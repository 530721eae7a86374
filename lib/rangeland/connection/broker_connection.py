"""One connection to one broker: opening it, logging in, sending requests and receiving responses.

While it is being opened, ``opening`` decides what is sent, what a closed connection or a timeout
proves, and when to connect again, plain or over TLS, to recognise a mistake. Once it is open, the
login is repeated before it expires; reconnecting and failover are left to the callers. The socket
itself belongs to ``socket_stream``.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Generator
from dataclasses import replace
from typing import Any, TypeVar

from rangeland.cluster_settings import ClusterSettings
from rangeland.connection import diagnosis
from rangeland.connection.failures import (
    ClientUnwelcome,
    ConnectionClosed,
    ConnectionLost,
    TokenUnavailable,
)
from rangeland.connection.login_renewal import Authentication
from rangeland.connection.opening import (
    ConnectAgain,
    FailOpening,
    FinishOpening,
    Opening,
    OpeningStep,
    SendOpening,
    StartLogin,
    TryTls,
    first_phase,
)
from rangeland.connection.socket_stream import PROBE_MS, Stream, speaks_tls
from rangeland.dialects.cluster_values import LeaderRequest
from rangeland.dialects.dialect import Dialect
from rangeland.dialects.protocol_session import BrokerRequest, LoginClosed
from rangeland.errors import JobFileError, RangelandError, RemoteProtocolError
from rangeland.model import Address

__all__ = ["BrokerConnection", "ConnectionLost"]

E = TypeVar("E", bound=RangelandError)

OPENING_MS = 3_000
"""How long an unknown broker may take to report its versions. After that it is probed, since it may
be too old to report them."""


class BrokerConnection:
    """One connection to one broker. It is open once constructed, and must not be used by several
    threads at once.

    Responses are returned in the order of the requests, whatever order they arrive in. After any
    error, the connection is closed for good. ``reported_versions``: whether the broker reported its
    versions last time, if known; if it did and does not answer now, it is busy. ``was_served``:
    these settings have worked before, so a closed connection is not a refusal. ``answers_plainly``:
    this address has answered without TLS before, so TLS is not tried."""

    def __init__(
        self,
        address: Address,
        dialect: Dialect,
        settings: ClusterSettings,
        *,
        is_probe: bool = False,
        reported_versions: bool | None = None,
        was_served: bool = False,
        answers_plainly: bool = False,
    ) -> None:
        self.address = address
        self._settings = settings
        self._dialect = dialect
        self._may_want_tls = settings.tls is None and not is_probe and not answers_plainly
        sasl = settings.sasl
        self._authentication = (
            None if sasl is None else Authentication(sasl, settings.request_ms, address.host)
        )
        self._unanswered: deque[int] = deque()
        self._early: dict[int, Any] = {}
        opening = Opening(
            address,
            dialect,
            settings,
            first_phase(reported_versions, may_be_old=sasl is None and not is_probe),
            brief_ms=OPENING_MS,
            may_want_tls=self._may_want_tls,
            was_served=was_served,
        )
        self._stream = self._connect()
        try:
            self._open(opening)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self._stream.close()

    def _connect(self) -> Stream:
        stream = Stream(self.address, self._settings)
        try:
            stream.start_tls()
        except ConnectionLost as error:
            if self._answers_plainly():
                raise diagnosis.plain_port_error(self.address) from error
            raise
        return stream

    # --- opening -------------------------------------------------------------------------------

    def _open(self, opening: Opening) -> None:
        step = opening.on_connected(time.monotonic())
        while not isinstance(step, FinishOpening):
            match step:
                case SendOpening():
                    step = self._send_opening(opening, step)
                case ConnectAgain():
                    step = self._connect_again(opening)
                case TryTls():
                    step = opening.on_tls_tried(speaks_tls=speaks_tls(self.address))
                case StartLogin():
                    step = self._start_login(opening, step)
                case FailOpening():
                    raise step.error from step.cause
        self.reports_versions = opening.reports_versions

    def _send_opening(self, opening: Opening, step: SendOpening) -> OpeningStep:
        if step.is_large:
            self._stream.take_large_frames()
        try:
            self._stream.send(step.data)
            return opening.on_response(self._stream.receive(step.wait_ms, step.deadline))
        except RangelandError as error:
            return opening.on_failure(error)

    def _connect_again(self, opening: Opening) -> OpeningStep:
        self.close()
        try:
            self._stream = self._connect()
        except ConnectionClosed as error:
            return opening.on_closed_early(error)
        return opening.on_connected(time.monotonic())

    def _start_login(self, opening: Opening, step: StartLogin) -> OpeningStep:
        self._session = step.session
        self._is_known = step.is_known
        self._has_responded = False
        self._unanswered.clear()
        self._early.clear()
        self._stream.take_large_frames()
        try:
            if self._authentication is not None:
                self._log_in(self._authentication)
        except LoginClosed as error:
            return opening.on_login_closed(error)
        return opening.on_logged_in()

    # --- login ---------------------------------------------------------------------

    def _log_in(self, authentication: Authentication) -> None:
        """Raises AccessDenied if the login is refused, ConnectionLost if the connection breaks or
        no token is available now."""
        exchange = self._dialect.login(authentication.credentials())
        try:
            authentication.on_accepted(self._converse(exchange))
        except RangelandError as error:
            authentication.forget()
            raise self._at_broker(error) from error.__cause__

    def _renew(self, authentication: Authentication) -> None:
        """Logs in again. If no token is available, this can wait while the last login is valid."""
        try:
            self._log_in(authentication)
        except TokenUnavailable:
            if not authentication.postpone():
                self.close()
                raise

    def _converse(self, exchange: Generator[BrokerRequest, Any, int | None]) -> int | None:
        try:
            step = next(exchange)
            while True:
                try:
                    response = self.call(step)
                except RangelandError as error:
                    step = exchange.throw(error)
                else:
                    step = exchange.send(response)
        except StopIteration as done:
            lifetime_ms: int | None = done.value
            return lifetime_ms

    # --- requests and responses --------------------------------------------------------

    def call(self, request: BrokerRequest) -> Any:
        """Sends and waits. Raises ConnectionLost, or RemoteProtocolError for invalid bytes."""
        self.send(request)
        return self.receive(request.wait_ms)

    def send(self, request: BrokerRequest) -> None:
        """Sends without waiting for the response, which ``receive`` returns later. Logs in again
        first if the login is about to expire."""
        if (
            self._authentication is not None
            and self._authentication.is_due
            and not self._unanswered
        ):
            self._renew(self._authentication)
        request_id, data = self._session.encode(request.message, request.max_version)
        self._stream.send(data)
        self._unanswered.append(request_id)

    def receive(self, wait_ms: int | None = None) -> Any:
        """The response to the oldest open request. Waits for ``request_ms``, or for ``wait_ms`` if
        that is longer."""
        request_id = self._unanswered.popleft()
        try:
            wait_ms = max(self._settings.request_ms, wait_ms or 0)
            deadline = time.monotonic() + wait_ms / 1000
            while request_id not in self._early:
                decoded = self._session.decode(self._stream.receive(wait_ms, deadline))
                if decoded is not None:
                    self._early.update([decoded, *self._session.also_completed()])
                elif due := self._session.due():
                    self._stream.send(due)
        except RangelandError as error:
            self.close()
            if isinstance(error, RemoteProtocolError):
                raise self._invalid_response_error(error) from error
            if isinstance(error, ConnectionClosed) and not self._has_responded:
                raise self._closed_at_once_error(error) from error
            raise self._at_broker(error) from error.__cause__
        self._is_known = self._has_responded = True
        return self._early.pop(request_id)

    def _at_broker(self, error: E) -> E:
        """The error with this broker as a fact, unless it names one."""
        return error.with_facts(**{"broker": str(self.address), **error.facts})

    def _invalid_response_error(self, error: RemoteProtocolError) -> RangelandError:
        length = error.length
        if not self._is_known:
            return diagnosis.not_a_broker_error(self.address, error, self._settings.tls)
        if length is None or length < 0:
            return self._at_broker(error)
        limit = self._settings.max_answer_bytes
        return JobFileError(
            f"{self.address} announced a response of {length} bytes",
            why=f"source.max_answer_bytes allows {limit}",
            do=f"set source.max_answer_bytes to {length} or more if the topic has batches of that "
            "size; if it does not, the response was damaged on the way: run again",
            broker=str(self.address),
            length=length,
            max_answer_bytes=limit,
        )

    def _closed_at_once_error(self, error: ConnectionClosed) -> RangelandError:
        """The error if the peer closed the connection at the very first request: usually, the port
        is wrong."""
        if not self._is_known and self._may_want_tls and speaks_tls(self.address):
            return diagnosis.tls_port_error(self.address)
        explained = error.with_words(do=diagnosis.SILENT_CLOSE)
        is_unwelcome = self._is_known and self._settings.sasl is None
        return ClientUnwelcome.because_of(explained) if is_unwelcome else explained

    # --- wrong ports ------------------------------------------------------------

    def _answers_plainly(self) -> bool:
        """Whether a broker answers there without TLS. No credentials are sent."""
        wait_ms = min(PROBE_MS, self._settings.request_ms)
        bare = replace(self._settings, tls=None, sasl=None, connect_ms=wait_ms, request_ms=wait_ms)
        try:
            probe = BrokerConnection(self.address, self._dialect, bare, is_probe=True)
            try:
                if not probe._is_known:
                    search = self._dialect.find_leaders([], (self.address,), {})
                    request: LeaderRequest = next(search)
                    probe.call(request.requests[0])
                return True
            finally:
                probe.close()
        except (RangelandError, StopIteration):
            return False
