"""Logging in, as requests and responses, against the broker's side of SCRAM and of tokens."""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator
from typing import Any

import pytest
import scramp

from rangeland.dialects.kafka import messages as m
from rangeland.dialects.kafka.sasl_mechanisms import login
from rangeland.dialects.kafka.session import KafkaSession
from rangeland.dialects.protocol_session import (
    BrokerRequest,
    Credentials,
    LoginClosed,
    PeerClosed,
    UnsupportedRequest,
)
from rangeland.errors import (
    AccessDenied,
    JobFileError,
    MissingRequirement,
    RemoteProtocolError,
    Unreachable,
)

USER, PASSWORD, TOKEN = "lander", "hunter2, of=lander", "abc.def.ghi"
Response = Callable[[bytes], m.SaslAuthenticateResponse]


def said(auth_bytes: bytes = b"", **more: Any) -> m.SaslAuthenticateResponse:
    return m.SaslAuthenticateResponse(**{"error_code": 0, "auth_bytes": auth_bytes, **more})


def converse(
    talk: Generator[BrokerRequest, Any, int | None], *responses: Any, is_old: bool = False
) -> tuple[int | None, list[Any]]:
    """Drives a login; a response is a value, or a function of the token. An old broker knows no
    SaslAuthenticate. Gives what the login returned, and what it asked."""
    asked: list[Any] = []
    waiting = list(responses)
    try:
        request = next(talk).message
        while True:
            if is_old and isinstance(request, m.SaslAuthenticateRequest):
                unfit = UnsupportedRequest("no version is supported by both sides")
                request = talk.throw(unfit).message
            asked.append(request)
            response = waiting.pop(0)
            if isinstance(response, Exception):
                request = talk.throw(response).message
                continue
            response = response(request.auth_bytes) if callable(response) else response
            request = talk.send(response).message
    except StopIteration as done:
        return done.value, asked


SHAKEN = m.SaslHandshakeResponse(error_code=0, mechanisms=("PLAIN",))


def scram_server(password: str = PASSWORD, mechanism: str = "SCRAM-SHA-256") -> Any:
    made = scramp.ScramMechanism(mechanism)
    return made.make_server(lambda _: made.make_auth_info(password))


def answering(server: Any) -> tuple[Response, Response]:
    def first(token: bytes) -> m.SaslAuthenticateResponse:
        server.set_client_first(token.decode())
        return said(server.get_server_first().encode())

    def final(token: bytes) -> m.SaslAuthenticateResponse:
        server.set_client_final(token.decode())
        return said(server.get_server_final().encode(), session_lifetime_ms=5000)

    return first, final


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
@pytest.mark.parametrize("is_old", [False, True])
def test_scram_proves_the_password_without_sending_it(mechanism: str, is_old: bool) -> None:
    first, final = answering(scram_server(mechanism=mechanism))
    lifetime, asked = converse(
        login(Credentials(mechanism, USER, PASSWORD)), SHAKEN, first, final, is_old=is_old
    )
    assert lifetime == 5000
    assert all(PASSWORD.encode() not in r.auth_bytes for r in asked[1:])
    kind = m.BareToken if is_old else m.SaslAuthenticateRequest
    assert [type(r) for r in asked] == [m.SaslHandshakeRequest, kind, kind]


def test_a_broker_that_does_not_know_the_password_is_not_believed() -> None:
    first, _ = answering(scram_server())

    def forged(token: bytes) -> m.SaslAuthenticateResponse:
        return said(b"v=" + b"A" * 43 + b"=")

    with pytest.raises(RemoteProtocolError, match="may be another server"):
        converse(login(Credentials("SCRAM-SHA-256", USER, PASSWORD)), SHAKEN, first, forged)


@pytest.mark.parametrize("rounds", [0, 1, 4095, 1_000_001, 10**9, 10**30, -5, "x", ""])
def test_a_number_of_scram_rounds_is_bounded_from_both_sides(rounds: Any) -> None:
    def first(token: bytes) -> m.SaslAuthenticateResponse:
        nonce = token.decode().rpartition("r=")[2]
        return said(f"r={nonce}x,s=c2FsdHNhbHRzYWx0c2FsdA==,i={rounds}".encode())

    with pytest.raises(RemoteProtocolError, match="SCRAM iterations"):
        converse(login(Credentials("SCRAM-SHA-256", USER, PASSWORD)), SHAKEN, first)


