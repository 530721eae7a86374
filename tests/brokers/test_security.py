"""Brokers with TLS and SASL: every way to log in, and every misconfiguration reported as what it
is.

One broker with a listener for each case; real certificates, real SASL. A mistake must be
reported within seconds, with a message of its own, the field that corrects it, and its exit
code.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from rangeland.cluster_settings import (
    ClusterSettings,
    SaslSettings,
    TlsSettings,
    TokenSource,
)
from rangeland.connection import tokens
from rangeland.connection.broker_connection import BrokerConnection
from rangeland.dialects.kafka import messages as m
from rangeland.errors import AccessDenied, JobFileError, RangelandError
from rangeland.fetch.fetch_size import FetchLimits
from rangeland.model import Address, Counts
from rangeland.testing.processes import PATIENCE_S
from rangeland.testing.producer import (
    Record,
    create_topic,
    numbered_records,
    open_transaction,
    produce,
)
from tests.brokers.reading import (
    look,
    only_log,
    read,
    read_topic,
    settings_of,
    slices_of,
    spied_requests,
)
from tests.brokers.secured_broker import (
    ODD_PASSWORD,
    ODD_USER,
    PASSWORD,
    REAUTH_MS,
    USER,
    SecuredCluster,
    SecuredOldCluster,
    unsecured_token,
)
from tests.brokers.surveys import slice_of
from tests.certificates import Authority, Issued

pytestmark = pytest.mark.brokers

COUNT = 20
QUICK_S = 30


@dataclass(frozen=True)
class Guarded:
    """The broker, and what clients of it may have."""

    cluster: SecuredCluster
    client: Issued
    locked: Issued
    stranger: Issued
    unknown_ca: Path
    token_file: Path

    @property
    def ca(self) -> str:
        return str(self.cluster.authority.ca)

    def tls(self, **given: Any) -> TlsSettings:
        return TlsSettings(**{"ca": self.ca, **given})


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    folder = tmp_path_factory.mktemp("secured")
    other = tmp_path_factory.mktemp("other")
    authority, stranger = Authority(folder), Authority(other, "stranger")
    token_file = other / "token"
    token_file.write_text(unsecured_token() + "\n")
    with SecuredCluster(folder, authority) as cluster:
        create_topic(cluster.bootstrap, "t")
        produce(cluster.bootstrap, "t", numbered_records(COUNT))
        cluster.add_users()
        yield Guarded(
            cluster,
            authority.issue("client"),
            authority.issue("locked", password=PASSWORD),
            stranger.issue("nobody"),
            stranger.ca,
            token_file,
        )


def who(mechanism: str, username: str = USER, password: str = PASSWORD) -> SaslSettings:
    return SaslSettings(mechanism, username, password)


# --- ways in --------------------------------------------------------------------------------

WAYS = {
    "TLS": lambda g: g.cluster.settings("TLS", tls=g.tls()),
    "TLS by name": lambda g: replace(
        g.cluster.settings("TLS", tls=g.tls()),
        seeds=(Address("localhost", g.cluster.listeners["TLS"]),),
    ),
    "mutual TLS": lambda g: g.cluster.settings(
        "MUTUAL", tls=g.tls(certificate=str(g.client.certificate), key=str(g.client.key))
    ),
    "mutual TLS, key in the same file": lambda g: g.cluster.settings(
        "MUTUAL", tls=g.tls(certificate=str(g.client.both))
    ),
    "mutual TLS 1.2, locked key": lambda g: g.cluster.settings(
        "MUTUAL12",
        tls=g.tls(
            certificate=str(g.locked.certificate), key=str(g.locked.key), key_password=PASSWORD
        ),
    ),
    "another host's certificate, as asked": lambda g: g.cluster.settings(
        "MISNAMED", tls=g.tls(verify_hostname=False)
    ),
    "PLAIN over TLS": lambda g: g.cluster.settings("SASLTLS", tls=g.tls(), sasl=who("PLAIN")),
    "SCRAM-SHA-256": lambda g: g.cluster.settings("SASL", sasl=who("SCRAM-SHA-256")),
    "SCRAM with an odd name and password": lambda g: g.cluster.settings(
        "SCRAM", sasl=who("SCRAM-SHA-512", ODD_USER, ODD_PASSWORD)
    ),
    "SCRAM-SHA-512 over TLS": lambda g: g.cluster.settings(
        "SASLTLS", tls=g.tls(), sasl=who("SCRAM-SHA-512")
    ),
    "OAUTHBEARER": lambda g: g.cluster.settings(
        "SASL",
        sasl=SaslSettings(
            "OAUTHBEARER",
            token=TokenSource(file=str(g.token_file)),
            extensions=(("traceId", "a 1"),),
        ),
    ),
}


@pytest.mark.parametrize("way", WAYS)
def test_who_has_what_it_takes_reads(guarded: Guarded, way: str) -> None:
    assert read_topic("t", WAYS[way](guarded)).counts == Counts(landed=COUNT)


# --- mistakes -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Mistake:
    """``says`` and ``do`` are parts of the error's sentence and of its remedy."""

    listener: str
    says: str
    do: str
    tls: dict[str, Any] | None = None
    sasl: SaslSettings | None = None
    host: str = "127.0.0.1"


