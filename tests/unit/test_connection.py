"""One connection to peers that are strange: too large, silent, closing, old, or of no protocol."""

from __future__ import annotations

import socket
import ssl
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import closing as closing_afterwards
from contextlib import contextmanager, suppress
from dataclasses import replace

import pyarrow as pa
import pytest

from rangeland.cluster_settings import ClusterSettings, SaslSettings, TlsSettings
from rangeland.connection.broker_connection import BrokerConnection
from rangeland.connection.diagnosis import TlsFailure, tls_error
from rangeland.connection.failures import ConnectionClosed, ConnectionLost, NotABroker
from rangeland.connection.pool import ConnectionPool
from rangeland.connection.socket_stream import AHEAD_BYTES
from rangeland.connection.tls import tls_context
from rangeland.dialects.dialect import dialect_names, load_dialect
from rangeland.dialects.kafka import messages as m
from rangeland.dialects.protocol_session import BrokerRequest
from rangeland.dialects.rocketmq.frames import RESPONSE, Frame, read_frame, write_frame
from rangeland.dialects.rocketmq.messages import TOPIC_CONFIG, StartSearch
from rangeland.errors import (
    AccessDenied,
    JobFileError,
    RangelandError,
    RemoteProtocolError,
    Unreachable,
)
from rangeland.model import Address, Partition
from rangeland.survey.cluster_survey import take_survey
from rangeland.survey.survey_request import SurveyRequest
from rangeland.wire.encoding import encode
from tests.certificates import Authority

KAFKA = load_dialect("kafka")
TLS_HANDSHAKE = 0x16
METADATA = BrokerRequest(m.MetadataRequest(topics=()))
VERSIONS = ((3, 0, 13), (18, 0, 4), (1, 4, 17), (17, 0, 1))
API_VERSIONS, FETCH, METADATA_KEY, HANDSHAKE = 18, 1, 3, 17

Reply = Callable[[bytes], bytes | None]
"""What is answered to a request, which is without its length; None: the connection is closed."""


