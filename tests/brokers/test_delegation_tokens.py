"""Delegation tokens that a real Kafka broker has made: its own tool asks for them, and they log in
in place of a password."""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from rangeland.cluster_access.cluster_lookup import look_up_cluster
from rangeland.errors import AccessDenied
from rangeland.job import Job
from rangeland.model import Counts
from rangeland.testing.client_library import TIMEOUT_S
from rangeland.testing.processes import PATIENCE_S
from rangeland.testing.producer import create_topic, numbered_records, produce
from rangeland.testing.server_command import java_command, write_settings
from tests.brokers.reading import look, read_topic
from tests.brokers.secured_broker import PASSWORD, USER, SecuredCluster
from tests.certificates import Authority
from tests.servers.console_producer import TOOLS

pytestmark = [pytest.mark.brokers, pytest.mark.slow]

COUNT = 20
_LINE = re.compile(r"^(?P<id>[A-Za-z0-9_-]{22})\s+(?P<hmac>[A-Za-z0-9+/]+=*)\s", re.MULTILINE)


@dataclass(frozen=True)
class DelegationToken:
    """As the broker's tool prints it."""

    id: str
    hmac: str = field(repr=False)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredCluster]:
    folder = tmp_path_factory.mktemp("tokens")
    properties = {"delegation.token.secret.key": "a secret of the brokers"}
    with SecuredCluster(folder, Authority(folder), properties=properties) as started:
        create_topic(started.bootstrap, "t")
        produce(started.bootstrap, "t", numbered_records(COUNT))
        started.add_users()
        yield started


def tool(cluster: SecuredCluster, folder: Path, main: str, login: str, *words: str) -> Any:
    """A tool of Kafka's, with a login of SCRAM."""
    module = "org.apache.kafka.common.security.scram.ScramLoginModule"
    settings = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.jaas.config": f"{module} required {login};",
    }
    config = write_settings(folder / "client.properties", settings)
    command = java_command(TOOLS, 64, f"org.apache.kafka.tools.{main}", properties={})
    command += ["--bootstrap-server", str(cluster.at("SCRAM")), "--command-config", str(config)]
    return subprocess.run(
        [*command, *words], capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )


def ask_for_tokens(cluster: SecuredCluster, folder: Path, *words: str) -> str:
    """What ``kafka-delegation-tokens.sh`` prints to a user who has logged in with a password."""
    login = f'username="{USER}" password="{PASSWORD}"'
    done = tool(cluster, folder, "DelegationTokenCommand", login, *words)
    assert done.returncode == 0, done.stdout + done.stderr
    return str(done.stdout)


@pytest.fixture
def token(cluster: SecuredCluster, tmp_path: Path) -> DelegationToken:
    """One with which Kafka's own client logs in: the broker hears of it from its controller only a
    moment after it was made."""
    words = ("--create", "--max-life-time-period", "-1")
    found = _LINE.search(ask_for_tokens(cluster, tmp_path, *words))
    assert found is not None
    login = f'username="{found["id"]}" password="{found["hmac"]}" tokenauth="true"'
    until = time.monotonic() + PATIENCE_S
    while (done := tool(cluster, tmp_path, "TopicCommand", login, "--list")).returncode:
        assert time.monotonic() < until, done.stdout + done.stderr
    return DelegationToken(found["id"], found["hmac"])


def job_of(cluster: SecuredCluster, token: DelegationToken, mechanism: str, **changed: bool) -> Job:
    sasl = {
        "mechanism": mechanism,
        "username": token.id,
        "password": "${env:TOKEN_HMAC}",
        "delegation_token": True,
        **changed,
    }
    source = {"servers": [str(cluster.at("SCRAM"))], "topics": ["t"], "security": {"sasl": sasl}}
    document = {"job": "landing", "source": source, "sink": {"table": "lake/t"}}
    return Job.parse(json.dumps(document))


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_token_of_the_broker_logs_in_and_reads(
    cluster: SecuredCluster,
    token: DelegationToken,
    monkeypatch: pytest.MonkeyPatch,
    mechanism: str,
) -> None:
    monkeypatch.setenv("TOKEN_HMAC", token.hmac)
    settings = look_up_cluster(job_of(cluster, token, mechanism))
    read = read_topic("t", settings)
    assert read.counts == Counts(landed=COUNT)
    assert token.hmac not in repr(settings)


def test_a_token_that_is_not_one_is_refused(
    cluster: SecuredCluster, token: DelegationToken, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With another HMAC, or where the job does not say that it is a token."""
    monkeypatch.setenv("TOKEN_HMAC", token.hmac)
    plain = look_up_cluster(job_of(cluster, token, "SCRAM-SHA-256", delegation_token=False))
    monkeypatch.setenv("TOKEN_HMAC", token.hmac[:-8] + "AAAAAAA=")
    forged = look_up_cluster(job_of(cluster, token, "SCRAM-SHA-256"))
    for settings in (plain, forged):
        with pytest.raises(AccessDenied, match=f"refused user {re.escape(token.id)}") as caught:
            look(settings, topics=("t",))
        assert caught.value.exit_code == 78
        assert token.hmac not in str(caught.value)


def test_a_token_that_has_expired_is_refused(
    cluster: SecuredCluster, token: DelegationToken, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TOKEN_HMAC", token.hmac)
    settings = look_up_cluster(job_of(cluster, token, "SCRAM-SHA-256"))
    assert look(settings, topics=("t",)).logs
    ended = ("--expire", "--expiry-time-period", "-1", "--hmac", token.hmac)
    ask_for_tokens(cluster, tmp_path, *ended)

    until = time.monotonic() + PATIENCE_S
    with pytest.raises(AccessDenied, match=f"refused user {re.escape(token.id)}"):  # noqa: PT012
        while time.monotonic() < until:
            look(settings, topics=("t",))
