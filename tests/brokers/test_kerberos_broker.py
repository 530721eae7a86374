"""A real Kafka broker that lets in nobody without a ticket of a real key distribution center."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from rangeland.cluster_settings import KerberosSettings, SaslSettings
from rangeland.errors import AccessDenied, JobFileError
from rangeland.testing.producer import create_topic, numbered_records, produce
from tests.brokers.reading import look, read, settings_of, slices_of
from tests.servers.kerberos import KerberosCluster, KeyCenter, gssapi_library

pytestmark = [pytest.mark.brokers, pytest.mark.slow]

SERVICE, USER, COUNT = "log", "lander", 50


@pytest.fixture(scope="module")
def center(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KeyCenter]:
    with KeyCenter(tmp_path_factory.mktemp("kerberos") / "center") as running:
        yield running


@pytest.fixture(scope="module")
def cluster(center: KeyCenter) -> Iterator[KerberosCluster]:
    with KerberosCluster(center, SERVICE) as started:
        create_topic(started.bootstrap, "orders")
        produce(started.bootstrap, "orders", numbered_records(COUNT), partition=0)
        yield started


@pytest.fixture(autouse=True)
def library(center: KeyCenter, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(gssapi_library()))
    monkeypatch.setenv("KRB5_CONFIG", center.environment["KRB5_CONFIG"])
    monkeypatch.delenv("KRB5CCNAME", raising=False)


def login(keytab: Path, service: str = SERVICE, principal: str = USER) -> SaslSettings:
    return SaslSettings("GSSAPI", kerberos=KerberosSettings(service, principal, str(keytab)))


def test_a_topic_is_found_and_read_with_the_tickets_of_a_keytab(
    center: KeyCenter, cluster: KerberosCluster
) -> None:
    settings = settings_of([cluster.guarded], sasl=login(center.keytab(USER)))
    seen = look(settings, topics=("orders",))
    assert {str(log.leader.address) for log in seen.logs.values()} == {cluster.guarded}
    assert read(slices_of(seen), settings).counts.landed == COUNT


def test_a_broker_of_another_service_name_is_not_logged_in_to(
    center: KeyCenter, cluster: KerberosCluster
) -> None:
    """The center has a principal of that name, but the broker has not its key."""
    center.keytab("other/127.0.0.1")
    settings = settings_of([cluster.guarded], sasl=login(center.keytab(USER), service="other"))
    with pytest.raises(AccessDenied) as caught:
        look(settings, topics=("orders",))
    assert caught.value.exit_code == 78


def test_a_job_without_a_login_learns_that_it_needs_one(cluster: KerberosCluster) -> None:
    with pytest.raises(JobFileError, match="requires a login") as caught:
        look(settings_of([cluster.guarded]), topics=("orders",))
    assert "GSSAPI" in caught.value.why
