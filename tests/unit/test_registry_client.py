"""Asking a schema registry: good, hostile and broken servers, redirects, logins, and what is
believed."""

from __future__ import annotations

import pickle
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from rangeland.cluster_settings import TlsSettings
from rangeland.connection.http_client import HttpFailed, http_get
from rangeland.decode.payload.schema_ids.schema_catalogue import SchemaFormat, SubjectVersion
from rangeland.errors import AccessDenied, JobFileError, RangelandError, Unreachable
from rangeland.schema_registry import registry_client
from rangeland.schema_registry.missing_ids import CONFIRM_S, CONFIRMATIONS
from rangeland.schema_registry.registry_client import (
    FIRST_RESPONSE_MS,
    MAX_REDIRECTS,
    Absence,
    RegistryClient,
)
from rangeland.schema_registry.registry_responses import SchemaResponse
from rangeland.schema_registry.registry_settings import RegistrySettings
from rangeland.testing.ports import free_ports
from tests.certificates import Authority
from tests.scripted_http import Reply, drips, error, is_silent, response, scripted, sends

SECRET = "hunter2-never-to-be-seen"
GOOD = response({"schema": '"long"'})
UNKNOWN = error(404, 40403)


@dataclass
class Clock:
    """Time passes only in pauses."""

    s: float = 0.0
    pauses: list[float] = field(default_factory=list)

    def now(self) -> float:
        return self.s

    def pause(self, s: float) -> None:
        self.pauses.append(s)
        self.s += s


def client(*urls: str, clock: Clock | None = None, **changed: Any) -> RegistryClient:
    first = changed.pop("first_response_ms", None)
    settings = RegistrySettings(urls, **{"request_ms": 5_000, "no_progress_ms": 5_000} | changed)
    clock = clock or Clock()
    return RegistryClient(settings, first_response_ms=first, now=clock.now, pause=clock.pause)


def dead() -> str:
    return f"http://127.0.0.1:{free_ports(1)[0]}"


def failed(asked: Callable[[], object], kind: type[RangelandError]) -> RangelandError:
    with pytest.raises(kind) as raised:
        asked()
    assert raised.value.__cause__ is None
    assert raised.value.__context__ is None
    return raised.value


# --- what a registry answers ----------------------------------------------------------------


def test_a_schema_without_a_type_is_avro() -> None:
    with scripted([GOOD]) as server:
        assert client(server.url).schema(7) == SchemaResponse(SchemaFormat.AVRO, '"long"', ())
        assert server.paths == ["/schemas/ids/7"]
        assert "schemaregistry" in server.requests[0][1]["Accept"]


def test_a_schema_with_references() -> None:
    reference = {"name": "common.proto", "subject": "common", "version": 3}
    content = {"schema": "x", "schemaType": "PROTOBUF", "references": [reference]}
    with scripted([response(content)]) as server:
        found = client(f"{server.url}/apis/ccompat/v7/").schema(7)
        assert server.paths == ["/apis/ccompat/v7/schemas/ids/7"]
    assert found is not None
    assert found.format is SchemaFormat.PROTOBUF
    assert [(one.name, one.at) for one in found.references] == [
        ("common.proto", SubjectVersion("common", 3))
    ]


def test_a_subject_is_quoted_in_the_path() -> None:
    content = {"subject": "a/b c", "version": 2, "id": 5, "schema": '"int"'}
    with scripted([response(content)]) as server:
        asked = client(server.url)
        found = asked.latest("a/b c")
        assert asked.referenced_version(SubjectVersion("a/b c", 2)) == found
        assert server.paths == [
            "/subjects/a%2Fb%20c/versions/latest",
            "/subjects/a%2Fb%20c/versions/2",
        ]
    assert found is not None
    assert (found.id, found.at) == (5, SubjectVersion("a/b c", 2))


def test_the_versions_of_an_id_are_sorted() -> None:
    listed = [{"subject": "b", "version": 1}, {"subject": "a", "version": 2}]
    with scripted([response(listed)]) as server:
        assert client(server.url).versions(7) == (SubjectVersion("a", 2), SubjectVersion("b", 1))


# --- what does not exist --------------------------------------------------------------------


