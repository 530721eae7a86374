"""The opening of a connection, as a table of what each answer, timeout or disconnection proves.

There is no socket and no clock here: ``BrokerConnection`` carries out the steps, and reports their
results. A broker is first asked for its versions (the negotiation). Kafka 0.8 responds by closing
the connection; 0.9 answers neither this request nor anything sent after it on that connection. A
busy broker, a broker that is shutting down, and another service may do either. A broker counts as
old only if it answers as old brokers do: if a new one were taken for an old one, headers and times
would be lost. To find out, it is sent the oldest request, at which only brokers from 4.0 on close
the connection, and then the version probe, which old brokers answer differently.

A phase is named after what is done in it. After an answer, the next phase continues on the same
connection; after a timeout or a closed connection, it uses a new one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from rangeland.cluster_settings import ClusterSettings
from rangeland.connection import diagnosis
from rangeland.connection.failures import ConnectionClosed, ConnectionLost, ResponseTimedOut
from rangeland.dialects.dialect import Dialect
from rangeland.dialects.protocol_session import LoginClosed, ProtocolSession
from rangeland.errors import Bug, RangelandError, RemoteProtocolError, Unreachable
from rangeland.model import Address


class OpeningPhase(Enum):
    NEGOTIATING_BRIEFLY = "negotiating, with a short wait"
    NEGOTIATING = "negotiating"
    SENDING_OLDEST = "sending the oldest request"
    PROBING = "sending the version probe"
    TRYING_TLS = "finding out whether the port speaks TLS"
    SENDING_OLDEST_AGAIN = "sending the oldest request, after a close"
    PROBING_AGAIN = "sending the version probe, after a close"
    NEGOTIATING_AGAIN = "negotiating for the last time, after a close"
    LOGGING_IN = "logging in, if the job has a login"
    RETURNING = "negotiating, after a close during the login"
    LOGGING_IN_AGAIN = "logging in, after a close during the login"
    OPEN = "open"
    FAILED = "failed, with the error as it is"
    WANTS_TLS = "failed: the port speaks TLS, but the job does not"
    UNEXPLAINED = "failed: it closes every connection; the port may be wrong"
    LOST = "failed: it closed the connection during both logins, and may be shutting down"


class _OpeningEvent(Enum):
    NEGOTIATED = "it reports its versions, or its protocol has no negotiation"
    ANSWERED = "it answers the oldest request"
    IS_OLD = "it answers the version probe as brokers do that do not know the negotiation"
    IS_NEW = "it answers the version probe as brokers do that know the negotiation"
    SILENT = "it does not answer in time"
    CLOSED = "it closes the connection in response"
    CLOSED_EARLY = "it closes a new connection before anything is sent"
    SPEAKS_TLS = "TLS explains the close: the port speaks it, and the job does not"
    NO_TLS = "TLS does not explain the close"
    NO_TLS_BUT_LOGIN = (
        "TLS does not explain the close, and an old broker would not help: the job has a login, "
        "which needs the negotiation"
    )
    LOGGED_IN = "it accepts the login, or the job has none"
    LOGIN_CLOSED = "it closes the connection during the login"
    LOGIN_REFUSED = (
        "it closes the connection at the same step of the login again, and has never served this "
        "job"
    )


_TABLE: Final[Mapping[OpeningPhase, Mapping[_OpeningEvent, OpeningPhase]]] = {
    OpeningPhase.NEGOTIATING_BRIEFLY: {
        _OpeningEvent.NEGOTIATED: OpeningPhase.LOGGING_IN,
        _OpeningEvent.SILENT: OpeningPhase.SENDING_OLDEST,  # busy, or 0.9
        _OpeningEvent.CLOSED: OpeningPhase.TRYING_TLS,  # busy, shutting down, 0.8, or no broker
    },
    OpeningPhase.NEGOTIATING: {
        _OpeningEvent.NEGOTIATED: OpeningPhase.LOGGING_IN,
        _OpeningEvent.SILENT: OpeningPhase.FAILED,  # busy, or too old for the job's login
        _OpeningEvent.CLOSED: OpeningPhase.TRYING_TLS,
        _OpeningEvent.CLOSED_EARLY: OpeningPhase.TRYING_TLS,
    },
    OpeningPhase.SENDING_OLDEST: {
        _OpeningEvent.ANSWERED: OpeningPhase.PROBING,
        _OpeningEvent.SILENT: OpeningPhase.FAILED,  # busy
        _OpeningEvent.CLOSED: OpeningPhase.NEGOTIATING,  # busy, shutting down, or 4.0 and later
        _OpeningEvent.CLOSED_EARLY: OpeningPhase.TRYING_TLS,
    },
    OpeningPhase.PROBING: {
        _OpeningEvent.IS_OLD: OpeningPhase.LOGGING_IN,
        _OpeningEvent.IS_NEW: OpeningPhase.NEGOTIATING,
        _OpeningEvent.SILENT: OpeningPhase.FAILED,
        _OpeningEvent.CLOSED: OpeningPhase.NEGOTIATING,
    },
    OpeningPhase.TRYING_TLS: {
        _OpeningEvent.SPEAKS_TLS: OpeningPhase.WANTS_TLS,
        _OpeningEvent.NO_TLS: OpeningPhase.SENDING_OLDEST_AGAIN,
        _OpeningEvent.NO_TLS_BUT_LOGIN: OpeningPhase.UNEXPLAINED,
    },
    OpeningPhase.SENDING_OLDEST_AGAIN: {
        _OpeningEvent.ANSWERED: OpeningPhase.PROBING_AGAIN,
        _OpeningEvent.SILENT: OpeningPhase.FAILED,
        _OpeningEvent.CLOSED: OpeningPhase.NEGOTIATING_AGAIN,
        _OpeningEvent.CLOSED_EARLY: OpeningPhase.FAILED,
    },
    OpeningPhase.PROBING_AGAIN: {
        _OpeningEvent.IS_OLD: OpeningPhase.LOGGING_IN,
        _OpeningEvent.IS_NEW: OpeningPhase.NEGOTIATING_AGAIN,
        _OpeningEvent.SILENT: OpeningPhase.FAILED,
        _OpeningEvent.CLOSED: OpeningPhase.NEGOTIATING_AGAIN,
    },
    OpeningPhase.NEGOTIATING_AGAIN: {
        _OpeningEvent.NEGOTIATED: OpeningPhase.LOGGING_IN,
        _OpeningEvent.SILENT: OpeningPhase.FAILED,
        _OpeningEvent.CLOSED: OpeningPhase.UNEXPLAINED,
        _OpeningEvent.CLOSED_EARLY: OpeningPhase.UNEXPLAINED,
    },
    OpeningPhase.LOGGING_IN: {
        _OpeningEvent.LOGGED_IN: OpeningPhase.OPEN,
        _OpeningEvent.LOGIN_CLOSED: OpeningPhase.RETURNING,  # shutting down, or a refusal
    },
    OpeningPhase.RETURNING: {
        _OpeningEvent.NEGOTIATED: OpeningPhase.LOGGING_IN_AGAIN,
        _OpeningEvent.SILENT: OpeningPhase.FAILED,
        _OpeningEvent.CLOSED: OpeningPhase.TRYING_TLS,
        _OpeningEvent.CLOSED_EARLY: OpeningPhase.FAILED,
    },
    OpeningPhase.LOGGING_IN_AGAIN: {
        _OpeningEvent.LOGGED_IN: OpeningPhase.OPEN,
        _OpeningEvent.LOGIN_CLOSED: OpeningPhase.LOST,
        _OpeningEvent.LOGIN_REFUSED: OpeningPhase.FAILED,  # the error is the refusal
    },
}
"""An event that a phase does not list cannot happen in it: it is a ``Bug``."""
_SENDING_OLDEST = (OpeningPhase.SENDING_OLDEST, OpeningPhase.SENDING_OLDEST_AGAIN)
_PROBING = (OpeningPhase.PROBING, OpeningPhase.PROBING_AGAIN)


@dataclass(frozen=True, slots=True)
class SendOpening:
    """Send this and receive a frame, within ``wait_ms`` or before ``deadline``. ``is_large``: the
    frame may be as large as the job allows, since the peer has answered as a broker."""

    data: bytes
    wait_ms: int
    deadline: float | None = None
    is_large: bool = False


@dataclass(frozen=True, slots=True)
class ConnectAgain:
    """Make a new connection in place of this one."""


@dataclass(frozen=True, slots=True)
class TryTls:
    """Find out whether the port speaks TLS, which would explain why it closes connections."""


@dataclass(frozen=True, slots=True)
class StartLogin:
    """Log in, if the job has a login; requests are sent with this session from now on.
    ``is_known``: the peer has answered as a broker."""

    session: ProtocolSession
    is_known: bool


@dataclass(frozen=True, slots=True)
class FinishOpening:
    """The connection is open."""


@dataclass(frozen=True, slots=True)
class FailOpening:
    """The connection cannot be opened."""

    error: RangelandError
    cause: BaseException | None


OpeningStep = SendOpening | ConnectAgain | TryTls | StartLogin | FinishOpening | FailOpening


def first_phase(reported_versions: bool | None, *, may_be_old: bool) -> OpeningPhase:
    """``reported_versions``: whether the broker reported its versions last time, if known."""
    if reported_versions is False:
        return OpeningPhase.SENDING_OLDEST
    if reported_versions or not may_be_old:
        return OpeningPhase.NEGOTIATING
    return OpeningPhase.NEGOTIATING_BRIEFLY


@dataclass(slots=True)
class Opening:
    """The opening of one connection. The caller reports the result of a step and gets the next
    step."""

    address: Address
    dialect: Dialect
    settings: ClusterSettings
    phase: OpeningPhase
    brief_ms: int
    """How long an unknown broker may take to report its versions."""
    may_want_tls: bool = False
    was_served: bool = False
    """These settings have worked before, so a closed connection is not a refusal."""
    reports_versions: bool = field(default=True, init=False)
    _session: ProtocolSession = field(init=False)
    _is_known: bool = field(default=False, init=False)
    _left_ms: int | None = field(default=None, init=False)
    _deadline: float | None = field(default=None, init=False)
    _closed: RangelandError | None = field(default=None, init=False)
    """The error of a closed connection, if TLS may be the reason for it."""
    _refusal: LoginClosed | None = field(default=None, init=False)
    """The error of the first connection that was closed during a login: it may be a refusal."""

    def on_connected(self, now: float) -> OpeningStep:
        left_ms = self._left_ms if self.phase is OpeningPhase.SENDING_OLDEST else None
        self._deadline = None if left_ms is None else now + left_ms / 1000
        return self._send()

    def on_response(self, response: memoryview) -> OpeningStep:
        """Takes the response to a step. Raises RemoteProtocolError and Unreachable, which
        ``on_failure`` takes."""
        self._is_known = True
        if self.phase in _SENDING_OLDEST:
            self._session.decode(response)
            return self._move_on(_OpeningEvent.ANSWERED)
        if self.phase in _PROBING:
            is_old = self._session.is_too_old(response)
            return self._move_on(_OpeningEvent.IS_OLD if is_old else _OpeningEvent.IS_NEW)
        return self._negotiate(self._session.take_negotiation(response))

    def on_failure(self, error: RangelandError) -> OpeningStep:
        """Takes the failure of a step: nothing, or nothing valid, was received."""
        match error:
            case ResponseTimedOut():
                return self._move_on(_OpeningEvent.SILENT, error)
            case ConnectionClosed():
                return self._move_on(_OpeningEvent.CLOSED, error)
            case RemoteProtocolError():
                tls = self.settings.tls
                return FailOpening(diagnosis.not_a_broker_error(self.address, error, tls), error)
            case Unreachable() if not isinstance(error, ConnectionLost):  # it can be retried
                return FailOpening(ConnectionLost.because_of(error), error)
        return FailOpening(error, error.__cause__)

    def on_closed_early(self, error: RangelandError) -> OpeningStep:
        """Takes the error of a new connection that was closed before anything was sent."""
        return self._move_on(_OpeningEvent.CLOSED_EARLY, error)

    def on_tls_tried(self, *, speaks_tls: bool) -> OpeningStep:
        has_login = self.settings.sasl is not None
        no_tls = _OpeningEvent.NO_TLS_BUT_LOGIN if has_login else _OpeningEvent.NO_TLS
        return self._move_on(_OpeningEvent.SPEAKS_TLS if speaks_tls else no_tls, self._closed)

    def on_login_closed(self, error: LoginClosed) -> OpeningStep:
        is_same = self._refusal is not None and self._refusal.step == error.step
        is_refused = is_same and not self.was_served
        event = _OpeningEvent.LOGIN_REFUSED if is_refused else _OpeningEvent.LOGIN_CLOSED
        self._refusal = self._refusal or error
        return self._move_on(event, error)

    def on_logged_in(self) -> OpeningStep:
        """Continues after the login was accepted, or if the job has none."""
        return self._move_on(_OpeningEvent.LOGGED_IN)

    def _move_on(self, event: _OpeningEvent, error: RangelandError | None = None) -> OpeningStep:
        """Takes one transition of the table. ``error``: what ended the connection, if that is the
        event."""
        phase = _TABLE.get(self.phase, {}).get(event)
        if phase is None:
            raise Bug(f"{self.address}: {event.name} happened while {self.phase.value}")
        if event is _OpeningEvent.SILENT:
            self._left_ms = max(self.settings.request_ms - self._wait_ms, self._wait_ms)
        self.phase = phase
        match phase:
            case OpeningPhase.LOGGING_IN | OpeningPhase.LOGGING_IN_AGAIN:
                self.reports_versions = event is _OpeningEvent.NEGOTIATED
                return StartLogin(self._session, self._is_known)
            case OpeningPhase.OPEN:
                return FinishOpening()
            case OpeningPhase.TRYING_TLS:
                self._closed = error
                if self.may_want_tls and not self._is_known:
                    return TryTls()
                return self.on_tls_tried(speaks_tls=False)
        if error is None:
            return self._send()
        return self._fail(error) or ConnectAgain()

    def _fail(self, error: RangelandError) -> FailOpening | None:
        match self.phase:
            case OpeningPhase.FAILED:
                return FailOpening(error, error.__cause__)
            case OpeningPhase.WANTS_TLS:
                return FailOpening(diagnosis.tls_port_error(self.address), error)
            case OpeningPhase.UNEXPLAINED:
                return FailOpening(error.with_words(do=diagnosis.SILENT_CLOSE), self._closed)
            case OpeningPhase.LOST:
                return FailOpening(ConnectionClosed.because_of(error), self._refusal)
        return None

    def _send(self) -> OpeningStep:
        if self.phase in _PROBING:
            probe = self._session.version_probe()
            return SendOpening(probe, self._wait_ms, self._deadline, is_large=True)
        self._session = self.dialect.open_session(self.settings.client_id)
        if self.phase in _SENDING_OLDEST:
            return SendOpening(self._session.skip_opening(), self._wait_ms, self._deadline)
        return self._negotiate(self._session.open())

    def _negotiate(self, frame: bytes | None) -> OpeningStep:
        if not frame:
            return self._move_on(_OpeningEvent.NEGOTIATED)
        return SendOpening(frame, self._wait_ms)

    @property
    def _wait_ms(self) -> int:
        is_brief = self.phase is OpeningPhase.NEGOTIATING_BRIEFLY
        request_ms = self.settings.request_ms
        return min(self.brief_ms, request_ms) if is_brief else request_ms
