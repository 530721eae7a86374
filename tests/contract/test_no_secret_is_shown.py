"""One secret in every place that may hold one, and everything that people or machines see.

Each mistake that can be made with a secret is made, and each failure on the way of one is
provoked. The error, all that it comes of, its JSON, its picture, what was logged and printed,
and what is written to a file must not have the secret in any spelling.
"""

from __future__ import annotations

import base64
import io
import json
import logging
import pickle
import socket
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from rich.console import Console

from rangeland.cli.command_line import main
from rangeland.cluster_access.cluster_lookup import look_up_cluster
from rangeland.cluster_settings import ClusterSettings, SaslSettings, TokenSource
from rangeland.connection import tokens
from rangeland.connection.pool import ConnectionPool
from rangeland.connection.tls import tls_context
from rangeland.connection.tokens import fetch_token
from rangeland.dialects.kafka import messages as m
from rangeland.dialects.kafka.sasl_mechanisms import login
from rangeland.dialects.protocol_session import Credentials
from rangeland.errors import JobFileError, RangelandError, error_json
from rangeland.job import Job
from rangeland.job.command_line_overrides import load_job
from rangeland.job.connection_settings import zookeeper_access
from rangeland.job.job_text import override, parse_job_text, values_without_secrets
from rangeland.job.secret_references import look_up
from rangeland.landing.drafts.plan_file import read_plan_file, write_plan_file
from rangeland.logging_setup import JsonFormatter, TextFormatter
from rangeland.model import Address
from rangeland.render.error_view import render_error
from rangeland.render.report_page import render_report
from rangeland.schema_registry.registry_client import RegistryClient
from rangeland.schema_registry.registry_settings import RegistrySettings
from rangeland.survey.cluster_survey import take_survey
from rangeland.survey.survey_request import SurveyRequest
from rangeland.zookeeper.zookeeper_access import ZooKeeperAccess, ZooKeeperLogin
from rangeland.zookeeper.zookeeper_client import connect
from tests import sample_results as made
from tests.certificates import Authority
from tests.unit.test_sasl_mechanisms import SHAKEN, converse, said

SECRET = "cAnArY+7f/secret"

FORMS = [
    SECRET,
    SECRET.encode().hex(),
    SECRET.replace("+", "%2B").replace("/", "%2F"),
    SECRET.replace("+", "%2B").replace("/", "%2f"),
    # In base64 a text has three spellings, by where it begins; their ends depend on what is around.
    *(base64.b64encode(b"x" * n + SECRET.encode())[4:-4].decode() for n in range(3)),
]


def assert_silent(text: str) -> None:
    for form in FORMS:
        assert form not in text