def test_an_unknown_subject_is_asked_for_everywhere_and_confirmed_as_ids_are() -> None:
    clock = Clock()
    unknown = error(404, 40401)
    with scripted([unknown]) as one, scripted([unknown]) as two:
        asked = client(one.url, two.url, clock=clock)
        assert asked.latest("orders-value") is None
        assert clock.pauses == [1.0, 2.0, 2.0]
        assert clock.s == CONFIRM_S
        assert len(one.paths) == len(two.paths) == 3 + 1 + CONFIRMATIONS
        assert asked.latest("bills-value") is None  # it has been due for as long
        assert clock.s == CONFIRM_S
        assert len(one.paths) == len(two.paths) == 3 + 2 * (1 + CONFIRMATIONS)


def test_a_subject_that_only_the_last_confirmation_shows_is_found() -> None:
    found = {"subject": "a", "version": 1, "id": 5, "schema": '"int"'}
    with scripted([*[error(404, 40401)] * (3 + CONFIRMATIONS), response(found)]) as server:
        assert client(server.url).latest("a") is not None


@pytest.mark.parametrize(
    ("ask", "why"),
    [
        (
            lambda asked: asked.referenced_version(SubjectVersion("a", 1)),
            "although a registered schema refers to it",
        ),
        (
            lambda asked: asked.latest("a", Absence.CONTRADICTED),
            "although an id is registered there",
        ),
    ],
)
def test_a_copy_that_lacks_what_is_known_to_exist_is_late(
    ask: Callable[[RegistryClient], object], why: str
) -> None:
    found = response({"subject": "a", "version": 1, "id": 5, "schema": '"int"'})
    unknown = error(404, 40402)
    clock = Clock()
    with scripted([*[unknown] * 5, found]) as server:
        asked = client(server.url, clock=clock, no_progress_ms=120_000)
        assert ask(asked) is not None
        assert clock.s > CONFIRM_S
    with scripted([unknown]) as server:
        raised = failed(lambda: ask(client(server.url, clock=clock)), Unreachable)
    assert why in raised.why


def test_an_unknown_id_is_asked_for_everywhere() -> None:
    clock = Clock()
    with scripted([UNKNOWN]) as one, scripted([UNKNOWN]) as two:
        assert client(one.url, two.url, clock=clock).schema(7) is None
        assert len(one.paths) == len(two.paths) == 1
    assert clock.pauses == []


def test_an_id_that_another_address_knows_is_found() -> None:
    with scripted([UNKNOWN]) as one, scripted([GOOD]) as two:
        assert client(one.url, two.url).schema(7) is not None


def test_a_subject_that_appears_after_a_moment_is_found() -> None:
    found = {"subject": "a", "version": 1, "id": 5, "schema": '"int"'}
    with scripted([error(404, 40401), response(found)]) as server:
        assert client(server.url).latest("a") is not None


def test_an_unknown_id_is_not_believed_while_an_address_is_silent() -> None:
    with scripted([UNKNOWN]) as server:
        down = dead()
        raised = failed(lambda: client(server.url, down).schema(7), Unreachable)
    assert down in raised.why
    assert server.url not in raised.why


def test_an_absence_that_is_not_confirmed_starts_over() -> None:
    unknown = error(404, 40401)
    with scripted([*[unknown] * 4, error(503, 50301), unknown]) as server:
        assert client(server.url, no_progress_ms=30_000).latest("orders-value") is None
        assert len(server.paths) == 3 + 2 + 1 + CONFIRMATIONS


@pytest.mark.parametrize("code", [40401, 40402])
def test_an_unknown_subject(code: int) -> None:
    with scripted([error(404, code)]) as server:
        assert client(server.url).latest("orders-value") is None


def test_an_id_whose_subjects_were_deleted_has_no_versions() -> None:
    with scripted([response([])]) as server:
        assert client(server.url).versions(7) == ()
        assert len(server.paths) == 1


def test_a_copy_that_lacks_the_versions_of_a_known_id_is_late() -> None:
    listed = response([{"subject": "a", "version": 2}])
    with scripted([UNKNOWN, UNKNOWN, UNKNOWN, listed]) as server:
        assert client(server.url, no_progress_ms=30_000).versions(7) == (SubjectVersion("a", 2),)
    clock = Clock()
    with scripted([UNKNOWN]) as server:
        asked = client(server.url, clock=clock, no_progress_ms=30_000)
        raised = failed(lambda: asked.versions(7), Unreachable)
    assert raised.what == "the schema registry did not answer for the subjects of schema id 7"
    assert "it reports that this does not exist, although it has the schema" in raised.why
    assert clock.pauses == [1.0, 2.0, 4.0, 8.0, 8.0]


