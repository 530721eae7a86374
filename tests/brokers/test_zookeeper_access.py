"""A real ZooKeeper over TLS and with logins, and each mistake that a job can make about them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from kazoo.client import KazooClient
from kazoo.security import make_acl, make_digest_acl

from rangeland.cluster_access.cluster_lookup import look_up_broker_registry
from rangeland.cluster_settings import TlsSettings
from rangeland.errors import AccessDenied, JobFileError, RangelandError, Unreachable
from rangeland.groups.backend import JoinRequest
from rangeland.groups.zookeeper.group_backend import ZooKeeperGroups
from rangeland.job import Job
from rangeland.model import Partition
from rangeland.zookeeper.zookeeper_access import ZooKeeperAccess, ZooKeeperLogin
from rangeland.zookeeper.zookeeper_client import connect
from tests.certificates import Authority
from tests.servers.secured_zookeeper import PASSWORD, USER, SecuredZooKeeper

pytestmark = pytest.mark.brokers

CONNECT_MS = 3_000
PATIENT_MS = 30_000
"""Longer than a busy machine takes for a handshake."""
DIGEST = ZooKeeperLogin(USER, PASSWORD)
SASL = ZooKeeperLogin(USER, PASSWORD, uses_sasl=True)
WRONG = PASSWORD + "x"
ORDERS = (Partition("orders", 0, "1"), Partition("orders", 1, "1"))


def settings(
    tls: TlsSettings | None = None, login: ZooKeeperLogin | None = None
) -> ZooKeeperAccess:
    """The settings for a server that ``Secured.open`` names."""
    return ZooKeeperAccess("", tls, login)


@dataclass(frozen=True)
class Secured:
    server: SecuredZooKeeper
    authority: Authority
    other: Authority

    @property
    def trusting(self) -> TlsSettings:
        return TlsSettings(ca=str(self.authority.ca))

    def open(
        self,
        access: ZooKeeperAccess,
        address: str | None = None,
        connect_ms: int = CONNECT_MS,
    ) -> None:
        at = address or self.server.tls_address
        connect(replace(access, servers=at, connect_ms=connect_ms)).close()


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    folder = tmp_path_factory.mktemp("zookeeper")
    authority, other = Authority(folder), Authority(folder, "other")
    with SecuredZooKeeper(authority, authority.issue("server")) as server:
        yield Secured(server, authority, other)


@pytest.fixture
def needs_sasl() -> None:
    pytest.importorskip("puresasl")


def fails(
    secured: Secured,
    access: ZooKeeperAccess,
    address: str | None = None,
    connect_ms: int = CONNECT_MS,
    kind: type[RangelandError] = JobFileError,
) -> RangelandError:
    with pytest.raises(kind) as caught:
        secured.open(access, address, connect_ms)
    assert caught.value.exit_code == 78
    for form in (str(caught.value), repr(caught.value), str(caught.value.facts)):
        assert PASSWORD not in form
    return caught.value


# --- TLS ----------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_session_over_tls_outlives_the_server(secured: Secured) -> None:
    at = secured.server.tls_address
    client = connect(ZooKeeperAccess(at, secured.trusting, DIGEST, 60_000), 60_000)
    session = client.session
    # More than a record of TLS holds, in one request and one response.
    names = [f"/many-{number:05}-{'x' * 200}" for number in range(500)]
    client.make(names)
    assert len(client.children("/") or ()) >= len(names)
    secured.server.restart()
    assert client.read("/") is not None
    assert client.session == session
    client.close()
    for name in names:
        secured.server.remove(name)


@pytest.mark.slow
def test_a_client_certificate_is_presented(tmp_path: Path) -> None:
    authority, other = Authority(tmp_path), Authority(tmp_path, "other")
    mine, strange = authority.issue("mine"), other.issue("strange")
    with SecuredZooKeeper(authority, authority.issue("server"), client_auth="need") as server:
        secured = Secured(server, authority, other)
        ca = str(authority.ca)
        secured.open(settings(TlsSettings(ca, str(mine.certificate), str(mine.key))))
        without = fails(secured, settings(secured.trusting))
        assert "wants a client certificate" in str(without)
        assert "source.security.zookeeper.tls.certificate" in without.do
        stranger = settings(TlsSettings(ca, str(strange.both)))
        refused = fails(secured, stranger, kind=AccessDenied)
        assert "refuses this client's certificate" in str(refused)


def test_a_server_of_an_unknown_authority_is_refused(secured: Secured) -> None:
    other = fails(secured, settings(TlsSettings(ca=str(secured.other.ca))))
    assert "from an authority that is not trusted" in str(other)
    assert "source.security.zookeeper.tls.ca" in other.do
    system = fails(secured, settings(TlsSettings()))
    assert "from an authority that is not trusted" in str(system)


@pytest.mark.slow
def test_a_server_of_another_name_is_refused(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    named = authority.issue("server", ["zk.example"])
    with SecuredZooKeeper(authority, named) as server:
        secured = Secured(server, authority, authority)
        error = fails(secured, settings(secured.trusting))
        assert "is for another host" in str(error)
        assert "source.zookeeper" in error.do
        any_name = TlsSettings(ca=str(authority.ca), verify_hostname=False)
        secured.open(settings(any_name))


def test_the_wrong_port_is_named(secured: Secured) -> None:
    plain = fails(secured, settings(secured.trusting), secured.server.address)
    assert "does not speak TLS" in str(plain)
    assert "source.security.zookeeper.tls" in plain.do
    tls = fails(secured, settings())
    assert "speaks TLS, but the job does not" in str(tls)
    assert "set source.security.zookeeper.tls" in tls.do


def test_a_server_that_is_down_is_no_mistake(secured: Secured) -> None:
    """Beside one with the wrong port, too: it may be the one to use."""
    down = "127.0.0.1:1"
    with pytest.raises(Unreachable):
        secured.open(settings(secured.trusting), down)
    with pytest.raises(Unreachable):
        secured.open(settings(secured.trusting), f"{down},{secured.server.address}")


# --- logins -------------------------------------------------------------------------------


def groups(secured: Secured, chroot: str, login: ZooKeeperLogin | None) -> ZooKeeperGroups:
    at = secured.server.tls_address + chroot
    return ZooKeeperGroups(ZooKeeperAccess(at, secured.trusting, login, CONNECT_MS), "hourly")


@pytest.mark.parametrize("login", [DIGEST, SASL], ids=["digest", "sasl"])
def test_a_group_is_kept_where_access_lists_allow_it(
    secured: Secured, login: ZooKeeperLogin, topic: str, request: pytest.FixtureRequest
) -> None:
    if login.uses_sasl:
        request.getfixturevalue("needs_sasl")
        allowed = make_acl("sasl", USER, all=True)
    else:
        allowed = make_digest_acl(USER, PASSWORD, all=True)
    with secured.server.visit() as visitor:
        visitor.create(f"/{topic}", acl=[allowed])
        # Nobody else may look, either.
        if not login.uses_sasl:
            visitor.add_auth("digest", f"{USER}:{PASSWORD}")
            visitor.create(f"/{topic}/consumers", acl=[allowed])
    backend = groups(secured, f"/{topic}", login)
    membership = backend.join(JoinRequest("g", "hourly", ORDERS))
    membership.commit(dict.fromkeys(ORDERS, 7))
    assert backend.offsets("g", ORDERS) == dict.fromkeys(ORDERS, 7)
    assert backend.view("g").owners.keys() == set(ORDERS)
    membership.leave()
    backend.close()

    stranger = groups(secured, f"/{topic}", None)
    with pytest.raises(AccessDenied, match="may not") as caught:
        stranger.commit("other", dict.fromkeys(ORDERS, 9))
    assert "source.security.zookeeper.login" in caught.value.do
    stranger.close()


def test_offsets_written_without_a_membership_leave_the_access_list_of_a_group(
    secured: Secured, topic: str
) -> None:
    ids = f"/{topic}/consumers/g/ids"
    lander, operator = (
        make_digest_acl(USER, PASSWORD, all=True),
        make_digest_acl("operator", "another", read=True),
    )
    with secured.server.visit() as visitor:
        visitor.add_auth("digest", f"{USER}:{PASSWORD}")
        visitor.ensure_path(ids)
        visitor.set_acls(ids, [operator, lander])
        backend = groups(secured, f"/{topic}", DIGEST)
        backend.commit("g", dict.fromkeys(ORDERS, 7))
        assert visitor.get_acls(ids)[0] == [operator, lander]
        assert backend.offsets("g", ORDERS) == dict.fromkeys(ORDERS, 7)
        backend.close()


def test_an_access_list_that_is_not_shown_whole_is_not_replaced(
    secured: Secured, topic: str
) -> None:
    ids = f"/{topic}/consumers/g/ids"
    operator = make_digest_acl("operator", "another", all=True)
    everyone = make_acl("world", "anyone", read=True, write=True, create=True, delete=True)
    with secured.server.visit() as visitor:
        visitor.add_auth("digest", "operator:another")
        visitor.ensure_path(ids)
        visitor.set_acls(ids, [operator, everyone])
        backend = groups(secured, f"/{topic}", DIGEST)
        with pytest.raises(AccessDenied, match=f"{USER} may not read the whole access list of"):
            backend.commit("g", dict.fromkeys(ORDERS, 7))
        assert visitor.get_acls(ids)[0] == [operator, everyone]
        # A member's commits leave the node as it is.
        membership = backend.join(JoinRequest("g", "hourly", ORDERS))
        membership.commit(dict.fromkeys(ORDERS, 7))
        backend.close()
        assert visitor.get_acls(ids)[0] == [operator, everyone]


def test_a_wrong_password_of_digest_has_no_rights(secured: Secured, topic: str) -> None:
    with secured.server.visit() as visitor:
        visitor.create(f"/{topic}", acl=[make_digest_acl(USER, PASSWORD, all=True)])
    backend = groups(secured, f"/{topic}", ZooKeeperLogin(USER, WRONG))
    with pytest.raises(AccessDenied, match=f"{USER} may not") as caught:
        backend.commit("g", dict.fromkeys(ORDERS, 9))
    assert "whether the password is right" in caught.value.why
    assert caught.value.acts == "the author of the job file, or ZooKeeper's operator"
    assert WRONG not in str(caught.value)
    backend.close()


@pytest.mark.parametrize(
    "login", [ZooKeeperLogin(USER, WRONG, True), ZooKeeperLogin("nobody", PASSWORD, True)]
)
@pytest.mark.usefixtures("needs_sasl")
def test_a_login_that_is_refused_is_named_at_once(secured: Secured, login: ZooKeeperLogin) -> None:
    start = time.monotonic()
    access = settings(secured.trusting, login)
    error = fails(secured, access, connect_ms=PATIENT_MS, kind=AccessDenied)
    assert f"rejects the login of {login.username}" in str(error)
    assert "source.security.zookeeper.login" in error.do
    assert time.monotonic() - start < PATIENT_MS / 1000
    assert WRONG not in str(error)


@pytest.mark.usefixtures("needs_sasl")
def test_a_login_that_is_refused_before_anything_is_asked_is_named(
    secured: Secured, monkeypatch: pytest.MonkeyPatch
) -> None:
    start_async = KazooClient.start_async

    def ended(client: Any) -> Any:
        event = start_async(client)
        client._connection._connection_routine.join(PATIENT_MS / 1000)
        return event

    monkeypatch.setattr(KazooClient, "start_async", ended)
    wrong = settings(secured.trusting, ZooKeeperLogin(USER, WRONG, uses_sasl=True))
    assert "rejects the login" in str(fails(secured, wrong, kind=AccessDenied))


@pytest.mark.slow
@pytest.mark.usefixtures("needs_sasl")
def test_a_server_that_requires_a_login_says_so(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    with SecuredZooKeeper(authority, authority.issue("server"), accepts_all=False) as server:
        secured = Secured(server, authority, authority)
        secured.open(settings(secured.trusting, SASL))
        nobody = fails(secured, settings(secured.trusting))
        assert "requires a login, but the job has none" in str(nobody)
        wrong = settings(secured.trusting, ZooKeeperLogin(USER, WRONG, uses_sasl=True))
        assert "rejects the login" in str(fails(secured, wrong, kind=AccessDenied))


@pytest.mark.slow
@pytest.mark.usefixtures("needs_sasl")
def test_a_server_without_sasl_is_not_asked_forever(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    with SecuredZooKeeper(authority, authority.issue("server"), has_users=False) as server:
        secured = Secured(server, authority, authority)
        with pytest.raises(Unreachable, match="did not finish") as caught:
            secured.open(settings(secured.trusting, SASL))
        assert "remove source.security.zookeeper.login.scheme" in caught.value.do


# --- from a job file ----------------------------------------------------------------------


def test_a_job_reads_the_registry_over_tls(
    secured: Secured, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    registered = [make_digest_acl(USER, PASSWORD, all=True)]
    with secured.server.visit() as visitor:
        visitor.add_auth("digest", f"{USER}:{PASSWORD}")
        visitor.create(f"/{topic}", acl=registered)
        for path in ("brokers", "brokers/ids", "brokers/topics"):
            visitor.create(f"/{topic}/{path}", acl=registered)
        visitor.create(f"/{topic}/brokers/ids/1", b"x:127.0.0.1:9092:true", acl=registered)
    monkeypatch.setenv("ZK_PASSWORD", PASSWORD)
    text = {
        "job": "a",
        "source": {
            "dialect": "jafka",
            "zookeeper": f"{secured.server.tls_address}/{topic}",
            "topics": ["orders"],
            "security": {
                "zookeeper": {
                    "tls": {"ca": str(secured.authority.ca)},
                    "login": {"username": USER, "password": "${env:ZK_PASSWORD}"},
                }
            },
        },
        "sink": {"table": "lake/a"},
    }
    assert list(look_up_broker_registry(Job.parse(yaml.safe_dump(text))).brokers) == ["1"]
    monkeypatch.setenv("ZK_PASSWORD", WRONG)
    with pytest.raises(AccessDenied, match="may not") as caught:
        look_up_broker_registry(Job.parse(yaml.safe_dump(text)))
    assert WRONG not in str(caught.value)
