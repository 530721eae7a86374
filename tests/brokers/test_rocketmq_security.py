"""RocketMQ brokers that require signed requests, and name servers and brokers with TLS."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from rangeland.cluster_settings import SaslSettings, TlsSettings
from rangeland.dialects.protocol_session import Credentials
from rangeland.dialects.rocketmq import messages as m
from rangeland.errors import AccessDenied, JobFileError
from rangeland.model import Address, Counts, Partition
from rangeland.testing.rocketmq import RocketmqCluster
from rangeland.testing.rocketmq_clients import RocketmqClient
from tests.brokers.rocketmq import read, run_clients, settings_of
from tests.brokers.surveys import look, slices_of

pytestmark = pytest.mark.brokers

KEY, SECRET = "admin", "12345678"
ADMIN = Credentials("ACL", KEY, SECRET)
SIGNED = SaslSettings("ACL", KEY, SECRET)
AUTHENTICATION = "org.apache.rocketmq.auth.authentication.provider"
AUTHORIZATION = "org.apache.rocketmq.auth.authorization.provider"
PROPERTIES = {
    "authenticationEnabled": "true",
    "authenticationProvider": f"{AUTHENTICATION}.DefaultAuthenticationProvider",
    "authenticationMetadataProvider": f"{AUTHENTICATION}.LocalAuthenticationMetadataProvider",
    "initAuthenticationUser": f'{{"username":"{KEY}","password":"{SECRET}"}}',
    "innerClientAuthenticationCredentials": f'{{"accessKey":"{KEY}","secretKey":"{SECRET}"}}',
    "authorizationEnabled": "true",
    "authorizationProvider": f"{AUTHORIZATION}.DefaultAuthorizationProvider",
    "authorizationMetadataProvider": f"{AUTHORIZATION}.LocalAuthorizationMetadataProvider",
}
COUNT = 12


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tls")
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
    command += ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]
    command += ["-keyout", str(folder / "key.pem"), "-out", str(folder / "cert.pem")]
    subprocess.run(command, check=True, capture_output=True)
    return folder / "cert.pem"


@pytest.fixture(scope="module")
def guarded(certificate: Path) -> Iterator[RocketmqCluster]:
    """A broker that lets nobody in without a key; TLS is spoken on the same ports as plain
    bytes. It has a topic ``t`` that upstream's own producer has written to, with its key."""
    key = certificate.with_name("key.pem")
    jvm = (
        "-Dtls.server.mode=permissive",
        "-Dtls.test.mode.enable=false",
        "-Dtls.server.authClient=false",
        f"-Dtls.server.keyPath={key}",
        f"-Dtls.server.certPath={certificate}",
    )
    with RocketmqCluster(properties=PROPERTIES, jvm=jvm) as cluster:
        with RocketmqClient(cluster.address(), ADMIN) as client:
            client.ask(m.create_topic("t", 1))
        options = [f"-Daccess.key={KEY}", f"-Dsecret.key={SECRET}"]
        run_clients("produce", cluster.servers[0], "t", "plain", str(COUNT), options=options)
        yield cluster


def test_signed_requests_are_taken(guarded: RocketmqCluster) -> None:
    settings = settings_of(guarded, sasl=SIGNED)
    found = read(slices_of(look(settings, topics=("t",))), settings)
    assert found.counts == Counts(landed=COUNT)
    assert found.values == [f"plain-{n}".encode() for n in range(COUNT)]


def test_a_body_is_signed_with_the_rest(guarded: RocketmqCluster) -> None:
    queue = Partition("t", 0)
    with RocketmqClient(guarded.address(), ADMIN) as client:
        before = int(client.ask(m.max_offset(queue)).fields["offset"])
        refused = m.send(Partition("none", 0), b"body", {"größe": "ü"}, 5)
        assert client.ask(refused, check=False).code != 16
        assert int(client.ask(m.max_offset(queue)).fields["offset"]) == before


@pytest.mark.parametrize("who", [("admin", "wrong"), ("nobody", SECRET)])
def test_a_wrong_key_is_refused(guarded: RocketmqCluster, who: tuple[str, str]) -> None:
    settings = settings_of(guarded, sasl=SaslSettings("ACL", *who))
    with pytest.raises(AccessDenied, match=who[0]) as caught:
        look(settings, topics=("t",))
    assert SECRET not in str(caught.value)


def test_who_has_no_key_may_not_ask(guarded: RocketmqCluster) -> None:
    with pytest.raises(AccessDenied, match="NO_PERMISSION"):
        look(settings_of(guarded), topics=("t",))


def test_another_mechanism_is_refused(guarded: RocketmqCluster) -> None:
    settings = settings_of(guarded, sasl=SaslSettings("PLAIN", KEY, SECRET))
    with pytest.raises(JobFileError, match="access keys"):
        look(settings, topics=("t",))


def test_queues_are_read_over_tls(guarded: RocketmqCluster, certificate: Path) -> None:
    settings = settings_of(guarded, sasl=SIGNED, tls=TlsSettings(ca=str(certificate)))
    found = read(slices_of(look(settings, topics=("t",))), settings)
    assert found.counts == Counts(landed=COUNT)


def test_what_is_wrong_with_tls_is_reported_at_once(
    guarded: RocketmqCluster, certificate: Path
) -> None:
    stranger = settings_of(guarded, sasl=SIGNED, tls=TlsSettings())
    with pytest.raises(JobFileError, match=r"not trusted.*source\.security\.tls\.ca"):
        look(stranger, topics=("t",))
    settings = settings_of(guarded, sasl=SIGNED, tls=TlsSettings(ca=str(certificate)))
    misnamed = replace(settings, seeds=(Address("localhost", settings.seeds[0].port),))
    with pytest.raises(JobFileError, match="is for another host: Hostname mismatch"):
        look(misnamed, topics=("t",))