def test_an_id_that_may_be_unknown_has_no_versions() -> None:
    with scripted([UNKNOWN]) as server:
        assert client(server.url).versions(7, Absence.BELIEVED_ONCE_CONFIRMED) == ()


@pytest.mark.parametrize(
    "reply",
    [
        response(b"<html>not found</html>", 404, "text/html"),
        error(404, 404),
        error(404, 0),
        error(404, 40401),
        response([40403], 404),
    ],
)
def test_another_404_is_no_evidence_that_an_id_is_unknown(reply: Reply) -> None:
    with scripted([reply]) as server:
        raised = failed(lambda: client(server.url).schema(7), Unreachable)
    assert "/apis/ccompat/v7" in raised.why


# --- servers that are down, busy or broken --------------------------------------------------


@pytest.mark.parametrize(
    "reply",
    [
        error(500, 50001),
        error(429, 42901),
        response(b"Bad Gateway", 502, "text/html"),
        response(b"<html>welcome</html>", 200, "text/html"),
        response([1]),
        response({"schema": 7}),
        response({"schema": '"int"', "schemaType": "XML"}),
        response({"schema": '"int"', "references": [{"name": "x", "subject": "y", "version": 0}]}),
        response(b'{"schema": "\xff"}'),
        response(b'{"schema": ' + b"[" * 5_000),
        response(b""),
        sends(b""),
        sends(b"HTTP/1.1 200 X\r\nContent-Length: 100\r\n\r\n{}"),
        sends(b'HTTP/1.1 200 X\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{"sch'),
        sends(b"HTTP/1.1 200 X\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"),
        sends(b"SSH-2.0-OpenSSH_9.9\r\n"),
        sends(b"HTTP/1.1 200 X\r\n" + b"A: b\r\n" * 500 + b"\r\n{}"),
        sends(b"HTTP/1.1 200 " + b"x" * 100_000),
    ],
)
def test_a_broken_response_is_asked_for_again(reply: Reply) -> None:
    clock = Clock()
    with scripted([reply, GOOD]) as server:
        assert client(server.url, clock=clock).schema(7) is not None
    with scripted([reply]) as server:
        raised = failed(lambda: client(server.url, clock=clock).schema(7), Unreachable)
    assert raised.exit_code == 75
    assert raised.what == "the schema registry did not answer for schema id 7"
    assert server.url in raised.why


def test_addresses_are_tried_in_turn_and_the_one_that_answers_stays_first() -> None:
    with scripted([GOOD]) as server:
        asked = client(dead(), server.url)
        assert asked.schema(7) is not None
        before = asked.requests
        assert asked.schema(8) is not None
        assert asked.requests == before + 1


def test_a_registry_that_is_down_is_tried_for_no_progress_ms_with_growing_pauses() -> None:
    clock, one, two = Clock(), dead(), dead()
    raised = failed(
        lambda: client(one, two, clock=clock, no_progress_ms=30_000).schema(7), Unreachable
    )
    assert raised.facts["urls"] == [one, two]
    assert clock.pauses == [1.0, 2.0, 4.0, 8.0, 8.0]


def test_a_registry_that_never_answered_is_not_waited_for_as_long() -> None:
    clock = Clock()
    asked = client(dead(), clock=clock, no_progress_ms=120_000, first_response_ms=FIRST_RESPONSE_MS)
    failed(lambda: asked.schema(7), Unreachable)
    assert clock.s <= FIRST_RESPONSE_MS / 1000


def test_once_it_has_answered_it_is_waited_for() -> None:
    clock = Clock()
    with scripted([GOOD, *[error(503, 50301)] * 5, GOOD]) as server:
        asked = client(server.url, clock=clock, no_progress_ms=120_000, first_response_ms=2_000)
        assert asked.schema(7) is not None
        assert asked.schema(8) is not None
    assert clock.s > 2