@contextmanager
def peer(*replies: Reply) -> Iterator[Address]:
    """A server whose nth connection is answered by the nth reply, later ones by the last."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.05)
        stop = threading.Event()

        def serve(connection: socket.socket, reply: Reply) -> None:
            with connection, suppress(ConnectionError):
                while not stop.is_set():
                    connection.settimeout(0.1)
                    try:
                        length = connection.recv(4)
                    except TimeoutError:
                        continue
                    connection.settimeout(30)
                    if len(length) < 4 or length[0] == TLS_HANDSHAKE:
                        return  # what looks for TLS may be read long after it was sent
                    response = reply(connection.recv(int.from_bytes(length, "big") & 0xFFFF))
                    if response is None:
                        return
                    connection.sendall(response)

        def accept() -> None:
            count = 0
            while not stop.is_set():
                try:
                    connection, _ = server.accept()
                except TimeoutError:
                    continue
                reply = replies[min(count, len(replies) - 1)]
                count += 1
                threads.append(threading.Thread(target=serve, args=(connection, reply)))
                threads[-1].start()

        threads = [threading.Thread(target=accept)]
        threads[0].start()
        try:
            yield Address("127.0.0.1", server.getsockname()[1])
        finally:
            stop.set()
            for thread in threads:
                thread.join()


def framed(data: bytes) -> bytes:
    return len(data).to_bytes(4, "big") + data


def key_of(request: bytes) -> int:
    return int.from_bytes(request[:2], "big")


def versions_response(request: bytes) -> bytes:
    ranges = tuple(m.ApiVersion(api_key=k, min_version=a, max_version=b) for k, a, b in VERSIONS)
    version = int.from_bytes(request[2:4], "big")
    response = m.ApiVersionsResponse(error_code=0, api_keys=ranges)
    return framed(request[4:8] + encode(response, version))


def settings_of(address: Address, **more: object) -> ClusterSettings:
    base = {"connect_ms": 1_000, "request_ms": 1_000, "survey_ms": 1_000, "no_progress_ms": 1_000}
    return ClusterSettings("kafka", (address,), **{**base, **more})  # type: ignore[arg-type]


def young(then: Reply) -> Reply:
    """A broker that says which versions it takes, and answers all else with ``then``."""

    def reply(request: bytes) -> bytes | None:
        return versions_response(request) if key_of(request) == API_VERSIONS else then(request)

    return reply


def length_of(length: int) -> Reply:
    return lambda _: (length & 0xFFFFFFFF).to_bytes(4, "big") + b"\0" * 16


def closing(_: bytes) -> None:
    return None


def test_a_frame_may_complete_several_messages() -> None:
    """As where all queues of a topic wait for its type."""
    types: list[int] = []

    def answer(request: bytes) -> bytes:
        asked = read_frame(memoryview(request))
        types.extend([asked.code] if asked.code == TOPIC_CONFIG else ())
        told = Frame(0, asked.opaque, RESPONSE, "", {"offset": "50"}, b'{"attributes": {}}')
        return framed(b"".join(bytes(part) for part in write_frame(told)))

    with peer(answer) as address:
        settings = replace(settings_of(address), dialect="rocketmq")
        connection = BrokerConnection(address, load_dialect("rocketmq"), settings)
        with closing_afterwards(connection):
            for number in range(3):
                connection.send(BrokerRequest(StartSearch(Partition("t", number, "a"))))
            found = [connection.receive() for _ in range(3)]
    assert [response.fields["offset"] for response in found] == ["50"] * 3
    assert [response.request.about.number for response in found] == [0, 1, 2]
    assert types == [TOPIC_CONFIG]


# --- lengths --------------------------------------------------------------------------------


@pytest.mark.parametrize("length", [-1, -(2**31), 2**31 - 1, 1 << 30, (1 << 20) + 1])
def test_an_absurd_length_is_refused_before_memory_is_taken(length: int) -> None:
    with peer(length_of(length)) as address:
        tracemalloc.start()
        before = pa.total_allocated_bytes()
        with pytest.raises(NotABroker, match=str(length)):
            BrokerConnection(address, KAFKA, settings_of(address))
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
        tracemalloc.stop()
        assert pa.total_allocated_bytes() - before < 1 << 20


def test_an_http_port_is_named_as_one() -> None:
    with (
        peer(lambda _: b"HTTP/1.1 400 Bad Request\r\n\r\n") as address,
        pytest.raises(NotABroker) as caught,
    ):
        BrokerConnection(address, KAFKA, settings_of(address))
    assert caught.value.what == f"{address} is an HTTP port, not a broker"
    assert caught.value.why == "it speaks HTTP: its response begins with HTTP/"


def test_a_brokers_response_above_the_limit_names_the_field_that_raises_it() -> None:
    limit = 1 << 20
    with peer(young(length_of(limit + 1))) as address:
        connection = BrokerConnection(address, KAFKA, settings_of(address, max_answer_bytes=limit))
        before = pa.total_allocated_bytes()
        with pytest.raises(JobFileError, match=r"1048577 bytes.*source\.max_answer_bytes") as e:
            connection.call(METADATA)
        assert e.value.why == "source.max_answer_bytes allows 1048576"
        assert e.value.do.startswith("set source.max_answer_bytes to 1048577 or more if")
        assert pa.total_allocated_bytes() - before <= AHEAD_BYTES


def test_a_negative_length_from_a_broker_is_its_own_mistake() -> None:
    with peer(young(length_of(-7))) as address:
        connection = BrokerConnection(address, KAFKA, settings_of(address))
        with pytest.raises(RemoteProtocolError, match="negative"):
            connection.call(METADATA)


# --- peers that close -----------------------------------------------------------------------


def test_a_peer_that_closes_whatever_it_is_asked_may_be_many_things() -> None:
    with peer(closing) as address, ConnectionPool(settings_of(address)) as brokers:
        with pytest.raises(ConnectionClosed) as caught:
            brokers.call(address, METADATA)
        error = caught.value
        assert error.exit_code == 75
        assert "source.security.tls" in error.do
        assert "source.security.sasl" in error.do
        with pytest.raises(Unreachable, match="closed the connection"):
            take_survey(brokers, SurveyRequest(("t",)))


NO_TOPICS = m.MetadataResponse(brokers=(), topics=())
ALL_TOPICS = BrokerRequest(m.MetadataRequest(topics=None), 0)


def offering(code: int, then: Reply = closing) -> Reply:
    """A broker that answers a SASL handshake with this code, and all else with ``then``."""
    response = m.SaslHandshakeResponse(error_code=code, mechanisms=("SCRAM-SHA-512", "GSSAPI"))

    def reply(request: bytes) -> bytes | None:
        if key_of(request) == HANDSHAKE:
            return framed(request[4:8] + encode(response, int.from_bytes(request[2:4], "big")))
        return then(request)

    return young(reply)


def answers_metadata(request: bytes) -> bytes:
    return framed(request[4:8] + encode(NO_TOPICS, 0))


@pytest.mark.parametrize("code", [0, 33])
def test_a_listener_that_closes_and_offers_sasl_requires_a_login(code: int) -> None:
    with (
        peer(offering(code)) as address,
        ConnectionPool(settings_of(address)) as brokers,
        pytest.raises(JobFileError, match=r"GSSAPI, SCRAM-SHA-512.*source\.security\.sasl"),
    ):
        brokers.call(address, METADATA)


@pytest.mark.parametrize("broker", [offering(34), young(closing)])
def test_a_listener_that_closes_and_offers_no_sasl_may_be_busy(broker: Reply) -> None:
    with peer(broker) as address, ConnectionPool(settings_of(address)) as brokers:
        for _ in range(2):
            with pytest.raises(ConnectionClosed, match=r"source\.security\.sasl.*shutting down"):
                brokers.call(address, METADATA)
        with pytest.raises(Unreachable):
            take_survey(brokers, SurveyRequest(("t",)))


def test_a_listener_that_closes_once_is_asked_again(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", logger="rangeland.connection")
    busy, well = young(closing), young(answers_metadata)
    with peer(busy, well) as address, ConnectionPool(settings_of(address)) as brokers:
        assert brokers.call(address, ALL_TOPICS) == NO_TOPICS
    assert caplog.messages == [f"Reconnecting to {address}"]


def test_what_was_sent_ahead_is_sent_again_on_a_new_connection(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO", logger="rangeland.connection")
    busy, well = young(closing), young(answers_metadata)
    with peer(busy, well) as address, ConnectionPool(settings_of(address)) as brokers:
        brokers.send_all(address, [ALL_TOPICS])
        assert brokers.receive_or_call_again(address, [ALL_TOPICS]) == [NO_TOPICS]
        assert brokers.requests == 2
    (line,) = caplog.messages
    assert line.startswith(f"Reconnecting to {address}: ")


def test_a_listener_that_has_answered_without_a_login_does_not_require_one() -> None:
    with (
        peer(offering(34, answers_metadata), offering(0)) as address,
        ConnectionPool(settings_of(address)) as brokers,
    ):
        assert brokers.call(address, ALL_TOPICS) == NO_TOPICS
        brokers.drop(address)
        with pytest.raises(ConnectionClosed):
            brokers.call(address, METADATA)


def test_a_listener_that_has_answered_without_tls_is_not_tried_with_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tried: list[Address] = []
    monkeypatch.setattr(
        "rangeland.connection.broker_connection.speaks_tls", lambda at: bool(tried.append(at))
    )
    with (
        peer(young(answers_metadata), closing) as address,
        ConnectionPool(settings_of(address)) as brokers,
    ):
        assert brokers.call(address, ALL_TOPICS) == NO_TOPICS
        brokers.drop(address)
        with pytest.raises(ConnectionClosed):
            brokers.call(address, METADATA)
    assert tried == []


def test_another_protocol_where_a_broker_has_answered_before_is_not_a_mistake_of_the_job() -> None:
    def web(_: bytes) -> bytes:
        return b"HTTP/1.1 503 Service Unavailable\r\n\r\n"

    with (
        peer(young(answers_metadata), web) as address,
        ConnectionPool(settings_of(address)) as brokers,
    ):
        brokers.call(address, ALL_TOPICS)
        brokers.drop(address)
        with pytest.raises(Unreachable, match="no broker could be reached"):
            take_survey(brokers, SurveyRequest(("t",)))


def test_a_broker_that_fails_while_versions_are_negotiated_may_be_starting() -> None:
    def failing(request: bytes) -> bytes:
        version = int.from_bytes(request[2:4], "big")
        response = m.ApiVersionsResponse(error_code=-1, api_keys=())
        return framed(request[4:8] + encode(response, version))

    with (
        peer(failing) as address,
        ConnectionPool(settings_of(address)) as brokers,
        pytest.raises(Unreachable, match="UNKNOWN_SERVER_ERROR"),
    ):
        take_survey(brokers, SurveyRequest(("t",)))


def test_a_broker_that_closes_once_and_then_fails_at_its_versions_may_be_starting() -> None:
    asked: list[int] = []

    def failing(request: bytes) -> bytes | None:
        asked.append(key_of(request))
        if asked == [API_VERSIONS] or asked[-1] not in (FETCH, API_VERSIONS):
            return None
        if asked[-1] == FETCH:
            return framed(request[4:8] + encode(m.FetchResponse(responses=()), 0))
        version = int.from_bytes(request[2:4], "big")
        response = m.ApiVersionsResponse(error_code=56, api_keys=())
        return framed(request[4:8] + encode(response, version))

    with (
        peer(failing) as address,
        ConnectionPool(settings_of(address)) as brokers,
        pytest.raises(ConnectionLost, match="does not report which versions") as caught,
    ):
        brokers.connect(address)
    assert "KAFKA_STORAGE_ERROR" in caught.value.why


HERE = m.MetadataBroker(node_id=1, host="127.0.0.1", port=9)


@pytest.mark.parametrize(
    ("brokers_named", "code", "kind"),
    [
        ((HERE,), 3, JobFileError),  # UNKNOWN_TOPIC_OR_PARTITION
        ((), 3, Unreachable),  # of a broker that does not know its cluster yet
        ((HERE,), -1, Unreachable),
        ((HERE,), 5, Unreachable),
        ((HERE,), 7, Unreachable),
        ((HERE,), 56, Unreachable),
        ((HERE,), 4711, Unreachable),
        ((HERE,), 29, AccessDenied),  # TOPIC_AUTHORIZATION_FAILED
    ],
)
def test_a_topic_is_missing_only_where_a_broker_that_knows_its_cluster_says_so(
    brokers_named: tuple[m.MetadataBroker, ...], code: int, kind: type[RangelandError]
) -> None:
    topic = m.MetadataTopic(error_code=code, name="t", partitions=())
    response = m.MetadataResponse(brokers=brokers_named, topics=(topic,))

    def metadata(request: bytes) -> bytes:
        version = int.from_bytes(request[2:4], "big")
        assert version >= 9, "its responses' headers end with a tag section"
        return framed(request[4:8] + b"\0" + encode(response, version))

    with (
        peer(young(metadata)) as address,
        ConnectionPool(settings_of(address)) as brokers,
        pytest.raises(kind),
    ):
        take_survey(brokers, SurveyRequest(("t",)))


def test_connections_that_are_closed_while_another_is_opened_stay_closed() -> None:
    opening, closed = threading.Event(), threading.Event()

    def slow(request: bytes) -> bytes:
        opening.set()
        closed.wait(5)
        return versions_response(request)

    with peer(slow) as address, ConnectionPool(settings_of(address, request_ms=5_000)) as brokers:

        def close() -> None:
            opening.wait(5)
            brokers.close()
            closed.set()

        thread = threading.Thread(target=close)
        thread.start()
        try:
            with pytest.raises(ConnectionLost, match="the connection pool is closed"):
                brokers.connect(address)
        finally:
            thread.join()
        assert brokers._open == {}


@pytest.mark.parametrize("name", dialect_names())
def test_only_who_opens_with_a_question_has_peers_that_are_too_old_for_it(name: str) -> None:
    session = load_dialect(name).open_session("me")
    assert bool(session.open()) == bool(session.skip_opening())


def empty_fetch(request: bytes) -> bytes | None:
    """What an old broker does: it answers a fetch in version 0, and closes at an opening."""
    return framed(request[4:8] + b"\0\0\0\0") if key_of(request) == FETCH else None


def test_a_broker_too_old_for_an_opening_is_spoken_to_without() -> None:
    versions: list[bytes] = []

    def old(request: bytes) -> bytes | None:
        if key_of(request) != METADATA_KEY:
            return empty_fetch(request)
        versions.append(request[2:4])
        return framed(request[4:8] + encode(m.MetadataResponse(brokers=(), topics=()), 0))

    with peer(old) as address:
        connection = BrokerConnection(address, KAFKA, settings_of(address))
        response = connection.call(BrokerRequest(m.MetadataRequest(topics=None)))
        assert response == m.MetadataResponse(brokers=(), topics=())
        connection.close()
    assert versions == [b"\0\1", b"\0\0"], "the first is the probe"


def test_a_young_broker_that_closes_once_is_not_taken_for_an_old_one() -> None:
    """It would give records in the oldest format, without headers and times."""

    def grown(request: bytes) -> bytes | None:
        if key_of(request) == API_VERSIONS:
            return versions_response(request)
        return empty_fetch(request)

    # The second connection is the TLS greeting.
    with peer(closing, closing, grown) as address:
        connection = BrokerConnection(address, KAFKA, settings_of(address))
        assert connection._session.versions == {k: (a, b) for k, a, b in VERSIONS}  # type: ignore[attr-defined]
        connection.close()


def test_who_has_a_password_does_not_look_for_older_ways() -> None:
    sasl = SaslSettings("PLAIN", "u", "p")
    with (
        peer(closing, closing, empty_fetch) as address,
        pytest.raises(ConnectionClosed, match="closed the connection"),
    ):
        BrokerConnection(address, KAFKA, settings_of(address, sasl=sasl))


# --- TLS ------------------------------------------------------------------------------------


def test_a_plain_broker_that_waits_for_more_of_a_greeting_is_reported_for_what_it_is() -> None:
    """TLS's first bytes are a length of 360 MB to a broker that takes frames so large."""

    def waits(request: bytes) -> bytes | None:
        if request[:2] == b"\x00\x12":
            return versions_response(request)
        time.sleep(1.2)
        return None

    with peer(waits) as address:
        start = time.monotonic()
        with pytest.raises(JobFileError, match=r"does not speak TLS.*source\.security\.tls"):
            BrokerConnection(address, KAFKA, settings_of(address, tls=TlsSettings()))
        assert time.monotonic() - start < 20