FAILING = TokenSource(command=("sh", "-c", "echo out; echo no such audience >&2; exit 3"))
MISTAKES = {
    "a wrong password, PLAIN": Mistake(
        "SASL", f"refused user {USER}", "password", sasl=who("PLAIN", password="wrong")
    ),
    "a wrong password, SCRAM": Mistake(
        "SASLTLS", f"refused user {USER}", "password", {}, who("SCRAM-SHA-512", password="wrong")
    ),
    "a user who is not there": Mistake(
        "SASL", "refused user ghost", "SCRAM-SHA-256", sasl=who("SCRAM-SHA-256", "ghost")
    ),
    "a mechanism that is not offered": Mistake(
        "SCRAM",
        "it offers SCRAM-SHA-256, SCRAM-SHA-512",
        "source.security.sasl.mechanism",
        sasl=who("PLAIN"),
    ),
    "an expired token": Mistake(
        "SASL",
        "refused the token: status invalid_token",
        "source.security.sasl.token",
        sasl=SaslSettings(
            "OAUTHBEARER", token=TokenSource(command=("echo", unsecured_token(lifetime_s=-9)))
        ),
    ),
    "a command that gives no token": Mistake(
        "SASL",
        "no such audience",
        "source.security.sasl.token.command",
        sasl=SaslSettings("OAUTHBEARER", token=FAILING),
    ),
    "an unknown authority": Mistake(
        "TLS", "authority that is not trusted", "source.security.tls.ca", {"ca": None}
    ),
    "another authority": Mistake(
        "TLS", "authority that is not trusted", "correct source.security.tls.ca", {"ca": "other"}
    ),
    "another host's name": Mistake(
        "MISNAMED", "is for another host: IP address mismatch", "advertised.listeners", {}
    ),
    "another name for the host": Mistake(
        "MISNAMED", "not valid for 'localhost'", "source.servers", {}, host="localhost"
    ),
    "an expired certificate": Mistake("EXPIRED", "has expired", "renew it", {}),
    "no client certificate": Mistake(
        "MUTUAL", "wants a client certificate", "source.security.tls.certificate", {}
    ),
    "no client certificate, TLS 1.2": Mistake(
        "MUTUAL12", "wants a client certificate", "source.security.tls.certificate", {}
    ),
    "a client certificate of a stranger": Mistake(
        "MUTUAL",
        "refuses this client's certificate",
        "source.security.tls.certificate",
        {"certificate": "stranger"},
    ),
    "plain to a TLS port": Mistake("TLS", "speaks TLS", "source.security.tls"),
    "plain SASL to a TLS port": Mistake("SASLTLS", "speaks TLS", "tls", sasl=who("PLAIN")),
    "TLS to a plain port": Mistake("PLAINTEXT", "does not speak TLS", "source.security.tls", {}),
    "TLS to a plain SASL port": Mistake("SASL", "does not speak TLS", "tls", {}, who("PLAIN")),
    "no login to a SASL port": Mistake("SASL", "at the first request", "source.security.sasl"),
    "no login to a SASL port with TLS": Mistake(
        "SASLTLS", "at the first request", "source.security.sasl", {}
    ),
    "a login to a plain port": Mistake(
        "PLAINTEXT", "does not accept SASL", "source.security.sasl", sasl=who("SCRAM-SHA-256")
    ),
    "no right to the topic": Mistake(
        "SASL", "may not read the topic t", "right", sasl=who("PLAIN", "nobody")
    ),
}