def test_a_nonce_that_is_not_ours_is_refused() -> None:
    challenge = said(b"r=another,s=c2FsdHNhbHRzYWx0c2FsdA==,i=4096")
    with pytest.raises(RemoteProtocolError, match="may be another server"):
        converse(login(Credentials("SCRAM-SHA-256", USER, PASSWORD)), SHAKEN, challenge)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_a_refusal_is_reported_without_the_password(mechanism: str) -> None:
    no = said(error_code=58, error_message=f"failed with {PASSWORD}")
    with pytest.raises(AccessDenied, match="refused user lander: failed with") as caught:
        converse(login(Credentials(mechanism, USER, PASSWORD)), SHAKEN, no)
    assert PASSWORD not in repr(caught.value) + str(caught.value.facts)


def test_an_old_broker_that_closes_has_refused() -> None:
    closed = PeerClosed("closed")
    with pytest.raises(LoginClosed, match="closed the connection while user lander"):
        converse(login(Credentials("PLAIN", USER, PASSWORD)), SHAKEN, closed, is_old=True)


def test_an_old_broker_that_is_silent_has_refused_nobody() -> None:
    silent = Unreachable("no complete response in 5 ms")
    with pytest.raises(Unreachable, match="no complete response"):
        converse(login(Credentials("PLAIN", USER, PASSWORD)), SHAKEN, silent, is_old=True)


def test_a_new_broker_that_closes_is_merely_gone() -> None:
    with pytest.raises(Unreachable):
        converse(login(Credentials("PLAIN", USER, PASSWORD)), SHAKEN, Unreachable("closed"))


def test_a_token_is_sent_with_its_extensions() -> None:
    credentials = Credentials("OAUTHBEARER", token=TOKEN, extensions=(("a", "1"), ("b", "2 3")))
    lifetime, asked = converse(login(credentials), SHAKEN, said(session_lifetime_ms=7))
    assert asked[1].auth_bytes == b"n,,\x01auth=Bearer abc.def.ghi\x01a=1\x01b=2 3\x01\x01"
    assert lifetime == 7


def test_a_refused_token_is_taken_note_of_and_reported() -> None:
    no = said(b'{"status":"invalid_token","scope":"read"}')
    end = said(error_code=58, error_message=f"no good: {TOKEN}")
    asked: list[Any] = []

    def last(token: bytes) -> m.SaslAuthenticateResponse:
        asked.append(token)
        return end

    with pytest.raises(AccessDenied, match="status invalid_token, scope read; no good") as caught:
        converse(login(Credentials("OAUTHBEARER", token=TOKEN)), SHAKEN, no, last)
    assert asked == [b"\x01"]
    assert TOKEN not in str(caught.value)


def test_a_mechanism_that_is_not_offered_is_reported_with_those_that_are() -> None:
    no = m.SaslHandshakeResponse(error_code=33, mechanisms=("GSSAPI", "PLAIN"))
    with pytest.raises(JobFileError, match="it offers GSSAPI, PLAIN"):
        converse(login(Credentials("SCRAM-SHA-256", USER, PASSWORD)), no)


def test_a_port_without_sasl_says_so() -> None:
    no = m.SaslHandshakeResponse(error_code=34, mechanisms=())
    with pytest.raises(JobFileError, match="does not accept SASL: it answered ILLEGAL_SASL_STATE"):
        converse(login(Credentials("PLAIN", USER, PASSWORD)), no)


def test_a_name_that_scram_forbids_is_refused_before_it_is_sent() -> None:
    with pytest.raises(JobFileError, match=r"cannot be used with SCRAM.*sasl\.username"):
        converse(login(Credentials("SCRAM-SHA-256", "a\x07b", PASSWORD)), SHAKEN)


def test_a_python_without_the_library_for_scram_is_told_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "scramp", None)
    with pytest.raises(
        MissingRequirement, match=r"pip install scramp, for the driver's .* and the work"
    ):
        converse(login(Credentials("SCRAM-SHA-256", USER, PASSWORD)), SHAKEN)
    converse(login(Credentials("PLAIN", USER, PASSWORD)), SHAKEN, said())


def test_a_bare_token_has_no_header_and_any_frame_answers_it() -> None:
    session = KafkaSession("me")
    request_id, data = session.encode(m.BareToken(b"abc"))
    assert data == b"\0\0\0\3abc"
    assert session.decode(memoryview(b"xyz")) == (request_id, said(b"xyz"))


def test_no_secret_is_in_a_repr() -> None:
    shown = repr(Credentials("PLAIN", USER, PASSWORD, TOKEN)) + repr(m.BareToken(b"hunter2"))
    assert PASSWORD not in shown
    assert TOKEN not in shown
    assert "hunter2" not in shown