@pytest.mark.parametrize("dialect", ["kafka", "rocketmq"])
def test_a_tls_port_that_closes_without_an_alert_is_reported_for_what_it_is(
    authority: Authority, dialect: str
) -> None:
    issued = authority.issue(f"broker-{dialect}")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(issued.both)

    def serve(server: socket.socket) -> None:
        with suppress(OSError):
            while True:
                connection, _ = server.accept()
                with connection:
                    if connection.recv(1, socket.MSG_PEEK) == b"\x16":
                        with suppress(OSError), context.wrap_socket(connection, server_side=True):
                            pass

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=serve, args=(server,))
        thread.start()
        address = Address("127.0.0.1", server.getsockname()[1])
        settings = replace(settings_of(address), dialect=dialect, connect_ms=5_000)
        try:
            with (
                ConnectionPool(settings) as brokers,
                pytest.raises(JobFileError, match=r"speaks TLS, but the job does not"),
            ):
                take_survey(brokers, SurveyRequest(("t",)))
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join()


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("tls"))


@pytest.mark.parametrize(
    ("reason", "is_mistake"),
    [
        ("TLSV1_ALERT_INTERNAL_ERROR", False),
        ("TLSV1_ALERT_USER_CANCELLED", False),
        ("UNEXPECTED_EOF_WHILE_READING", False),
        ("SSLV3_ALERT_HANDSHAKE_FAILURE", True),
        ("TLSV13_ALERT_CERTIFICATE_REQUIRED", True),
        ("WRONG_VERSION_NUMBER", True),
    ],
)
def test_an_alert_about_the_peer_s_own_trouble_is_not_a_mistake_of_the_job(
    reason: str, is_mistake: bool
) -> None:
    found = tls_error(Address("b", 1), TlsFailure(reason), TlsSettings())
    assert (found is not None) is is_mistake