DENIED = {
    *("a wrong password, PLAIN", "a wrong password, SCRAM", "a user who is not there"),
    *("an expired token", "an expired certificate", "a client certificate of a stranger"),
    "no right to the topic",
}
"""The other mistakes can be corrected in the job file alone."""


def settings_for(guarded: Guarded, mistake: Mistake) -> ClusterSettings:
    """With the deadlines of a job file, so that a mistake that is waited for shows."""
    tls = None
    if mistake.tls is not None:
        given = {
            "other": {"ca": str(guarded.unknown_ca)},
            "stranger": {"certificate": str(guarded.stranger.both)},
        }
        fields = {"ca": guarded.ca, **mistake.tls}
        for value in mistake.tls.values():
            fields |= given.get(value, {})
        tls = TlsSettings(**fields)
    port = guarded.cluster.listeners.get(mistake.listener) or guarded.cluster.ports[1]
    return ClusterSettings("kafka", (Address(mistake.host, port),), tls=tls, sasl=mistake.sasl)


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_reported_at_once_with_its_remedy(guarded: Guarded, name: str) -> None:
    mistake = MISTAKES[name]
    start = time.monotonic()
    with pytest.raises(RangelandError) as caught:
        look(settings_for(guarded, mistake), topics=("t",))
    error = caught.value
    assert type(error) is (AccessDenied if name in DENIED else JobFileError), repr(error)
    assert error.exit_code == 78
    assert mistake.says in str(error)
    assert mistake.do in error.do
    assert PASSWORD not in str(error)
    assert time.monotonic() - start < QUICK_S


def test_a_login_that_was_refused_once_is_tried_again_with_another_token(
    guarded: Guarded, tmp_path: Path
) -> None:
    path = tmp_path / "token"
    sasl = SaslSettings("OAUTHBEARER", token=TokenSource(file=str(path)))
    settings = guarded.cluster.settings("SASL", sasl=sasl)
    path.write_text(unsecured_token(lifetime_s=-9))
    with pytest.raises(AccessDenied, match="refused the token"):
        look(settings, topics=("t",))
    path.write_text(unsecured_token())
    assert look(settings, topics=("t",)).logs


def test_who_may_describe_a_topic_and_not_read_it_is_told_so(guarded: Guarded) -> None:
    guarded.cluster.allow("nobody", "t", "DESCRIBE")
    settings = guarded.cluster.settings("SASL", sasl=who("PLAIN", "nobody"))
    try:
        found = slices_of(look(settings, topics=("t",)))
        with pytest.raises(AccessDenied, match="TOPIC_AUTHORIZATION_FAILED"):
            read(found, settings)
    finally:
        guarded.cluster.forbid("nobody", "t")


def test_who_may_not_see_a_group_is_told_so(guarded: Guarded) -> None:
    guarded.cluster.allow("nobody", "t", "READ")
    settings = guarded.cluster.settings("SASL", sasl=who("PLAIN", "nobody"))
    try:
        with pytest.raises(AccessDenied, match="group g"):
            look(settings, topics=("t",), groups=("g",))
    finally:
        guarded.cluster.forbid("nobody", "t")


