"""The security section of a job file: what goes with what, and what each becomes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from rangeland.cluster_access.cluster_lookup import look_up_cluster
from rangeland.cluster_settings import (
    KerberosSettings,
    SaslSettings,
    TlsSettings,
    TokenSource,
)
from rangeland.errors import JobFileError
from rangeland.job import Job

SECRET = "hunter2-never-to-be-seen"
REF = "${env:RANGELAND_TEST_SECRET}"
NAMED = {"username": "u", "password": REF}
ENDPOINT = {"endpoint": "https://login.example/token", "client_id": "me", "client_secret": REF}


def job_of(security: dict[str, Any], **source: Any) -> Job:
    content = {
        "job": "orders",
        "source": {"servers": ["b:1"], "topics": ["orders"], "security": security, **source},
        "sink": {"table": "lake/orders"},
    }
    return Job.parse(yaml.safe_dump(content), "o.yaml")


def bearer(**token: Any) -> dict[str, Any]:
    return {"sasl": {"mechanism": "OAUTHBEARER", "token": token}}


@pytest.fixture(autouse=True)
def _secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANGELAND_TEST_SECRET", SECRET)


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "no name": ({"sasl": {"password": REF}}, "sasl.username"),
    "no password": ({"sasl": {"mechanism": "SCRAM-SHA-512", "username": "u"}}, "sasl.password"),
    "a token beside a name": ({"sasl": {**NAMED, "token": {"file": "t"}}}, "sasl.token"),
    "extensions beside a name": ({"sasl": {**NAMED, "extensions": {"a": "b"}}}, "sasl.extensions"),
    "no token": ({"sasl": {"mechanism": "OAUTHBEARER"}}, "sasl.token"),
    "a name beside a token": (
        {"sasl": {"mechanism": "OAUTHBEARER", "token": {"file": "t"}, "username": "u"}},
        "sasl.username",
    ),
    "a mechanism that is not spoken": ({"sasl": {**NAMED, "mechanism": "DIGEST-MD5"}}, "mechanism"),
    "Kerberos beside a name": ({"sasl": {**NAMED, "kerberos": {}}}, "sasl.kerberos"),
    "a name beside Kerberos": ({"sasl": {**NAMED, "mechanism": "GSSAPI"}}, "sasl.username"),
    "a delegation token without SCRAM": (
        {"sasl": {**NAMED, "delegation_token": True}},
        "sasl.delegation_token",
    ),
    "an empty token": (bearer(scope="x"), "sasl.token"),
    "two tokens": (bearer(file="t", command=["t"]), "sasl.token"),
    "a command in one piece": (bearer(command="get token"), "sasl.token.command"),
    "a function without a module": (bearer(callable="token"), "sasl.token.callable"),
    "an endpoint without a client": (
        bearer(endpoint="https://x/t", client_secret=REF),
        "token.client_id",
    ),
    "an endpoint without a secret": (
        bearer(endpoint="https://x/t", client_id="me"),
        "token.client_secret",
    ),
    "a scope for a command": (bearer(command=["t"], scope="x"), "sasl.token.scope"),
    "an endpoint in clear": (bearer(**{**ENDPOINT, "endpoint": "http://x/t"}), "token.endpoint"),
    "an endpoint with a password": (
        bearer(**{**ENDPOINT, "endpoint": f"https://me:{SECRET}@x/t"}),
        "token.endpoint",
    ),
    "the secret itself": (bearer(**{**ENDPOINT, "client_secret": SECRET}), "client_secret"),
    "an extension called auth": (
        {"sasl": {**bearer(file="t")["sasl"], "extensions": {"auth": "x"}}},
        "extensions.auth",
    ),
    "an extension that ends the message": (
        {"sasl": {**bearer(file="t")["sasl"], "extensions": {"a": "x\x01"}}},
        "extensions.a",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_does_not_go_together_is_refused_with_its_field(name: str) -> None:
    security, field = WRONG[name]
    with pytest.raises(JobFileError, match=field.replace(".", r"\.")) as caught:
        job_of(security)
    assert SECRET not in f"{caught.value} {caught.value.facts} {caught.value.__context__}"


@pytest.mark.parametrize("dialect", ["jafka", "rocketmq"])
def test_other_dialects_have_no_sasl(dialect: str) -> None:
    servers = ["1:b:1"] if dialect == "jafka" else ["b:1"]
    with pytest.raises(JobFileError, match=r"security\.sasl.*kafka only"):
        job_of({"sasl": NAMED}, dialect=dialect, servers=servers)


def test_a_login_becomes_settings_without_a_secret_in_sight() -> None:
    job = job_of({"sasl": {**NAMED, "mechanism": "SCRAM-SHA-512"}})
    settings = look_up_cluster(job)
    assert settings.sasl == SaslSettings("SCRAM-SHA-512", "u", SECRET)
    assert SECRET not in f"{settings!r} {job!r} {job.model_dump_json()}"


TLS_KEY = "tls: {certificate: c.pem, key_password: '%s'}"


@pytest.mark.parametrize(
    ("security", "field", "line"),
    [
        ("sasl: {username: u, password: '%s'}", "sasl.password", 5),
        ("acl:\n      access_key: a\n      secret_key: '%s'", "acl.secret_key", 7),
        (TLS_KEY, "tls.key_password", 5),
        (
            "sasl: {mechanism: OAUTHBEARER, token: "
            "{endpoint: 'https://x/t', client_id: me, client_secret: '%s'}}",
            "sasl.token.client_secret",
            5,
        ),
    ],
)
@pytest.mark.parametrize(
    ("reference", "problem"),
    [
        ("${env:NOPE_X}", "the environment variable NOPE_X is not set"),
        ("${file:/nowhere/x}", "the secret file /nowhere/x cannot be read"),
    ],
)
def test_a_secret_that_is_not_there_names_the_place_of_its_reference(
    security: str, field: str, line: int, reference: str, problem: str
) -> None:
    dialect = "rocketmq" if field.startswith("acl") else "kafka"
    text = (
        "job: a\nsink: {table: t}\n"
        f"source:\n  security:\n    {security % reference}\n"
        f"  dialect: {dialect}\n  servers: ['b:1']\n  topics: [t]\n"
    )
    job = Job.parse(text, "o.yaml")
    with pytest.raises(JobFileError) as caught:
        look_up_cluster(job)
    path = f"source.security.{field}"
    assert caught.value.what == f"o.yaml:{line}: {path}: {problem}"
    facts = caught.value.facts
    assert (facts["file"], facts["line"], facts["field"]) == ("o.yaml", line, path)


def test_kerberos_and_delegation_tokens_become_settings() -> None:
    default = look_up_cluster(job_of({"sasl": {"mechanism": "GSSAPI"}})).sasl
    assert default == SaslSettings("GSSAPI", kerberos=KerberosSettings())
    chosen = {"service_name": "log", "principal": "me", "keytab": "me.keytab"}
    own = look_up_cluster(job_of({"sasl": {"mechanism": "GSSAPI", "kerberos": chosen}})).sasl
    keytab = str(Path.cwd() / "me.keytab")
    assert own == SaslSettings("GSSAPI", kerberos=KerberosSettings("log", "me", keytab))
    delegated = {"sasl": {**NAMED, "mechanism": "SCRAM-SHA-256", "delegation_token": True}}
    token = look_up_cluster(job_of(delegated)).sasl
    assert token == SaslSettings("SCRAM-SHA-256", "u", SECRET, is_delegated=True)


def test_a_token_becomes_settings_with_paths_that_hold_everywhere() -> None:
    job = job_of(
        {"sasl": {**bearer(**ENDPOINT, ca="ca.pem")["sasl"], "extensions": {"a": "1"}}},
        client_id="me",
        max_answer_bytes="1GiB",
    )
    settings = look_up_cluster(job)
    source = TokenSource(
        endpoint="https://login.example/token",
        client_id="me",
        client_secret=SECRET,
        ca=str(Path.cwd() / "ca.pem"),
    )
    assert settings.sasl == SaslSettings("OAUTHBEARER", token=source, extensions=(("a", "1"),))
    assert settings.max_answer_bytes == 1 << 30
    assert settings.client_id == "me"
    assert SECRET not in repr(settings)


def test_pem_files_are_found_from_where_the_command_is_called() -> None:
    here = Path.cwd()
    job = job_of({"tls": {"ca": "ca.pem", "certificate": "/etc/me.pem", "key": "me.key"}})
    assert look_up_cluster(job).tls == TlsSettings(
        str(here / "ca.pem"), "/etc/me.pem", str(here / "me.key")
    )
    assert look_up_cluster(job_of({"tls": True})).tls == TlsSettings(verify_hostname=True)
