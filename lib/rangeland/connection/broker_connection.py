"""One connection to one broker: version negotiation, login, requests and responses.

A new connection negotiates its version, logs in if the job says so, and repeats the login before
it expires. If a peer closes without a response, the connection is tried once more in another way,
plain or over TLS, to recognise mistakes (``diagnosis``). The socket itself belongs to
``socket_stream``. Once it is open, reconnecting and failing over are left to the callers.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Generator
from dataclasses import replace
from typing import Any, TypeVar

from rangeland.connection import diagnosis
from rangeland.connection.cluster_settings import ClusterSettings
from rangeland.connection.failures import (
    ConnectionClosed,
    ConnectionLost,
    NotABroker,
    ResponseTimedOut,
    TokenUnavailable,
)
from rangeland.connection.login_renewal import Authentication
from rangeland.connection.socket_stream import PROBE_MS, Stream, speaks_tls
from rangeland.dialects.cluster_values import LeaderRequest
from rangeland.dialects.dialect import Dialect
from rangeland.dialects.protocol_session import BrokerRequest
from rangeland.errors import (
    AccessDenied,
    JobFileError,
    RangelandError,
    RemoteProtocolError,
    Unreachable,
)
from rangeland.model import Address

__all__ = ["BrokerConnection", "ConnectionLost"]

E = TypeVar("E", bound=RangelandError)

OPENING_MS = 3_000
"""How long the negotiation may take before the broker is tested for being too old for one."""


class BrokerConnection:
    """One connection to one broker. It is connected and negotiated when constructed, and must not
    be used by several threads at once.

    Responses are returned in the order of the requests, whatever order they arrive in. After any
    error it is closed for good. ``reported_versions``: whether the broker reported its versions
    last time, if known; one that did and does not answer now is busy. ``was_served``: these
    settings have worked before, so a closed connection is not a refusal. ``answers_plainly``: this
    address has answered without TLS before, so TLS is not tried."""

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
        self.reports_versions = reported_versions is not False
        self.address = address
        self._settings = settings
        self._dialect = dialect
        self._is_probe = is_probe
        self._was_served = was_served
        self._may_want_tls = settings.tls is None and not is_probe and not answers_plainly
        self._is_known = self._has_responded = False
        sasl = settings.sasl
        self._authentication = (
            None if sasl is None else Authentication(sasl, settings.request_ms, address.host)
        )
        self._unanswered: deque[int] = deque()
        self._early: dict[int, Any] = {}
        self._session = dialect.open_session(settings.client_id)
        self._stream = self._connect()
        try:
            self._open(reported_versions)
            self._stream.take_large_frames()
            if self._authentication is not None:
                self._log_in_twice(self._authentication)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self._stream.close()

    def _connect(self) -> Stream:
        stream = Stream(self.address, self._settings)
        try:
            stream.shake_hands()
        except ConnectionLost as error:
            if self._answers_plainly():
                raise diagnosis.plain_port_error(self.address) from error
            raise
        return stream

    def _connect_again(self) -> None:
        self.close()
        self._stream = self._connect()

    # --- version negotiation -------------------------------------------------------------------

    def _open(self, reported: bool | None) -> None:
        try:
            self._open_with(reported)
        except RemoteProtocolError as error:
            raise self._not_a_broker_error(error) from error
        except ConnectionLost:
            raise
        except Unreachable as error:  # it answered with an error that may pass
            raise ConnectionLost.because_of(error) from error

    def _open_with(self, reported: bool | None) -> None:
        try:
            if reported is False:
                self._probe_versions()
            elif reported:
                self._negotiate()
            else:
                self._negotiate_or_probe()
        except ConnectionClosed as error:
            if self._may_want_tls and speaks_tls(self.address):
                raise diagnosis.tls_port_error(self.address) from error
            self._open_after_closing(error)

    def _negotiate(self, wait_ms: int | None = None) -> None:
        frame: bytes | None = self._session.open()
        self._is_known = bool(frame)
        wait_ms = wait_ms or self._settings.request_ms
        while frame:
            self._stream.send(frame)
            frame = self._session.take_negotiation(self._stream.receive(wait_ms))

    def _negotiate_or_probe(self) -> None:
        """Negotiates, and probes a broker that does not answer: it may be busy, or too old for the
        negotiation."""
        if self._settings.sasl is not None or self._is_probe:
            self._negotiate()
            return
        wait_ms = min(OPENING_MS, self._settings.request_ms)
        try:
            self._negotiate(wait_ms)
        except ResponseTimedOut:
            left_ms = max(self._settings.request_ms - wait_ms, wait_ms)
            self._connect_again()
            self._probe_versions(time.monotonic() + left_ms / 1000)

    def _probe_versions(self, deadline: float | None = None) -> None:
        """Finds out whether a broker knows the negotiation, without sending it: some that do not
        know it leave all later requests on the connection unanswered. Instead, it sends a request
        that brokers without the negotiation answer differently. Only brokers from 4.0 on close the
        connection at the oldest request."""
        self.reports_versions = True
        try:
            self._stream.send(self._session.skip_opening())
            self._session.decode(self._stream.receive(self._settings.request_ms, deadline))
            self._is_known = True
            self._stream.take_large_frames()
            self._stream.send(self._session.version_probe())
            response = self._stream.receive(self._settings.request_ms, deadline)
            if self._session.is_too_old(response):
                self.reports_versions = False
        except ConnectionClosed:
            self._connect_again()
        if self.reports_versions:
            self._session = self._dialect.open_session(self._settings.client_id)
            self._negotiate()

    def _open_after_closing(self, closed: ConnectionClosed) -> None:
        """Opens a connection again that the broker has closed: it may be too old for the
        negotiation, busy, or shutting down. However often it closes, it counts as old only if it
        answers as old ones do: if a new broker were taken for an old one, headers and times would
        be lost."""
        self.reports_versions = True
        if not self._session.skip_opening() or self._settings.sasl is not None:
            raise closed.with_words(do=diagnosis.SILENT_CLOSE)
        self._connect_again()
        try:
            self._probe_versions()
        except ConnectionClosed as error:
            raise error.with_words(do=diagnosis.SILENT_CLOSE) from closed

    # --- login ---------------------------------------------------------------------

    def _log_in_twice(self, authentication: Authentication) -> None:
        """Logs in, and once more if the broker closes the connection: some refuse a login that way.
        It counts as a refusal the second time at the same step; the first time, the broker may be
        shutting down."""
        try:
            self._log_in(authentication)
            return
        except AccessDenied as error:
            refusal, closed_at = error, error.closed_at
            if closed_at is None:
                raise
        self._session = self._dialect.open_session(self._settings.client_id)
        self._unanswered.clear()
        self._early.clear()
        self._is_known = self._has_responded = False
        self._connect_again()
        self._open(self.reports_versions)
        self._stream.take_large_frames()
        try:
            self._log_in(authentication)
        except AccessDenied as error:
            again_at = error.closed_at
            if again_at is None or (again_at == closed_at and not self._was_served):
                raise
            raise ConnectionClosed.because_of(error) from refusal

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
        """Logs in again. If no token is available, that can wait while the last login is valid."""
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
                    self._early[decoded[0]] = decoded[1]
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
            return self._not_a_broker_error(error)
        if length is None or length < 0:
            return self._at_broker(error)
        limit = self._settings.max_answer_bytes
        return JobFileError(
            f"{self.address} announced a response of {length} bytes",
            why=f"the limit is {limit}",
            do="raise source.max_answer_bytes if the topic has batches of that size; otherwise "
            "it is not a broker, or its data is damaged",
            broker=str(self.address),
            length=length,
            max_answer_bytes=limit,
        )

    def _closed_at_once_error(self, error: ConnectionClosed) -> RangelandError:
        """The peer closed at the very first request: usually it is the wrong port."""
        if not self._is_known and self._may_want_tls and speaks_tls(self.address):
            return diagnosis.tls_port_error(self.address)
        explained = error.with_words(do=diagnosis.SILENT_CLOSE)
        is_unwelcome = self._is_known and self._settings.sasl is None
        return explained.as_unwelcome() if is_unwelcome else explained

    def _not_a_broker_error(self, error: RemoteProtocolError) -> RangelandError:
        first = error.first_bytes
        if self._settings.tls is None and first[:2] in (b"\x15\x03", b"\x16\x03"):
            return diagnosis.tls_port_error(self.address)
        if first == b"HTTP":
            return diagnosis.http_port_error(self.address)
        return NotABroker(
            f"{self.address} does not answer like a broker",
            why="; ".join(part for part in (error.what, error.why) if part),
            do="check host, port and source.security",
            broker=str(self.address),
        )

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
