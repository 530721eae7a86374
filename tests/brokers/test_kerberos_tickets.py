"""Logins with GSSAPI against a real key distribution center, and the accepting side of its library.

The frames of the broker are scripted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rangeland.cluster_settings import KerberosSettings
from rangeland.connection.failures import TokenUnavailable
from rangeland.connection.kerberos_login import KerberosLogin
from rangeland.dialects.kafka import messages as m
from rangeland.dialects.kafka.sasl_mechanisms import login
from rangeland.dialects.protocol_session import Credentials
from rangeland.errors import AccessDenied
from tests.servers.kerberos import REALM, KeyCenter, gssapi_library
from tests.unit.test_sasl_mechanisms import SHAKEN, converse, said

pytestmark = [pytest.mark.brokers, pytest.mark.slow]

SERVICE, HOST, USER = "log", "127.0.0.1", "lander"

LogIn = Callable[[KerberosSettings], str]


@pytest.fixture(scope="module")
def center(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KeyCenter]:
    with KeyCenter(tmp_path_factory.mktemp("kerberos") / "center") as running:
        yield running


@pytest.fixture(scope="module")
def keytab(center: KeyCenter) -> Path:
    return center.keytab(USER)


@pytest.fixture(scope="module")
def service(center: KeyCenter) -> Path:
    return center.keytab(f"{SERVICE}/{HOST}")


@pytest.fixture
def log_in(center: KeyCenter, service: Path, monkeypatch: pytest.MonkeyPatch) -> LogIn:
    """Logs in, with a library that is built once; returns whom the service has let in."""
    monkeypatch.syspath_prepend(str(gssapi_library()))
    for name in ("KRB5_CONFIG", "KRB5_KDC_PROFILE"):
        monkeypatch.setenv(name, center.environment[name])
    monkeypatch.delenv("KRB5CCNAME", raising=False)

    def enter(settings: KerberosSettings) -> str:
        import gssapi

        own = gssapi.Credentials(usage="accept", store={"keytab": f"FILE:{service}"})
        context: Any = gssapi.SecurityContext(creds=own, usage="accept")

        def layers(token: bytes) -> m.SaslAuthenticateResponse:
            assert token == b""
            return said(context.wrap(b"\x07\x00\xff\xff", False).message)

        def chosen(token: bytes) -> m.SaslAuthenticateResponse:
            assert context.unwrap(token).message == b"\x01\x00\x00\x00"
            return said(session_lifetime_ms=5_000)

        kerberos = KerberosLogin(settings, HOST)
        talk = login(Credentials("GSSAPI", kerberos=kerberos))
        lifetime, _ = converse(
            talk, SHAKEN, lambda token: said(context.step(token)), layers, chosen
        )
        assert lifetime == 5_000
        return str(context.initiator_name)

    return enter


def test_a_keytab_logs_in(log_in: LogIn, keytab: Path) -> None:
    for principal in (USER, None):
        assert log_in(KerberosSettings(SERVICE, principal, str(keytab))) == f"{USER}@{REALM}"


def test_the_ticket_cache_of_the_process_logs_in(
    log_in: LogIn, center: KeyCenter, keytab: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KRB5CCNAME", f"FILE:{center.log_in(USER, keytab)}")
    assert log_in(KerberosSettings(SERVICE)) == f"{USER}@{REALM}"


def test_two_principals_of_one_process_keep_their_own_tickets(
    log_in: LogIn, center: KeyCenter, keytab: Path
) -> None:
    other = center.keytab("other")
    assert log_in(KerberosSettings(SERVICE, USER, str(keytab))) == f"{USER}@{REALM}"
    assert log_in(KerberosSettings(SERVICE, "other", str(other))) == f"other@{REALM}"


def test_without_tickets_it_is_said_what_to_do(log_in: LogIn) -> None:
    with pytest.raises(AccessDenied, match="got no ticket") as caught:
        log_in(KerberosSettings(SERVICE))
    assert "run kinit" in caught.value.do


def test_a_keytab_that_is_not_there_is_named(log_in: LogIn) -> None:
    with pytest.raises(AccessDenied) as caught:
        log_in(KerberosSettings(SERVICE, USER, "/no/such.keytab"))
    assert "/no/such.keytab" in caught.value.do


def test_a_service_that_the_center_does_not_know_is_named(log_in: LogIn, keytab: Path) -> None:
    with pytest.raises(AccessDenied, match=r"http@127\.0\.0\.1") as caught:
        log_in(KerberosSettings("http", USER, str(keytab)))
    assert "not found in Kerberos database" in caught.value.why


def test_a_center_that_is_down_may_be_up_later(log_in: LogIn, center: KeyCenter) -> None:
    newcomer = center.keytab("newcomer")
    center.close()
    try:
        with pytest.raises(TokenUnavailable, match="newcomer"):
            log_in(KerberosSettings(SERVICE, "newcomer", str(newcomer)))
    finally:
        center.start()