# --- who we are, said again -------------------------------------------------------------------

TOKENS_TAKEN: list[str] = []


def next_token() -> str:
    TOKENS_TAKEN.append(unsecured_token())
    return TOKENS_TAKEN[-1]


AGAIN = {
    "SCRAM-SHA-256": who("SCRAM-SHA-256"),
    "OAUTHBEARER": SaslSettings(
        "OAUTHBEARER", token=TokenSource(function=f"{__name__}:next_token")
    ),
}


@pytest.mark.parametrize("mechanism", AGAIN)
@pytest.mark.slow
def test_a_read_outlasts_the_session_on_one_connection(
    guarded: Guarded, mechanism: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Records of a transaction that is committed when the session would have ended twice are
    waited for."""
    cluster = guarded.cluster
    topic = f"again-{mechanism.lower()}"
    create_topic(cluster.bootstrap, topic)
    written = threading.Event()

    def commit_late() -> None:
        with open_transaction(cluster.bootstrap, topic, numbered_records(COUNT), commit=True):
            written.set()
            time.sleep(2.2 * REAUTH_MS / 1000)

    later = threading.Thread(target=commit_late)
    later.start()
    assert written.wait(PATIENCE_S)
    settings = cluster.settings("AGAIN", sasl=AGAIN[mechanism])
    log = only_log(look(settings, topics=(topic,)))
    TOKENS_TAKEN.clear()
    monkeypatch.setattr(tokens, "_kept", {})
    connected: list[Address] = []
    connect = BrokerConnection._connect

    def spy(self: BrokerConnection) -> Any:
        connected.append(self.address)
        return connect(self)

    monkeypatch.setattr(BrokerConnection, "_connect", spy)
    with spied_requests(monkeypatch) as sent:
        found = read([slice_of(log, 0, COUNT)], settings)
    later.join()
    assert found.counts == Counts(landed=COUNT)
    assert len(connected) == 1
    logins = [r for r in sent if isinstance(r, m.SaslHandshakeRequest)]
    assert len(logins) >= 3
    if mechanism == "OAUTHBEARER":
        assert len(TOKENS_TAKEN) == len(logins)


# --- large responses --------------------------------------------------------------------------


def test_a_batch_is_read_that_is_larger_than_what_is_asked_for_at_a_time(
    guarded: Guarded,
) -> None:
    bootstrap, size = guarded.cluster.bootstrap, 40 << 20
    assert size > FetchLimits().request_bytes
    create_topic(bootstrap, "large", config={"max.message.bytes": size + (1 << 20)})
    produce(bootstrap, "large", [Record(bytes(size))], batch_bytes=size + (1 << 20))
    settings = settings_of(bootstrap)
    found = read_topic("large", settings)
    assert found.counts == Counts(landed=1)
    assert len(found.rows[0].value or b"") == size
    with pytest.raises(JobFileError, match=r"source\.max_answer_bytes"):
        read_topic("large", replace(settings, max_answer_bytes=32 << 20))


# --- brokers before 1.0 -----------------------------------------------------------------------


@pytest.fixture(scope="module")
def old() -> Iterator[SecuredOldCluster]:
    with SecuredOldCluster() as cluster:
        create_topic(cluster.bootstrap, "t")
        produce(cluster.bootstrap, "t", numbered_records(COUNT))
        cluster.add_users()
        yield cluster


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_broker_that_takes_bare_tokens_is_read(old: SecuredOldCluster, mechanism: str) -> None:
    settings = settings_of([old.secured], sasl=who(mechanism))
    assert read_topic("t", settings).counts == Counts(landed=COUNT)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_a_broker_that_takes_bare_tokens_closes_on_a_wrong_password(
    old: SecuredOldCluster, mechanism: str
) -> None:
    settings = settings_of([old.secured], sasl=who(mechanism, password="wrong"))
    with pytest.raises(AccessDenied, match=f"closed the connection while user {USER} logged in"):
        look(settings, topics=("t",))
