"""Bearer tokens from commands, files, functions and a token server; and what keeps them secret."""

from __future__ import annotations

import json
import socket
import ssl
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest

from rangeland.cluster_settings import ClusterSettings, SaslSettings, TokenSource
from rangeland.connection import tokens
from rangeland.connection.tokens import fetch_token, forget_token
from rangeland.errors import AccessDenied, JobFileError, RangelandError, Unreachable
from tests.certificates import Authority

TOKEN = "eyJhbGciOiJub25lIn0.eyJzdWIiOiJhIn0.c2VjcmV0LXNpZ25hdHVyZQ"
SECRET = "client-secret-never-to-be-seen"


@pytest.fixture(autouse=True)
def _nothing_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens, "_kept", {})
    monkeypatch.setenv("no_proxy", "127.0.0.1,localhost")


def fetched(source: TokenSource, wait_ms: int = 5000, **more: Any) -> str:
    return fetch_token(source, wait_ms, **more)


def script(text: str) -> TokenSource:
    return TokenSource(command=(sys.executable, "-c", text))


def good() -> str:
    return TOKEN


def not_a_token() -> str:
    return f"Bearer {TOKEN}"


def nothing() -> None:
    return None


def broken() -> str:
    raise ValueError(TOKEN)


def test_a_command_prints_the_token() -> None:
    assert fetched(script(f"print({TOKEN!r})")) == TOKEN