def chain_of(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    left: list[BaseException | None] = [error]
    while left:
        one = left.pop()
        if one is not None and id(one) not in seen:
            seen.add(id(one))
            yield one
            left += [one.__cause__, one.__context__]


def assert_error_is_silent(error: RangelandError) -> None:
    for one in chain_of(error):
        assert_silent(f"{one}|{one!r}|{one.args!r}|{vars(one)!r}")
    assert_silent("".join(traceback.format_exception(error)))
    assert_silent(json.dumps(error_json(error), default=str))
    out = io.StringIO()
    Console(file=out, width=200).print(render_error(error))
    assert_silent(out.getvalue())
    assert_silent(str(pickle.loads(pickle.dumps(error))))


@pytest.fixture(autouse=True)
def nothing_said(
    caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> Iterator[None]:
    caplog.set_level(logging.DEBUG)
    caplog.set_level(logging.DEBUG, logger="rangeland")
    yield
    assert_silent(caplog.text)
    for record in caplog.get_records("call"):
        for form in (TextFormatter(), JsonFormatter()):  # These show all fields of a record.
            assert_silent(form.format(record))
    assert_silent("".join(capfd.readouterr()))


@pytest.fixture(autouse=True)
def fresh_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens, "_kept", {})
    monkeypatch.setenv("no_proxy", "127.0.0.1,localhost")


# --- in the job file, and typed -----------------------------------------------------------


def a_job(**source: Any) -> dict[str, Any]:
    return {
        "job": "a",
        "source": {"servers": ["127.0.0.1:1"], "topics": ["t"], **source},
        "sink": {"table": "lake/a"},
    }


def sasl(**more: Any) -> dict[str, Any]:
    return a_job(security={"sasl": {"username": "me", "password": "${env:X}", **more}})


def token(**more: Any) -> dict[str, Any]:
    login = {"mechanism": "OAUTHBEARER", "token": more}
    return a_job(security={"sasl": login})


def registry(**more: Any) -> dict[str, Any]:
    decode = {"value": {"format": "avro"}, "registry": {"url": "http://h:1", **more}}
    return {**a_job(), "decode": decode}


def at(table: str) -> dict[str, Any]:
    return {**a_job(), "sink": {"table": table}}


ENDPOINT = {"endpoint": "https://h/t", "client_id": "me"}
MISTAKES: dict[str, dict[str, Any]] = {
    "password": sasl(password=SECRET),
    "password in a list": sasl(password=[SECRET]),
    "password with fields": sasl(password={SECRET: SECRET}),
    "password that is nearly a reference": sasl(password="${ENV:" + SECRET + "}"),
    "client secret": token(**ENDPOINT, client_secret=SECRET),
    "key password": a_job(security={"tls": {"key_password": SECRET}}),
    "secret key": a_job(
        dialect="rocketmq", security={"acl": {"access_key": "k", "secret_key": SECRET}}
    ),
    "user and password of a broker": a_job(servers=[f"me:{SECRET}@h:9092"]),
    "user and password of a ZooKeeper": a_job(zookeeper=f"me:{SECRET}@h:2181/kafka"),
    "password of a ZooKeeper": a_job(
        zookeeper="h:2181",
        security={"zookeeper": {"login": {"username": "me", "password": SECRET}}},
    ),
    "key password of a ZooKeeper": a_job(
        zookeeper="h:2181", security={"zookeeper": {"tls": {"key_password": SECRET}}}
    ),
    "user and password of an endpoint": token(
        endpoint=f"https://me:{SECRET}@h/t", client_id="me", client_secret="${env:X}"
    ),
    "query of a broker's URL": a_job(servers=[f"https://h:9092/?password={SECRET}"]),
    "fragment of a broker's URL": a_job(servers=[f"h:9092#{SECRET}"]),
    "port of a broker": a_job(servers=[f"SASL_SSL://h:{SECRET}"]),
    "user and password of a broker, escaped": a_job(servers=[f"me%3A{SECRET}%40h:9092"]),
    "setting beside a broker": a_job(servers=[f"h:9092;password={SECRET}"]),
    "query of a ZooKeeper": a_job(zookeeper=f"h:2181?password={SECRET}"),
    "URL of a ZooKeeper": a_job(zookeeper=f"zk://h:{SECRET}"),
    "user and password of an endpoint, escaped": token(
        endpoint=f"https://me%3A{SECRET}%40h/t", client_id="me", client_secret="${env:X}"
    ),
    "port of an endpoint": token(
        endpoint="https://h:" + SECRET.replace("/", "") + "/t",
        client_id="me",
        client_secret="${env:X}",
    ),
    "token of a registry": registry(token=SECRET),
    "password of a registry": registry(username="me", password=SECRET),
    "user and password of a registry": registry(url=f"https://me:{SECRET}@h"),
    "user and password of a registry, escaped": registry(url=f"https://me%3A{SECRET}%40h"),
    "key of a registry": registry(url=["http://h", f"https://h/?key={SECRET}"]),
    "keys of a table": at(f"s3a://AKIA:{SECRET}@bucket/t"),
    "keys of a table, with a slash": at("s3a://AKIA:" + SECRET + "/more@bucket/t"),
    "keys of a table, one slash": at(f"s3a:/AKIA:{SECRET}@bucket/t"),
    "keys of a table, three slashes": at(f"s3a:///AKIA:{SECRET}@bucket/t"),
    "keys of a table, capitals": at(f"S3A://AKIA:{SECRET}@bucket/t"),
    "password of a table, one slash": at(f"gs:/me:{SECRET}@bucket/t"),
    "keys of a table, escaped": at(f"s3a://AKIA%3A{SECRET}@bucket/t"),
    "a key of a table": at("s3://" + SECRET.replace("/", "%2F") + "@bucket/t"),
    "password of a table": at(f"hdfs://me:{SECRET}@host/t"),
    "a signed table": at(f"wasbs://c@account.blob.core.windows.net/t?sig={SECRET}"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_secret_written_into_a_job_file_is_refused_and_not_repeated(
    name: str, tmp_path: Path
) -> None:
    path = tmp_path / "o.yaml"
    path.write_text(yaml.safe_dump(MISTAKES[name]))
    with pytest.raises(RangelandError) as caught:
        load_job(path)
    assert caught.value.exit_code == 78
    assert_error_is_silent(caught.value)


@pytest.mark.parametrize(
    "table",
    [
        "s3a://bucket/t",
        "s3://bucket/a@b:c/t",
        "abfss://container@account.dfs.core.windows.net/t",
        "hdfs://name-node:8020/t",
        "hdfs://[::1]:8020/t",
        "hdfs:/a/t",
        "hdfs:///a/t",
        "gs://bucket/t",
        "file:///srv/t",
        "/srv/a@b:c/t",
        "main.sales.orders",
    ],
)
def test_a_table_without_secrets_is_taken(table: str) -> None:
    assert Job.parse(yaml.safe_dump(at(table))).sink.table == table


PASSWORD = "source.security.sasl.password"


@pytest.mark.parametrize(
    "typed",
    [
        f"{PASSWORD}={SECRET}",
        f"{PASSWORD}=!{SECRET}",
        f"{PASSWORD}=*{SECRET}",
        f"{PASSWORD}=&{SECRET}",
        f"{PASSWORD}=!!int {SECRET}",
        f"{PASSWORD}={{{SECRET}: {SECRET}}}",
        f"{PASSWORD}={{{SECRET}: 1, {SECRET}: 2}}",
        f"{PASSWORD}=[{SECRET}",
        f"{PASSWORD}.{SECRET}=",
        f"{PASSWORD}.x={SECRET}",
        f"{PASSWORD}.{SECRET}.x=1",
        f"{PASSWORD}:{SECRET}",
        f"{PASSWORD} {SECRET}",
        f"{PASSWORD}!{SECRET}=1",
        f".{SECRET}=",
        f":{SECRET}",
        f"sink.table=s3a://AKIA:{SECRET}@bucket/t",
        f"source.security.sasl={{password: {SECRET}}}",
        f"source.security.acl={{access_key: k, secret_key: {SECRET}}}",
        f"source.servers=[me:{SECRET}@h:1]",
        f"source.servers=https://h:1/?password={SECRET}",
        f"decode.registry.token={SECRET}",
        f"decode.registry.token.x={SECRET}",
        f"decode.registry.token.{SECRET}=1",
        f"decode.registry.token!{SECRET}=1",
        f"decode.registry.token[{SECRET}]=1",
        f"decode.registry={{url: 'http://h', token: {SECRET}}}",
    ],
)
@pytest.mark.parametrize("has_sasl", [True, False])
def test_a_secret_typed_in_a_flag_is_not_repeated(
    typed: str, has_sasl: bool, tmp_path: Path
) -> None:
    path = tmp_path / "o.yaml"
    path.write_text(yaml.safe_dump(sasl() if has_sasl else a_job()))
    with pytest.raises(RangelandError) as caught:
        load_job(path, [typed])
    assert caught.value.exit_code in (64, 78)
    assert_error_is_silent(caught.value)


COMMANDS = ["check", "plan", "run", "backfill", "status", "verify", "sample", "apply", "redrive"]


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(
    "typed",
    [
        ["JOB", "--set", PASSWORD, SECRET],
        ["--set", PASSWORD, SECRET, "JOB"],
        ["JOB", "--set", PASSWORD, "=", SECRET],
        ["JOB", f"{PASSWORD}={SECRET}"],
        [f"{PASSWORD}={SECRET}", "JOB"],
        ["--set", "JOB", f"{PASSWORD}={SECRET}"],
        ["JOB", f"--{PASSWORD}:{SECRET}"],
        ["JOB", f"--{PASSWORD}={SECRET}"],
        ["JOB", f"--set{PASSWORD}={SECRET}"],
    ],
)
def test_a_secret_in_a_wrong_place_of_a_command_line_is_not_repeated(
    command: str, typed: list[str], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "o.yaml"
    path.write_text(yaml.safe_dump(sasl()))
    words = [str(path) if word == "JOB" else word for word in typed]
    for more in ([], ["--json"]):
        assert main([command, *words, *more]) == 64
    out, err = capfd.readouterr()
    assert_silent("".join(one for one in out + err if one not in " \n\u2502"))


# --- looked up ----------------------------------------------------------------------------


def test_a_secret_that_is_not_utf_8_is_refused_and_not_repeated(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = tmp_path / "secret"
    path.write_bytes(SECRET.encode() + b"\xff")
    monkeypatch.setenv("X", SECRET + "\udcff")
    source = TokenSource(file=str(path))
    looks: list[Callable[[], object]] = [
        lambda: look_up("${env:X}"),
        lambda: look_up(f"${{file:{path}}}"),
        lambda: fetch_token(source, 5_000),
        lambda: look_up_cluster(Job.parse(yaml.safe_dump(sasl()))),
    ]
    for look in looks:
        with pytest.raises(RangelandError, match="UTF-8") as caught:
            look()
        assert caught.value.exit_code == 78
        assert_error_is_silent(caught.value)


def test_values_with_secrets_do_not_show_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("X", SECRET)
    whole = sasl()
    whole["source"]["security"]["tls"] = {"key_password": "${env:X}"}
    whole["source"]["zookeeper"] = "h:2181"
    user = {"username": "me", "password": "${env:X}"}
    whole["source"]["security"]["zookeeper"] = {"tls": {"key_password": "${env:X}"}, "login": user}
    job = Job.parse(yaml.safe_dump(whole))
    settings = look_up_cluster(job)
    access = zookeeper_access(job)
    bearer = TokenSource(endpoint=f"https://h/t?key={SECRET}", client_secret=SECRET)
    for shown in (
        job,
        settings,
        settings.sasl,
        settings.tls,
        access,
        bearer,
        TokenSource(command=("get", SECRET)),
        Credentials("PLAIN", "me", SECRET, SECRET),
        m.SaslAuthenticateRequest(auth_bytes=SECRET.encode()),
    ):
        assert_silent(f"{shown}|{shown!r}")
    assert access.login is not None
    assert access.login.password == SECRET
    assert settings.sasl is not None
    assert SECRET in settings.sasl.password


def test_a_plan_file_has_references_only(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ORDERS_PASSWORD", SECRET)
    text = parse_job_text(made.JOB_YAML, "orders.yaml")
    look_up_cluster(Job.of(text))
    write_plan_file(tmp_path / "plan.json", made.a_preview(), text)
    assert_silent((tmp_path / "plan.json").read_text())
    assert_silent(repr(read_plan_file(tmp_path / "plan.json")))
    assert_silent(json.dumps(made.a_preview().to_json()))


def test_a_report_shows_no_login(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("X", SECRET)
    bearer = {"mechanism": "OAUTHBEARER", "token": {"command": ["get", SECRET]}}
    login = {"mechanism": "PLAIN", "username": SECRET, "password": "${env:X}"}
    for security in ({"sasl": bearer}, {"sasl": login}):
        document = {**a_job(security=security), "decode": registry(token="${env:X}")["decode"]}
        text = parse_job_text(yaml.safe_dump(document), "orders.yaml")
        text = override(text, [f"source.security.sasl.username={SECRET}"])
        page = render_report(made.a_report(settings=values_without_secrets(text)))
        assert_silent(page)
        assert "${env:X}" not in page
        assert "security: (not shown)" in page
        assert "table: lake/a" in page


# --- on their way -------------------------------------------------------------------------


@contextmanager
def serving(response: Callable[[bytes], bytes]) -> Iterator[int]:
    """A port that gives each piece of what it is sent to ``response`` and sends what comes of
    it."""

    def serve() -> None:
        while True:
            try:
                peer, _ = listener.accept()
            except OSError:
                return
            with peer:
                peer.settimeout(2)
                try:
                    while sent := peer.recv(1 << 16):
                        peer.sendall(response(sent))
                except OSError:
                    pass

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            listener.shutdown(socket.SHUT_RDWR)
    thread.join()


def http(body: str, status: int = 400) -> bytes:
    head = f"HTTP/1.1 {status} {SECRET}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    return (head + body).encode()


@pytest.mark.parametrize(
    "response",
    [
        lambda sent: sent,
        lambda sent: http(json.dumps({"error": SECRET, "error_description": SECRET})),
        lambda sent: http(json.dumps({"error": sent.decode()}), 500),
        lambda sent: http(json.dumps({"access_token": f"{SECRET} {SECRET}"}), 200),
        lambda sent: http(SECRET, 200),
        lambda sent: SECRET.encode() + b"\r\n\r\n",
        lambda sent: b"HTTP/1.1 302 Found\r\nLocation: /" + SECRET.encode() + b"\r\n\r\n",
    ],
    ids=["echo", "error", "echo in an error", "bad token", "no JSON", "no HTTP", "elsewhere"],
)
def test_what_a_token_endpoint_says_brings_no_secret_back(
    response: Callable[[bytes], bytes],
) -> None:
    with serving(response) as port:
        url = f"http://127.0.0.1:{port}/t?key={SECRET}"
        source = TokenSource(endpoint=url, client_id="me", client_secret=SECRET)
        with pytest.raises(RangelandError) as caught:
            fetch_token(source, 3_000)
    assert caught.value.exit_code in (75, 78)
    assert_error_is_silent(caught.value)


@pytest.mark.parametrize(
    "response",
    [
        lambda sent: sent,
        lambda sent: http(sent.decode(), 401),
        lambda sent: http(json.dumps({"error_code": 40101, "message": sent.decode()}), 500),
        lambda sent: http(json.dumps({"schema": "1", "schemaType": sent.decode()[60:]}), 200),
        lambda sent: http(json.dumps({"schema": {SECRET: SECRET}}), 200),
        lambda sent: http(json.dumps(sent.decode()[60:]), 200),
        lambda sent: http(SECRET, 404),
        lambda sent: SECRET.encode() + b"\r\n\r\n",
        lambda sent: b"HTTP/1.1 302 Found\r\nLocation: /" + SECRET.encode() + b"\r\n\r\n",
        lambda sent: b"HTTP/1.1 302 Found\r\nLocation: x:" + SECRET.encode() + b"\r\n\r\n",
    ],
)
@pytest.mark.parametrize("login", [{"username": "me", "password": SECRET}, {"token": SECRET}])
def test_what_a_schema_registry_says_brings_no_secret_back(
    response: Callable[[bytes], bytes], login: dict[str, str]
) -> None:
    with serving(response) as port:
        settings = RegistrySettings((f"http://127.0.0.1:{port}",), **login, no_progress_ms=1)
        with pytest.raises(RangelandError) as caught:
            RegistryClient(settings).schema(7)
    assert caught.value.exit_code in (75, 78)
    assert_error_is_silent(caught.value)
    assert_silent(repr(RegistrySettings(("http://x",), "me", SECRET, SECRET)))


@pytest.mark.parametrize("uses_sasl", [False, True])
@pytest.mark.parametrize(
    "response", [lambda sent: sent, lambda sent: SECRET.encode() * 9, lambda sent: b""]
)
def test_what_a_zookeeper_says_brings_no_secret_back(
    response: Callable[[bytes], bytes], uses_sasl: bool
) -> None:
    if uses_sasl:
        pytest.importorskip("puresasl")
    login = ZooKeeperLogin("me", SECRET, uses_sasl)
    with serving(response) as port, pytest.raises(RangelandError) as caught:
        connect(ZooKeeperAccess(f"127.0.0.1:{port}", login=login, connect_ms=300))
    assert caught.value.exit_code == 75
    assert_error_is_silent(caught.value)


@pytest.mark.parametrize("at", ["user:{}@h", "h?key={}", "h:{}", "h#{}", "[::{}"])
def test_the_url_of_a_schema_registry_with_a_secret_is_refused_and_not_repeated(at: str) -> None:
    with pytest.raises(JobFileError) as caught:
        RegistryClient(RegistrySettings((f"http://{at.format(SECRET)}",)))
    assert_error_is_silent(caught.value)


@pytest.mark.parametrize("at", ["127.0.0.1:1", "127.0.0.1:99999", "127.0.0.1:x", "[::"])
def test_an_endpoint_that_cannot_be_asked_is_shown_without_its_query(at: str) -> None:
    url = f"http://{at}/t?key={SECRET}"
    source = TokenSource(endpoint=url, client_id="me", client_secret=SECRET)
    with pytest.raises(RangelandError) as caught:
        fetch_token(source, 3_000)
    assert_error_is_silent(caught.value)


def failing() -> str:
    raise ValueError(SECRET)


def odd() -> str:
    return f"Bearer {SECRET}\n"


PRINTS = f"import sys, time; print({SECRET!r}, flush=True); print({SECRET!r}, file=sys.stderr)"


@pytest.mark.parametrize(
    "source",
    [
        TokenSource(command=(sys.executable, "-c", PRINTS + "; sys.exit(1)")),
        TokenSource(command=(sys.executable, "-c", PRINTS + "; sys.exit(75)")),
        TokenSource(command=(sys.executable, "-c", PRINTS + "; print('x y')")),
        TokenSource(command=(sys.executable, "-c", PRINTS + "; time.sleep(60)")),
        TokenSource(command=("/nowhere/get-token", SECRET)),
        TokenSource(function=f"{__name__}:failing"),
        TokenSource(function=f"{__name__}:odd"),
        TokenSource(function=f"{__name__}:nothing"),
    ],
    ids=["fails", "later", "odd", "hangs", "missing", "raises", "odd text", "no function"],
)
def test_what_brings_a_token_fails_without_showing_it(
    source: TokenSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, __name__, sys.modules.get(__name__) or _this_module())
    with pytest.raises(RangelandError) as caught:
        fetch_token(source, 2_000)
    assert_error_is_silent(caught.value)


def _this_module() -> Any:
    import types

    module = types.ModuleType(__name__)
    module.__dict__.update(failing=failing, odd=odd)
    return module


def response_with(text: str) -> m.SaslAuthenticateResponse:
    return said(error_code=58, error_message=text)


def test_a_broker_that_repeats_what_it_was_sent_is_not_quoted() -> None:
    plain = Credentials("PLAIN", "me", SECRET)
    bearer = Credentials("OAUTHBEARER", "me", token=SECRET)
    for credentials in (plain, bearer):
        shaken = m.SaslHandshakeResponse(error_code=0, mechanisms=(credentials.mechanism,))
        with pytest.raises(RangelandError) as caught:
            converse(login(credentials), shaken, response_with(f"no such user {SECRET}"))
        assert_error_is_silent(caught.value)
    assert SHAKEN.error_code == 0


@pytest.mark.parametrize("dialect", ["kafka", "rocketmq"])
@pytest.mark.parametrize(
    "response",
    [lambda sent: sent, lambda sent: SECRET.encode() * 100, lambda sent: b"\0\0\0\1x"],
    ids=["echo", "text", "short"],
)
def test_a_peer_that_is_not_a_broker_brings_no_secret_back(
    dialect: str, response: Callable[[bytes], bytes]
) -> None:
    mechanism = "PLAIN" if dialect == "kafka" else "ACL"
    with serving(response) as port:
        settings = ClusterSettings(
            dialect,
            (Address("127.0.0.1", port),),
            sasl=SaslSettings(mechanism, "me", SECRET),
            connect_ms=500,
            request_ms=500,
            survey_ms=500,
        )
        with ConnectionPool(settings) as brokers, pytest.raises(RangelandError) as caught:
            take_survey(brokers, SurveyRequest(topics=("t",)))
    error = caught.value
    assert_silent(f"{error}{error!r}")


def test_a_key_that_its_password_does_not_open_is_named_without_it(tmp_path: Path) -> None:
    from rangeland.cluster_settings import TlsSettings

    issued = Authority(tmp_path).issue("me", password="another")
    for password in (SECRET, SECRET * 100, SECRET + "\udcff"):
        with pytest.raises(RangelandError) as caught:
            tls_context(
                TlsSettings(
                    certificate=str(issued.certificate),
                    key=str(issued.key),
                    key_password=password,
                )
            )
        assert_silent(f"{caught.value}{caught.value!r}{json.dumps(error_json(caught.value))}")