def test_a_huge_response_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry_client, "MAX_RESPONSE_BYTES", 1 << 20)
    endless = sends(b"HTTP/1.1 200 X\r\n\r\n" + b" " * (2 << 20))
    with scripted([endless]) as server:
        raised = failed(lambda: client(server.url).schema(7), Unreachable)
    assert "more than 1048576 bytes" in raised.why


@pytest.mark.parametrize(
    "reply",
    [
        is_silent,
        drips(b"HTTP/1.1 200 X\r\n" + b"A: b\r\n" * 90, 0.05),
        drips(b"HTTP/1.1 200 X\r\nContent-Length: 900\r\n\r\n" + b" " * 900, 0.05),
        drips(b"HTTP/1.1 200 X\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1\r\n \r\n" * 90, 0.05),
        drips(b"HTTP/1.1 100 X\r\n\r\n" * 90, 0.05),
    ],
)
def test_a_slow_response_ends_at_the_deadline(reply: Reply) -> None:
    started = time.monotonic()
    context = ssl.create_default_context()
    with scripted([reply]) as server:
        with pytest.raises(HttpFailed, match=r"no complete response in 0\.6 s"):
            http_get(server.url, {}, context, connect_s=5, request_s=0.6, max_bytes=1 << 20)
        assert time.monotonic() - started < 30


# --- redirects ------------------------------------------------------------------------------


def moved(to: str, status: int = 302) -> Reply:
    return response(b"", status, Location=to)


def test_redirects_are_followed() -> None:
    paths = {
        "/schemas/ids/7": moved("/v1/schemas/ids/7", 301),
        "/v1/schemas/ids/7": moved("again", 307),
        "/v1/schemas/ids/again": GOOD,
    }
    with scripted(paths) as server:
        assert client(server.url).schema(7) is not None


def test_a_redirect_loop_is_bounded() -> None:
    with scripted([moved("/schemas/ids/7")]) as server:
        raised = failed(lambda: client(server.url, no_progress_ms=1).schema(7), Unreachable)
        assert len(server.paths) == MAX_REDIRECTS + 1
    assert "it redirects more than 3 times" in raised.why


@pytest.mark.parametrize("to", ["", "file:///etc/passwd", "ftp://x/", "http://[::1", "//"])
def test_a_redirect_to_something_else_is_not_followed(to: str) -> None:
    with scripted([moved(to)]) as server:
        failed(lambda: client(server.url, no_progress_ms=1).schema(7), Unreachable)


def test_a_login_is_not_sent_to_another_server() -> None:
    with scripted([GOOD]) as other:
        with scripted([moved(f"{other.url}/x")]) as server:
            asked = client(server.url, username="me", password=SECRET)
            assert asked.schema(7) is not None
            assert "Authorization" in server.requests[0][1]
        assert "Authorization" not in other.requests[0][1]


# --- logins and TLS -------------------------------------------------------------------------


def test_basic_and_bearer() -> None:
    with scripted([GOOD]) as server:
        client(server.url, username="me", password="p:\u00e9").schema(7)
        client(server.url, token="ab.c").schema(7)
        client(server.url).schema(7)
    logins = [headers.get("Authorization") for _, headers in server.requests]
    assert logins == ["Basic bWU6cDrDqQ==", "Bearer ab.c", None]


@pytest.mark.parametrize(
    ("status", "acts"),
    [
        (401, "the author of the job file, or the registry's operator"),
        (403, "the registry's operator"),
    ],
)
def test_a_login_may_be_wrong_and_a_right_is_up_to_the_operator_of_the_registry(
    status: int, acts: str
) -> None:
    with scripted([error(status, status * 100 + 1, SECRET)]) as server:
        asked = client(server.url, username="me", password=SECRET)
        raised = failed(lambda: asked.schema(7), AccessDenied)
        assert len(server.paths) == 1
    assert (raised.exit_code, raised.acts) == (78, acts)
    assert "decode.registry" in raised.do
    assert SECRET not in str(raised) + repr(raised.facts)


REFUSED = error(401, 40101)


@pytest.mark.parametrize("refused", [REFUSED, error(403, 40301)])
def test_an_address_that_refuses_leaves_the_others(refused: Reply) -> None:
    with scripted([refused]) as one, scripted([GOOD]) as two:
        assert client(one.url, two.url).schema(7) is not None
        assert len(one.paths) == len(two.paths) == 1