def test_a_pem_file_that_cannot_be_used_is_reported_with_its_field_and_host(
    authority: Authority,
) -> None:
    folder, ca = authority.folder, str(authority.ca)
    mine, locked = authority.issue("mine"), authority.issue("locked", password="right")
    (folder / "no.pem").write_text("nothing")
    gone = str(folder / "gone.pem")
    crt, key, none = str(mine.certificate), str(mine.key), str(folder / "no.pem")
    other, shut = str(locked.certificate), str(locked.key)
    cases: list[tuple[TlsSettings, str]] = [
        (TlsSettings(ca=gone), r"there is no file .*--files.*tls\.ca"),
        (TlsSettings(ca=ca, certificate=gone), r"there is no file .*tls\.certificate"),
        (TlsSettings(ca=ca, certificate=crt, key=gone), r"there is no file .*tls\.key"),
        (TlsSettings(ca=none), r"no\.pem cannot be used.*tls\.ca: a PEM file"),
        (TlsSettings(ca=ca, certificate=none, key=key), r"cannot be used.*PEM"),
        (TlsSettings(ca=ca, certificate=crt), r"cannot be used"),
        (TlsSettings(ca=ca, certificate=crt, key=shut, key_password="right"), "must be the key of"),
        (TlsSettings(ca=ca, certificate=other, key=shut, key_password="wrong"), "key_password"),
        (TlsSettings(ca=ca, certificate=other, key=shut), "key_password"),
    ]
    for tls, says in cases:
        with pytest.raises(JobFileError, match=says) as caught:
            tls_context(tls)
        assert caught.value.exit_code == 78
        assert "right" not in str(caught.value).replace("is right", "")


def test_a_pem_file_that_spark_has_shipped_is_found_in_the_working_folder(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(authority.folder)
    assert tls_context(TlsSettings(ca=f"/nowhere/{authority.ca.name}"))


def test_tls_older_than_1_2_is_not_spoken(authority: Authority) -> None:
    context = tls_context(TlsSettings(ca=str(authority.ca)))
    assert context.minimum_version.name == "TLSv1_2"
    assert context.check_hostname


def test_a_mistake_of_a_connection_survives_the_way_from_an_executor() -> None:
    import pickle

    with peer(young(length_of(1 << 30))) as address:
        connection = BrokerConnection(address, KAFKA, settings_of(address))
        with pytest.raises(RangelandError) as caught:
            connection.call(METADATA)
    again = pickle.loads(pickle.dumps(caught.value))
    assert str(again) == str(caught.value)
