"""Logins over connections that break, and tokens that are unavailable for a while."""

from __future__ import annotations

import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from rangeland.cluster_settings import SaslSettings, TlsSettings, TokenSource
from rangeland.connection import login_renewal, tokens
from rangeland.connection.broker_connection import BrokerConnection
from rangeland.connection.failures import ConnectionClosed, ConnectionLost
from rangeland.connection.pool import ConnectionPool
from rangeland.dialects.dialect import load_dialect
from rangeland.dialects.kafka import messages as m
from rangeland.dialects.protocol_session import BrokerRequest
from rangeland.errors import AccessDenied, JobFileError
from rangeland.model import Address
from rangeland.survey.cluster_survey import take_survey
from rangeland.survey.survey_request import SurveyRequest
from rangeland.wire.encoding import encode
from tests.certificates import Authority
from tests.unit.test_connection import Reply, framed, key_of, peer, settings_of

KAFKA = load_dialect("kafka")
METADATA = BrokerRequest(m.MetadataRequest(topics=None))
PLAIN = SaslSettings("PLAIN", "lander", "hunter2")
VERSIONS, HANDSHAKE, SHAKE_AND_SAY = 18, 17, 36
BARE = ((3, 0, 1), (18, 0, 0), (17, 0, 0))
"""What brokers before 1.0 take."""
NEW = ((3, 0, 1), (18, 0, 0), (17, 0, 1), (36, 0, 1))


def broker_of(takes: tuple[tuple[int, int, int], ...], then: Reply) -> Reply:
    """One that shakes hands; all else is answered by ``then``."""
    ranges = tuple(m.ApiVersion(api_key=k, min_version=a, max_version=b) for k, a, b in takes)

    def reply(request: bytes) -> bytes | None:
        key = key_of(request)
        if key == VERSIONS and request[:1] == b"\0":
            refused = int.from_bytes(request[2:4], "big") > 0
            told = m.ApiVersionsResponse(error_code=35 if refused else 0, api_keys=ranges)
            return framed(request[4:8] + encode(told, 0))
        if key == HANDSHAKE and request[:1] == b"\0":
            shaken = m.SaslHandshakeResponse(error_code=0, mechanisms=("PLAIN", "OAUTHBEARER"))
            return framed(request[4:8] + encode(shaken, 0))
        return then(request)

    return reply


def is_token(request: bytes) -> bool:
    return b"hunter2" in request


CLUSTER = m.MetadataResponse(
    brokers=(m.MetadataBroker(node_id=1, host="127.0.0.1", port=9),), topics=()
)


def taking(request: bytes) -> bytes | None:
    """Takes a bare token, and knows no topic."""
    if is_token(request):
        return framed(b"")
    return framed(request[4:8] + encode(CLUSTER, 1))


def test_an_old_broker_that_closes_a_login_once_is_logged_in_to_again() -> None:
    going_down, well = broker_of(BARE, lambda _: None), broker_of(BARE, taking)
    with peer(going_down, well) as address:
        connection = BrokerConnection(address, KAFKA, settings_of(address, sasl=PLAIN))
        assert connection.call(METADATA).topics == ()
        connection.close()


def test_an_old_broker_that_closes_a_login_twice_has_refused_it() -> None:
    with (
        peer(broker_of(BARE, lambda _: None)) as address,
        pytest.raises(AccessDenied, match=r"closed the connection while user lander"),
    ):
        BrokerConnection(address, KAFKA, settings_of(address, sasl=PLAIN))


def test_an_old_broker_that_is_silent_is_lost_and_the_next_one_asked() -> None:
    def silent(_: bytes) -> bytes | None:
        time.sleep(2)
        return None

    with peer(broker_of(BARE, silent)) as address:
        settings = settings_of(address, sasl=PLAIN, request_ms=1_000)
        with pytest.raises(ConnectionLost, match="no complete response"):
            BrokerConnection(address, KAFKA, settings)


# --- tokens ---------------------------------------------------------------------------------


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TokenSource:
    """A command that gives a token as long as the file is there, and else is to be tried again."""
    monkeypatch.setattr(tokens, "_kept", {})
    monkeypatch.setattr(login_renewal, "RENEW_PAUSE_S", 0.05)
    (tmp_path / "token").write_text("abc.def")
    return TokenSource(command=("sh", "-c", f"cat {tmp_path}/token || exit 75"))


