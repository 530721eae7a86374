"""The opening of a connection, without one: what each answer, silence and close proves."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rangeland.cluster_settings import ClusterSettings, SaslSettings
from rangeland.connection.failures import ConnectionClosed, ConnectionLost, ResponseTimedOut
from rangeland.connection.opening import (
    _TABLE,
    ConnectAgain,
    FailOpening,
    FinishOpening,
    Opening,
    OpeningPhase,
    OpeningStep,
    SendOpening,
    StartLogin,
    TryTls,
    _OpeningEvent,
    first_phase,
)
from rangeland.dialects.dialect import load_dialect
from rangeland.dialects.kafka import messages as m
from rangeland.dialects.protocol_session import LoginClosed
from rangeland.errors import AccessDenied, Bug, JobFileError, RangelandError, RemoteProtocolError
from rangeland.model import Address
from rangeland.wire.encoding import encode
from tests.unit.test_connection import versions_response

P, E = OpeningPhase, _OpeningEvent
BROKER = Address("broker", 9092)
SETTINGS = ClusterSettings("kafka", (BROKER,), request_ms=30_000)
WITH_LOGIN = replace(SETTINGS, sasl=SaslSettings("PLAIN", "lander", "hunter2"))
NOW = 100.0
NAMES = {18: "negotiation", 1: "oldest request", 3: "version probe"}
CLOSED = ConnectionClosed("closed", closed=True)
SILENT = ResponseTimedOut("silent")
LOGIN_CLOSED = LoginClosed("closed", step=1)


def opening_in(
    phase: OpeningPhase,
    settings: ClusterSettings = SETTINGS,
    *,
    may_want_tls: bool = True,
    was_served: bool = False,
) -> Opening:
    """One that is in this phase, with what the phases before have left."""
    opening = Opening(
        BROKER,
        load_dialect(settings.dialect),
        settings,
        P.SENDING_OLDEST,
        brief_ms=3_000,
        may_want_tls=may_want_tls,
        was_served=was_served,
    )
    opening.on_connected(NOW)
    opening.phase = phase
    return opening


def seen(opening: Opening, step: OpeningStep) -> str:
    """What the step does, in words; with the first frame on a new connection."""
    match step:
        case ConnectAgain():
            return f"again: {seen(opening, opening.on_connected(NOW))}"
        case SendOpening():
            return NAMES[int.from_bytes(step.data[4:6], "big")]
        case FailOpening():
            return f"{type(step.error).__name__}{': wrong port?' if step.error.do else ''}"
    return type(step).__name__


ROWS: list[tuple[OpeningPhase, _OpeningEvent, RangelandError | None, str]] = [
    (P.NEGOTIATING_BRIEFLY, E.NEGOTIATED, None, "StartLogin"),
    (P.NEGOTIATING_BRIEFLY, E.SILENT, SILENT, "again: oldest request"),
    (P.NEGOTIATING_BRIEFLY, E.CLOSED, CLOSED, "TryTls"),
    (P.NEGOTIATING, E.NEGOTIATED, None, "StartLogin"),
    (P.NEGOTIATING, E.SILENT, SILENT, "ResponseTimedOut"),
    (P.NEGOTIATING, E.CLOSED, CLOSED, "TryTls"),
    (P.NEGOTIATING, E.CLOSED_EARLY, CLOSED, "TryTls"),
    (P.SENDING_OLDEST, E.ANSWERED, None, "version probe"),
    (P.SENDING_OLDEST, E.SILENT, SILENT, "ResponseTimedOut"),
    (P.SENDING_OLDEST, E.CLOSED, CLOSED, "again: negotiation"),
    (P.SENDING_OLDEST, E.CLOSED_EARLY, CLOSED, "TryTls"),
    (P.PROBING, E.IS_OLD, None, "StartLogin"),
    (P.PROBING, E.IS_NEW, None, "negotiation"),
    (P.PROBING, E.SILENT, SILENT, "ResponseTimedOut"),
    (P.PROBING, E.CLOSED, CLOSED, "again: negotiation"),
    (P.TRYING_TLS, E.SPEAKS_TLS, CLOSED, "JobFileError: wrong port?"),
    (P.TRYING_TLS, E.NO_TLS, CLOSED, "again: oldest request"),
    (P.TRYING_TLS, E.NO_TLS_BUT_LOGIN, CLOSED, "ConnectionClosed: wrong port?"),
    (P.SENDING_OLDEST_AGAIN, E.ANSWERED, None, "version probe"),
    (P.SENDING_OLDEST_AGAIN, E.SILENT, SILENT, "ResponseTimedOut"),
    (P.SENDING_OLDEST_AGAIN, E.CLOSED, CLOSED, "again: negotiation"),
    (P.SENDING_OLDEST_AGAIN, E.CLOSED_EARLY, CLOSED, "ConnectionClosed"),
    (P.PROBING_AGAIN, E.IS_OLD, None, "StartLogin"),
    (P.PROBING_AGAIN, E.IS_NEW, None, "negotiation"),
    (P.PROBING_AGAIN, E.SILENT, SILENT, "ResponseTimedOut"),
    (P.PROBING_AGAIN, E.CLOSED, CLOSED, "again: negotiation"),
    (P.NEGOTIATING_AGAIN, E.NEGOTIATED, None, "StartLogin"),
    (P.NEGOTIATING_AGAIN, E.SILENT, SILENT, "ResponseTimedOut"),
    (P.NEGOTIATING_AGAIN, E.CLOSED, CLOSED, "ConnectionClosed: wrong port?"),
    (P.NEGOTIATING_AGAIN, E.CLOSED_EARLY, CLOSED, "ConnectionClosed: wrong port?"),
    (P.LOGGING_IN, E.LOGGED_IN, None, "FinishOpening"),
    (P.LOGGING_IN, E.LOGIN_CLOSED, LOGIN_CLOSED, "again: negotiation"),
    (P.RETURNING, E.NEGOTIATED, None, "StartLogin"),
    (P.RETURNING, E.SILENT, SILENT, "ResponseTimedOut"),
    (P.RETURNING, E.CLOSED, CLOSED, "TryTls"),
    (P.RETURNING, E.CLOSED_EARLY, CLOSED, "ConnectionClosed"),
    (P.LOGGING_IN_AGAIN, E.LOGGED_IN, None, "FinishOpening"),
    (P.LOGGING_IN_AGAIN, E.LOGIN_CLOSED, LOGIN_CLOSED, "ConnectionClosed"),
    (P.LOGGING_IN_AGAIN, E.LOGIN_REFUSED, LOGIN_CLOSED, "LoginClosed"),
]


@pytest.mark.parametrize(
    ("phase", "event", "error", "expected"), ROWS, ids=[f"{p.name}-{e.name}" for p, e, *_ in ROWS]
)
def test_each_event_has_one_consequence_in_each_phase(
    phase: OpeningPhase, event: _OpeningEvent, error: RangelandError | None, expected: str
) -> None:
    opening = opening_in(phase)
    assert seen(opening, opening._move_on(event, error)) == expected


def test_what_a_phase_does_not_expect_is_a_bug() -> None:
    expected = {(phase, event) for phase, event, *_ in ROWS}
    assert expected == {(phase, event) for phase, row in _TABLE.items() for event in row}
    for phase in P:
        for event in E:
            if (phase, event) not in expected:
                with pytest.raises(Bug, match=f"{event.name} happened while {phase.value}"):
                    opening_in(phase)._move_on(event, CLOSED)


# --- what is sent, and how long it is waited for ------------------------------------------


@pytest.mark.parametrize(
    ("reported", "may_be_old", "phase"),
    [
        (None, True, P.NEGOTIATING_BRIEFLY),
        (None, False, P.NEGOTIATING),
        (True, True, P.NEGOTIATING),
        (False, True, P.SENDING_OLDEST),
    ],
)
def test_what_is_known_of_a_broker_says_how_to_begin(
    reported: bool | None, may_be_old: bool, phase: OpeningPhase
) -> None:
    assert first_phase(reported, may_be_old=may_be_old) is phase


@pytest.mark.parametrize(
    ("phase", "wait_ms"), [(P.NEGOTIATING_BRIEFLY, 3_000), (P.NEGOTIATING, 30_000)]
)
def test_only_a_broker_of_which_nothing_is_known_is_given_little_time(
    phase: OpeningPhase, wait_ms: int
) -> None:
    step = opening_in(phase).on_connected(NOW)
    assert isinstance(step, SendOpening)
    assert (step.wait_ms, step.deadline, step.is_large) == (wait_ms, None, False)


def test_a_silent_broker_is_tested_for_its_age_in_the_time_that_is_left() -> None:
    opening = opening_in(P.NEGOTIATING_BRIEFLY)
    assert opening.on_failure(SILENT) == ConnectAgain()
    oldest = opening.on_connected(NOW)
    probe = opening.on_response(answer_to(oldest, m.FetchResponse(responses=()), 0))
    negotiation = opening.on_response(answer_to(probe, METADATA, 1))
    steps = (oldest, probe, negotiation)
    assert [seen(opening, step) for step in steps] == list(map(NAMES.get, (1, 3, 18)))
    assert [s.deadline for s in steps if isinstance(s, SendOpening)] == [127.0, 127.0, None]
    assert [s.is_large for s in steps if isinstance(s, SendOpening)] == [False, True, False]


# --- what came of it ----------------------------------------------------------------------

METADATA = m.MetadataResponse(brokers=(), topics=())


def answer_to(step: OpeningStep, response: object, version: int) -> memoryview:
    assert isinstance(step, SendOpening)
    return memoryview(step.data[8:12] + encode(response, version))


@pytest.mark.parametrize(("version", "is_old"), [(0, True), (1, False)])
def test_a_broker_is_old_only_if_it_answers_as_old_ones_do(version: int, is_old: bool) -> None:
    opening = opening_in(P.SENDING_OLDEST)
    oldest = opening.on_connected(NOW)
    probe = opening.on_response(answer_to(oldest, m.FetchResponse(responses=()), 0))
    step = opening.on_response(answer_to(probe, METADATA, version))
    assert isinstance(step, StartLogin) == is_old
    if not is_old:
        assert isinstance(step, SendOpening)
        step = opening.on_response(memoryview(versions_response(step.data[4:]))[4:])
    assert isinstance(step, StartLogin)
    assert step.is_known
    assert opening.reports_versions is not is_old


def test_a_negotiation_may_take_several_frames() -> None:
    opening = opening_in(P.NEGOTIATING)
    first = opening.on_connected(NOW)
    unsupported = m.ApiVersionsResponse(error_code=35, api_keys=())
    second = opening.on_response(answer_to(first, unsupported, 0))
    assert isinstance(second, SendOpening)
    assert second.data[6:8] == b"\0\0"
    step = opening.on_response(memoryview(versions_response(second.data[4:]))[4:])
    assert isinstance(step, StartLogin)
    assert opening.on_logged_in() == FinishOpening()


def test_a_peer_without_a_negotiation_is_not_known_to_be_a_broker() -> None:
    opening = opening_in(P.NEGOTIATING_BRIEFLY, replace(SETTINGS, dialect="rocketmq"))
    step = opening.on_connected(NOW)
    assert isinstance(step, StartLogin)
    assert not step.is_known


@pytest.mark.parametrize(
    ("error", "kind", "what"),
    [
        (RemoteProtocolError("odd", first_bytes=b"HTTP"), ConnectionLost, "is an HTTP port"),
        (RemoteProtocolError("odd", first_bytes=b"\x15\x03"), JobFileError, "speaks TLS"),
        (RemoteProtocolError("odd"), ConnectionLost, "does not answer like a broker"),
        (ConnectionLost("reset"), ConnectionLost, "reset"),
        (AccessDenied("an alert"), AccessDenied, "an alert"),
    ],
)
@pytest.mark.parametrize("phase", [P.NEGOTIATING_BRIEFLY, P.PROBING, P.NEGOTIATING_AGAIN])
def test_what_is_no_silence_and_no_close_ends_every_phase(
    phase: OpeningPhase, error: RangelandError, kind: type[RangelandError], what: str
) -> None:
    step = opening_in(phase).on_failure(error)
    assert isinstance(step, FailOpening)
    assert isinstance(step.error, kind)
    assert what in step.error.what


@pytest.mark.parametrize("settings", [SETTINGS, WITH_LOGIN], ids=["no login", "login"])
def test_a_port_that_cannot_want_tls_is_not_tried_with_it(settings: ClusterSettings) -> None:
    opening = opening_in(P.NEGOTIATING, settings, may_want_tls=False)
    expected = "ConnectionClosed: wrong port?" if settings.sasl else "again: oldest request"
    assert seen(opening, opening.on_failure(CLOSED)) == expected


def test_a_port_that_has_just_answered_is_not_tried_with_tls() -> None:
    opening = opening_in(P.SENDING_OLDEST)
    opening.on_response(answer_to(opening.on_connected(NOW), m.FetchResponse(responses=()), 0))
    assert opening.on_failure(CLOSED) == ConnectAgain()
    assert seen(opening, opening.on_connected(NOW)) == "negotiation"
    assert seen(opening, opening.on_failure(CLOSED)) == "again: oldest request"


@pytest.mark.parametrize(
    ("speaks_tls", "settings", "expected"),
    [
        (True, SETTINGS, "JobFileError: wrong port?"),
        (True, WITH_LOGIN, "JobFileError: wrong port?"),
        (False, SETTINGS, "again: oldest request"),
        (False, WITH_LOGIN, "ConnectionClosed: wrong port?"),
    ],
)
def test_a_job_with_a_login_looks_for_no_old_broker(
    speaks_tls: bool, settings: ClusterSettings, expected: str
) -> None:
    opening = opening_in(P.NEGOTIATING, settings)
    assert opening.on_failure(CLOSED) == TryTls()
    assert seen(opening, opening.on_tls_tried(speaks_tls=speaks_tls)) == expected


@pytest.mark.parametrize(
    ("steps", "was_served", "kind"),
    [
        ((1, 1), False, LoginClosed),
        ((1, 2), False, ConnectionClosed),
        ((1, 1), True, ConnectionClosed),
    ],
)
def test_a_login_is_refused_if_it_is_closed_twice_at_the_same_step(
    steps: tuple[int, int], was_served: bool, kind: type[RangelandError]
) -> None:
    opening = opening_in(P.LOGGING_IN, WITH_LOGIN, was_served=was_served)
    first, second = (LoginClosed("closed", step=step) for step in steps)
    assert opening.on_login_closed(first) == ConnectAgain()
    opening.phase = P.LOGGING_IN_AGAIN
    step = opening.on_login_closed(second)
    assert isinstance(step, FailOpening)
    assert type(step.error) is kind