def test_a_file_holds_the_token(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text(f"{TOKEN}\r\n")
    assert fetched(TokenSource(file=str(path))) == TOKEN


def test_a_function_returns_the_token() -> None:
    assert fetched(TokenSource(function=f"{__name__}:good")) == TOKEN


def test_connections_made_together_share_a_token_and_a_new_login_takes_another(
    tmp_path: Path,
) -> None:
    path = tmp_path / "token"
    source = TokenSource(file=str(path))
    for number in ("one", "two", "three"):
        path.write_text(number)
        if number == "two":
            assert fetched(source) == "one"
            assert fetched(source, refresh=True) == "two"
        elif number == "three":
            assert fetched(source) == "two"
            forget_token(source)
            assert fetched(source) == "three"
        else:
            assert fetched(source) == "one"


BAD: dict[str, tuple[TokenSource, type[RangelandError], str]] = {
    "a command that fails": (
        script(f"import sys; print({TOKEN!r}); print('no {TOKEN} here', file=sys.stderr); exit(2)"),
        JobFileError,
        "it ended with exit code 2 on .*: no ... here",
    ),
    "a command that wants to be tried later": (
        script("exit(75)"),
        Unreachable,
        "ended with exit code 75",
    ),
    "a command that is not there": (
        TokenSource(command=("/nowhere/to-be-found",)),
        JobFileError,
        "cannot be started on .*No such file.*every executor",
    ),
    "a command that prints nothing": (script(""), JobFileError, "its output is empty"),
    "a command that prints more": (
        script(f"print('token:', {TOKEN!r})"),
        JobFileError,
        "RFC 6750 does not allow",
    ),
    "a file that is not there": (TokenSource(file="/nowhere/t"), JobFileError, "every executor"),
    "a function that is not there": (
        TokenSource(function=f"{__name__}:gone"),
        JobFileError,
        "cannot be imported",
    ),
    "a module that is not there": (
        TokenSource(function="nowhere_at_all:gone"),
        JobFileError,
        "--py-files",
    ),
    "a function that raises": (
        TokenSource(function=f"{__name__}:broken"),
        JobFileError,
        "it raised ValueError",
    ),
    "a function that returns no text": (
        TokenSource(function=f"{__name__}:nothing"),
        JobFileError,
        "its output is empty",
    ),
    "a function that returns more": (
        TokenSource(function=f"{__name__}:not_a_token"),
        JobFileError,
        "did not give a valid bearer token",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_what_gives_no_token_is_reported_without_it(name: str) -> None:
    source, kind, says = BAD[name]
    with pytest.raises(kind, match=says) as caught:
        fetched(source)
    error: BaseException | None = caught.value
    assert "source.security.sasl.token" in str(error)
    while error is not None:  # what is printed with --debug
        assert TOKEN not in f"{error!r} {error} {getattr(error, 'facts', '')}"
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)


def test_a_command_that_hangs_is_ended() -> None:
    with pytest.raises(Unreachable, match=r"within 0\.2 s"):
        fetched(script(f"import time; print({TOKEN!r}, flush=True); time.sleep(60)"), 200)


# --- a token endpoint -------------------------------------------------------------------------


class Endpoint(BaseHTTPRequestHandler):
    status = 200
    response: Any = None
    asked: dict[str, list[str]]

    def do_POST(self) -> None:
        form = self.rfile.read(int(self.headers["Content-Length"])).decode()
        type(self).asked = parse_qs(form)
        body = json.dumps(self.response).encode()
        self.send_response(self.status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


class Quiet(HTTPServer):
    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that does not trust it hangs up."""


@contextmanager
def served(kind: type[HTTPServer]) -> Iterator[HTTPServer]:
    with kind(("127.0.0.1", 0), Endpoint) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture
def endpoint(monkeypatch: pytest.MonkeyPatch) -> Iterator[TokenSource]:
    monkeypatch.setattr(Endpoint, "status", 200)
    monkeypatch.setattr(Endpoint, "response", {"access_token": TOKEN, "expires_in": 300})
    with served(HTTPServer) as server:
        url = f"http://127.0.0.1:{server.server_port}/token"
        yield TokenSource(endpoint=url, client_id="me", client_secret=SECRET, scope="kafka")


def test_an_endpoint_is_asked_for_client_credentials(endpoint: TokenSource) -> None:
    assert fetched(endpoint) == TOKEN
    assert Endpoint.asked == {
        "grant_type": ["client_credentials"],
        "client_id": ["me"],
        "client_secret": [SECRET],
        "scope": ["kafka"],
    }


def test_an_endpoint_over_tls_must_be_who_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Endpoint, "response", {"access_token": TOKEN})
    authority = Authority(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority.issue("login").both)
    with served(Quiet) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        url = f"https://localhost:{server.server_port}/token"
        known = TokenSource(
            endpoint=url, client_id="me", client_secret=SECRET, ca=str(authority.ca)
        )
        assert fetched(known) == TOKEN
        with pytest.raises(JobFileError, match=r"certificate verify failed.*endpoint and ca"):
            fetched(replace(known, ca=None))


@pytest.mark.parametrize(
    ("status", "response", "kind", "says"),
    [
        (401, {"error": "invalid_client"}, AccessDenied, "401, invalid_client"),
        (400, {"error": "invalid_client"}, AccessDenied, "400, invalid_client"),
        (403, {}, AccessDenied, "403, no access_token"),
        (400, ["no", "object"], JobFileError, "400, no access_token"),
        (503, {}, Unreachable, "answered 503"),
        (408, {}, Unreachable, "answered 408"),
        (400, {"error": "temporarily_unavailable"}, Unreachable, "400, temporarily_unavailable"),
        (400, {"error": "server_error"}, Unreachable, "400, server_error"),
        (200, {"token": TOKEN}, JobFileError, "no access_token"),
    ],
)
def test_an_endpoint_that_refuses_is_quoted_without_secrets(
    endpoint: TokenSource,
    monkeypatch: pytest.MonkeyPatch,
    status: int,
    response: Any,
    kind: type[RangelandError],
    says: str,
) -> None:
    monkeypatch.setattr(Endpoint, "status", status)
    monkeypatch.setattr(Endpoint, "response", response)
    with pytest.raises(kind, match=says) as caught:
        fetched(endpoint)
    assert SECRET not in str(caught.value)
    assert TOKEN not in str(caught.value)


def test_an_endpoint_that_is_not_there_is_tried_again_later() -> None:
    gone = TokenSource(endpoint="http://127.0.0.1:1/t", client_id="me", client_secret=SECRET)
    with pytest.raises(Unreachable, match="Connection refused"):
        fetched(gone)


def hanging() -> str:
    HANGS.wait(60)
    return TOKEN


HANGS = threading.Event()


def test_a_function_that_hangs_is_left_alone_and_holds_up_no_other_source() -> None:
    HANGS.clear()
    slow = TokenSource(function=f"{__name__}:hanging")
    errors: list[RangelandError] = []

    def ask() -> None:
        try:
            fetched(slow, 5_000)
        except RangelandError as error:
            errors.append(error)

    try:
        thread = threading.Thread(target=ask)
        thread.start()
        assert fetched(TokenSource(function=f"{__name__}:good")) == TOKEN
        assert thread.is_alive(), "the other source was held up"
        thread.join(50)
        assert not thread.is_alive()
    finally:
        HANGS.set()
    assert [type(error) for error in errors] == [Unreachable]
    assert "within 5 s" in str(errors[0])


@contextmanager
def raw(*responses: bytes, pause_s: float = 0.0) -> Iterator[str]:
    """A server that answers with these bytes, whatever is asked. Gives its URL."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        ended = threading.Event()

        def serve() -> None:
            with suppress(OSError):
                connection, _ = server.accept()
                with connection:
                    connection.recv(1 << 16)
                    for response in responses:
                        connection.sendall(response)
                        ended.wait(pause_s)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.getsockname()[1]}/t"
        finally:
            ended.set()
            with suppress(OSError):
                server.shutdown(socket.SHUT_RDWR)
            thread.join()


def test_an_endpoint_that_trickles_does_not_outlast_its_time() -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n"
    with raw(head, *[b" "] * 400, pause_s=0.1) as url:
        started = time.monotonic()
        with pytest.raises(Unreachable, match="within 0"):
            fetched(TokenSource(endpoint=url, client_id="me", client_secret=SECRET), 500)
        assert time.monotonic() - started < 30


@pytest.mark.parametrize(
    "response", [b"SSH-2.0-x\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{"], ids=str
)
def test_an_endpoint_that_speaks_no_http_is_none_of_our_bugs(response: bytes) -> None:
    with raw(response) as url, pytest.raises(RangelandError, match="token endpoint"):
        fetched(TokenSource(endpoint=url, client_id="me", client_secret=SECRET))


def test_a_url_that_is_none_is_the_jobs_mistake_or_later_but_reported() -> None:
    with pytest.raises(RangelandError, match="token endpoint"):
        fetched(TokenSource(endpoint="http://127.0.0.1:x/t", client_id="me", client_secret="s"))


def test_the_secret_goes_to_no_proxy_and_to_no_other_place(
    endpoint: TokenSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    moved = b"HTTP/1.1 302 Found\r\nLocation: %b\r\nContent-Length: 0\r\n\r\n"
    asked: list[Any] = []
    monkeypatch.setattr(Endpoint, "do_GET", lambda self: asked.append(self.path), raising=False)
    elsewhere = moved % str(endpoint.endpoint).encode()
    with raw(elsewhere) as url, pytest.raises(JobFileError, match="answered 302"):
        fetched(replace(endpoint, endpoint=url))
    assert asked == []
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    assert fetched(endpoint) == TOKEN


@pytest.mark.parametrize("does", ["1 / 0", "raise SystemExit(3)", "raise RuntimeError('%s')"])
def test_a_module_that_fails_at_its_import_is_the_jobs_mistake(
    does: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"brings_a_token_{len(does)}"
    (tmp_path / f"{name}.py").write_text(does.replace("%s", TOKEN))
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(JobFileError, match=r"cannot be imported.*its module raised") as caught:
        fetched(TokenSource(function=f"{name}:token"))
    assert TOKEN not in str(caught.value)


def test_no_secret_is_in_the_repr_of_settings() -> None:
    source = TokenSource(endpoint="https://x/t", client_id="me", client_secret=SECRET)
    sasl = SaslSettings("OAUTHBEARER", password=SECRET, token=source)
    assert SECRET not in repr(ClusterSettings("kafka", (), sasl=sasl))