def bearing(lifetime_ms: int) -> Reply:
    def then(request: bytes) -> bytes | None:
        if key_of(request) == SHAKE_AND_SAY:
            said = m.SaslAuthenticateResponse(
                error_code=0, auth_bytes=b"", session_lifetime_ms=lifetime_ms
            )
            return framed(request[4:8] + encode(said, 1))
        return framed(request[4:8] + encode(CLUSTER, 1))

    return broker_of(NEW, then)


def test_a_first_token_that_cannot_be_had_is_a_lost_connection(
    source: TokenSource, tmp_path: Path
) -> None:
    (tmp_path / "token").unlink()
    sasl = SaslSettings("OAUTHBEARER", token=source)
    with peer(bearing(0)) as address, ConnectionPool(settings_of(address, sasl=sasl)) as brokers:
        with pytest.raises(ConnectionLost, match="gave no token"):
            brokers.call(address, METADATA)
        waiter = threading.Timer(0.3, (tmp_path / "token").write_text, ("abc.def",))
        waiter.start()
        with pytest.raises(JobFileError, match="there is no topic t"):
            take_survey(brokers, SurveyRequest(("t",)))  # which goes on until it is there
        waiter.join()


def test_a_token_that_cannot_be_renewed_now_ends_nothing_while_the_last_one_holds(
    source: TokenSource, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(login_renewal, "RENEW_AT", 0.1)
    sasl = SaslSettings("OAUTHBEARER", token=source)
    with peer(bearing(3_000)) as address:
        connection = BrokerConnection(address, KAFKA, settings_of(address, sasl=sasl))
        began = time.monotonic()
        (tmp_path / "token").unlink()
        time.sleep(0.4)
        for _ in range(3):
            assert connection.call(METADATA).topics == ()
            time.sleep(0.1)
        time.sleep(max(0.0, began + 3.1 - time.monotonic()))
        with pytest.raises(ConnectionLost, match="gave no token"):
            connection.call(METADATA)


# --- names and alerts -----------------------------------------------------------------------


@pytest.mark.parametrize("tls", [None, TlsSettings()])
@pytest.mark.parametrize("host", ["kafka..example", "k" * 64 + ".example"])
def test_a_name_that_no_host_can_have_is_reported(host: str, tls: TlsSettings | None) -> None:
    address = Address(host, 9092)
    with pytest.raises(JobFileError, match="is not a valid host name"):
        BrokerConnection(address, KAFKA, settings_of(address, tls=tls))


@contextmanager
def speaking_tls(authority: Authority, reply: Reply) -> Iterator[tuple[Address, list[bytes]]]:
    """A broker over TLS that answers once, and then breaks its side with an alert."""
    import socket

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority.issue("localhost").both)
    alerts: list[bytes] = []

    def serve(server: socket.socket) -> None:
        with suppress(OSError):
            plain, _ = server.accept()
            incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
            tls = context.wrap_bio(incoming, outgoing, server_side=True)

            def flush() -> None:
                if outgoing.pending:
                    plain.sendall(outgoing.read())

            def until_done(act: object) -> bytes:
                while True:
                    try:
                        done = act()  # type: ignore[operator]
                        flush()
                        return done or b""
                    except ssl.SSLWantReadError:
                        flush()
                        incoming.write(plain.recv(1 << 16))

            with plain:
                until_done(tls.do_handshake)
                while True:
                    request = until_done(lambda: tls.read(1 << 16))
                    response = reply(request[4:])
                    if response is None:
                        break
                    tls.write(response)
                    flush()
                # A record that is not what it claims to be: OpenSSL answers with an alert.
                incoming.write(b"\x17\x03\x03\x00\x20" + b"\0" * 32)
                with suppress(ssl.SSLError):
                    tls.read(1)
                alerts.append(outgoing.read())
                plain.sendall(alerts[0])
                plain.recv(1 << 16)

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=serve, args=(server,))
        thread.start()
        try:
            yield Address("localhost", server.getsockname()[1]), alerts
        finally:
            with suppress(OSError):
                server.shutdown(socket.SHUT_RDWR)
            thread.join()


def test_an_alert_to_a_connection_that_was_well_is_a_lost_one(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    answered: list[bytes] = []
    wait = broker_of(BARE, lambda request: answered.append(request))
    with speaking_tls(authority, wait) as (address, alerts):
        tls = TlsSettings(ca=str(authority.ca))
        connection = BrokerConnection(address, KAFKA, settings_of(address, tls=tls))
        with pytest.raises(ConnectionLost, match=r"(?i)alert") as caught:
            connection.call(METADATA)
    assert alerts
    assert not isinstance(caught.value, ConnectionClosed)
    assert answered
