"""Logins with Kerberos and with delegation tokens, as requests and responses."""

from __future__ import annotations

import sys

import pytest

from rangeland.cluster_settings import KerberosSettings
from rangeland.connection.kerberos_login import KerberosLogin
from rangeland.dialects.kafka import messages as m
from rangeland.dialects.kafka.sasl_mechanisms import login
from rangeland.dialects.protocol_session import Credentials
from rangeland.errors import AccessDenied, MissingRequirement, RemoteProtocolError
from tests.unit.test_sasl_mechanisms import SHAKEN, converse, said


class Script:
    """A Kerberos context for which both sides are known after two tokens."""

    who = "principal lander"
    first_token = b"request"

    def __init__(self) -> None:
        self.is_complete = False
        self.heard: list[bytes] = []

    def step(self, challenge: bytes) -> bytes:
        self.heard.append(challenge)
        self.is_complete = True
        return b""

    def unwrap(self, message: bytes) -> bytes:
        assert message.startswith(b"signed ")
        return message.removeprefix(b"signed ")

    def wrap(self, message: bytes) -> bytes:
        return b"signed " + message


def test_kerberos_logs_in_without_a_layer_of_its_own() -> None:
    context = Script()
    lifetime, asked = converse(
        login(Credentials("GSSAPI", kerberos=context)),
        SHAKEN,
        said(b"reply"),
        said(b"signed \x07\x00\xff\xff"),
        said(session_lifetime_ms=9_000),
    )
    assert lifetime == 9_000
    assert context.heard == [b"reply"]
    sent = [request.auth_bytes for request in asked[1:]]
    assert sent == [b"request", b"", b"signed \x01\x00\x00\x00"]


@pytest.mark.parametrize("layers", [b"\x06\0\0\0", b"\x01", b""])
def test_a_broker_that_wants_a_layer_is_refused(layers: bytes) -> None:
    talk = login(Credentials("GSSAPI", kerberos=Script()))
    with pytest.raises(RemoteProtocolError, match="sign or encrypt"):
        converse(talk, SHAKEN, said(b"reply"), said(b"signed " + layers))


def test_a_refused_ticket_names_the_principal_and_what_to_check() -> None:
    talk = login(Credentials("GSSAPI", kerberos=Script()))
    with pytest.raises(AccessDenied, match="principal lander") as caught:
        converse(talk, SHAKEN, said(error_code=58, error_message="no key"))
    assert caught.value.why == "no key"
    assert "SERVICE_NAME/HOST" in caught.value.do


def test_without_the_package_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gssapi", None)
    with pytest.raises(MissingRequirement) as caught:
        KerberosLogin(KerberosSettings(), "broker")
    assert "rangeland[kerberos]" in caught.value.do


def test_a_delegation_token_says_in_scram_that_it_is_one() -> None:
    first: list[bytes] = []

    def hear(token: bytes) -> m.SaslAuthenticateResponse:
        first.append(token)
        return said(error_code=58, error_message="no")

    for is_delegated in (False, True):
        credentials = Credentials("SCRAM-SHA-256", "id", "hmac", is_delegated=is_delegated)
        with pytest.raises(AccessDenied):
            converse(login(credentials), SHAKEN, hear)
    plain, delegated = first
    assert b"tokenauth" not in plain
    assert delegated.endswith(b",tokenauth=true")