def test_a_login_that_all_addresses_refuse_is_refused_at_once() -> None:
    clock = Clock()
    with scripted([REFUSED]) as one, scripted([REFUSED]) as two:
        raised = failed(lambda: client(one.url, two.url, clock=clock).schema(7), AccessDenied)
        assert len(one.paths) == len(two.paths) == 1
    assert raised.facts["url"] == one.url
    assert clock.pauses == []


@pytest.mark.parametrize("other", [error(503, 50301), UNKNOWN])
def test_a_login_that_only_one_address_refuses_is_not_refused(other: Reply) -> None:
    with scripted([REFUSED]) as one, scripted([other]) as two:
        raised = failed(lambda: client(one.url, two.url).schema(7), Unreachable)
        assert len(one.paths) == len(two.paths) > 1
    assert f"{one.url}: it answered 401, a login is needed" in raised.why


@pytest.mark.parametrize("accepted", [GOOD, UNKNOWN])
def test_a_login_that_was_accepted_before_is_only_refused_once_time_is_up(accepted: Reply) -> None:
    login: dict[str, Any] = {"username": "me", "password": SECRET, "no_progress_ms": 30_000}
    with scripted([accepted, REFUSED, GOOD]) as server:
        client(server.url, **login).schema(6)
        assert client(server.url, **login).schema(7) is not None
    clock = Clock()
    with scripted([accepted, REFUSED]) as server:
        client(server.url, **login).schema(6)
        again = client(server.url, clock=clock, first_response_ms=FIRST_RESPONSE_MS, **login)
        failed(lambda: again.schema(7), AccessDenied)
        assert clock.pauses == [1.0, 2.0, 4.0, 8.0, 8.0]
        other = client(server.url, clock=clock, **{**login, "password": "other"})
        failed(lambda: other.schema(7), AccessDenied)
        assert clock.s == 23.0


@pytest.fixture(autouse=True)
def _new_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ports are used again, and then a server would not be new."""
    monkeypatch.setattr(registry_client, "_accepted_logins", set())


@pytest.mark.parametrize("token", ["Zq8 Zq9", "Zq8\r\nX: y", "Zq8\u00e9"])
def test_a_token_that_cannot_be_sent_is_not_repeated(token: str) -> None:
    raised = failed(lambda: client("http://127.0.0.1:1", token=token), JobFileError)
    assert token not in str(raised)


def test_secrets_are_in_no_repr_and_survive_pickling() -> None:
    settings = RegistrySettings(("http://x",), "me", SECRET, SECRET)
    assert SECRET not in repr(settings)
    assert pickle.loads(pickle.dumps(settings)) == settings


def server_context(authority: Authority, hosts: tuple[str, ...]) -> ssl.SSLContext:
    issued = authority.issue("registry", hosts)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(issued.certificate, issued.key)
    return context


def test_tls_with_an_authority_of_the_job(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    with scripted([GOOD], server_context(authority, ("127.0.0.1",))) as server:
        assert client(server.url, tls=TlsSettings(ca=str(authority.ca))).schema(7) is not None


def test_a_certificate_that_is_not_trusted_is_an_error_of_the_job_file(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    with scripted([GOOD], server_context(authority, ("127.0.0.1",))) as server:
        raised = failed(lambda: client(server.url).schema(7), JobFileError)
    assert "decode.registry.tls.ca" in raised.do


def test_a_certificate_of_another_host_is_an_error_of_the_job_file(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    tls = TlsSettings(ca=str(authority.ca))
    with scripted([GOOD], server_context(authority, ("elsewhere",))) as server:
        failed(lambda: client(server.url, tls=tls).schema(7), JobFileError)


def test_https_to_a_plain_server_may_pass() -> None:
    with scripted([GOOD]) as server:
        url = server.url.replace("http:", "https:")
        failed(lambda: client(url, no_progress_ms=1).schema(7), Unreachable)


def test_a_missing_pem_file_names_its_field() -> None:
    with pytest.raises(JobFileError) as raised:
        client("https://127.0.0.1:1", tls=TlsSettings(ca="/none.pem"))
    assert "decode.registry.tls.ca" in raised.value.do
